"""Clients of workflows: they enqueue, signal and cancel workflows, and retry dead letters."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.spanning import EXCHANGED
from fairlead.simulation.replica import ZoneName
from fairlead.simulation.workflow_code import CHORE, KIND
from fairlead.simulation.workflow_ledger import WorkflowLedger
from fairlead.simulation.workflow_shapes import SIGNALS
from fairlead.simulation.workflow_tenants import item_name_of, neighbours_of, tenant_of
from fairlead.simulation.world import START_US
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import ItemGone, TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.items import new_item, unpack_payload
from fairlead.zones.records import ItemRecord
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.tenant_transaction import ApplicationTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.cancellation import Cancellation, CancelOutcome, cancel_op, was_applied
from fairlead.zones.workflow.run_end import CLEANUP_KIND

T = TypeVar("T")

DEAD_LETTERS_MAX = 8
TOMBSTONES_MAX = 1_000
LONG_WAIT_US = 10_000_000  # An item that waits longer than this is waited for by nobody but the waking client.


class Buyer:
    """A client process: enqueues its share of orders in the fault phase, and signals, cancels and retries some.

    After a failure of its machine it continues with the next order.
    """

    def __init__(self, ledger: WorkflowLedger, cluster: Cluster, number: int, share: int) -> None:
        self.done = False
        self._ledger = ledger
        self._cluster = cluster
        self._number = number
        self._left = share
        self._pause_us = cluster.plan.trouble_us / max(1, share) / 3
        self._random: Random = cluster.world.random(f"buyer {number}")
        self._tokens = 0
        self._host: SimulatedHost | None = None

    def run(self, host: SimulatedHost) -> None:
        """Make the remaining orders."""
        self._host = host
        shards = self._cluster.open_shards(host)
        while self._left > 0:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._pause_us)))
            try:
                self._act(shards)
            except StoreError as error:
                host.world.note(f"gives up after error {error.code}")
            except (TenantBusy, TenantMoved) as error:
                host.world.note(f"gives up: {error}")
        self.done = True

    def _act(self, shards: OpenShards) -> None:
        draw = self._random.random()
        if draw < 0.35:
            self._left -= 1
            self._order(shards)
        elif draw < 0.55:
            self._change(shards)
        elif draw < 0.65:
            self._exchange(shards)
        elif draw < 0.85:
            self._signal(shards)
        elif draw < 0.95:
            self._cancel(shards)
        else:
            self._retry(shards)

    def _some_order(self) -> int:
        """Return the number of an order: any client's, made or not."""
        return self._random.randrange(self._cluster.plan.items)

    def _order(self, shards: OpenShards) -> None:
        order = self._some_order()
        tenant = tenant_of(order, self._cluster.plan)
        name = item_name_of(order) if self._random.random() < 0.8 else None
        item = new_item(KIND, {"order": str(order)}, item_id=name)
        on(shards, tenant, lambda tr: tr.enqueue_item(item))

    def _change(self, shards: OpenShards) -> None:
        """Change what workflows read of a tenant."""
        tenant = Tenant("shop", f"t{self._random.randrange(self._cluster.plan.tenants)}")
        on(shards, tenant, lambda tr: tr.add(("changes",), 1))

    def _exchange(self, shards: OpenShards) -> None:
        """Change two tenants on two shards by one transaction, which also enqueues a chore for each.

        The transaction writes the same key below both tenants. One of them may have workflows of its own.
        """
        here = tenant_of(self._some_order(), self._cluster.plan)
        tenants = [here, neighbours_of(here, list(shards)).elsewhere]
        self._random.shuffle(tenants)
        self._tokens += 1
        token = f"p{self._number}/{self._tokens}"

        def body(tx: SpanningTransaction) -> None:
            for tenant in tenants:
                view = tx.on(tenant)
                view.get(("changes",))
                view.set((EXCHANGED, token), b"")
                view.enqueue(CHORE, {"order": token})

        host = self._host
        assert host is not None
        run_across_shards(shards, body, wait_us=WAIT_US, clock=host.clock, random=host.random)
        self._ledger.exchanged.append(token)

    def _signal(self, shards: OpenShards) -> None:
        """Send a signal to an order, in a transaction of its tenant, or of one on another shard."""
        order = self._some_order()
        tenant = tenant_of(order, self._cluster.plan)
        self._tokens += 1
        token, name = f"p{self._number}/{self._tokens}", self._random.choice(SIGNALS)
        if self._random.random() < 0.2:
            sender = neighbours_of(tenant, list(shards)).elsewhere
            on(shards, sender, lambda tr: tr.signal(item_name_of(order), name, token, to=tenant))
            return
        if send(shards, tenant, item_id_of(item_name_of(order)), name, token):
            self._ledger.sent.append(token)

    def _cancel(self, shards: OpenShards) -> None:
        """Cancel an order; see `fairlead.tenant_database.TenantDatabase.cancel`."""
        order = self._some_order()
        tenant = tenant_of(order, self._cluster.plan)
        item_id = item_id_of(item_name_of(order))

        def cancel_at(shard: Shard) -> None:
            queue = shard.zone(tenant)
            cancellation: Cancellation | None = None

            def body(attempt: Attempt) -> CancelOutcome:
                nonlocal cancellation
                cancellation = run_one(cancel_op(attempt.tr, queue, item_id, force=False, now_us=attempt.now_us))
                return cancellation.outcome

            shard.transact(body, applied=lambda tr: was_applied(tr, queue.location, item_id, cancellation))

        try:
            shards.at_home(tenant, cancel_at)
        except ItemGone:
            self._cluster.world.note(f"finds order {order} gone")

    def _retry(self, shards: OpenShards) -> None:
        """Retry a dead letter, if there is one."""
        shard = self._random.choice(list(shards.values()))
        listed = shard.transact(
            lambda attempt: list(dead_letters.listing(attempt.tr, shard.layout, items_max=DEAD_LETTERS_MAX))
        )
        listed = [each for each in listed if each.record.item.kind != MOVE_KIND]  # See `tenant_moves`.
        if not listed:
            return
        tenant, name, item_id = self._random.choice(listed)[:3]
        retry(shard, tenant, name, item_id)


