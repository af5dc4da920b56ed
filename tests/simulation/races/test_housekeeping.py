"""Two consumers that create a shard, enqueue one tick, or expire a retained id at the same moment."""

from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.replica import ZoneName, ZoneReplica
from fairlead.simulation.store import Latencies
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.keyspace import META_KEY, ROOT
from fairlead.zones.layout import DEFAULT_ZONE, local_tenant
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.queue.periodic import period
from fairlead.zones.shard import Shard, open_shard
from tests.simulation.races.director import DirectedStore, Role
from tests.simulation.races.missing_guards import TENANTS, Patch, ignore_the_guard, read_by_snapshot
from tests.simulation.races.scene import HousekeeperRole, Scene, pay, ref_of
from tests.simulation.stage import SECOND

MINUTE_S = 60

# --- The shard itself ---


def two_create_one_shard(scene: Scene) -> tuple[Shard, Shard, Role[Shard]]:
    store = DirectedStore(scene.world, "s1", Latencies())
    database = SimulatedDatabase(store, has_commit_sequence=False)

    def maker(name: str) -> Role[Shard]:
        host = scene.new_host(name)
        return Role(
            store, host, scene.shard, lambda _: open_shard("s1", database, clock=host.clock, random=host.random)
        )

    first, second = maker("first"), maker("second")
    second.runs_until_commit()
    return first.runs(), second.runs(), second


def test_the_second_of_two_that_create_one_shard_opens_the_shard_of_the_first() -> None:
    first, second, role = two_create_one_shard(Scene())
    assert role.refused == [NOT_COMMITTED]
    assert first.layout.shard_id == second.layout.shard_id


def test_without_the_conflict_on_its_record_there_are_two_shards_in_one_store(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, META_KEY)
    first, second, _ = two_create_one_shard(Scene())
    assert first.layout.shard_id != second.layout.shard_id


# --- A periodic item ---


def two_see_one_tick(scene: Scene) -> tuple[ZoneReplica, HousekeeperRole]:
    name = ZoneName(local_tenant("report"), DEFAULT_ZONE)
    in_half_a_second_s = (scene.now_us + SECOND // 2) / SECOND % MINUTE_S
    report = period("report", MINUTE_S, phase=in_half_a_second_s)
    first, second = (scene.housekeeper(name, periods=[report]) for name in ("first", "second"))
    for each in (first, second):  # One after the other; each does all its work of the first second.
        each.goes_on(SECOND // 10)
    for each in (first, second):
        each.runs_until_commit()  # the next heartbeat, a second after the first; by now the tick is due
        each.runs_until_commit()
    first.runs_until(lambda: name in scene.replica.zones)
    second.goes_on(SECOND // 2)
    return scene.replica.zones[name], second


def test_one_of_two_consumers_that_see_one_tick_enqueues_its_item() -> None:
    zone, second = two_see_one_tick(Scene())
    assert second.refused == [NOT_COMMITTED]
    assert (len(zone.items), zone.counts) == (1, {"report": 1})


def test_without_the_conflicts_on_period_and_item_the_item_of_one_tick_is_counted_twice(monkeypatch: Patch) -> None:
    """Both create the pointer as well, which would make them conflict."""
    read_by_snapshot(monkeypatch, ROOT)
    ignore_the_guard(monkeypatch)
    zone, second = two_see_one_tick(Scene())
    assert second.refused == []
    assert (len(zone.items), zone.counts) == (1, {"report": 2})


# --- A retained id ---


def an_id_is_retained_again_while_it_expires(scene: Scene) -> EnqueueStatus:
    """The retention has ended when housekeeping reads it. Before that commits, another item of the id completes."""
    enqueue_and_pay(scene, unique_for=0.1)
    scene.pass_us(SECOND // 2)
    housekeeper = scene.housekeeper("housekeeper")
    housekeeper.runs_until_commit()  # the heartbeat
    housekeeper.runs_until_commit()  # the expiry of retained ids
    enqueue_and_pay(scene, unique_for=MINUTE_S)
    housekeeper.goes_on(SECOND)
    return scene.has(lambda alice: alice.enqueue("mail", item_id="order 7", unique_for=MINUTE_S)).status


def enqueue_and_pay(scene: Scene, *, unique_for: float) -> None:
    enqueued = scene.has(lambda alice: alice.enqueue("mail", item_id="order 7", unique_for=unique_for))
    assert enqueued.status is EnqueueStatus.ENQUEUED
    (item,) = scene.leased()
    scene.play(lambda: pay(scene.shard, ref_of(item)))


def test_an_id_that_is_retained_again_while_it_expires_stays_retained() -> None:
    assert an_id_is_retained_again_while_it_expires(Scene()) is EnqueueStatus.COMPLETED


def test_without_the_conflict_on_its_key_an_id_that_is_retained_again_expires(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    assert an_id_is_retained_again_while_it_expires(Scene()) is EnqueueStatus.ENQUEUED
