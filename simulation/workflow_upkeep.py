"""What happens to workflows meanwhile: tombstones go, tenants move, executors are overtaken, and commits come late."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.store import Fate
from fairlead.simulation.workflow_clients import send
from fairlead.simulation.workflow_ledger import WorkflowLedger
from fairlead.simulation.world import START_US
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.keyspace import FENCE, pack_int, range_begin, range_end
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord, OwnerRecord, decode, encode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.cancellation import cancel_op
from fairlead.zones.workflow.participants import raise_floor
from fairlead.zones.workflow.run_records import END, FENCE_BYTES

TOMBSTONES_MAX = 1_000
ANSWERED_FRAC = 0.3  # The probability that a wait gets its signal as it begins.
ANSWERED_US_MAX = 10_000
STANDS_US_MIN, STANDS_US_MAX = 1_000, 3_000_000  # Shorter than the five seconds of a transaction.


class Upkeep:
    """FLOOR is raised, tenants get new epochs, unless they move in this run, and items are returned while a step runs.

    Some commits of workers are applied after their senders have tried again.
    """

    def __init__(self, ledger: WorkflowLedger, cluster: Cluster, random: Random) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._answers = 0
        self._random = random
        self._floor_us = random.choice([100_000, 1_000_000, 60_000_000])
        self._moves_us = random.choice([300_000, 60_000_000])
        self._overtaken_frac = 0 if cluster.plan.is_calm else random.choice([0, 0.05, 0.2])
        self._late_frac = random.choice([0, 0.05, 0.2]) if cluster.plan.leases_may_run_out else 0

    def begin(self) -> None:
        """Begin; it ends with the fault phase."""
        for store in self._cluster.stores.values():
            store.draw_fate.append(self._delay_commit)
        self._at_random_times(self._floor_us, self._raise_floor)
        if not self._cluster.plan.moves:
            self._at_random_times(self._moves_us, self._raise_epoch)

    def overtake(self, host: SimulatedHost, tenant: Tenant, item_id: bytes) -> None:
        """Called inside a step of a workflow: now and then its item is returned, and the step stands still meanwhile.

        So another executor takes the item over, as after the end of a lease, and goes on, or undoes the run. This one
        goes on later.
        """
        if self._is_over() or self._random.random() >= self._overtaken_frac:
            return
        host.world.note(f"{host.name} is overtaken at {item_id.hex()}")
        self._cluster.operator.do("overtake", partial(self._try, partial(self._return, tenant, item_id)))
        host.clock.sleep_us(int(STANDS_US_MIN * (STANDS_US_MAX / STANDS_US_MIN) ** self._random.random()))

    def answer(self, tenant: Tenant, item_id: bytes, signal: str) -> None:
        """Called when a workflow is about to wait: now and then its signal is sent at this time."""
        if self._is_over() or self._random.random() >= ANSWERED_FRAC:
            return
        self._answers += 1
        token = f"answer/{self._answers}"

        def send_it() -> None:
            if send(self._shards(), tenant, item_id, signal, token):
                self._ledger.sent.append(token)

        delay_us = self._random.randrange(ANSWERED_US_MAX)
        self._cluster.world.after(
            delay_us, lambda: self._cluster.operator.do("answer", partial(self._try, send_it)), order=0.5
        )

    def _delay_commit(self) -> Fate:
        """Draw whether a commit of a worker is applied after its sender has got no answer, and has tried again."""
        current = self._cluster.world.current
        assert current is not None
        if ".worker" not in current.host.name or self._is_over() or self._random.random() >= self._late_frac:
            return Fate.DECIDED
        return Fate.UNKNOWN_LATE

    def _return(self, tenant: Tenant, item_id: bytes) -> None:
        cancels = self._random.random() < 0.3

        def body(zone: QueueZone, attempt: Attempt) -> None:
            stored = attempt.tr.get(zone.location.keys.item(item_id)).value
            record = None if stored is None else decode(ItemRecord, stored)
            if record is None or not record.lease_id:
                return
            run_one(zone.requeue_op(attempt.tr, item_id, None, delay_us=0, now_us=attempt.now_us))
            if cancels:
                run_one(cancel_op(attempt.tr, zone, item_id, force=False, now_us=attempt.now_us))

        self._shards().at_home(tenant, lambda shard: shard.transact(partial(body, shard.zone(tenant))))

    def _is_over(self) -> bool:
        return self._cluster.world.now_us() >= START_US + self._cluster.plan.trouble_us

    def _try(self, happen: Callable[[], None]) -> None:
        try:
            happen()
        except StoreError as error:
            self._cluster.world.note(f"gives up after error {error.code}")
        except (TenantBusy, TenantMoved) as error:
            self._cluster.world.note(f"gives up: {error}")

    def _at_random_times(self, mean_us: int, happen: Callable[[], None]) -> None:
        world = self._cluster.world
        time_us = world.now_us() + 1 + int(self._random.expovariate(1 / mean_us))

        def once() -> None:
            self._cluster.operator.do("upkeep", partial(self._try, happen))
            self._at_random_times(mean_us, happen)

        if time_us < START_US + self._cluster.plan.trouble_us:
            world.at(time_us, once, order=self._random.random())

    def _shards(self) -> OpenShards:
        return self._cluster.open_shards(self._cluster.operator.host)

    def _raise_floor(self) -> None:
        shard = self._random.choice(list(self._shards().values()))
        shard.transact(_raise_floor_once)

    def _raise_epoch(self) -> None:
        for number in range(self._cluster.plan.tenants):
            tenant = Tenant("shop", f"t{number}")
            shard = self._shards().home(tenant)
            shard.transact(partial(raise_epoch, shard, tenant))


def _raise_floor_once(attempt: Attempt) -> None:
    raise_floor(attempt.tr, tombstones_max=TOMBSTONES_MAX)


def raise_epoch(shard: Shard, tenant: Tenant, attempt: Attempt) -> None:
    """Raise the epoch of a tenant and drop its tombstones, as two moves would. May run twice: then it moved again."""
    tr, keys = attempt.tr, shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant
    stored = tr.get(keys.owner).value
    owner = None if stored is None else decode(OwnerRecord, stored)
    owner = owner or OwnerRecord(0, shard.layout.shard_id)
    owner.epoch += 1
    tr.set(keys.owner, encode(owner))
    prefix = keys.prefix + pack_int(FENCE)
    for row in list(tr.get_range(range_begin(prefix), range_end(prefix))):
        if row.value == END.to_bytes(FENCE_BYTES, "big"):
            tr.clear(row.key)
