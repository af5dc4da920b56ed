"""How an attempt ends, and what follows: retries, timeouts, dead letters, items that are dropped, hooks."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from fairlead import App, Cause, ItemFailed, Job, PermanentError, Retry
from fairlead.actors.execution import runner
from tests.fairlead.both_kinds.queues import Effects, Queues
from tests.fairlead.live_consumers import Gate, consumer, eventually, until
from tests.simulation.mutations.mutation import in_a_race


def attempts_of(app: App, kind: str = "mail", **options: Any) -> list[tuple[int, float]]:
    """Register a handler that always fails; return the list of its attempts, and when each began."""
    attempts: list[tuple[int, float]] = []

    @app.handler(kind, **options)
    def fail(job: Job) -> None:
        attempts.append((job.attempt, time.monotonic()))
        raise ValueError("no postman")

    return attempts


# --- Retries ---


def test_an_item_is_tried_as_often_as_its_kind_says(app: App, alice: Queues) -> None:
    attempts = attempts_of(app, retry=Retry(attempts=3, backoff=0.01))
    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    assert [number for number, _ in attempts] == [1, 2, 3]
    (dead,) = alice.dead_letters()
    assert (dead.reason, dead.error_count, dead.error) == ("error", 3, "ValueError: no postman")


def test_the_backoff_doubles_up_to_its_maximum(app: App, alice: Queues) -> None:
    attempts = attempts_of(app, retry=Retry(attempts=4, backoff=0.2, backoff_max=0.3))
    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    began = [at for _, at in attempts]
    first, second, third = (later - before for before, later in pairwise(began))
    assert first >= 0.1  # The upper half of 0.2 s is drawn from.
    assert second >= 0.15
    assert third >= 0.15


def test_an_item_that_succeeds_after_a_failure_keeps_its_id_and_payload(app: App, alice: Queues) -> None:
    seen: list[tuple[bytes, Any, int]] = []

    @app.handler("mail", retry=Retry(backoff=0.01), keep_result=60)
    def mail(job: Job) -> int:
        seen.append((job.id, job.payload, job.attempt))
        if job.attempt == 1:
            raise ValueError("no postman")
        return job.attempt

    handle = alice.enqueue("mail", {"to": "bob"})
    with consumer(app):
        assert handle.result(30) == 2
    assert seen == [(handle.item_id, {"to": "bob"}, 1), (handle.item_id, {"to": "bob"}, 2)]


def test_tries_in_line_count_as_one_attempt(app: App, alice: Queues) -> None:
    attempts = attempts_of(app, retry=Retry(attempts=2, backoff=0.01, in_line=2))
    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    assert [number for number, _ in attempts] == [1, 1, 1, 2, 2, 2]


def test_no_attempt_starts_after_the_time_of_give_up_after(app: App, alice: Queues) -> None:
    attempts = attempts_of(app, retry=Retry(attempts=None, backoff=0.01, backoff_max=0.05, give_up_after=0.3))
    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    assert len(attempts) >= 1


def test_the_time_of_give_up_after_begins_with_the_end_of_a_delay(app: App, alice: Queues) -> None:
    """Before, an item in PostgreSQL that was delayed for longer than that had one attempt."""
    attempts = attempts_of(app, retry=Retry(attempts=3, backoff=0.01, give_up_after=1.0))
    alice.enqueue("mail", delay=1.5)
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    assert len(attempts) == 3


@pytest.mark.parametrize("options", [{}, {"permanent": (KeyError,)}])
def test_an_error_that_would_occur_again_is_not_retried(app: App, alice: Queues, options: dict[str, Any]) -> None:
    attempts: list[int] = []

    @app.handler("mail", **options)
    def mail(job: Job) -> None:
        attempts.append(job.attempt)
        raise KeyError(7) if options else PermanentError("no such street")

    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    assert attempts == [1]


def test_a_dead_letter_that_is_retried_has_all_its_attempts_again(app: App, alice: Queues) -> None:
    attempts = attempts_of(app, retry=Retry(attempts=2, backoff=0.01, give_up_after=30))
    handle = alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
        alice.retry_dead_letter(handle.item_id)
        eventually(lambda: len(attempts) == 4 and len(alice.dead_letters()) == 1)
    assert [number for number, _ in attempts] == [1, 2, 1, 2]


def test_a_retry_says_when_it_comes_and_what_went_wrong(app: App, alice: Queues) -> None:
    attempts_of(app, retry=Retry(attempts=5, backoff=60))
    handle = alice.enqueue("mail")
    with consumer(app):
        said = until(Cause.RETRYING, handle.explain)
    assert said.sentence.startswith("it failed: ValueError: no postman; attempt 2 comes in ")
    assert (said.attempts.raised, said.attempts.last_error) == (1, "ValueError: no postman")
    (seen,) = alice.peek()
    assert (seen.error_count, seen.last_error, seen.state.value) == (1, "ValueError: no postman", "delayed")


# --- Dropped ---


def test_an_item_of_a_kind_that_is_dropped_leaves_no_dead_letter(app: App, alice: Queues) -> None:
    attempts = attempts_of(app, retry=Retry(attempts=2, backoff=0.01), drop=True)
    alice.enqueue("mail", item_id="order 7")
    with consumer(app):
        eventually(lambda: len(attempts) == 2 and alice.count() == {})
    assert alice.dead_letters() == []
    assert alice.enqueue("mail", item_id="order 7").status.value == "enqueued"


# --- Timeouts ---


def test_a_plain_handler_past_its_timeout_is_told_and_its_item_is_tried_again(app: App, alice: Queues) -> None:
    attempts: list[int] = []

    @app.handler("mail", timeout=0.3, retry=Retry(attempts=2, backoff=0.01))
    def mail(job: Job) -> None:
        attempts.append(job.attempt)
        while not job.cancelled:
            time.sleep(0.01)

    handle = alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)
    (dead,) = alice.dead_letters()
    assert (attempts, dead.error_count) == ([1, 2], 2)
    assert dead.error.startswith("JobTimeout: the handler ran past its timeout")
    with pytest.raises(ItemFailed, match="JobTimeout"):
        handle.result(0)


def test_what_a_handler_returns_after_its_timeout_does_not_count(app: App, alice: Queues) -> None:
    @app.handler("mail", timeout=0.3, retry=Retry(attempts=1), keep_result=60)
    def mail(job: Job) -> str:
        while not job.cancelled:
            time.sleep(0.01)
        return "too late"

    handle = alice.enqueue("mail")
    with consumer(app), pytest.raises(ItemFailed, match="JobTimeout"):
        handle.result(30)


def test_a_coroutine_past_its_timeout_is_stopped(app: App, alice: Queues) -> None:
    ended: list[str] = []

    @app.handler("mail", timeout=0.3, retry=Retry(attempts=1))
    async def mail(job: Job) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("stopped")
            raise

    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: ended == ["stopped"] and len(alice.dead_letters()) == 1)
    assert alice.dead_letters()[0].error.startswith("JobTimeout")


def a_transactional_timeout(app: App, alice: Queues, transactional: dict[str, Any], effects: Effects) -> list[int]:
    """Let a transactional handler return after its timeout; return its attempts once no item waits."""
    attempts: list[int] = []

    @app.handler("mail", timeout=0.3, retry=Retry(attempts=2, backoff=0.01), **transactional)
    def mail(job: Job, transaction: Any) -> None:
        attempts.append(job.attempt)
        effects.add(transaction, "sent")
        while not job.cancelled:
            time.sleep(0.01)

    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: alice.count() == {})
    return attempts


def test_a_transactional_handler_that_returns_after_its_timeout_has_no_effect(
    app: App, alice: Queues, transactional: dict[str, Any], effects: Effects
) -> None:
    """Before, one in SQL committed, and its item was completed."""
    attempts = a_transactional_timeout(app, alice, transactional, effects)
    (dead,) = alice.dead_letters()
    assert set(attempts) == {1, 2}, "a transaction of the shard may run twice in an attempt"
    assert (dead.error_count, effects.found("sent")) == (2, 0)
    assert dead.error.startswith("JobTimeout")


@pytest.mark.parametrize("store", ["pg"])
def test_without_its_guard_a_handler_in_sql_commits_after_its_timeout(
    app: App, alice: Queues, transactional: dict[str, Any], effects: Effects
) -> None:
    guard = (runner._run_in_store, "if held.timed_out:", "if False:")
    with in_a_race("a handler in SQL past its timeout is rolled back", guard).planted():
        a_transactional_timeout(app, alice, transactional, effects)
    assert (alice.dead_letters(), effects.found("sent")) == ([], 1)


# --- Hooks ---


def test_a_hook_is_called_with_each_failure_and_no_success(app: App, alice: Queues) -> None:
    reported: list[tuple[str, int, str]] = []

    @app.on_failure
    def report(job: Job, error: BaseException) -> None:
        reported.append((job.kind, job.attempt, repr(error)))

    attempts_of(app, retry=Retry(attempts=2, backoff=0.01))
    app.handler("fax")(lambda job: None)
    alice.enqueue("fax")
    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1 and alice.count() == {})
    assert reported == [("mail", 1, "ValueError('no postman')"), ("mail", 2, "ValueError('no postman')")]


def test_a_hook_is_called_for_a_timeout_and_its_own_error_changes_nothing(app: App, alice: Queues) -> None:
    reported: list[str] = []

    @app.on_failure
    def report(job: Job, error: BaseException) -> None:
        reported.append(type(error).__name__)
        raise RuntimeError("the collector of errors is down")

    @app.handler("mail", timeout=0.3, retry=Retry(attempts=1))
    def mail(job: Job) -> None:
        while not job.cancelled:
            time.sleep(0.01)

    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: reported == ["JobTimeout"] and len(alice.dead_letters()) == 1)
    assert alice.dead_letters()[0].error_count == 1


# --- Returned ---


def test_an_item_that_is_returned_by_a_worker_that_drains_keeps_its_attempt(
    app: App, alice: Queues, gate: Gate
) -> None:
    attempts: list[int] = []

    @app.handler("mail")
    def mail(job: Job) -> None:
        attempts.append(job.attempt)
        gate(job)

    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: attempts == [1])
    assert alice.count() == {"mail": 1}
    gate.opened.set()
    with consumer(app):
        eventually(lambda: alice.count() == {})
    assert attempts == [1, 1]


def test_a_transactional_handler_that_a_drain_interrupts_keeps_its_attempt(
    app: App, alice: Queues, transactional: dict[str, Any]
) -> None:
    """Before, an item in PostgreSQL was not returned, as its handler's transaction held the row: its lease expired."""
    attempts: list[int] = []

    @app.handler("mail", **transactional)
    def mail(job: Job, transaction: Any) -> None:
        attempts.append(job.attempt)
        if len(attempts) == 1:
            while not job.cancelled:
                time.sleep(0.01)
            raise RuntimeError("interrupted")

    alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: attempts == [1])
    with consumer(app):
        eventually(lambda: alice.count() == {})
    assert attempts == [1, 1]
