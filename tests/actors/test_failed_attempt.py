"""An error is a user's object: it is asked for its words where its handler ran, and holds up nobody there."""

from __future__ import annotations

import logging

import pytest

from fairlead.actors.execution.failed_attempt import ERRORS_MAX, FRAMES_MAX, Cause, failure_of, render_error
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import handler_of
from fairlead.actors.worker import Worker
from fairlead.zones.settings import TEXT_BYTES_MAX
from tests.actors.stage import Stage, held_item


@pytest.fixture
def stage() -> Stage:
    return Stage()


class Asked(Exception):
    """Counts how often it is asked for its words."""

    times = 0

    def __str__(self) -> str:
        Asked.times += 1
        return "asked"


def chain(length: int) -> BaseException:
    """Return an error with so many before it, as a poller raises that tries again in its `except`."""
    newest = Asked()
    for _ in range(length):
        following = Asked()
        following.__context__ = newest
        newest = following
    return newest


def test_an_error_that_takes_long_to_be_worded_delays_no_other_item(stage: Stage) -> None:
    """Before, the loop that settles waited for the words, was taken for standing still, and failed the fleet."""
    asked: list[int] = []

    class Lazy(Exception):
        def __str__(self) -> str:
            asked.append(stage.now_us)
            stage.sleep_ms(13_000)
            return "a body that is fetched"

    def fails(job: Job) -> None:
        raise Lazy

    worker = stage.worker(
        [stage.handler("lazy", fails, retry=Retry(attempts=1)), stage.handler("mail", lambda job: None)]
    )
    stage.enqueue("lazy")
    stage.place(worker, stage.lease(["lazy"]))
    stage.wait_for(lambda: asked)
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.wait_for(lambda: stage.do(worker.counts).get("completed"), within_ms=1_000)
    assert stage.settled(worker) == {"buried": 1, "completed": 1}
    (grave,) = stage.buried()
    assert (
        grave.record.error
        == "test_an_error_that_takes_long_to_be_worded_delays_no_other_item.<locals>.Lazy: a body that is fetched"
    )
    assert len(asked) <= 3, "neither the log nor the settling asks again"


def test_the_log_has_the_words_and_does_not_ask_the_error_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    held = held_item(1)
    failure = failure_of(Asked(), held.handler, held.ref.item_id, stage.clock)
    before = Asked.times

    def fails(job: Job) -> None:
        raise Asked

    worker = stage.worker([stage.handler("mail", fails, retry=Retry(attempts=1))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    (record,) = caplog.records
    in_slot = Asked.times - before
    logging.Formatter().format(record)
    assert Asked.times - before == in_slot
    assert record.exc_info is not None
    assert failure.text == "Asked: asked"
    assert "Asked: asked" in caplog.text


@pytest.mark.parametrize("length", [ERRORS_MAX, 100_000])
def test_of_a_long_chain_of_errors_only_the_newest_are_worded(stage: Stage, length: int) -> None:
    error = chain(length)
    Asked.times = 0
    words = render_error(error, stage.clock)
    assert Asked.times <= 2 * ERRORS_MAX + 2
    assert words.text == "Asked: asked"
    assert "earlier errors are left out" in words.lines
    assert not words.safe_to_log


def test_of_a_group_with_more_errors_than_that_only_some_are_worded(stage: Stage) -> None:
    error = ExceptionGroup("many", [Asked() for _ in range(10_000)])
    Asked.times = 0
    assert render_error(error, stage.clock).text.startswith("ExceptionGroup: many")
    assert Asked.times <= 2 * ERRORS_MAX


def test_errors_that_lead_to_each_other_are_worded_once(stage: Stage) -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    words = render_error(first, stage.clock)
    assert (words.text, words.safe_to_log) == ("ValueError: first", True)


def test_a_long_message_and_a_deep_traceback_are_shortened(stage: Stage) -> None:
    def dive(depth: int) -> None:
        if depth:
            return rise(depth - 1)
        raise ValueError("x" * 1_000_000)

    def rise(depth: int) -> None:
        dive(depth)

    with pytest.raises(ValueError, match="x") as caught:
        dive(FRAMES_MAX // 4)
    words = render_error(caught.value, stage.clock)
    assert len(words.text) < TEXT_BYTES_MAX
    assert len(words.lines) < TEXT_BYTES_MAX


def test_an_error_whose_words_raise_is_worded_by_its_class(stage: Stage) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "Mute" in render_error(Mute(), stage.clock).text


# --- A worker that is abandoned ---


def stalled_worker(stage: Stage) -> Worker:
    """Return a worker that holds a failed item and a completed one, and whose store refuses to take their ends."""

    def fails(job: Job) -> None:
        raise ValueError("no such order")

    worker = stage.worker(
        [stage.handler("mail", fails, retry=Retry(attempts=1)), stage.handler("index", lambda job: None)]
    )
    stage.enqueue("mail")
    stage.enqueue("index")
    refs = stage.lease(["mail", "index"])
    stage.place(worker, refs)
    return worker


def test_what_has_ended_in_a_worker_that_is_abandoned_is_settled_as_what_it_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, an item that had failed went back as if it had not run, and failed the next fleet, for ever."""
    monkeypatch.setattr(
        "fairlead.actors.execution.completer.Completer._run", lambda completer: None
    )  # The loop that has failed.
    worker = stalled_worker(stage)
    stage.pass_ms(100)
    assert stage.do(worker.counts)["held"] == 2
    stage.do(worker.abandon)
    (grave,) = stage.buried()
    assert grave.record.error == "ValueError: no such order"
    assert stage.count() == {}


def test_what_still_runs_in_a_worker_that_is_abandoned_goes_back_uncounted(stage: Stage) -> None:
    def runs(job: Job) -> None:
        while not job.cancelled:
            stage.sleep_ms(10)

    worker = stage.worker([stage.handler("mail", runs)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.do(worker.abandon)
    record = stage.record(item_id)
    assert record is not None
    assert (record.error_count, record.lease_id) == (0, b"")


def test_an_error_whose_class_cannot_be_asked_what_it_is_has_failed_its_attempt(stage: Stage) -> None:
    """Else nobody would know that the attempt has failed, and its item would count as completed."""

    class Unasked(type):
        def __instancecheck__(cls, instance: object) -> bool:
            raise SystemExit(3)

    class Permanent(Exception, metaclass=Unasked):
        pass

    handler = handler_of("mail", lambda job: None, permanent=(Permanent,))
    failure = failure_of(ValueError("gone"), handler, b"0" * 16, stage.clock)
    assert (failure.cause, failure.text) == (Cause.HANDLER, "ValueError: gone")


def test_an_item_that_was_to_be_returned_by_the_loop_that_failed_is_returned_by_abandon(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, its lease had to expire: the worker held it no more, and the loop was to return it."""
    monkeypatch.setattr("fairlead.actors.execution.lease_keeper.LeaseKeeper._run", lambda lease_keeper: None)
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(60_000))], slots=1)
    ids = [stage.enqueue("mail") for _ in range(2)]
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(800)  # The second item has waited too long for a slot.
    stage.do(worker.abandon)
    record = stage.record(ids[1])
    assert record is not None
    assert (record.lease_id, record.expiry_count) == (b"", 0)
