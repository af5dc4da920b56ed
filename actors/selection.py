"""Which of the vested pointers a scanner hands over (QuiCK section 6, Algorithm 1, lines 6 to 8)."""

from collections.abc import Callable, Sequence
from math import ceil
from random import Random
from typing import Any

from actors.settings import ConsumerSettings
from zones.layout import Layout
from zones.pointers import PointerRef, scan
from zones.probes import probe
from zones.steps import Steps, in_step

IN_ORDER_MAX = 512  # Pointers of one scan in order: some 100 ms of work, after which older ones may have vested.
PART_READ_MIN = 8

Eligible = Callable[[PointerRef], bool]


def select(
    tr: Any,
    layout: Layout,
    *,
    in_order: bool,
    eligible: Eligible,
    settings: ConsumerSettings,
    now_us: int,
    random: Random,
) -> list[PointerRef]:
    """Choose among the eligible pointers of a shard: the first ones by vesting time, or some at random.

    What has vested and is not `eligible`, such as what this consumer's managers are busy with, is passed over, so it
    never stops up the window. Snapshot reads of index keys; conflicts with nothing.
    """
    if in_order:
        return _first(tr, layout, eligible, min(IN_ORDER_MAX, settings.selection_max), now_us)
    per_part = max(1, settings.peek_max // layout.part_count)
    peeked = [ref for refs, _ in _peek(tr, layout, eligible, per_part, now_us) for ref in refs]
    count = min(settings.selection_max, ceil(len(peeked) * settings.selection_frac))
    return random.sample(peeked, count)


def _first(tr: Any, layout: Layout, eligible: Eligible, ids_max: int, now_us: int) -> list[PointerRef]:
    """Return the first eligible pointers of all parts by vesting time, up to `ids_max`.

    Each part is read a little further than its even share. Where one was cut off, the merge ends there too: what comes
    after is not known to be next.
    """
    per_part = max(PART_READ_MIN, 2 * ids_max // layout.part_count)
    peeked = _peek(tr, layout, eligible, per_part, now_us)
    ends = [_order(refs[-1]) for refs, whole in peeked if not whole and refs]
    last = min(ends, default=None)
    found = sorted((ref for refs, _ in peeked for ref in refs), key=_order)
    return [ref for ref in found if last is None or _order(ref) <= last][:ids_max]


def _order(ref: PointerRef) -> tuple[int, int]:
    return ref.priority, ref.vesting_us


def _peek(
    tr: Any, layout: Layout, eligible: Eligible, ids_max: int, now_us: int
) -> list[tuple[list[PointerRef], bool]]:
    return in_step([_peek_part(tr, layout, part, eligible, ids_max, now_us) for part in range(layout.part_count)])


def _peek_part(
    tr: Any, layout: Layout, part: int, eligible: Eligible, ids_max: int, now_us: int
) -> Steps[tuple[list[PointerRef], bool]]:
    """Read until there are `ids_max` eligible ids or the end of what has vested; say whether it was the end.

    A pointer that has a second, dangling entry comes once: a batch of visits may hold at most one of each.
    """
    found: dict[bytes, PointerRef] = {}
    begin: bytes | None = b""
    while begin is not None and len(found) < ids_max:
        refs, begin = yield from scan(tr, layout.parts[part], now_us=now_us, ids_max=ids_max - len(found), begin=begin)
        for ref in filter(eligible, refs):
            found.setdefault(ref.id, ref)
        if begin is not None and len(found) < ids_max:
            probe("a scan reads on behind pointers that it passes over")
    return list(found.values()), begin is None


def batches(refs: Sequence[PointerRef], size: int) -> list[Sequence[PointerRef]]:
    """Cut a selection into what one call to a manager carries."""
    return [refs[begin : begin + size] for begin in range(0, len(refs), size)]
