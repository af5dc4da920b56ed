"""How long vested pointers waited until a manager leased them, counted by bucket (QuiCK section 8, "Fairness").

Counts add up across actors and over time, so a histogram is kept as counts, each under the name of its bucket.
"""

from collections.abc import Mapping

BITS = 6  # Leading bits of a number of microseconds that are kept: a bucket is at most 3 % wide.
_PREFIX = "picked_up_within_us_"


def bucket_bound_us(waited_us: int) -> int:
    """Return the longest wait in the bucket of this one; a wait below zero, by clocks apart, counts as none."""
    dropped = max(0, waited_us.bit_length() - BITS) if waited_us > 0 else 0
    return max(0, waited_us) | ((1 << dropped) - 1)


def bucket_counts(waits: Mapping[int, int]) -> dict[str, int]:
    """Return how many pointers each bucket holds, under names such as `picked_up_within_us_10239`."""
    return {f"{_PREFIX}{bound_us}": count for bound_us, count in waits.items()}


def buckets_in(counts: Mapping[str, int]) -> dict[int, int]:
    """Return how many pointers each bucket in an actor's counts holds, by the longest wait in it."""
    return {int(name.removeprefix(_PREFIX)): count for name, count in counts.items() if name.startswith(_PREFIX)}


def without_buckets(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the other counts of an actor, for a summary: a histogram is for programs."""
    return {name: count for name, count in counts.items() if not name.startswith(_PREFIX)}
