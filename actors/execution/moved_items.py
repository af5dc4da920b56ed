"""Items whose tenants have moved: what one shard's loops of a worker hand over to those of another shard."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fairlead.actors.execution.acknowledgement import Settled
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.zones.errors import TenantMoved


class DecidedEnd(NamedTuple):
    """The end of an item whose tenant was locked, or lived on another shard, when it was to be committed."""

    held: HeldItem
    decision: RetryDecision | None  # None: it is completed.


class NewHome(Protocol):
    """A worker's loops for the shard where the tenant of an item lives now. The item's lease is valid there."""

    def take_over(self, end: DecidedEnd) -> None:
        """Have the end of an item committed."""
        ...

    def commit_once(self, end: DecidedEnd) -> Settled:
        """Commit the end of an item in one try; return what became of the item."""
        ...

    def claim_moved(self, held: HeldItem) -> None:
        """Claim an item that runs, or cancel it if it is lost."""
        ...

    def mark_started(self, held: HeldItem, lease_us: int, *, ran_isolated: bool) -> bool:
        """See `LeaseKeeper.mark_started`."""
        ...


FollowTenant = Callable[[HeldItem, TenantMoved], NewHome | None]  # None: nobody knows where the tenant lives.
