"""The scanner: finds what has vested while somebody has capacity, and sleeps when there is nothing (Algorithm 1)."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.dispatch.pickup_latency import bucket_bound_us, buckets_in
from fairlead.actors.messages import ServeReply
from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.scanner import Scanner
from fairlead.actors.scanning.idle_policy import BACKOFF_FACTOR_MAX, EAGER_DIVISOR
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.layout import Tenant
from fairlead.zones.policy import policies
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.process_pointers import Deferred
from tests.actors.stage import ALICE, ALONE, BOB, MS, Call, Ear, Played, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def served(capacity: int = 100, items: int = 0) -> ServeReply:
    return ServeReply(items, 0, 0, 0, capacity)


class Scanning:
    """A scanner that runs, its managers and its coordinator played by the test.

    `order`: whether the coordinator lets it go in order; None: it does not ask, and all that there is is its own.
    """

    def __init__(
        self, stage: Stage, *, managers: int = 1, order: bool | None = None, shards: dict[str, Shard] | None = None,
        fit: bool = True, **settings: Any
    ) -> None:  # fmt: skip
        self.stage = stage
        self.managers = [Played(stage.host) for _ in range(managers)]
        self.coordinator = Played(stage.host, lambda method, args: order)
        selection = "partitioned" if order is None else "in_order"
        chosen = ConsumerSettings(**{"selection": selection, "managers": managers, "workers": managers, **settings})
        shards = shards or stage.shards
        self.scanner = Scanner(stage.host, shards, chosen, self.managers, self.coordinator, consumer="me")
        for name in shards:
            self.scanner.set_session(name, ALONE if fit else None)
        self.running = stage.begin(self.scanner.run)
        stage.pass_ms(1)

    def calls(self) -> list[Call]:
        """Return the batches that came since this was asked last."""
        return [call for manager in self.managers for call in manager.taken() if call.method == "serve"]

    def answer(self, capacity: int = 100) -> list[set[bytes]]:
        """Answer all that is out, as if the pointers had been put to sleep; return the pointers of each batch."""
        found = []
        for manager in self.managers:
            for call in manager.taken():
                if call.method == "serve":
                    found.append({ref.id for ref in call.args[1]})
                    call.answer(served(capacity))
                else:
                    call.answer(capacity)
        return found


def pointer_ids(stage: Stage, *tenants: Tenant) -> set[bytes]:
    return {stage.shard.zone(tenant).location.pointer_id for tenant in tenants}


# --- Finding ---


def test_a_vested_pointer_is_passed_to_a_manager(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    assert (call.method, call.args[0]) == ("serve", "main")
    assert {ref.id for ref in call.args[1]} == pointer_ids(stage, ALICE)


def test_a_pointer_that_a_manager_holds_is_not_passed_on_twice(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    assert len(scanning.calls()) == 1
    stage.enqueue("mail", tenant=BOB)
    stage.pass_ms(50)
    (second,) = scanning.calls()
    assert {ref.id for ref in second.args[1]} == pointer_ids(stage, BOB)


def test_a_pointer_that_comes_back_vested_is_passed_on_again(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    scanning.answer()
    stage.pass_ms(50)
    assert len(scanning.calls()) == 1


def test_pointers_travel_in_batches(stage: Stage) -> None:
    for number in range(10):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
    scanning = Scanning(stage, selection_frac=1, batch_pointers=4)
    sizes = []
    for _ in range(3):
        sizes += [len(batch) for batch in scanning.answer()]
        stage.pass_ms(1)
    assert sizes[:3] == [4, 4, 2]


def test_batches_are_assigned_to_the_managers_that_have_least_to_do(stage: Stage) -> None:
    for number in range(4):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
    scanning = Scanning(stage, managers=2, selection_frac=1, batch_pointers=1)
    assert [len(manager.named("serve")) for manager in scanning.managers] == [2, 2]


def test_what_managers_say_of_waits_is_counted_by_bucket(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    call.answer(served()._replace(waited_us=(105_000, 105_000, 7)))
    stage.pass_ms(1)
    assert buckets_in(scanning.scanner.counts()) == {bucket_bound_us(105_000): 2, bucket_bound_us(7): 1}


def test_a_manager_has_one_batch_at_work_and_one_waiting(stage: Stage) -> None:
    for number in range(10):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
    scanning = Scanning(stage, selection_frac=1, batch_pointers=1)
    stage.pass_ms(500)
    assert len(scanning.calls()) == 2


def test_nothing_is_scanned_while_no_worker_has_capacity(stage: Stage) -> None:
    """A pointer leased for nobody would be hidden from the consumers that could serve it."""
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    call.answer(served(capacity=0))
    stage.pass_ms(100)
    before = scanning.scanner.counts()["scans"]
    stage.enqueue("mail", tenant=BOB)
    stage.pass_ms(900)
    assert scanning.scanner.counts()["scans"] == before
    (question,) = scanning.managers[0].named("await_capacity")
    question.answer(5)
    stage.pass_ms(50)
    assert scanning.calls(), "with capacity it goes on"


def test_a_manager_that_was_full_is_asked_for_capacity_although_another_has_some(stage: Stage) -> None:
    """Before, it stood idle for as long as the other was not full too."""
    stage.enqueue("mail")
    scanning = Scanning(stage, managers=2)
    (call,) = scanning.calls()
    call.answer(served(capacity=0))
    stage.pass_ms(50)
    (question,) = scanning.managers[0].named("await_capacity")
    question.answer(5)
    for number in range(4):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
        stage.pass_ms(50)
    assert all(manager.named("serve") for manager in scanning.managers)


def test_every_shard_is_scanned_however_much_one_has(stage: Stage) -> None:
    """`processing_bound` pointers, and then it is the next one's turn."""
    _, other = stage.open_shard("other")
    for number in range(30):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
    stage.enqueue("mail", shard=other)
    scanning = Scanning(
        stage, shards={"main": stage.shard, "other": other}, processing_bound=5, selection_frac=1, batch_pointers=5
    )
    seen: list[str] = []
    for _ in range(40):
        for call in scanning.calls():
            seen.append(call.args[0])
            call.answer(served())
        stage.pass_ms(1)
    assert "other" in seen[:4]


