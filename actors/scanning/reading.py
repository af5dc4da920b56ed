"""Reading the parts of a top-level queue past excluded pointers.

Vested pointers that are not `eligible`, such as those that this consumer's managers hold, are passed over, so that they
never fill the window. Snapshot reads of index keys; conflicts with nothing.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from random import Random

from fairlead.actors.scanning.tenant_turns import by_tenant, interleaved_by_tenant, queue_order, tenant_of
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.pipelining import Operation, run_together
from fairlead.zones.probes import probe
from fairlead.zones.top_level.pointers import PointerRef, scan

IN_ORDER_MAX = 512  # Pointers of one scan in order: some 100 ms of work, after which older ones may have vested.
PART_READ_MIN = 8
# Index entries that are read past one tenant's flood, some ten milliseconds; and how many of its zones are kept.
FLOOD_READ_MAX = 8_192
FLOOD_ZONES = 16

Eligible = Callable[[PointerRef], bool]
ReadEntries = Callable[[int, bytes], Operation[tuple[list[PointerRef], bytes | None]]]  # How many, and from where on.


def oldest(
    tr: Reader, parts: Sequence[PartKeys], eligible: Eligible, *, settings: ConsumerSettings, now_us: int
) -> list[PointerRef]:
    """Return the first eligible pointers of some parts by vesting time, tenant by tenant: a scan in order.

    Each part is read a little further than its even share. If one was cut off, the merge ends there too: what comes
    after need not be next. A tenant with very many queue zones would fill all that is read; then a second read passes
    over most of them, `FLOOD_READ_MAX` entries at most.
    """
    ids_max = min(IN_ORDER_MAX, settings.selection_max)
    per_part = max(PART_READ_MIN, 2 * ids_max // max(1, len(parts)))
    found, whole = _merged(peek(tr, parts, eligible, per_part, now_us))
    first = found[:ids_max]
    if len(by_tenant(first)) == len(first):
        return first
    if not whole and max(map(len, by_tenant(found).values())) > max(FLOOD_ZONES, len(found) // 2):
        seen: Counter[bytes] = Counter()

        def some_of_each(ref: PointerRef) -> bool:
            seen[tenant_of(ref)] += 1
            return seen[tenant_of(ref)] <= FLOOD_ZONES and eligible(ref)

        keys_max = max(per_part, FLOOD_READ_MAX // max(1, len(parts)))
        others, _ = _merged(peek(tr, parts, some_of_each, per_part, now_us, keys_max=keys_max))
        found = list({ref.id: ref for ref in [*found, *others]}.values())
    return interleaved_by_tenant(found)[:ids_max]


def _merged(peeked: Sequence[tuple[list[PointerRef], bool]]) -> tuple[list[PointerRef], bool]:
    """Return the pointers of several parts in order, as far as no part was cut off; and whether none was."""
    ends = [queue_order(refs[-1]) for refs, whole in peeked if not whole and refs]
    last = min(ends, default=None)
    found = sorted([ref for refs, _ in peeked for ref in refs], key=queue_order)
    return found if last is None else found[: bisect_right(found, last, key=queue_order)], not ends


def sample(refs: Sequence[PointerRef], settings: ConsumerSettings, random: Random) -> list[PointerRef]:
    """Select a fraction of the peeked pointers uniformly at random (Algorithm 1, line 8)."""
    return random.sample(refs, min(settings.selection_max, ceil(len(refs) * settings.selection_frac)))


def peek(
    tr: Reader,
    parts: Iterable[PartKeys],
    eligible: Eligible,
    per_part: int,
    now_us: int,
    *,
    keys_max: int | None = None,
) -> list[tuple[list[PointerRef], bool]]:
    """Read up to `per_part` eligible pointers of each part, the oldest first; say whether these were all.

    `keys_max`: how many entries of a part are read for that; None: as many as it takes.
    """

    def forward(part: PartKeys) -> ReadEntries:
        return lambda ids_max, begin: scan(tr, part, now_us=now_us, ids_max=ids_max, begin=begin)

    return run_together([read_eligible(forward(part), eligible, per_part, keys_max) for part in parts])


def read_eligible(
    scan: ReadEntries, eligible: Eligible, ids_max: int, keys_max: int | None = None
) -> Operation[tuple[list[PointerRef], bool]]:
    """Read until there are `ids_max` eligible pointers or the end; say whether it was the end.

    A pointer that has a second, dangling entry comes once: a batch may hold each pointer only once.
    """
    found: dict[bytes, PointerRef] = {}
    begin: bytes | None = b""
    keys = 0
    while begin is not None and len(found) < ids_max and (keys_max is None or keys < keys_max):
        count = ids_max - len(found) if keys_max is None else keys_max - keys
        refs, begin = yield from scan(count, begin)
        keys += count
        for ref in filter(eligible, refs):
            found.setdefault(ref.id, ref)
        if begin is not None and len(found) < ids_max:
            probe("a scan reads on behind pointers that it passes over")
    return list(found.values()), begin is None
