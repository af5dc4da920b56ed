"""Reading the parts of a top-level queue, past what must not be chosen.

What has vested and is not `eligible`, such as what this consumer's managers are busy with, is passed over, so it never
stops up the window. Snapshot reads of index keys; conflicts with nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from random import Random
from typing import Any

from actors.settings import ConsumerSettings
from zones.keyspace import PartKeys
from zones.pointers import PointerRef, scan
from zones.probes import probe
from zones.steps import Steps, in_step

IN_ORDER_MAX = 512  # Pointers of one scan in order: some 100 ms of work, after which older ones may have vested.
PART_READ_MIN = 8

Eligible = Callable[[PointerRef], bool]
Scan = Callable[[int, bytes], Steps[tuple[list[PointerRef], bytes | None]]]  # How many, and from where on.


def oldest(
    tr: Any, parts: Sequence[PartKeys], eligible: Eligible, *, settings: ConsumerSettings, now_us: int
) -> list[PointerRef]:
    """Return the first eligible pointers of some parts by vesting time: a scan in order.

    Each part is read a little further than its even share. Where one was cut off, the merge ends there too: what comes
    after is not known to be next.
    """
    ids_max = min(IN_ORDER_MAX, settings.selection_max)
    per_part = max(PART_READ_MIN, 2 * ids_max // max(1, len(parts)))
    peeked = peek(tr, parts, eligible, per_part, now_us)
    ends = [order(refs[-1]) for refs, whole in peeked if not whole and refs]
    last = min(ends, default=None)
    found = sorted((ref for refs, _ in peeked for ref in refs), key=order)
    return [ref for ref in found if last is None or order(ref) <= last][:ids_max]


def order(ref: PointerRef) -> tuple[int, int, bytes]:
    """Return what pointers are in line by. Those of one instant, as a bulk enqueue leaves them, by name.

    Zones whose names follow each other lie beside each other, so what takes them together writes fewer pages.
    """
    return ref.priority, ref.vesting_us, ref.id


def some(refs: Sequence[PointerRef], settings: ConsumerSettings, random: Random) -> list[PointerRef]:
    """Choose a fraction of what was peeked by chance (Algorithm 1, line 8)."""
    return random.sample(refs, min(settings.selection_max, ceil(len(refs) * settings.selection_frac)))


def peek(
    tr: Any, parts: Iterable[PartKeys], eligible: Eligible, per_part: int, now_us: int
) -> list[tuple[list[PointerRef], bool]]:
    """Read of each part up to `per_part` eligible pointers, the oldest first; say whether these were all."""

    def forward(part: PartKeys) -> Scan:
        return lambda ids_max, begin: scan(tr, part, now_us=now_us, ids_max=ids_max, begin=begin)

    return in_step([read_on(forward(part), eligible, per_part) for part in parts])


def read_on(scan: Scan, eligible: Eligible, ids_max: int) -> Steps[tuple[list[PointerRef], bool]]:
    """Read until there are `ids_max` eligible pointers or the end; say whether it was the end.

    A pointer that has a second, dangling entry comes once: a batch of visits may hold at most one of each.
    """
    found: dict[bytes, PointerRef] = {}
    begin: bytes | None = b""
    while begin is not None and len(found) < ids_max:
        refs, begin = yield from scan(ids_max - len(found), begin)
        for ref in filter(eligible, refs):
            found.setdefault(ref.id, ref)
        if begin is not None and len(found) < ids_max:
            probe("a scan reads on behind pointers that it passes over")
    return list(found.values()), begin is None


def batches(refs: Sequence[PointerRef], size: int) -> list[Sequence[PointerRef]]:
    """Cut a selection into what one call to a manager carries."""
    return [refs[begin : begin + size] for begin in range(0, len(refs), size)]
