"""How long vested pointers waited until a manager leased them, counted by bucket (QuiCK section 8, "Fairness").

Counts add up across actors and over time, so a histogram is kept as counts, each under the name of its bucket.
"""

from collections.abc import Mapping

BITS = 6  # Of a number of microseconds that are kept: a bucket is 3 % wide at most.
_PREFIX = "picked_up_within_us_"


def bucket_bound_us(waited_us: int) -> int:
    """Return the longest wait that falls into the bucket of this one; one below zero, by clocks apart, is none."""
    dropped = max(0, waited_us.bit_length() - BITS) if waited_us > 0 else 0
    return max(0, waited_us) | ((1 << dropped) - 1)


def bucket_counts(waits: Mapping[int, int]) -> dict[str, int]:
    """Return how many pointers each bucket holds, under names such as `picked_up_within_us_10239`."""
    return {f"{_PREFIX}{bound_us}": count for bound_us, count in waits.items()}


def buckets_in(counts: Mapping[str, int]) -> dict[int, int]:
    """Return, of all that an actor counts, how many pointers each bucket holds, by the longest wait in it."""
    return {int(name.removeprefix(_PREFIX)): count for name, count in counts.items() if name.startswith(_PREFIX)}


def without_buckets(counts: Mapping[str, int]) -> dict[str, int]:
    """Return all else that an actor counts: a histogram is for programs, not for a summary."""
    return {name: count for name, count in counts.items() if not name.startswith(_PREFIX)}