class WakingClient:
    """A client process that does what nobody else does: it signals each workflow that has long to wait.

    It also retries dead letters whose runs have locks, or wait for one: others may wait for these locks.
    """

    def __init__(self, ledger: WorkflowLedger, cluster: Cluster) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._tokens = 0

    def run(self, host: SimulatedHost) -> None:
        """Look twice a second, for ever."""
        shards = self._cluster.open_shards(host)
        while True:
            host.clock.sleep_us(500_000)
            if host.world.now_us() < START_US + self._cluster.plan.trouble_us:
                continue
            for tenant, item_id, name in self._waiting(shards, host.world.now_us()):
                self._tokens += 1
                token = f"waking/{self._tokens}"
                try:
                    if send(shards, tenant, item_id, name, token):
                        self._ledger.sent.append(token)
                except StoreError as error:
                    host.world.note(f"gives up after error {error.code}")
                except (TenantBusy, TenantMoved) as error:
                    host.world.note(f"gives up: {error}")
            for shard, zone, item_id in self._dead_with_locks(shards):
                try:
                    retry(shard, zone.tenant, zone.zone, item_id)
                except StoreError as error:
                    host.world.note(f"gives up after error {error.code}")
                except (TenantBusy, TenantMoved) as error:
                    host.world.note(f"gives up: {error}")

    def _dead_with_locks(self, shards: OpenShards) -> list[tuple[Shard, ZoneName, bytes]]:
        replicas = self._cluster.suite.shards
        runs = {
            request.run
            for replica in replicas.values()
            for line in replica.lock_lines.values()
            for request in line.values()
        }
        return [
            (shards[name], zone.name, item_id)
            for name, replica in replicas.items()
            for zone in replica.zones.values()
            for item_id, dead_letter in zone.dead_lettered.items()
            if run_of(item_id, dead_letter.item) in runs
        ]

    def _waiting(self, shards: OpenShards, now_us: int) -> list[tuple[Tenant, bytes, str]]:
        found = []
        for shard_name in shards:
            for item, record in self._cluster.suite.shards[shard_name].items():
                names = [name for name in SIGNALS if f"signal {name}" in record.waits_for]
                if names and record.vesting_us > now_us + LONG_WAIT_US:
                    found.append((item.tenant, item.item_id, names[0]))
        return found


def retry(shard: Shard, tenant: Tenant, name: str, item_id: bytes) -> None:
    """Put a dead letter back into its queue, if it is there."""

    def body(attempt: Attempt) -> None:
        tr, queue = attempt.tr, shard.zone(tenant, name)
        found = dead_letters.read(tr, queue.location, item_id)
        if found is not None:
            dead_letters.retry_dead_letter(tr, queue.location, item_id, found, now_us=attempt.now_us)
            run_one(queue.wake_op(tr, earliest_us=attempt.now_us, now_us=attempt.now_us))

    shard.transact(body)


def run_of(item_id: bytes, item: ItemRecord) -> bytes:
    """Return the run of an item, or that which a cleanup cleans up after."""
    if item.kind == CLEANUP_KIND:
        return bytes(unpack_payload(item.payload)["run"])
    return item.run_of(item_id)


def on(shards: OpenShards, tenant: Tenant, body: Callable[[ApplicationTransaction], T]) -> T:
    """Run a transaction of a tenant, wherever the tenant lives."""
    return shards.at_home(
        tenant,
        lambda shard: shard.transact(lambda attempt: body(ApplicationTransaction(shard, tenant, attempt))),
    )


def send(shards: OpenShards, tenant: Tenant, item_id: bytes, name: str, token: str) -> bool:
    """Send a signal; return whether its workflow has not ended."""
    try:
        on(shards, tenant, lambda tr: tr.signal(item_id, name, token))
    except ItemGone:
        return False
    return True
