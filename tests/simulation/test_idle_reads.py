"""The reads of idle consumers on a shard whose engine has watches only, as FoundationDB has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.settings import ConsumerSettings
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.database import LatentTransaction
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.store import Latencies
from fairlead.simulation.without_oracles import NoLog, NoOracles
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period, period
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

SECOND = 1_000_000
SETTLED_US = 12 * SECOND  # By then all consumers know each other, and have scanned.
COUNTED_US = 60 * SECOND
DELAYED = 1_000
HOUR_S = 3600
READS_MAX = 5.0  # By one consumer in a second.
CALM: dict[str, Any] = {
    "faults": (), "skew_us_max": 0, "yield_frac": 0.0, "has_commit_sequence": False, "call_us": 1_000,
    "latencies": Latencies(), "zones": ZoneSettings(), "part_count": 16,
}  # fmt: skip


class Mail:
    """One kind, and one period."""

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        return Registry({kind: handler_of(kind, lambda job: None) for kind in ("mail", "report")})

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return [period("report", HOUR_S)]


def reads_a_second(consumers: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the reads of keys and ranges by each of some idle consumers in a second, over a minute."""
    reads = 0
    read_key, late_range = LatentTransaction.read_key, LatentTransaction.late_range

    def counted_key(self: LatentTransaction, key: bytes, snapshot: bool) -> Any:
        nonlocal reads
        reads += 1
        return read_key(self, key, snapshot)

    def counted_range(self: LatentTransaction, rows: Any) -> Any:
        nonlocal reads
        reads += 1
        return late_range(self, rows)

    monkeypatch.setattr(LatentTransaction, "read_key", counted_key)
    monkeypatch.setattr(LatentTransaction, "late_range", counted_range)
    world = World(1, NoLog())
    settings = ConsumerSettings(workers=1, slots=16)
    plan = draw_plan(Random(1), shards=1, consumers=consumers, consumer=settings, **CALM)
    cluster = Cluster(world, plan, NoOracles(world, ["s0"]), Mail())
    cluster.operator.do("enqueue", lambda: enqueue_delayed(cluster.open_shards(cluster.operator.host)["s0"]))
    world.run_until(world.now_us() + SECOND)
    cluster.add_consumers()
    world.run_until(world.now_us() + SETTLED_US)
    reads = 0
    world.run_until(world.now_us() + COUNTED_US)
    counted = reads
    cluster.close()
    return counted / consumers / (COUNTED_US / SECOND)


def enqueue_delayed(shard: Shard) -> None:
    """Enqueue an item for each of many tenants, which vests long after the test."""

    def body(attempt: Attempt) -> None:
        for number in range(DELAYED):
            TenantTransaction(shard, Tenant("shop", str(number)), attempt).enqueue("mail", delay=HOUR_S)

    shard.transact(body)


@pytest.mark.parametrize("consumers", [1, 4, 16])
def test_idle_consumers_read_little_however_many_they_are(consumers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each consumer read all parts up to twenty times a second, and a dozen other keys once a second."""
    assert reads_a_second(consumers, monkeypatch) <= READS_MAX
