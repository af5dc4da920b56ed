"""Turns of tenants: in which calls to managers the selected pointers go, and which of them wait.

A turn belongs to a tenant, however many queue zones it has:
    order      by the time of the tenant's oldest pointer, or of its last turn if that was later; the oldest first
    one call   all selected pointers of a tenant go in one call, which divides its capacity among tenants
    waiting    while such a call is under way, the tenant's other pointers wait

So a tenant with a thousand queue zones takes as much as a tenant with a single zone. A tenant without competing tenants
has several calls at once. This state is soft: a consumer that starts anew begins without it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise, zip_longest
from typing import NamedTuple, TypeVar

from fairlead.zones.probes import probe
from fairlead.zones.top_level.pointers import PointerRef

# How many tenants with several pointers have their last turns remembered. A forgotten one comes a turn too early.
REMEMBERED_MAX = 1_000

T = TypeVar("T")


def queue_order(ref: PointerRef) -> tuple[int, int, bytes]:
    """Return the sort key of pointers: by time, and those of one instant, as a bulk enqueue makes them, by name.

    Zones whose names follow each other lie beside each other, so a transaction over them writes fewer pages.
    """
    return ref.priority, ref.vesting_us, ref.id


def tenant_of(ref: PointerRef) -> bytes:
    """Return the prefix of the ids of all pointers of a tenant; a damaged id counts as a tenant of its own.

    An id is three names, each of which ends with a NUL: the app's, the user's, the zone's.
    """
    names = ref.id.rsplit(b"\x00", 2)
    return names[0] if len(names) == 3 else ref.id


def by_tenant(refs: Iterable[PointerRef]) -> dict[bytes, list[PointerRef]]:
    """Return the pointers of each tenant; tenants, and the pointers of each, in the order in which they come."""
    found: dict[bytes, list[PointerRef]] = {}
    for ref in refs:
        found.setdefault(tenant_of(ref), []).append(ref)
    return found


def interleaved_by_tenant(refs: Iterable[PointerRef]) -> list[PointerRef]:
    """Return pointers in the order in which they are served: the first of each tenant, then the second of each, etc.

    So a tenant with a thousand queue zones delays another tenant by one pointer, not by a thousand.
    """
    in_order = sorted(refs, key=queue_order)
    tenants = by_tenant(in_order)
    if len(tenants) == len(in_order):
        return in_order
    rounds = zip_longest(*tenants.values())
    return [ref for each in rounds for ref in sorted(filter(None, each), key=queue_order)]


class LastTurn(NamedTuple):
    """When a tenant was served last, and the first pointer of that turn, as it was then."""

    us: int
    first: PointerRef


class HandoverPlan(NamedTuple):
    """What goes to managers now, and what waits.

    Attributes:
      calls: the pointers of each call.
      single_tenant: whether all belong to one tenant, with which no other competes.
      waiting_parts: the parts in which pointers wait for their tenant's turn.
    """

    calls: list[Sequence[PointerRef]]
    single_tenant: bool
    waiting_parts: frozenset[int]


class TenantTurns:
    """The turns of the tenants of one shard, as the scanner of one consumer sees them. Not locked."""

    def __init__(self) -> None:
        self._under_way: Counter[bytes] = Counter()  # calls under way, by tenant
        self._with_several_pointers: set[bytes] = set()  # tenants with more than one pointer, as of the last scan
        self._last: dict[bytes, LastTurn] = {}  # of tenants with more than one pointer; the latest at the end

    def under_way(self) -> frozenset[bytes]:
        """Return the tenants with calls under way; `plan` takes this as of the beginning of the scan."""
        return frozenset(self._under_way)

    def plan(self, refs: Sequence[PointerRef], size: int, *, under_way: frozenset[bytes], now_us: int) -> HandoverPlan:
        """Return the calls, of up to `size` pointers each, for the pointers that a scan has selected."""
        tenants = by_tenant(refs)
        self._with_several_pointers = {tenant for tenant, some in tenants.items() if len(some) > 1}
        single_tenant = len(under_way.union(tenants)) <= 1
        waiting: dict[bytes, list[PointerRef]] = {}
        if not single_tenant:
            waiting = {tenant: tenants.pop(tenant) for tenant in list(tenants) if tenant in under_way}
        if waiting:
            probe("a pointer waits for its tenant's turn")
        parts = frozenset(ref.part for some in waiting.values() for ref in some)
        return HandoverPlan(_calls(self._in_turn_order(tenants, now_us), size), single_tenant, parts)

    def begin(self, refs: Sequence[PointerRef]) -> None:
        """Note that a call with these pointers is under way."""
        self._under_way.update(set(map(tenant_of, refs)))

    def end(self, refs: Sequence[PointerRef], tenants: int, *, now_us: int) -> None:
        """Note that it has ended. `tenants`: how many of its tenants, in their order, were served."""
        served = by_tenant(refs)
        self._under_way.subtract(served.keys())
        self._under_way = +self._under_way
        for tenant in list(served)[:tenants]:
            if tenant in self._with_several_pointers or tenant in self._last:
                self._last.pop(tenant, None)
                self._last[tenant] = LastTurn(now_us, served[tenant][0])
        while len(self._last) > REMEMBERED_MAX:
            del self._last[next(iter(self._last))]

    def _in_turn_order(self, tenants: Mapping[bytes, list[PointerRef]], now_us: int) -> list[list[PointerRef]]:
        """Return the tenants' pointers in the order of their turns: as they come, but for tenants with a later turn."""
        if self._last.keys().isdisjoint(tenants):
            return list(tenants.values())

        def key(tenant: bytes) -> tuple[int, int, bytes]:
            first, last = tenants[tenant][0], self._last.get(tenant)
            # A pointer that kept its place means that the quantum is not used up. A clock that was set back is ignored.
            if last is None or last.us > now_us or last.first in tenants[tenant]:
                return queue_order(first)
            return first.priority, max(first.vesting_us, last.us), first.id

        return [tenants[tenant] for tenant in sorted(tenants, key=key)]


def _calls(tenants: Sequence[Sequence[PointerRef]], size: int) -> list[Sequence[PointerRef]]:
    """Return the calls for tenants' pointers: no tenant is in two of them, and if possible each has several tenants.

    Pointers that do not fit into their tenant's call are left out: the next scan finds them. A single tenant has
    several calls.
    """
    pointers = list(chain.from_iterable(tenants))
    if len(tenants) in (1, len(pointers)):
        return batches(pointers, size)
    count = max(1, min(-(-len(pointers) // size), len(tenants) // 2))
    ends = [number * len(tenants) // count for number in range(count + 1)]
    return [
        [ref for each in zip_longest(*tenants[begin:end]) for ref in each if ref is not None][:size]
        for begin, end in pairwise(ends)
    ]


def batches(some: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut a sequence into pieces of up to `size`."""
    return [some[begin : begin + size] for begin in range(0, len(some), size)]