def test_a_delayed_item_is_found_when_its_time_has_come(stage: Stage) -> None:
    scanning = Scanning(stage)
    stage.enqueue("mail", delay=3)
    begun_us = stage.now_us
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=4_000)
    assert 3_000 * MS <= stage.now_us - begun_us <= 3_025 * MS


@pytest.mark.parametrize(("idle_ms", "polls"), [(500, 1), (5_000, BACKOFF_FACTOR_MAX)])
def test_an_item_that_comes_to_an_idle_scanner_is_found_within_a_few_polls(
    stage: Stage, idle_ms: int, polls: int
) -> None:
    """Within one while it has been idle for a moment only."""
    scanning = Scanning(stage, poll_interval_ms=20)
    stage.pass_ms(idle_ms)
    stage.enqueue("mail")
    begun_us = stage.now_us
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=1_000)
    assert stage.now_us - begun_us <= (20 * polls + 5) * MS


def test_what_comes_soon_after_other_work_is_found_sooner(stage: Stage) -> None:
    scanning = Scanning(stage, poll_interval_ms=20)
    stage.enqueue("mail")
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=1_000)
    scanning.answer()
    stage.pass_ms(50)
    stage.enqueue("mail", tenant=BOB)
    begun_us = stage.now_us
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=1_000)
    assert stage.now_us - begun_us <= (20 // EAGER_DIVISOR + 2) * MS


def test_once_work_has_come_an_idle_scanner_polls_often_again(stage: Stage) -> None:
    scanning = Scanning(stage, poll_interval_ms=20)
    stage.pass_ms(5_000)
    stage.enqueue("mail")
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=1_000)
    scanning.answer()
    stage.pass_ms(500)
    stage.enqueue("mail", tenant=BOB)
    begun_us = stage.now_us
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=1_000)
    assert stage.now_us - begun_us <= 25 * MS


@pytest.fixture
def ear(stage: Stage) -> Ear:
    """The store tells of commits of other processes, when the test says so."""
    stage.store.ear = Ear(stage.host)
    return stage.store.ear


def test_where_the_store_tells_of_others_commits_the_scanner_does_not_wait_for_its_poll(stage: Stage, ear: Ear) -> None:
    scanning = Scanning(stage, poll_interval_ms=60_000)
    stage.pass_ms(100)
    stage.enqueue("mail")
    stage.pass_ms(5)
    assert not scanning.calls()
    stage.do(ear.say)
    stage.pass_ms(1)
    assert scanning.calls()


