"""The loops that a worker runs for one shard, and its counts there: completer, lease and claim keeper, worker status.

Each shard has its own, so a shard that refuses delays no other. They start when the first item of the shard arrives.
"""

from collections.abc import Sequence

from fairlead.actors.execution.claim_keeper import ClaimKeeper
from fairlead.actors.execution.claims import ShardClaims
from fairlead.actors.execution.completer import Completer
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.held_leases import ShardLeases
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.item_ends import ShardEnds
from fairlead.actors.execution.lease_keeper import LeaseKeeper
from fairlead.actors.execution.moved_items import FollowTenant
from fairlead.actors.execution.shard_access import ShardAccess
from fairlead.actors.execution.shard_counts import ShardCounts
from fairlead.actors.execution.slots import Slots
from fairlead.actors.execution.status_reporting import StatusReporter
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import Host
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.shard import Shard


class ShardLoops:
    """One worker's loops for one shard; see `NewHome`. `follow`: see `Completer`."""

    def __init__(
        self,
        host: Host,
        shard: Shard,
        settings: ConsumerSettings,
        slots: Slots,
        failure_log: FailureLog,
        identity: Identity,
        *,
        follow: FollowTenant,
    ) -> None:
        self.access = ShardAccess(host, shard)
        self.counts = ShardCounts(host, self._note_change)
        self.status_reporter = StatusReporter(
            host,
            shard,
            slots,
            self.counts,
            identity,
            slot_count=settings.slots,
            on_lost=self._note_lost,
            follow=follow,
        )
        self.completer = Completer(
            host,
            self.access,
            ShardEnds(shard),
            slots,
            self.counts,
            failure_log,
            follow=follow,
            linger_s=settings.linger_ms / 1000,
        )
        lease_us = settings.lease_ms * 1000
        shard_claims = ShardClaims(shard, host.incarnation, lease_us=lease_us)
        self.claim_keeper = ClaimKeeper(
            host, self.access, shard_claims, slots, self.completer, follow=follow, lease_us=lease_us
        )
        self.take_over, self.commit_once = self.completer.take_over, self.completer.commit_once
        self.claim_moved = self.claim_keeper.claim_moved
        self.lease_keeper = LeaseKeeper(
            host, self.access, ShardLeases(shard), slots, self.completer, self.claim_keeper, follow=follow
        )

        self.mark_started = self.lease_keeper.mark_started

    def start(self) -> None:
        """Start the loops."""
        self.completer.start()
        self.lease_keeper.start()
        self.claim_keeper.start()
        self.status_reporter.start()

    def stop(self) -> None:
        """Let the loops end once they have done what they were handed."""
        self.completer.stop()
        self.lease_keeper.stop()
        self.claim_keeper.stop()
        self.status_reporter.stop()

    def await_end(self, timeout_us: int) -> None:
        """Wait for the last worker status and the end of the session, `timeout_us` at most for each."""
        self.status_reporter.await_end(timeout_us)
        self.claim_keeper.await_end(timeout_us)

    def _note_change(self) -> None:
        self.status_reporter.note_change()

    def _note_lost(self, items: Sequence[HeldItem]) -> None:
        self.completer.note_lost(items)
