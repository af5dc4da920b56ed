"""The dashboard and `fairlead top` read bounded parts of the stores, and say what they did not read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead import App, Config, ConsumerSettings, Job, TenantDatabase, fleet
from fairlead.dashboard.pages import running
from fairlead.queries import queues, tenants
from fairlead.queries.activity import Activity, chart_data, slot_count
from fairlead.queries.items import read_item
from fairlead.queries.queues import delayed_items, waiting_tenants
from fairlead.queries.tenants import find_dead_letters, read_tenant
from fairlead.testing import ManualClock, drain
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.reporting.rollups import INTERVAL_US, Interval, KindRollup, Rollup, StoreDepth
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.sessions import ListedSession, SessionRecord

SECOND_US = 1_000_000


@pytest.fixture
def shard(app: App) -> Shard:
    return app.shards["main"]


def pass_us(app: App, duration_us: int) -> None:
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(duration_us / 1e6)


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


# --- Queues ---


def test_tenants_are_sorted_by_the_items_that_wait_in_all_their_queues(
    app: App, alice: TenantDatabase, shard: Shard
) -> None:
    alice.enqueue("mail")
    pass_us(app, SECOND_US)
    alice.enqueue("index", zone="other", delay=60)
    for _ in range(3):
        app.tenant("shop", "bob").enqueue("mail")
    found = waiting_tenants(shard)
    assert [(each.tenant.user, each.waiting) for each in found.tenants] == [
        ("bob", {"mail": 3}),
        ("alice", {"mail": 1, "index": 1}),
    ]
    assert [app.clock.now_us() - (each.oldest_us or 0) for each in found.tenants] == [0, SECOND_US]
    assert (found.queues, found.whole) == (3, True)


def test_a_tenant_with_a_policy_is_listed_without_waiting_items(app: App, shard: Shard) -> None:
    app.control.pause_tenant("shop", "carol")
    (found,) = waiting_tenants(shard, more=[Tenant("shop", "dora")], tenants_max=1).tenants[:1]
    assert (found.tenant.user, found.total) in [("carol", 0), ("dora", 0)]
    rules = {each.tenant.user: each.policy for each in waiting_tenants(shard, more=[Tenant("shop", "dora")]).tenants}
    assert rules["carol"] is not None
    assert rules["carol"].paused
    assert rules["dora"] is None


def test_of_many_queues_the_first_in_order_are_read(app: App, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "QUEUES_MAX", 5)
    for number in range(9):
        app.tenant("shop", f"user-{number}").enqueue("mail")
        pass_us(app, SECOND_US)
    found = waiting_tenants(shard)
    assert {each.tenant.user for each in found.tenants} == {f"user-{number}" for number in range(5)}
    assert not found.whole


def test_of_a_tenant_with_a_policy_and_many_queues_the_first_are_read(
    app: App, alice: TenantDatabase, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each queue costs one read. A tenant with none of the queues that are read is listed too."""
    monkeypatch.setattr(queues, "QUEUES_MAX", 5)
    monkeypatch.setattr(queues, "QUEUES_OF_TENANT_MAX", 3)
    for number in range(6):
        app.tenant("shop", f"user-{number}").enqueue("mail")
        pass_us(app, SECOND_US)
    for number in range(9):
        alice.enqueue("mail", zone=f"zone-{number}")
    app.control.limit_tenant(*alice.tenant, max_running=3)
    found = waiting_tenants(shard)
    assert {each.tenant: each.total for each in found.tenants}[alice.tenant] == 3
    assert (found.queues, found.whole) == (5 + 3, False)


def test_a_count_whose_key_is_damaged_is_passed_over(app: App, alice: TenantDatabase, shard: Shard) -> None:
    alice.enqueue("mail")
    damaged = shard.zone(Tenant("shop", "alice")).location.keys.count_prefix() + b"\x02\xff\x00"
    shard.transact(lambda attempt: attempt.tr.set(damaged, bytes(8)))
    (found,) = waiting_tenants(shard).tenants
    assert found.waiting == {"mail": 1}


def test_tenants_that_are_not_listed_are_counted(app: App, shard: Shard) -> None:
    for number in range(5):
        app.tenant("shop", f"user-{number}").enqueue("mail")
    found = waiting_tenants(shard, tenants_max=2)
    assert (len(found.tenants), found.left_out, found.whole) == (2, 3, True)


