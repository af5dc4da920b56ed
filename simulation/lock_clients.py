"""Processes that hold locks of tenants outside of workflows, as web servers and scripts do (`tenant.lock`).

They take the product's own way (`fairlead.workflows.lock_acquisition`, `lock_keeper`). Each takes locks that workflows
take, too, alone or shared, waits in line for some time, and commits some transactions under them. Now and then a
process dies while it holds locks or waits, or stands still for longer than its session may be silent. An operator
deletes a hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random

from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.lock_tasks import LockTasks
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.process_locks import GUARDED, HELD_UNDER, HoldersGoOn, chained
from fairlead.simulation.workflow_code import LOCK_NAME
from fairlead.simulation.workflow_shapes import LOCKS
from fairlead.simulation.workflow_tenants import neighbours_of, tenant_of
from fairlead.simulation.world import START_US
from fairlead.workflows.held_locks import LockName
from fairlead.workflows.lock_acquisition import AwaitedLock, LockAcquisition
from fairlead.workflows.lock_keeper import KeptHold, LockKeeper
from fairlead.workflows.locks import sorted_locks
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import Busy, ItemGone, LockLost, TenantBusy, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import ApplicationTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds
from fairlead.zones.workflow.cancellation import cancel_op
from fairlead.zones.workflow.locks import HOLD_KIND

THINK_US = 200_000  # Between two blocks, on average.
POLL_US = 20_000
LOST_WATCH_POLL_US = 500_000
WAITS_US = (0, 300_000, 3_000_000)  # How long a process waits for locks.
WORKS_US = (1_000, 50_000, 300_000, 1_500_000)  # How long it works before a transaction under its locks.
TRANSACTIONS_MAX = 4
RESTARTS_US = 100_000
STANDS_US = (200_000, 2_000_000, 9_000_000)  # The last one is longer than a session may be silent.
BETWEEN_STRIKES_US = (500_000, 2_000_000, 60_000_000)


class LockClient:
    """A process that holds locks, again and again while the faults last. After a kill it goes on with the next block.

    `oracle`: learns who stood still, what was deleted, and what was lost.
    """

    def __init__(self, cluster: Cluster, oracle: HoldersGoOn, number: int) -> None:
        self.done = False
        self._cluster = cluster
        self._oracle = oracle
        self._draw = cluster.world.random(f"lock client {number}")
        self._blocks = 0

    def run(self, host: SimulatedHost) -> None:
        """Hold locks until the faults have stopped; then release all."""
        shards = self._cluster.open_shards(host)
        lock_keeper = LockKeeper(shards.at_home, host.random, LockTasks(host))
        while host.world.elapsed_us < self._cluster.plan.trouble_us:
            host.clock.sleep_us(int(self._draw.expovariate(1 / THINK_US)))
            self._blocks += 1
            try:
                _Block(host, shards, lock_keeper, self._draw, self._oracle, self._blocks).run(self._cluster)
            except Busy:
                host.world.note("gives up its place in line")
            except LockLost as lost:
                self._oracle.note_loss(host.name, bytes.fromhex(str(lost.fields["item"])))
            except (StoreError, TenantBusy, TenantMoved) as error:
                host.world.note(f"gives up: {error!r}")
        lock_keeper.close()
        self.done = True


class _Block:
    """One block that holds locks."""

    def __init__(
        self,
        host: SimulatedHost,
        shards: OpenShards,
        lock_keeper: LockKeeper,
        draw: Random,
        oracle: HoldersGoOn,
        number: int,
    ) -> None:
        self._host = host
        self._shards = shards
        self._keeper = lock_keeper
        self._draw = draw
        self._oracle = oracle
        self._number = number

    def run(self, cluster: Cluster) -> None:
        wanted, is_shared = self._wanted(cluster), self._draw.random() < 0.3
        taking = LockAcquisition(
            self._keeper,
            self._shards.at_home,
            self._host.clock,
            lambda: {StoreError},
            wanted,
            shared=is_shared,
            process=self._host.name,
        )
        try:
            self._take(taking)
            self._work(taking.kept, wanted, is_shared)
        except (Busy, LockLost, StoreError, TenantBusy, TenantMoved):
            taking.give_up()
            raise
        self._release(taking.kept)

    def _wanted(self, cluster: Cluster) -> list[LockName]:
        """Draw locks of one tenant, or of two. Workflows that are nobody's children take the same ones."""
        first = tenant_of(self._draw.randrange(cluster.plan.items), cluster.plan)
        places = neighbours_of(first, list(self._shards))
        tenants = {first, self._draw.choice([first, first, places.beside, places.elsewhere])}
        key = (LOCK_NAME, 0, self._draw.choice([0, 0, *range(LOCKS)]))
        return sorted_locks([(tenant, key) for tenant in tenants], first, example="")

    def _take(self, taking: LockAcquisition) -> None:
        clock, wait_us = self._host.clock, self._draw.choice(WAITS_US)
        until_us = self._host.world.now_us() + wait_us
        while (awaited := taking.go_on(may_wait=wait_us > 0)) is not None:
            looks_us = min(until_us, self._host.world.now_us() + (awaited.longest_us or wait_us))
            while not awaited.watch.is_ready() and self._host.world.now_us() < looks_us:
                clock.sleep_us(POLL_US)
            self._end_early(awaited)
            if self._host.world.now_us() >= until_us:
                taking.take_now()

    def _end_early(self, awaited: AwaitedLock) -> None:
        if awaited.is_lost():
            self._host.clock.sleep_us(LOST_WATCH_POLL_US)
        awaited.watch.cancel()

    def _work(self, kept: Sequence[KeptHold], wanted: Sequence[LockName], is_shared: bool) -> None:
        """Commit transactions under the locks, each on one of their tenants."""
        seen: dict[Tenant, bytes | None] = {}
        for number in range(self._draw.randint(1, TRANSACTIONS_MAX)):
            self._host.clock.sleep_us(self._draw.choice(WORKS_US))
            held = self._draw.choice(kept).hold
            (lock,) = [each.packed for each in wanted if each.tenant == held.tenant]
            under = json.dumps([[*each.tenant, each.packed.hex()] for each in wanted if each.tenant == held.tenant])
            token = f"{self._number} {number} ".encode() + self._host.random.randbytes(4).hex().encode()
            guarded, before = (GUARDED, lock), seen.get(held.tenant)
            is_first = held.tenant not in seen

            def body(tr: ApplicationTransaction) -> bytes | None:
                found = tr.get(guarded, snapshot=True)  # noqa: B023 - the body runs in this round
                tr.set((HELD_UNDER, held.item_id.hex(), number), under.encode())  # noqa: B023
                if is_shared:
                    return None
                value = chained(found if is_first else before, token)  # noqa: B023
                tr.set(guarded, value)  # noqa: B023
                return value

            seen[held.tenant] = self._commit(held, body)

    def _commit(self, held: holds.Hold, body: Callable[[ApplicationTransaction], bytes | None]) -> bytes | None:
        def once(attempt: Attempt, shard: Shard) -> bytes | None:
            holds.check_held(attempt.tr, held.location(shard.layout), held)
            return body(ApplicationTransaction(shard, held.tenant, attempt, run=held.item_id))

        return self._shards.at_home(held.tenant, lambda shard: shard.transact(partial(once, shard=shard)))

    def _release(self, kept: Sequence[KeptHold]) -> None:
        for each in reversed(kept):
            with suppress(StoreError, TenantBusy, TenantMoved):  # Its session tries it again.
                self._keeper.release(each)


