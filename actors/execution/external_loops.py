"""The loops that a worker runs for one external store: completer, lease and claim keeper, and the log of ends.

What runs there, and what became of it, is reported on the shards where the tenants live, by `ShardLoops`.
"""

from collections.abc import Mapping

from fairlead.actors.execution.claim_keeper import ClaimKeeper
from fairlead.actors.execution.completer import AttemptCounts, Completer
from fairlead.actors.execution.external_claims import ExternalClaims
from fairlead.actors.execution.external_end_log import ExternalEndLog
from fairlead.actors.execution.external_items import ExternalEnds, ExternalLeases
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.lease_keeper import LeaseKeeper
from fairlead.actors.execution.moved_items import NewHome
from fairlead.actors.execution.shard_access import StoreAccess
from fairlead.actors.execution.slots import Slots
from fairlead.actors.runtime.host import Host
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import TenantMoved
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.shard import Shard


class ExternalLoops:
    """One worker's loops for one external store; as `ShardLoops`.

    `counts`: where ends are counted. `term_us`: how long a claim lasts at most.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        store: ExternalStore,
        shards: Mapping[str, Shard],
        settings: ConsumerSettings,
        slots: Slots,
        counts: AttemptCounts,
        failure_log: FailureLog,
        *,
        term_us: int,
    ) -> None:
        clock = host.clock
        self._end_log = ExternalEndLog(host, shards)
        self.access = StoreAccess(host, f"external store {name}", lambda: (StoreUnavailable,))
        self.completer = Completer(
            host,
            self.access,
            ExternalEnds(store, clock, self._end_log),
            slots,
            counts,
            failure_log,
            follow=_stay,
            linger_s=settings.linger_ms / 1000,
        )
        lease_us = settings.lease_ms * 1000
        claims = ExternalClaims(store.sessions, clock, host.incarnation, term_us=term_us, lease_us=lease_us)
        self.claim_keeper = ClaimKeeper(
            host, self.access, claims, slots, self.completer, follow=_stay, lease_us=lease_us
        )
        leases = ExternalLeases(store, clock)
        self.lease_keeper = LeaseKeeper(
            host, self.access, leases, slots, self.completer, self.claim_keeper, follow=_stay
        )

    def start(self) -> None:
        """Start the loops."""
        self._end_log.start()
        self.completer.start()
        self.lease_keeper.start()
        self.claim_keeper.start()

    def stop(self) -> None:
        """Let the loops end once they have done what they were handed."""
        self.completer.stop()
        self.lease_keeper.stop()
        self.claim_keeper.stop()
        self._end_log.stop()

    def await_end(self, timeout_us: int) -> None:
        """Wait for the last ends, and for the end of the session, `timeout_us` at most for each."""
        self._end_log.await_end(timeout_us)
        self.claim_keeper.await_end(timeout_us)


def _stay(held: HeldItem, moved: TenantMoved) -> NewHome | None:
    """Know no other place: a move of a tenant leaves its items in the store."""
    return None
