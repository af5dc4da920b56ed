"""What a scanner must not select on one shard: pointers that managers hold, deferred pointers, tenants with a call.

The exclusions of a scan are fixed when it begins: a call that ends while the scan reads does not change them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.actors.messages import ServeReply
from fairlead.actors.scanning.tenant_turns import HandoverPlan, TenantTurns
from fairlead.zones.top_level.pointers import PointerRef

DeferredUntil = dict[tuple[bytes, int], int]  # id and vesting time of a pointer, and until when: see `Deferred`


class Exclusions(NamedTuple):
    """What one scan passes over: ids that managers hold, deferred pointers, tenants with a call under way."""

    held: frozenset[bytes]
    deferred: DeferredUntil
    tenants: frozenset[bytes]

    def eligible(self, ref: PointerRef) -> bool:
        """Say whether a pointer may be selected."""
        return ref.id not in self.held and (ref.id, ref.vesting_us) not in self.deferred


class HandedOverPointers:
    """The pointers of one shard that one scanner has passed to managers. Guarded by the scanner's lock."""

    def __init__(self) -> None:
        self._held: set[bytes] = set()
        self._deferred: DeferredUntil = {}
        self._turns = TenantTurns()
        self._waiting: frozenset[int] = frozenset()  # see `HandoverPlan.waiting_parts`
        self._ended = False  # a call has ended since the last scan began

    def __len__(self) -> int:
        """Return how many pointers managers hold."""
        return len(self._held)

    def begin_scan(self, now_us: int) -> Exclusions:
        """Return the exclusions of a scan that begins now."""
        self._deferred = {each: until_us for each, until_us in self._deferred.items() if until_us > now_us}
        self._ended = False
        return Exclusions(frozenset(self._held), self._deferred.copy(), self._turns.under_way())

    def plan(self, refs: Sequence[PointerRef], size: int, exclusions: Exclusions, *, now_us: int) -> HandoverPlan:
        """Return the calls in which the selected pointers go; see `TenantTurns.plan`."""
        plan = self._turns.plan(refs, size, under_way=exclusions.tenants, now_us=now_us)
        self._waiting = plan.waiting_parts
        return plan

    def begin(self, refs: Sequence[PointerRef]) -> None:
        """Note that a call with these pointers is under way."""
        self._held.update(ref.id for ref in refs)
        self._turns.begin(refs)

    def end(self, refs: Sequence[PointerRef], served: ServeReply | None, *, now_us: int) -> None:
        """Note that it has ended. None: it failed."""
        self._held.difference_update(ref.id for ref in refs)
        self._turns.end(refs, served.tenants if served is not None else 0, now_us=now_us)
        self._ended = True
        if served is not None:
            self._deferred.update({(each.id, each.vesting_us): each.until_us for each in served.deferred})

    @property
    def has_unblocked_parts(self) -> bool:
        """Whether a call has ended since the last scan began, and pointers were waiting for such an end."""
        return self._ended and bool(self._waiting)

    def take_waiting_parts(self) -> frozenset[int]:
        """Return the parts in which pointers wait, for a scan that is made now."""
        parts, self._waiting = self._waiting, frozenset()
        return parts