class LockTroubles:
    """Kills lock clients, lets them stand still, and deletes holds, while the faults last."""

    def __init__(self, cluster: Cluster, clients: Sequence[Actor], oracle: HoldersGoOn) -> None:
        self._cluster = cluster
        self._clients = clients
        self._oracle = oracle
        self._draw = cluster.world.random("troubles of locks")
        self._mean_us = self._draw.choice(BETWEEN_STRIKES_US)

    def begin(self) -> None:
        """Begin."""
        world = self._cluster.world
        time_us = world.now_us() + 1 + int(self._draw.expovariate(1 / self._mean_us))
        if time_us < START_US + self._cluster.plan.trouble_us:
            world.at(time_us, self._strike, order=self._draw.random())

    def _strike(self) -> None:
        client, what = self._draw.choice(self._clients), self._draw.random()
        if what < 0.4:
            client.restart("killed beside its locks", RESTARTS_US)
        elif what < 0.8 and client.host is not None:
            host, stands_us = client.host, self._draw.choice(STANDS_US)
            self._oracle.note_pause(host.name)
            host.paused_until_us = self._cluster.world.now_us() + stands_us
        elif what >= 0.8:
            self._cluster.operator.do("delete a hold", self._delete)
        self.begin()

    def _delete(self) -> None:
        found = [
            (item.tenant, item.item_id)
            for shard in self._cluster.suite.shards.values()
            for item, record in shard.items()
            if record.kind == HOLD_KIND
        ]
        if not found:
            return
        tenant, item_id = self._draw.choice(found)
        self._oracle.note_deleted(item_id)
        shards = self._cluster.open_shards(self._cluster.operator.host)

        def delete(shard: Shard) -> None:
            zone = shard.zone(tenant, DEFAULT_ZONE)
            shard.transact(
                lambda attempt: run_one(cancel_op(attempt.tr, zone, item_id, force=True, now_us=attempt.now_us))
            )

        with suppress(ItemGone, StoreError, TenantBusy, TenantMoved):
            shards.at_home(tenant, delete)