def test_delayed_items_are_sorted_by_time_without_leased_ones(app: App, alice: TenantDatabase, shard: Shard) -> None:
    late = alice.enqueue("mail", delay=60).item_id
    soon = alice.enqueue("mail", delay=30, priority=7).item_id
    held = alice.enqueue("mail").item_id
    alice.enqueue("index")
    bobs = app.tenant("shop", "bob").enqueue("mail", delay=45).item_id
    now_us = app.clock.now_us()
    shard.transact(
        lambda attempt: shard.zone(alice.tenant).obtain_lease(
            attempt.tr, held, lease_id=bytes(16), lease_us=SECOND_US, now_us=now_us
        )
    )
    found = delayed_items(shard)
    assert [each.id for each in found.items] == [soon, bobs, late]
    assert found.whole


def test_of_many_delayed_items_the_next_are_listed(alice: TenantDatabase, shard: Shard) -> None:
    for number in range(queues.DELAYED_OF_QUEUE_MAX + 5):
        alice.enqueue("mail", delay=60 + number)
    found = delayed_items(shard)
    assert len(found.items) == queues.DELAYED_OF_QUEUE_MAX
    assert not found.whole


# --- A tenant, an item ---


def test_a_tenant_is_shown_queue_by_queue(app: App, alice: TenantDatabase, shard: Shard) -> None:
    app.handler("mail", permanent=(ValueError,))(refuse)
    alice.enqueue("mail")
    drain(app, raise_errors=False)
    alice.enqueue("index")
    alice.enqueue("index", zone="other")
    found = read_tenant(shard, alice.tenant)
    assert [(each.name, each.total, len(each.dead_letters)) for each in found.queues] == [
        ("other", 1, 0),
        ("queue", 1, 1),
    ]


def test_a_tenant_with_many_dead_letters_shows_that_there_are_more(
    app: App, alice: TenantDatabase, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "DEAD_LETTERS_MAX", 2)
    for count, whole in ((2, True), (3, False)):
        dead_letter(app, alice, "mail", 1 if count > 2 else 2)
        (queue,) = read_tenant(shard, alice.tenant).queues
        assert (len(queue.dead_letters), queue.dead_letters_whole) == (2, whole)


def refuse(job: Job) -> None:
    raise ValueError("no")


def test_dead_letters_are_listed_page_by_page(app: App, alice: TenantDatabase, shard: Shard) -> None:
    dead_letter(app, alice, "mail", 5)
    first = find_dead_letters(shard, DeadLetterFilter(), items_max=3)
    rest = find_dead_letters(shard, DeadLetterFilter(), items_max=3, next_key=first.next_key)
    times_us = [each.record.dead_lettered_us for each in (*first.items, *rest.items)]
    assert len(times_us) == 5
    assert times_us == sorted(times_us, reverse=True)
    assert rest.next_key is None


