"""The reader of an external store: shards and tenants that refuse delay no others, and a long look keeps its lease."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fairlead.actors.external_reader import LEASE_US, SAVE_US, ExternalReader
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.zones.external.arrivals import ReaderRecord, read_reader, reader_home
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.queue.items import new_item
from fairlead.zones.shard import Shard
from tests.actors.stage import ALICE, BOB, SECOND, Stage
from tests.actors.test_restricted_tenants import lock, move, owner_key, second_shard, unlock

STORE = "pg"
CROWD = [Tenant("shop", f"user {number:02}") for number in range(20)]


class Items(ItemsAtOnce):
    """A store on a stage. Its doorbell never rings: a reader that waits for it looks each second."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(lambda: stage.now_us)
        self.stage = stage

    def await_doorbell(self, timeout_s: float) -> int:
        """See `ExternalStore`."""
        self.stage.clock.sleep_us(int(timeout_s * SECOND))
        return 0


class SlowItems(Items):
    """A store of which a slice of a full look takes a second. `looks`: how many full looks have begun."""

    looks = 0

    def queues_behind(self, queue: Queue | None, limit: int) -> list[Queue]:
        """See `ExternalStore`."""
        self.stage.clock.sleep_us(SECOND)
        self.looks += queue is None
        return super().queues_behind(queue, 1)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def enqueue(items: ItemsAtOnce, tenant: Tenant) -> None:
    user = items.begin()
    items.enqueue(user, Queue(tenant, "queue"), tenant.user.encode().rjust(16, b"."), new_item("mail"))
    items.commit(user)


def has_pointer(shard: Shard, tenant: Tenant) -> bool:
    location = shard.layout.location(tenant, pointer_zone(STORE, "queue"))
    return shard.transact(lambda attempt: attempt.tr.get(location.keys.pointer).present())


def start_reader(stage: Stage, items: ItemsAtOnce) -> None:
    stage.host.spawn("reader", ExternalReader(stage.host, STORE, items, stage.shards).run)


def test_a_shard_that_refuses_delays_no_tenant_of_another(stage: Stage) -> None:
    """Tenants of both come in turn. What the shard refused is done once it is back."""
    other, stage.shards["other"] = stage.open_shard("other")
    stores = {"main": stage.store, "other": other}
    items = Items(stage)
    for tenant in CROWD:
        enqueue(items, tenant)
    homes = {tenant: home(tenant, list(stores)) for tenant in CROWD}
    reads = home(reader_home(STORE), list(stores))
    (away,) = stores.keys() - {reads}
    stores[away].away = True
    start_reader(stage, items)
    stage.wait_for(lambda: all(has_pointer(stage.shards[reads], each) for each in CROWD if homes[each] == reads))
    stores[away].away = False
    stage.wait_for(lambda: all(has_pointer(stage.shards[homes[each]], each) for each in CROWD))


def test_a_tenant_that_is_locked_delays_no_other(stage: Stage) -> None:
    items = Items(stage)
    enqueue(items, ALICE), enqueue(items, BOB)
    lock(stage, ALICE)
    start_reader(stage, items)
    stage.wait_for(lambda: has_pointer(stage.shard, BOB), within_ms=1_000)
    assert not has_pointer(stage.shard, ALICE)
    unlock(stage, ALICE)
    stage.wait_for(lambda: has_pointer(stage.shard, ALICE))


def test_a_lock_that_lasts_ten_milliseconds_delays_its_tenant_by_little_more(stage: Stage) -> None:
    """Most last for two commits, and what is refused is tried again only a second later."""
    items = Items(stage)
    enqueue(items, ALICE)
    lock(stage, ALICE)
    start_reader(stage, items)
    stage.pass_ms(10)
    unlock(stage, ALICE)
    stage.wait_for(lambda: has_pointer(stage.shard, ALICE), within_ms=50)


def test_a_tenant_whose_owner_is_damaged_delays_no_other(stage: Stage) -> None:
    items = Items(stage)
    enqueue(items, ALICE), enqueue(items, BOB)
    stage.shard.transact(lambda attempt: attempt.tr.set(owner_key(ALICE), b"\x63"))
    start_reader(stage, items)
    stage.wait_for(lambda: has_pointer(stage.shard, BOB), within_ms=1_000)
    unlock(stage, ALICE)
    stage.wait_for(lambda: has_pointer(stage.shard, ALICE))


