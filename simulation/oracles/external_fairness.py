"""Fairness of external queues: none waits for the others longer than a bound that follows from the settings."""

from __future__ import annotations

from collections.abc import Collection

from fairlead.actors.external_reader import LEASE_US, LOOK_S, RENEW_US
from fairlead.simulation.external.items import StoredItem
from fairlead.simulation.external.server import STATEMENT_US, StoreServer
from fairlead.simulation.oracles.external import ExternalOracle, waits
from fairlead.simulation.oracles.fairness import LOOK_US, fairness_bound_us
from fairlead.simulation.oracles.oracle import HandlerRun
from fairlead.simulation.plan import Plan
from fairlead.simulation.replica import ParsedCommit
from fairlead.simulation.world import World
from fairlead.zones.external.names import external_zone
from fairlead.zones.external.store import Queue

# A consumer that has died read the store; its successor finds out, and looks. Statements wait for rows, and are late.
FOUND_US = LEASE_US + RENEW_US + int(2 * LOOK_S * 1e6) + 2 * STATEMENT_US
ITEM_US = 1_000_000  # The time that an item occupies a slot: more than the mean, where a third works for seconds.


class NoExternalQueueWaitsTooLong(ExternalOracle):
    """A queue with due items has one started within the bound, which is that of queues in shards and the reader's.

    The time counts from when the item was due, or from the last start. It is checked once all faults are over.

    Args:
      calm_us: from when on queues wait only for each other's work.
      kinds: the kinds that every consumer handles, without limits.
    """

    promise = "no external queue waits longer than the fairness bound"

    def __init__(self, world: World, server: StoreServer, plan: Plan, *, calm_us: int, kinds: Collection[str]) -> None:
        super().__init__(world)
        self._server = server
        self._bound_us = fairness_bound_us(plan, ITEM_US) + FOUND_US
        self._calm_us = self._next_check_us = calm_us
        self._kinds = kinds
        self._before_isolation = plan.zones.expiries_before_isolation
        self._started_us: dict[Queue, int] = {}
        self._due_us: dict[Queue, int] = {}  # Since when a queue has had due items, by the true time.

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        zone = external_zone(run.item.zone)
        if zone is not None:
            self._started_us[Queue(run.item.tenant, zone.zone)] = self.world.now_us()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`. Consumers commit every second, so the check is frequent."""
        now_us = self.world.now_us()
        if now_us >= self._next_check_us:
            self._next_check_us = now_us + LOOK_US
            self._check_waits(now_us)

    def _check_waits(self, now_us: int) -> None:
        here_us = self._server.clock.now_us()
        due = {row.queue for row in self._server.table.rows() if waits(row) and self._is_due(row, here_us)}
        self._due_us = {queue: self._due_us.get(queue, now_us) for queue in due}
        for queue, due_us in self._due_us.items():
            waits_us = now_us - max(due_us, self._started_us.get(queue, 0))
            if waits_us > self._bound_us:
                self.report_violation(f"{queue} holds due items, and has waited for {waits_us} us")

    def _is_due(self, row: StoredItem, here_us: int) -> bool:
        if row.record.kind not in self._kinds or row.deaths + bool(row.started) >= self._before_isolation:
            return False
        return max(row.vesting_us, row.leased_until_us) <= here_us