@pytest.mark.parametrize("count", [3, 6])
def test_a_full_last_page_of_dead_letters_has_no_next_page(
    app: App, alice: TenantDatabase, shard: Shard, count: int
) -> None:
    dead_letter(app, alice, "mail", count)
    seen = [find_dead_letters(shard, DeadLetterFilter(), items_max=3)]
    while seen[-1].next_key is not None:
        seen.append(find_dead_letters(shard, DeadLetterFilter(), items_max=3, next_key=seen[-1].next_key))
    assert [len(each.items) for each in seen] == [3] * (count // 3)


def test_a_page_of_dead_letters_has_a_next_page_only_if_more_match(
    app: App, alice: TenantDatabase, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "SCANNED_MAX", 4)
    dead_letter(app, alice, "index", 9)
    dead_letter(app, alice, "mail", 3)
    found = find_dead_letters(shard, DeadLetterFilter(kind="mail"), items_max=3)
    assert (len(found.items), found.next_key, found.scanned) == (3, None, 12)


def test_a_dead_letter_behind_many_others_is_found(
    app: App, alice: TenantDatabase, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "SCANNED_MAX", 4)
    dead_letter(app, alice, "mail", 1)
    dead_letter(app, alice, "index", 10)
    found = find_dead_letters(shard, DeadLetterFilter(kind="mail"), items_max=3)
    assert (len(found.items), found.next_key, found.scanned) == (1, None, 11)


def test_a_search_for_dead_letters_is_bounded_and_can_continue(
    app: App, alice: TenantDatabase, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "SCANNED_MAX", 4)
    monkeypatch.setattr(tenants, "SCANNED_PER_PAGE_MAX", 6)
    dead_letter(app, alice, "mail", 1)
    dead_letter(app, alice, "index", 7)
    first = find_dead_letters(shard, DeadLetterFilter(kind="mail"), items_max=3)
    assert (first.items, first.scanned) == ([], 6)
    rest = find_dead_letters(shard, DeadLetterFilter(kind="mail"), items_max=3, next_key=first.next_key)
    assert (len(rest.items), rest.next_key, rest.scanned) == (1, None, 2)


def dead_letter(app: App, tenant: TenantDatabase, kind: str, count: int) -> None:
    """Make so many more dead letters of a tenant, one after the other."""
    if kind not in {each.kind for each in app.registry}:
        app.handler(kind, permanent=(ValueError,))(refuse)
    for _ in range(count):
        tenant.enqueue(kind)
        drain(app, raise_errors=False)
        pass_us(app, SECOND_US)


def test_an_item_that_has_ended_is_shown_with_its_result(app: App, alice: TenantDatabase, shard: Shard) -> None:
    app.handler("sum", keep_result=3600)(lambda job: {"sum": 7})
    item_id = alice.enqueue("sum").item_id
    waiting = read_item(shard, alice.tenant, "queue", item_id)
    assert waiting.view is not None
    assert waiting.returned is None
    drain(app)
    ended = read_item(shard, alice.tenant, "queue", item_id)
    assert ended.view is None
    assert ended.returned is not None
    assert ended.returned.value == {"sum": 7}


# --- Slots ---


def sign(number: int, slots: int, *, live: bool = True) -> ListedSession:
    return ListedSession(bytes([number]), SessionRecord("host", 7, ["mail"], 1, 2, slots=slots), live)


def activity(*consumers: ListedSession) -> Activity:
    return Activity("main", [], [], list(consumers), 0)


@pytest.mark.parametrize(
    ("found", "slots"),
    [
        ([activity(sign(1, 32), sign(2, 16))], 48),
        ([activity(sign(1, 32)), activity(sign(1, 32), sign(2, 16))], 48),  # one of them serves two shards
        ([activity(sign(1, 32), sign(2, 16, live=False))], 32),
        ([activity(sign(1, 32), sign(2, 0))], None),  # of an older version
        ([activity(sign(1, 32, live=False))], None),
        ([], None),
    ],
)
def test_slots_are_those_that_live_consumers_report(found: list[Activity], slots: int | None) -> None:
    assert slot_count(found) == slots


def test_the_slots_of_a_fleet_are_shown_while_it_runs_idles_and_has_stopped(tmp_path: Path) -> None:
    """Its workers are threads of one process, so host and process do not distinguish them."""
    settings = ConsumerSettings(workers=2, managers=1, slots=3)
    app = App(config=Config(shards={"main": f"embedded:{tmp_path / 'store'}"}, consumer=settings))
    opened = threading.Event()
    app.handler("mail")(lambda job: opened.wait(60))

    def shown() -> tuple[int, int | None]:
        page = running(app, {})
        return page["running"], page["slots"]

    consumer = fleet.start(app, "tests:app", runtime="threads")
    try:
        eventually(lambda: shown() == (0, 6))
        for user in "abcd":
            app.tenant("shop", user).enqueue("mail")
        eventually(lambda: shown() == (4, 6))
        opened.set()
        eventually(lambda: shown() == (0, 6))
    finally:
        opened.set()
        consumer.stop(drain=1)
    assert shown() == (0, None)
    app.close()


# --- Over time ---


def test_activity_of_shards_is_summed_without_unknown_moments() -> None:
    now_us = 1_000 * INTERVAL_US
    done = Rollup({"mail": KindRollup(completed=20, retried=5, dead_lettered=10, run_us=7)}, {})
    old = Interval(997, done, {"mail": 4}, 990 * INTERVAL_US)
    fresh = Interval(998, done)
    unfinished = Interval(1_000, done)
    drawn = chart_data(
        [Activity("eu", [], [old, fresh], [], now_us), Activity("us", [], [old, unfinished], [], now_us)], now_us
    )
    assert drawn.times_s[-3:] == [9_970, 9_980, 9_990]
    assert drawn.completed_per_s[-3:] == [4.0, 2.0, 0.0]
    assert drawn.retried_per_s[-3] == 1.0
    assert drawn.failed_per_s[-3] == 2.0
    assert drawn.waiting[-3:] == [8, None, None]
    assert drawn.oldest_s[-3:] == [80.0, None, None]


def test_what_waits_in_external_stores_is_added_where_shards_are_known() -> None:
    now_us = 1_000 * INTERVAL_US
    known, unknown = Interval(997, Rollup({}, {}), {"mail": 4}, 996 * INTERVAL_US), Interval(998, Rollup({}, {}))
    in_stores = {number: [StoreDepth({"mail": 3, "report": 1}, 990 * INTERVAL_US)] for number in (997, 998)}
    activity = Activity("eu", [], [known, unknown], [], now_us, in_stores)
    drawn = chart_data([activity], now_us)
    assert (drawn.waiting[-3:], drawn.oldest_s[-3:]) == ([8, None, None], [80.0, None, None])
    assert chart_data([activity], now_us, kind="report").waiting[-3] == 1