def test_of_many_commits_it_hears_one_in_two_milliseconds(stage: Stage, ear: Ear) -> None:
    scanning = Scanning(stage, poll_interval_ms=60_000)
    begun_us = stage.now_us
    for number in range(300):
        stage.shard.transact(lambda attempt: attempt.tr.set(b"others", number.to_bytes(2, "big")))  # noqa: B023
        stage.do(ear.say)
        stage.pass_ms(0.1)
    assert 50 <= scanning.scanner.counts()["scans"] <= 2 + (stage.now_us - begun_us) // (2 * MS)


def test_what_it_did_not_hear_of_is_found_by_its_poll(stage: Stage, ear: Ear) -> None:
    scanning = Scanning(stage, poll_interval_ms=20)
    stage.enqueue("mail")
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=25)


def test_who_stops_listens_no_more(stage: Stage, ear: Ear) -> None:
    scanning = Scanning(stage)
    stage.do(scanning.scanner.stop)
    stage.wait_for(lambda: ear.closed, within_ms=1_100)


def test_an_idle_store_is_asked_only_whether_anything_has_changed(stage: Stage) -> None:
    """Not scanned: a look at every part of the top-level queue costs a hundred times as much."""
    scanning = Scanning(stage, poll_interval_ms=10)
    before = scanning.scanner.counts()["scans"]
    stage.pass_ms(10_000)
    assert scanning.scanner.counts()["scans"] - before <= 11


def test_a_pointer_that_is_left_to_another_consumer_is_passed_over_until_then(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    (ref,) = call.args[1]
    call.answer(served()._replace(deferred=(Deferred(ref.id, ref.vesting_us, stage.now_us + 200 * MS),)))
    stage.pass_ms(150)
    assert not scanning.calls()
    stage.pass_ms(100)
    assert scanning.calls()


def test_what_is_left_to_other_consumers_does_not_keep_an_idle_scanner_busy(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage, poll_interval_ms=10)
    (call,) = scanning.calls()
    (ref,) = call.args[1]
    call.answer(served()._replace(deferred=(Deferred(ref.id, ref.vesting_us, stage.now_us + 5_000 * MS),)))
    stage.pass_ms(50)
    before = scanning.scanner.counts()["scans"]
    stage.pass_ms(4_900)
    assert scanning.scanner.counts()["scans"] - before <= 6
    assert not scanning.calls()
    stage.enqueue("mail", tenant=BOB, delay=0.5)
    stage.pass_ms(550)
    assert {ref.id for call in scanning.calls() for ref in call.args[1]} == pointer_ids(stage, ALICE, BOB)


def test_a_pointer_that_vests_at_another_time_since_it_was_left_to_another_consumer_is_not_passed_over(
    stage: Stage,
) -> None:
    """Somebody has done something to it, so what is left may be for this consumer."""
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    (ref,) = call.args[1]
    call.answer(served()._replace(deferred=(Deferred(ref.id, ref.vesting_us - 1, stage.now_us + 200 * MS),)))
    stage.pass_ms(20)
    assert scanning.calls()


def test_a_pointer_that_a_manager_holds_does_not_hide_its_namesake_on_another_shard(stage: Stage) -> None:
    """A local queue of a kind exists on every shard, and its pointer has the same id there."""
    _, other = stage.open_shard("other")
    stage.enqueue("mail")
    scanning = Scanning(stage, shards={"main": stage.shard, "other": other})
    assert [call.args[0] for call in scanning.calls()] == ["main"]
    stage.enqueue("mail", shard=other)
    stage.pass_ms(50)
    assert [call.args[0] for call in scanning.calls()] == ["other"]


def test_a_pointer_that_is_left_to_another_consumer_does_not_hide_its_namesake_on_another_shard(stage: Stage) -> None:
    _, other = stage.open_shard("other")
    stage.enqueue("mail")
    scanning = Scanning(stage, shards={"main": stage.shard, "other": other})
    (call,) = scanning.calls()
    stage.enqueue("mail", shard=other)
    (there,) = stage.pointers(other)
    call.answer(served()._replace(deferred=(Deferred(there.id, there.vesting_us, stage.now_us + 5_000 * MS),)))
    stage.pass_ms(50)
    assert "other" in [call.args[0] for call in scanning.calls()]


@pytest.mark.parametrize("capacity, full", [(0, True), (5, False)])
def test_it_is_full_if_it_waits_for_capacity_most_of_the_time(stage: Stage, capacity: int, full: bool) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    call.answer(served(capacity=capacity))
    assert not scanning.scanner.was_saturated()
    stage.pass_ms(1_000)
    assert scanning.scanner.was_saturated() is full


# --- Clocks and stores ---


def test_nothing_is_taken_while_the_clock_is_not_trusted(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage, fit=False)
    stage.pass_ms(1_000)
    assert scanning.calls() == []
    scanning.scanner.set_session("main", ALONE)
    stage.pass_ms(50)
    assert len(scanning.calls()) == 1


def test_a_store_that_is_away_is_named_once_and_found_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    scanning = Scanning(stage)
    stage.enqueue("mail", delay=0.1)
    stage.store.away = True
    stage.pass_ms(10_000)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "shard main cannot be scanned; trying again"
    ]
    stage.store.away = False
    stage.pass_ms(1_100)
    assert len(scanning.calls()) == 1


