"""One call says why an item is not running, or how it ended. Each test produces its cause with real components."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import (
    App,
    Attempts,
    Cause,
    Explanation,
    Job,
    PermanentError,
    Retry,
    TenantDatabase,
    new_item,
)
from fairlead.testing import ManualClock, drain
from fairlead.zones.keyspace import ROOT
from fairlead.zones.pipelining import run_one
from fairlead.zones.records import FORMAT
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import SessionRecord
from tests.fairlead.live_consumers import HELD_MAX, Gate, consumer, eventually, until
from tests.fairlead.shell import run

# --- Not yet ---


def test_a_delayed_item_vests_at_its_time(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail", delay=90).item_id
    said = alice.explain(item_id)
    assert (said.cause, said.sentence) == (Cause.DELAYED, "it vests in 90.0 s")
    assert said.details == {"vests_us": app.clock.now_us() + 90_000_000}
    assert (said.tenant, said.zone, said.kind, said.shard) == (("shop", "alice"), "queue", "mail", "main")


def test_a_failed_item_says_when_it_is_tried_again_and_what_went_wrong(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", retry=Retry(attempts=5, backoff=60))
    def send(job: Job) -> None:
        raise RuntimeError("no postman")

    item_id = alice.enqueue("mail").item_id
    drain(app, raise_errors=False)
    said = alice.explain(item_id)
    assert said.cause is Cause.RETRYING
    assert "no postman" in said.sentence
    assert "attempt 2 comes in" in said.sentence
    traceback = said.attempts.last_traceback
    assert said.attempts == Attempts(raised=1, last_error="RuntimeError: no postman", last_traceback=traceback)
    assert "in send\n" in traceback
    assert traceback.endswith("RuntimeError: no postman\n")


@pytest.mark.parametrize("form", ["plain", "async", "transactional"])
def test_a_traceback_begins_with_the_handlers_own_frame(app: App, alice: TenantDatabase, form: str) -> None:
    def plain(job: Job) -> None:
        raise RuntimeError("no postman")

    async def asynchronous(job: Job) -> None:
        raise RuntimeError("no postman")

    def transactional(job: Job, tr: Any) -> None:
        raise RuntimeError("no postman")

    handlers: dict[str, Callable[..., Any]] = {"plain": plain, "async": asynchronous, "transactional": transactional}
    handler = handlers[form]
    app.handler("mail", transactional=form == "transactional", retry=Retry(backoff=60))(handler)
    item_id = alice.enqueue("mail").item_id
    drain(app, raise_errors=False)
    first_frame = alice.explain(item_id).attempts.last_traceback.splitlines()[1]
    assert first_frame.endswith(f", in {handler.__name__}")


# --- Paused ---


def test_an_item_of_a_paused_shard_kind_or_tenant_says_so_with_what_ends_it(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    app.control.pause_kind("mail")
    assert alice.explain(item_id).cause is Cause.KIND_PAUSED
    app.control.pause_tenant("shop", "alice")
    assert alice.explain(item_id).cause is Cause.TENANT_PAUSED
    app.control.pause_shard("main")
    said = alice.explain(item_id)
    assert (said.cause, "fairlead resume --shard" in said.sentence) == (Cause.SHARD_PAUSED, True)


# --- No consumer ---


def test_without_a_consumer_nothing_runs(alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    assert alice.explain(item_id).cause is Cause.NO_CONSUMER


def test_a_kind_that_no_consumer_knows_waits_for_one_that_does(live: App) -> None:
    live.handler("index")(lambda job: None)
    alice = live.tenant("shop", "alice")
    item_id = alice.enqueue("mail").item_id
    with consumer(live):
        said = until(Cause.KIND_UNKNOWN, lambda: alice.explain(item_id))
    assert said.details["consumers"] == 1
    assert [kind for kind in said.details["known_kinds"] if not kind.startswith("fairlead.")] == ["index"]
    assert said.sentence == "the only live consumer has no handler for mail"


# --- Waiting for its turn ---


def test_an_item_that_runs_says_where_since_when_and_until_when_its_lease_is(live: App, gate: Gate) -> None:
    live.handler("mail")(gate)
    alice = live.tenant("shop", "alice")
    item_id = alice.enqueue("mail").item_id
    with consumer(live):
        said = until(Cause.RUNNING, lambda: alice.explain(item_id))
        assert (said.details["pid"], said.details["live"]) == (os.getpid(), True)
        assert said.details["since_us"] <= live.clock.now_us() < said.details["lease_until_us"]
        gate.opened.set()
        said = until(Cause.COMPLETED, lambda: alice.explain(item_id))
        assert said.details["attempt"] == 1


def test_items_behind_others_say_how_many_and_the_first_that_its_turn_is_next(live: App, gate: Gate) -> None:
    """More items than a worker of two slots takes: those that it holds run, and the others stay in the queue."""
    live.handler("mail")(gate)
    alice = live.tenant("shop", "alice")
    waiting = [made.item_id for made in alice.enqueue_many([new_item("mail")] * 40)]

    said: list[Explanation] = []

    def are_settled() -> bool:
        """Explain the items. Say whether the worker holds some, and took and returned none meanwhile."""
        all_of_them = [alice.explain(item_id) for item_id in waiting]
        said[:] = [each for each in all_of_them if each.cause is not Cause.RUNNING]
        again = [alice.explain(item_id).cause for item_id in waiting]
        are_taken = 0 < len(waiting) - len(said) <= HELD_MAX
        return are_taken and [each.cause for each in all_of_them] == again

    with consumer(live):
        eventually(are_settled)
        assert said[0].cause is Cause.NEXT
        assert {each.cause for each in said[1:]} == {Cause.BEHIND}
        assert [each.details["items_before"] for each in said[1:]] == list(range(1, len(said)))
        assert said[0].sentence.startswith("it is the first of its queue, and about ")
        assert said[0].details["queues_before"] >= 0


def test_a_kind_at_its_limit_says_so(live: App, gate: Gate) -> None:
    live.handler("mail", max_running=1)(gate)
    alice = live.tenant("shop", "alice")
    with consumer(live):
        first = alice.enqueue("mail").item_id
        until(Cause.RUNNING, lambda: alice.explain(first))
        second = alice.enqueue("mail").item_id
        until(Cause.KIND_AT_LIMIT, lambda: alice.explain(second))


def present(app: App, *kinds: str) -> None:
    """Write a consumer's heartbeat with the kinds that it handles."""
    sign = SessionRecord("there", 1, sorted(kinds), app.clock.now_us(), app.clock.now_us())
    app.shards["main"].transact(lambda attempt: sessions.heartbeat(attempt.tr, b"consumer", sign))


