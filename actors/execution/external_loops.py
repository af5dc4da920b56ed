"""The loops that a worker runs for one external store, and its counts there: completer and lease keeper.

What runs is shown with the shard of its tenant; here is no worker status, and no session.
"""

from fairlead.actors.execution.completer import Completer
from fairlead.actors.execution.external_items import ExternalEnds, ExternalLeases, LeaseExtender
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.lease_keeper import LeaseKeeper
from fairlead.actors.execution.moved_items import NewHome
from fairlead.actors.execution.shard_access import StoreAccess
from fairlead.actors.execution.shard_counts import ShardCounts
from fairlead.actors.execution.slots import Slots
from fairlead.actors.runtime.host import Host
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import TenantMoved
from fairlead.zones.external.store import ExternalStore


class NoStatus:
    """Writes nothing about the worker."""

    def note_change(self) -> None:
        """Do nothing."""


class ExternalLoops:
    """One worker's loops for one external store; as `ShardLoops`."""

    def __init__(
        self,
        host: Host,
        name: str,
        store: ExternalStore,
        settings: ConsumerSettings,
        slots: Slots,
        failure_log: FailureLog,
    ) -> None:
        clock = host.clock
        self.access = StoreAccess(host, f"external store {name}", lambda: (StoreUnavailable,))
        self.counts = ShardCounts(host)
        self.status_reporter = NoStatus()
        self.completer = Completer(
            host,
            self.access,
            ExternalEnds(store, clock),
            slots,
            self.counts,
            failure_log,
            self.status_reporter,
            follow=_stay,
            linger_s=settings.linger_ms / 1000,
        )
        self.claim_keeper = LeaseExtender(store, clock, slots, self.completer, lease_us=settings.lease_ms * 1000)
        leases = ExternalLeases(store, clock)
        self.lease_keeper = LeaseKeeper(
            host, self.access, leases, slots, self.completer, self.claim_keeper, follow=_stay
        )

    def start(self) -> None:
        """Start the loops."""
        self.completer.start()
        self.lease_keeper.start()

    def stop(self) -> None:
        """Let the loops end once they have done what they were handed."""
        self.completer.stop()
        self.lease_keeper.stop()

    def await_end(self, timeout_us: int) -> None:
        """Return at once: nothing is written last."""


def _stay(held: HeldItem, moved: TenantMoved) -> NewHome | None:
    """Know no other place: a move of a tenant leaves its items in the store."""
    return None