def test_a_hundred_pointers_share_a_transaction(stage: Stage) -> None:
    items = Items(stage)
    for number in range(100):
        enqueue(items, Tenant("shop", f"user {number:03}"))
    before = stage.store.commits
    start_reader(stage, items)
    stage.wait_for(lambda: looked(stage) > 0)
    assert stage.store.commits - before <= 5  # With the lease, what was seen, and the look of this test.


def test_a_look_at_many_queues_keeps_its_lease(stage: Stage) -> None:
    """Before, another reader began the same look after five seconds, and neither could save it."""
    items = SlowItems(stage)
    for tenant in CROWD:
        enqueue(items, tenant)
    for _ in range(2):
        start_reader(stage, items)
    stage.wait_for(lambda: looked(stage) > 0, within_ms=30_000)
    assert items.looks == 1
    assert all(has_pointer(stage.shard, each) for each in CROWD)


def test_a_reader_that_stood_still_in_the_middle_of_a_look_leaves_it_to_the_one_that_reads_now(stage: Stage) -> None:
    items = Items(stage)
    enqueue(items, ALICE)
    stage.store.on_commit(2, lambda: stage.clock.sleep_us(2 * LEASE_US))  # Its lease, then a pointer.
    for _ in range(2):
        start_reader(stage, items)
    stage.wait_for(lambda: looked(stage) > 0)
    enqueue(items, BOB)
    stage.wait_for(lambda: has_pointer(stage.shard, BOB))


def test_a_tenant_that_has_moved_is_followed(stage: Stage) -> None:
    other = second_shard(stage)
    items = Items(stage)
    there = next(tenant for tenant in CROWD if home(tenant, list(stage.shards)) == "main")
    move(stage, there, other)
    for tenant in CROWD:
        enqueue(items, tenant)
    start_reader(stage, items)
    stage.wait_for(lambda: looked(stage) > 0)
    assert has_pointer(other, there)
    assert not has_pointer(stage.shard, there)


def looked(stage: Stage) -> int:
    shard = stage.shards[home(reader_home(STORE), list(stage.shards))]
    return shard.transact(lambda attempt: read_reader(attempt.tr, STORE).looked_us)


def test_items_of_a_queue_with_a_name_that_none_can_have_hold_up_no_other(stage: Stage) -> None:
    items = Items(stage)
    user = items.begin()
    items.enqueue(user, Queue(ALICE, "z" * 79), b"m" * 16, new_item("mail"))
    items.commit(user)
    enqueue(items, BOB)
    start_reader(stage, items)
    stage.wait_for(lambda: has_pointer(stage.shard, BOB))


def saves(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the times of the reader's saves, as they come."""
    times: list[int] = []
    save = ExternalReader._save

    def noted(self: ExternalReader, record: ReaderRecord) -> None:
        times.append(stage.now_us)
        save(self, record)

    monkeypatch.setattr(ExternalReader, "_save", noted)
    return times


def test_a_busy_reader_saves_five_times_a_second(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    items = Items(stage)
    start_reader(stage, items)
    for number in range(2_000):
        if number == 1_200:  # Its doorbell is off by now, and it looks every few milliseconds.
            times = saves(stage, monkeypatch)
        enqueue(items, Tenant("shop", f"user {number:04}"))
        stage.pass_ms(2)
    assert 5 <= len(times) <= 12
    assert min(later - sooner for sooner, later in pairwise(times)) >= SAVE_US


def test_what_came_last_is_saved_soon_though_nothing_follows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    items = Items(stage)
    start_reader(stage, items)
    stage.pass_ms(3_000)
    times = saves(stage, monkeypatch)
    for tenant in (ALICE, BOB):
        enqueue(items, tenant)
        stage.wait_for(lambda tenant=tenant: has_pointer(stage.shard, tenant))  # type: ignore[misc]
    here_us = stage.now_us
    stage.pass_ms(1_500)
    assert times
    assert times[-1] <= here_us + 2 * SAVE_US
    read = stage.shard.transact(lambda attempt: read_reader(attempt.tr, STORE))
    assert read.seen == items.snapshot()
