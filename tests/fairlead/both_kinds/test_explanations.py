"""`why` says the same of an item in a shard and of one in PostgreSQL: what it waits for, and what ends that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead import App, Cause, Explanation, Handle, Job, PermanentError, Retry, new_item
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import SessionRecord
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.live_consumers import HELD_MAX, Gate, consumer, eventually, until
from tests.zones.postgresql.database import Database


def until_said(wanted: Cause, sentence: str, look: Callable[[], Explanation]) -> Explanation:
    """Wait until an item has this cause and sentence; return what is said."""
    eventually(lambda: look().sentence == sentence)
    said = look()
    assert (said.cause, said.sentence) == (wanted, sentence)
    return said


def behind_one_that_runs(alice: Queues) -> Handle[Any]:
    """Return the handle of an item that was enqueued once another one of its kind runs."""
    first = alice.enqueue("mail")
    until(Cause.RUNNING, first.explain)
    return alice.enqueue("mail")


def test_an_explanation_names_the_item_and_where_it_is(app: App, alice: Queues, store: str | None) -> None:
    said = alice.enqueue("mail", delay=3600, item_id="order 7", zone="slow").explain()
    assert (said.cause, said.sentence) == (Cause.DELAYED, "it vests in 60 min")
    assert (said.tenant, said.zone, said.kind, said.shard, said.store) == (
        ("shop", "alice"),
        "slow",
        "mail",
        "main",
        store,
    )
    for again in (app.explain(said.item_id), alice.explain("order 7", zone="slow")):
        assert (again.item_id, again.sentence, again.store) == (said.item_id, said.sentence, store)


def test_without_a_consumer_nobody_runs_it(alice: Queues) -> None:
    said = alice.enqueue("mail").explain()
    assert (said.cause, said.sentence) == (
        Cause.NO_CONSUMER,
        "its shard has no live consumer; start one with fairlead run",
    )


def test_an_unknown_kind_is_named(app: App, alice: Queues) -> None:
    app.handler("other")(lambda job: None)
    handle = alice.enqueue("mail")
    with consumer(app):
        until_said(Cause.KIND_UNKNOWN, "the only live consumer has no handler for mail", handle.explain)


PAUSES: dict[str, tuple[Callable[[App], None], Callable[[App], None], Cause, str]] = {
    "the shard": (
        lambda app: app.control.pause_shard("main"), lambda app: app.control.resume_shard("main"),
        Cause.SHARD_PAUSED, "its shard is paused; fairlead resume --shard main resumes it",
    ),
    "the tenant": (
        lambda app: app.control.pause_tenant("shop/alice"), lambda app: app.control.resume_tenant("shop/alice"),
        Cause.TENANT_PAUSED, "its tenant is paused; fairlead resume --tenant shop/alice resumes it",
    ),
    "the kind": (
        lambda app: app.control.pause_kind("mail"), lambda app: app.control.resume_kind("mail"),
        Cause.KIND_PAUSED, "its kind is paused; fairlead resume --kind mail resumes it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("paused", PAUSES)
def test_what_is_paused_says_what_resumes_it(app: App, alice: Queues, paused: str) -> None:
    pause, resume, cause, sentence = PAUSES[paused]
    app.handler("mail", keep_result=60)(lambda job: "sent")
    pause(app)
    handle = alice.enqueue("mail")
    with consumer(app):
        until_said(cause, sentence, handle.explain)
        resume(app)
        assert handle.result(30) == "sent"


LIMITS: dict[str, tuple[Callable[[App], None], Cause, str]] = {
    "the tenant's running items": (
        lambda app: app.control.limit_tenant("shop/alice", max_running=1),
        Cause.TENANT_AT_LIMIT, "its tenant is at its limit: at most 1 run at once",
    ),
    "the tenant's rate": (
        lambda app: app.control.limit_tenant("shop/alice", per_s=0.01, burst=1),
        Cause.TENANT_AT_LIMIT, "its tenant is at its limit: at most 0.01 start per second",
    ),
    "the kind's running items": (
        lambda app: app.control.limit_kind("mail", max_running=1),
        Cause.KIND_AT_LIMIT, "its kind is at its limit in the fleet: at most 1 run at once",
    ),
    "the kind's rate": (
        lambda app: app.control.limit_kind("mail", per_s=0.01, burst=1),
        Cause.KIND_AT_LIMIT, "its kind is at its limit in the fleet: at most 0.01 start per second",
    ),
}  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS)
def test_an_item_that_waits_for_a_limit_names_it(app: App, alice: Queues, gate: Gate, limit: str) -> None:
    decide, cause, sentence = LIMITS[limit]
    app.handler("mail")(gate)
    decide(app)
    with consumer(app):
        until_said(cause, sentence, behind_one_that_runs(alice).explain)


def test_an_item_that_waits_for_its_handlers_own_limit_says_so(app: App, alice: Queues, gate: Gate) -> None:
    app.handler("mail", max_running=1)(gate)
    app.control.limit_tenant("shop/alice", max_running=100)
    of_handler = "its handler's max_running items of kind mail are running"
    sentence = f"{of_handler}; or its tenant is at its limit: at most 100 run at once"
    with consumer(app):
        until_said(Cause.KIND_AT_LIMIT, sentence, behind_one_that_runs(alice).explain)


def test_items_that_wait_for_their_turn_say_how_many_come_before_them(app: App, alice: Queues, gate: Gate) -> None:
    app.handler("mail")(gate)
    waiting = [each.item_id for each in alice.enqueue_many([new_item("mail")] * 12)]

    def not_taken() -> list[Explanation]:
        said = [alice.explain(item_id) for item_id in waiting]
        return said[sum(each.cause is Cause.RUNNING for each in said) :]

    with consumer(app):
        eventually(lambda: len(not_taken()) == len(waiting) - HELD_MAX)
        first, *others = not_taken()
    assert first.sentence.startswith("it is the first of its queue, and about ")
    assert (first.cause, {each.cause for each in others}) == (Cause.NEXT, {Cause.BEHIND})
    assert [each.details["items_before"] for each in others] == list(range(1, len(others) + 1))


def test_an_item_that_runs_says_until_when_its_lease_is(app: App, alice: Queues, gate: Gate) -> None:
    app.handler("mail")(gate)
    handle = alice.enqueue("mail")
    with consumer(app):
        said = until(Cause.RUNNING, handle.explain)
        assert app.clock.now_us() < said.details["lease_until_us"]


def test_a_dead_letter_says_why_it_is_one_and_what_runs_it_again(app: App, alice: Queues) -> None:
    @app.handler("mail")
    def send(job: Job) -> None:
        raise PermanentError("no such street")

    handle = alice.enqueue("mail")
    with consumer(app):
        said = until(Cause.DEAD_LETTER, handle.explain)
    assert (
        said.sentence == "it failed for good: PermanentError: no such street; fairlead dead-letters retry runs it again"
    )
    assert (said.kind, said.details["reason"], said.attempts.raised) == ("mail", "error", 1)
    assert "in send\n" in said.attempts.last_traceback


def test_an_item_that_waits_for_its_next_attempt_shows_the_traceback_of_the_last(app: App, alice: Queues) -> None:
    @app.handler("mail", retry=Retry(backoff=3600))
    def send(job: Job) -> None:
        raise OSError("no printer")

    handle = alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: handle.explain().attempts.raised == 1)
        said = handle.explain()
    assert said.attempts.last_error == "OSError: no printer"
    assert "in send\n" in said.attempts.last_traceback


@pytest.mark.parametrize("store", ["pg"])
def test_an_item_in_postgresql_that_may_have_ended_its_workers_says_that_it_runs_isolated(
    app: App, alice: Queues, database: Database
) -> None:
    """Before, it said that it was the next one. `tests/fairlead/test_explanation.py` has the same of a shard."""
    handle = alice.enqueue("mail")
    database.let_pass("deaths", "3")
    session = SessionRecord("there", 1, ["mail"], app.clock.now_us(), app.clock.now_us())
    app.shards["main"].transact(lambda attempt: sessions.heartbeat(attempt.tr, b"consumer", session))
    sentence = (
        "its worker died or stalled 3 times in a row while it ran; each consumer runs one such item at a time, isolated"
    )
    assert (handle.explain().cause, handle.explain().sentence) == (Cause.ISOLATED, sentence)
