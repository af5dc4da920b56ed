"""Which of the vested pointers a scanner hands over (QuiCK section 6, Algorithm 1, lines 6 to 8)."""

import heapq
from collections.abc import Container, Sequence
from itertools import islice
from math import ceil
from random import Random
from typing import Any

from actors.settings import ConsumerSettings
from zones.layout import Layout
from zones.pointers import PointerRef, scan
from zones.steps import Steps, in_step

IN_ORDER_MAX = 512  # Pointers of one scan in order: some 100 ms of work, after which older ones may have vested.


def select(
    tr: Any,
    layout: Layout,
    *,
    in_order: bool,
    held: Container[bytes],
    settings: ConsumerSettings,
    now_us: int,
    random: Random,
) -> list[PointerRef]:
    """Choose among the eligible pointers of a shard: the first ones by vesting time, or some at random.

    Eligible is what has vested and is not in `held`, the ids that this consumer's managers are busy with; they are
    passed over, so they never stop up the window. Snapshot reads of index keys; conflicts with nothing.
    """
    if in_order:
        found = _peek(tr, layout, held, min(IN_ORDER_MAX, settings.selection_max), now_us)
        merged = heapq.merge(*found, key=lambda ref: (ref.priority, ref.vesting_us))
        return list(islice(merged, min(IN_ORDER_MAX, settings.selection_max)))
    per_part = max(1, settings.peek_max // layout.part_count)
    peeked = [ref for refs in _peek(tr, layout, held, per_part, now_us) for ref in refs]
    count = min(settings.selection_max, ceil(len(peeked) * settings.selection_frac))
    return random.sample(peeked, count)


def _peek(tr: Any, layout: Layout, held: Container[bytes], ids_max: int, now_us: int) -> list[list[PointerRef]]:
    return in_step([_peek_part(tr, layout, part, held, ids_max, now_us) for part in range(layout.part_count)])


def _peek_part(
    tr: Any, layout: Layout, part: int, held: Container[bytes], ids_max: int, now_us: int
) -> Steps[list[PointerRef]]:
    """Read until there are `ids_max` eligible ids or the end of what has vested."""
    eligible: list[PointerRef] = []
    begin: bytes | None = b""
    while begin is not None and len(eligible) < ids_max:
        refs, begin = yield from scan(
            tr, layout.parts[part], now_us=now_us, ids_max=ids_max - len(eligible), begin=begin
        )
        eligible += [ref for ref in refs if ref.id not in held]
    return eligible


def batches(refs: Sequence[PointerRef], size: int) -> list[Sequence[PointerRef]]:
    """Cut a selection into what one call to a manager carries."""
    return [refs[begin : begin + size] for begin in range(0, len(refs), size)]