def test_a_shard_that_is_away_does_not_keep_others_from_being_scanned(stage: Stage) -> None:
    store, other = stage.open_shard("other")
    store.away = True
    scanning = Scanning(stage, shards={"main": stage.shard, "other": other})
    stage.pass_ms(1_000)
    stage.enqueue("mail")
    stage.pass_ms(50)
    assert [call.args[0] for call in scanning.calls()] == ["main"]


def test_a_cluster_that_does_not_answer_lets_others_wait_a_second_at_most_and_is_found_again(stage: Stage) -> None:
    store, other = stage.open_shard("other")
    scanning = Scanning(stage, shards={"main": stage.shard, "other": other})
    store.silent = True
    waited_ms = []
    for number in range(20):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
        begun_us = stage.now_us
        stage.wait_for(scanning.answer, within_ms=10_000)
        waited_ms.append((stage.now_us - begun_us) / 1_000)
        stage.pass_ms(300)
    assert max(waited_ms) < 1_100
    assert sorted(waited_ms)[10] < 100, "and mostly not that long"
    store.silent = False
    stage.enqueue("mail", shard=other)
    stage.wait_for(lambda: [call for call in scanning.calls() if call.args[0] == "other"], within_ms=5_000)


# --- Managers that die ---


def test_pointers_of_a_manager_that_died_are_passed_on_again(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    call.answer(error=ActorDied(method="serve"))
    stage.pass_ms(150)
    (question,) = scanning.managers[0].taken()
    assert question.method == "await_capacity"
    question.answer(10)
    stage.pass_ms(50)
    assert len(scanning.calls()) == 1


def test_a_manager_that_is_dead_is_not_asked_again_and_again(stage: Stage) -> None:
    scanning = Scanning(stage)
    scanning.managers[0]._reply = lambda method, args: ActorDied(method=method)
    stage.enqueue("mail")
    stage.pass_ms(2_000)
    assert 5 <= len(scanning.managers[0].calls) <= 25


def test_while_one_manager_is_dead_the_other_gets_the_work(stage: Stage) -> None:
    scanning = Scanning(stage, managers=2, selection_frac=1)
    scanning.managers[0]._reply = lambda method, args: ActorDied(method=method)
    stage.enqueue("mail")
    handed_over = 0
    for _ in range(50):
        stage.pass_ms(10)
        for call in scanning.managers[1].taken():
            handed_over += call.method == "serve"
            call.answer(served() if call.method == "serve" else 10)
    assert handed_over > 3


def test_a_mistake_in_a_manager_is_logged_with_its_traceback(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    call.answer(error=KeyError("a mistake"))
    stage.pass_ms(10)
    assert [record.exc_info is not None for record in caplog.records if "manager 0 failed" in record.message] == [True]


# --- Order ---


def requests(scanning: Scanning) -> list[tuple[bool, bool]]:
    """Return what was asked of the coordinator: whether pointers were handed over in order, whether it is wanted."""
    return [call.args[2:4] for call in scanning.coordinator.taken()]


def test_with_the_order_it_takes_all_that_has_vested(stage: Stage) -> None:
    for number in range(50):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
    scanning = Scanning(stage, order=True, batch_pointers=100)
    sizes = []
    for _ in range(20):
        sizes += [len(batch) for batch in scanning.answer()]
        stage.pass_ms(1)
    assert max(sizes) == 50


def test_without_it_a_few_at_random(stage: Stage) -> None:
    for number in range(50):
        stage.enqueue("mail", tenant=Tenant("shop", f"user {number}"))
    scanning = Scanning(stage, order=False)
    sizes = []
    for _ in range(20):
        sizes += [len(batch) for batch in scanning.answer()]
        stage.pass_ms(1)
    assert set(sizes) == {1}


def test_a_request_states_whether_pointers_were_passed_on_in_order_since_the_last(stage: Stage) -> None:
    scanning = Scanning(stage, order=True, in_order_lease_ms=300)
    stage.pass_ms(400)
    assert (False, True) in requests(scanning)
    stage.enqueue("mail")
    for _ in range(40):
        scanning.answer()
        stage.pass_ms(10)
    assert (True, True) in requests(scanning)


def test_a_full_consumer_gives_the_order_up(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage, order=True, in_order_lease_ms=900)
    stage.pass_ms(50)
    for call in scanning.calls():
        call.answer(served(capacity=0))
    stage.pass_ms(700)
    assert (False, False) in requests(scanning)


def test_it_gives_the_order_up_however_often_its_managers_say_that_they_are_full(stage: Stage) -> None:
    for tenant in (ALICE, BOB):
        stage.enqueue("mail", tenant=tenant)
    scanning = Scanning(stage, order=True, in_order_lease_ms=900, managers=2, batch_pointers=1)
    stage.pass_ms(50)
    for _ in range(7):
        for manager in scanning.managers:
            for call in manager.taken():
                call.answer(served(capacity=0) if call.method == "serve" else 0)
            stage.pass_ms(50)
    assert (False, False) in requests(scanning)


def test_a_dead_coordinator_costs_the_order_and_nothing_else(stage: Stage) -> None:
    scanning = Scanning(stage, order=False)
    scanning.coordinator._reply = lambda method, args: ActorDied(method=method)
    stage.pass_ms(5_000)
    stage.enqueue("mail")
    stage.pass_ms(50)
    assert len(scanning.calls()) == 1
    # It asks when it scans. Where parts are watched, that is at the start, and again when work has come.
    asked_min = 2 if stage.shard.layout.is_watched else 4
    assert asked_min <= len(scanning.coordinator.calls) <= 7, "asked once a second at most"


# --- Stopping ---


@pytest.mark.parametrize("busy", [True, False])
def test_it_stops_at_once(stage: Stage, busy: bool) -> None:
    if busy:
        stage.enqueue("mail")
    scanning = Scanning(stage)
    if busy:
        for call in scanning.calls():
            call.answer(served(capacity=0))
        stage.pass_ms(50)
    begun_us = stage.now_us
    stage.do(scanning.scanner.stop)
    stage.wait_for(lambda: scanning.running.over_us is not None, within_ms=100)
    assert stage.now_us - begun_us <= 2 * MS


def test_it_counts_what_it_did(stage: Stage) -> None:
    stage.enqueue("mail")
    scanning = Scanning(stage)
    (call,) = scanning.calls()
    assert scanning.scanner.counts()["pointers_held"] == 1
    stage.do(scanning.scanner.stop)
    call.answer(served(items=3))
    stage.pass_ms(1)
    counts = scanning.scanner.counts()
    assert (counts["pointers"], counts["items"], counts["pointers_held"]) == (1, 3, 0)
    assert "capacity" not in counts


def test_a_store_that_refuses_to_say_whether_anything_changed_is_asked_again(stage: Stage) -> None:
    """As an embedded store does for a moment when too many processes read it."""
    scanning = Scanning(stage)
    stage.pass_ms(500)
    ask = stage.store.commit_sequence

    def refuse() -> int | None:
        raise StoreUnavailable("too many readers", remedy="Wait.")

    stage.store.commit_sequence = refuse  # type: ignore[method-assign]
    stage.pass_ms(500)
    stage.store.commit_sequence = ask  # type: ignore[method-assign]
    stage.enqueue("mail")
    stage.wait_for(lambda: scanning.managers[0].named("serve"), within_ms=1_000)


# --- A paused shard ---


def test_no_pointer_of_a_paused_shard_is_passed_on_until_it_goes_on(stage: Stage) -> None:
    stage.shard.transact(lambda attempt: policies.pause_shard(attempt.tr))
    stage.enqueue("mail")
    scanning = Scanning(stage)
    stage.pass_ms(5_000)
    assert scanning.calls() == []
    stage.shard.transact(lambda attempt: policies.resume_shard(attempt.tr))
    stage.pass_ms(1_000)
    assert len(scanning.calls()) == 1


def test_other_shards_go_on_while_one_is_paused(stage: Stage) -> None:
    _, other = stage.open_shard("other")
    stage.shard.transact(lambda attempt: policies.pause_shard(attempt.tr))
    stage.enqueue("mail")
    stage.enqueue("mail", shard=other)
    scanning = Scanning(stage, shards={**stage.shards, "other": other})
    stage.pass_ms(1_000)
    assert {call.args[0] for call in scanning.calls()} == {"other"}
