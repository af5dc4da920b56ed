"""Turns of tenants: in which calls to managers the pointers go that a scan has chosen, and which of them wait.

A turn is a tenant's, however many queue zones it has:
    order      the tenant whose oldest pointer, or whose last turn if that was later, is the oldest comes first
    one call   all pointers of a tenant that are chosen go in one call, which divides its room among tenants
    waiting    while such a call is under way, the tenant's other pointers wait, as its only one would

So a tenant with a thousand queue zones takes as much as one with a single zone. A tenant that nobody competes with
takes its turns side by side. What is remembered here is soft: a consumer that starts anew begins without it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise, zip_longest
from typing import NamedTuple, TypeVar

from fairlead.zones.probes import probe
from fairlead.zones.top_level.pointers import PointerRef

# Tenants with several pointers whose last turns are remembered. One that is forgotten comes a turn too early.
REMEMBERED_MAX = 1_000

T = TypeVar("T")


def queue_order(ref: PointerRef) -> tuple[int, int, bytes]:
    """Return what pointers are in line by. Those of one instant, as a bulk enqueue leaves them, by name.

    Zones whose names follow each other lie beside each other, so what takes them together writes fewer pages.
    """
    return ref.priority, ref.vesting_us, ref.id


def tenant_of(ref: PointerRef) -> bytes:
    """Return what the ids of all pointers of a tenant begin with; an id that is damaged is a tenant of its own.

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
    """Return pointers in the order in which they are served: of each tenant the first, then the second of each, so on.

    So a tenant with a thousand queue zones comes before another by one visit, not by a thousand.
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
    """What goes to managers now.

    Attributes:
      calls: the pointers of each call.
      single_tenant: whether all belong to one tenant, with which no other competes.
      waiting_parts: the parts in which pointers wait for their tenant's turn.
    """

    calls: list[Sequence[PointerRef]]
    single_tenant: bool
    waiting_parts: frozenset[int]


EMPTY_PLAN = HandoverPlan([], single_tenant=False, waiting_parts=frozenset())


class TenantTurns:
    """The turns of the tenants of one shard, as the scanner of one consumer sees them. Not locked."""

    def __init__(self) -> None:
        self._under_way: Counter[bytes] = Counter()  # calls under way, by tenant
        self._with_several_pointers: set[bytes] = set()  # tenants with more than one pointer, as of the last scan
        self._last: dict[bytes, LastTurn] = {}  # of tenants with more than one pointer; the latest at the end

    def under_way(self) -> frozenset[bytes]:
        """Return the tenants of which calls are under way; `plan` is told what this was when the scan began."""
        return frozenset(self._under_way)

    def plan(self, refs: Sequence[PointerRef], size: int, *, under_way: frozenset[bytes], now_us: int) -> HandoverPlan:
        """Return the calls of up to `size` pointers in which those go that a scan has chosen."""
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
        """Note that it has ended. `tenants`: how many of its tenants, in their order, had their turn."""
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
        """Return the tenants' pointers in the order of their turns: as they come, but for those that had theirs."""
        if self._last.keys().isdisjoint(tenants):
            return list(tenants.values())

        def key(tenant: bytes) -> tuple[int, int, bytes]:
            first, last = tenants[tenant][0], self._last.get(tenant)
            # A pointer that has kept its place says that the turn is not over; a clock that was set back, nothing.
            if last is None or last.us > now_us or last.first in tenants[tenant]:
                return queue_order(first)
            return first.priority, max(first.vesting_us, last.us), first.id

        return [tenants[tenant] for tenant in sorted(tenants, key=key)]


def _calls(tenants: Sequence[Sequence[PointerRef]], size: int) -> list[Sequence[PointerRef]]:
    """Return the calls in which tenants' pointers go: no tenant in two of them, and none alone if that can be.

    What does not fit into its tenant's call is left out: it is found again. A tenant that is alone has several calls.
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