def leased(app: App, alice: TenantDatabase, item_id: bytes) -> bytes:
    """Lease an item for ten seconds; return the lease's id."""
    zone, lease_id = app.shards["main"].zone(alice.tenant), b"l" * 16
    app.shards["main"].transact(
        lambda attempt: zone.obtain_lease(
            attempt.tr, item_id, lease_id=lease_id, lease_us=10_000_000, now_us=attempt.now_us
        )
    )
    return lease_id


def pass_s(app: App, seconds: int) -> None:
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(seconds)


def test_an_item_whose_pointer_sleeps_says_when_its_queue_is_read(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    drain(app)  # without a handler
    present(app, "mail")
    said = alice.explain(item_id)
    assert said.cause is Cause.POINTER_ASLEEP
    assert said.details["pointer_vests_us"] > app.clock.now_us()


def test_an_item_of_a_consumer_that_is_gone_says_who_takes_over(app: App, alice: TenantDatabase) -> None:
    """Before, it said that a consumer had it and that its lease would end in ten minutes, though no fleet ran."""
    item_id = alice.enqueue("mail").item_id
    leased(app, alice, item_id)
    said = alice.explain(item_id)
    gone = "a consumer that drains, or is gone, has had it for 0.0 s; "
    assert (said.cause, said.sentence) == (
        Cause.RUNNING,
        f"{gone}no live consumer can take over: start one with fairlead run",
    )
    present(app, "mail")
    assert alice.explain(item_id).sentence == f"{gone}if it is gone, another consumer takes over in 10.0 s"


def test_each_outcome_of_an_items_attempts_is_counted_separately(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    shard, zone = app.shards["main"], app.shards["main"].zone(alice.tenant)
    lease_id = leased(app, alice, item_id)
    shard.transact(
        lambda attempt: zone.requeue(attempt.tr, item_id, lease_id, delay_us=0, now_us=attempt.now_us)
    )  # as a worker does that drains
    for died in (True, False):
        held = (item_id, leased(app, alice, item_id))
        shard.transact(
            lambda attempt: run_one(
                zone.extend_op(attempt.tr, [held], lease_us=1_000_000, now_us=attempt.now_us, died=died)  # noqa: B023
            )
        )
        pass_s(app, 2)
    leased(app, alice, item_id)
    pass_s(app, 20)
    present(app, "mail")
    said = alice.explain(item_id)
    assert said.cause is Cause.LEASE_EXPIRED
    assert said.attempts == Attempts(raised=0, died=1, lease_lost=1, return_count=1)


def test_a_poison_candidate_says_that_it_waits_to_run_isolated(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    zone = app.shards["main"].zone(alice.tenant)
    for _ in range(3):
        held = (item_id, leased(app, alice, item_id))
        app.shards["main"].transact(
            lambda attempt: run_one(
                zone.extend_op(attempt.tr, [held], lease_us=1_000_000, now_us=attempt.now_us, started=True)  # noqa: B023
            )
        )
        pass_s(app, 2)
    present(app, "mail")
    said = alice.explain(item_id)
    assert (said.cause, said.details) == (Cause.ISOLATED, {"expiries": 3})
    assert "its worker died or stalled 3 times in a row while it ran" in said.sentence


@pytest.mark.parametrize("kind_max_running", [None, 100])
def test_a_tenant_at_its_limit_is_named_and_not_its_kind_that_is_not(
    live: App, gate: Gate, kind_max_running: int | None
) -> None:
    live.handler("mail")(gate)
    alice = live.tenant("shop", "alice")
    live.control.limit_tenant("shop", "alice", max_running=1)
    live.control.limit_kind("mail", max_running=kind_max_running)
    with consumer(live):
        first = alice.enqueue("mail").item_id
        until(Cause.RUNNING, lambda: alice.explain(first))
        second = alice.enqueue("mail").item_id
        said = until(Cause.TENANT_AT_LIMIT, lambda: alice.explain(second))
    assert said.sentence == "its tenant is at its limit: at most 1 run at once"


@pytest.mark.parametrize(
    ("limit", "says"),
    [({"max_running": 1}, "at most 1 run at once"), ({"per_s": 0.01, "burst": 1}, "at most 0.01 start per second")],
)
def test_a_kind_at_its_limit_in_the_fleet_is_named_and_not_its_tenant_that_is_not(
    live: App, gate: Gate, limit: dict[str, Any], says: str
) -> None:
    live.handler("mail")(gate)
    alice = live.tenant("shop", "alice")
    live.control.limit_tenant("shop", "alice", max_running=100)
    live.control.limit_kind("mail", **limit)
    sentence = f"its kind is at its limit in the fleet: {says}"
    with consumer(live):
        first = alice.enqueue("mail").item_id
        until(Cause.RUNNING, lambda: alice.explain(first))
        second = alice.enqueue("mail").item_id
        eventually(lambda: alice.explain(second).sentence == sentence)


def test_a_handler_at_its_limit_is_not_taken_for_a_tenant_that_is_not(live: App, gate: Gate) -> None:
    live.handler("mail", max_running=1)(gate)
    alice = live.tenant("shop", "alice")
    live.control.limit_tenant("shop", "alice", max_running=100)
    with consumer(live):
        first = alice.enqueue("mail").item_id
        until(Cause.RUNNING, lambda: alice.explain(first))
        second = alice.enqueue("mail").item_id
        said = until(Cause.KIND_AT_LIMIT, lambda: alice.explain(second))
    assert said.sentence.startswith("its handler's max_running items of kind mail are running; or")


# --- Ended ---


def test_a_dead_letter_says_why_it_failed(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail")
    def send(job: Job) -> None:
        raise PermanentError("no such street")

    item_id = alice.enqueue("mail").item_id
    drain(app, raise_errors=False)
    said = alice.explain(item_id)
    assert (said.cause, said.details["reason"]) == (Cause.DEAD_LETTER, "error")
    assert "no such street" in said.sentence
    assert (said.kind, said.attempts.raised) == ("mail", 1)
    assert "in send\n" in said.attempts.last_traceback


def test_a_dropped_item_and_a_cancelled_one_say_so(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", drop=True)
    def send(job: Job) -> None:
        raise PermanentError

    dropped = alice.enqueue("mail").item_id
    drain(app, raise_errors=False)
    cancelled = alice.enqueue("mail").item_id
    alice.cancel(cancelled)
    assert alice.explain(dropped).cause is Cause.DROPPED
    assert alice.explain(cancelled).cause is Cause.CANCELLED


def test_an_item_that_completed_with_its_effects_says_so(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail", transactional=True)
    def send(job: Job, tr: object) -> None:
        pass

    item_id = alice.enqueue("mail").item_id
    drain(app)
    assert alice.explain(item_id).cause is Cause.COMPLETED


def test_an_unknown_id_was_never_seen(alice: TenantDatabase) -> None:
    assert alice.explain("order-8").cause is Cause.NEVER_SEEN


def test_an_item_that_a_newer_version_wrote_says_so(app: App, alice: TenantDatabase) -> None:
    item_id = alice.enqueue("mail").item_id
    location = app.shards["main"].layout.location(alice.tenant, "queue")
    assert location.keys.item(item_id).startswith(ROOT)
    app.shards["main"].transact(lambda attempt: attempt.tr.set(location.keys.item(item_id), bytes([FORMAT + 1])))
    assert alice.explain(item_id).cause is Cause.UNREADABLE


def test_an_item_without_a_pointer_names_the_command_that_repairs_it(app: App, alice: TenantDatabase) -> None:
    app.handler("mail")(lambda job: None)
    item_id = alice.enqueue("mail").item_id
    location = app.shards["main"].layout.location(alice.tenant, "queue")
    app.shards["main"].transact(lambda attempt: attempt.tr.clear(location.keys.pointer))
    with consumer(app):
        said = until(Cause.POINTER_MISSING, lambda: alice.explain(item_id))
    assert "fairlead check --repair" in said.sentence


# --- Without naming the tenant ---


def test_an_item_is_found_without_its_tenant_wherever_it_is(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail")
    def send(job: Job) -> None:
        if job.payload == "bad":
            raise PermanentError

    failed = alice.enqueue("mail", "bad").item_id
    done = app.tenant("shop", "bob").enqueue("mail").item_id
    drain(app, raise_errors=False)
    waiting = app.tenant("shop", "carol").enqueue("mail", zone="other", item_id="order-9").item_id
    assert app.explain(failed).cause is Cause.DEAD_LETTER
    assert (app.explain(done).cause, app.explain(done).tenant) == (Cause.COMPLETED, ("shop", "bob"))
    assert (app.explain("order-9").item_id, app.explain("order-9").zone) == (waiting, "other")
    assert app.explain("order-10").cause is Cause.NEVER_SEEN


def test_an_item_beyond_a_bounded_search_is_not_reported_as_never_seen(
    app: App, alice: TenantDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.zones.reporting.diagnosis.ZONES_MAX", 3)
    app.enqueue_many((app.tenant("shop", f"user {number}"), new_item("mail")) for number in range(10))
    assert app.explain("order-10").cause is Cause.NOT_FOUND


# --- From the command line ---


def test_why_answers_in_a_sentence_and_as_data(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'store'}"
    run("enqueue", "mail", "--tenant", "shop", "alice", "--id", "order-7", "--create", "--store", url)
    said = run("why", "order-7", "--store", url)
    assert said.code == 0
    assert said.out.startswith("no consumer: its shard has no live consumer; start one with fairlead run\n")
    answer = run("why", "order-7", "--tenant", "shop", "alice", "--store", url, "--json").json
    assert (answer["cause"], answer["tenant"], answer["kind"]) == ("no consumer", ["shop", "alice"], "mail")
    assert run("why", answer["item"], "--store", url).out == said.out
    assert run("why", "order-8", "--store", url).out.startswith("never seen: ")


def test_why_shows_the_traceback_of_an_item_that_is_to_be_tried_again(tmp_path: Path) -> None:
    """By default the retries take hours, and an operator needs the traceback before the item is a dead letter."""
    url = f"embedded:{tmp_path / 'store'}"
    app = App(url)

    @app.handler("mail", retry=Retry(backoff=60))
    def send(job: Job) -> None:
        raise RuntimeError("no postman")

    app.tenant("shop", "alice").enqueue("mail", item_id="order-7")
    drain(app, raise_errors=False)
    app.close()
    lines = run("why", "order-7", "--store", url).out.splitlines()
    at = lines.index("Traceback (most recent call last):")
    assert lines[at - 1] == "last error: RuntimeError: no postman"
    assert lines[at + 1].endswith(", in send")
    assert lines[-1] == "RuntimeError: no postman"
    answer = run("why", "order-7", "--store", url, "--json").json
    assert answer["attempts"]["last_traceback"].splitlines() == lines[at:]
