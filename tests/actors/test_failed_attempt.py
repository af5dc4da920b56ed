"""Why an attempt failed: the slot renders the error, however slow or broken the error's own code is."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

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
    """Counts how often it is rendered."""

    times = 0

    def __str__(self) -> str:
        Asked.times += 1
        return "asked"


def chain(length: int) -> BaseException:
    """Return an error with a chain of contexts, as a poller raises that retries in its `except`."""
    newest = Asked()
    for _ in range(length):
        following = Asked()
        following.__context__ = newest
        newest = following
    return newest


def test_an_error_that_is_slow_to_render_delays_no_other_item(stage: Stage) -> None:
    """Before, the completer's loop rendered it, seemed to stand still, and failed the fleet."""
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
    assert stage.settled(worker) == {"dead_lettered": 1, "completed": 1}
    (dead_letter,) = stage.dead_letters()
    assert (
        dead_letter.record.error
        == "test_an_error_that_is_slow_to_render_delays_no_other_item.<locals>.Lazy: a body that is fetched"
    )
    assert len(asked) <= 3, "neither the log nor the completer renders it again"


def test_the_log_has_the_text_and_does_not_render_the_error_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
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
def test_of_a_long_chain_of_errors_only_the_newest_are_rendered(stage: Stage, length: int) -> None:
    error = chain(length)
    Asked.times = 0
    words = render_error(error, stage.clock)
    assert Asked.times <= 2 * ERRORS_MAX + 2
    assert words.text == "Asked: asked"
    assert "earlier errors are left out" in words.lines
    assert not words.safe_to_log


def test_of_a_group_with_many_errors_only_some_are_rendered(stage: Stage) -> None:
    error = ExceptionGroup("many", [Asked() for _ in range(10_000)])
    Asked.times = 0
    assert render_error(error, stage.clock).text.startswith("ExceptionGroup: many")
    assert Asked.times <= 2 * ERRORS_MAX


def test_errors_that_refer_to_each_other_are_rendered_once(stage: Stage) -> None:
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


@pytest.mark.parametrize("folder", [None, b"/shop", ""])
def test_what_is_no_folder_on_the_path_of_imports_does_not_hide_an_error(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Any
) -> None:
    """An empty one is the process's own folder, which may have been deleted: an old release, for example."""
    gone = tmp_path / "old release"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    assert render_error(ValueError("no postman"), stage.clock).text == "ValueError: no postman"


MODULE = """
def refuse():
    try:
        {}["account"]
    except KeyError as error:
        raise ExceptionGroup("closed", [error]) from ValueError("no account")
"""


@pytest.mark.parametrize("causes", [0, ERRORS_MAX])
def test_a_stored_error_names_files_without_the_folders_of_the_machine(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, causes: int
) -> None:
    (tmp_path / "shop_front").mkdir()
    (tmp_path / "shop_front" / "receipts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("shop_front", "shop_front.receipts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ExceptionGroup) as caught:
        importlib.import_module("shop_front.receipts").refuse()
    if causes:
        assert caught.value.__cause__ is not None
        caught.value.__cause__.__cause__ = chain(causes)
    lines = render_error(caught.value, stage.clock).lines
    assert ("earlier errors are left out" in lines) == bool(causes)
    assert str(tmp_path) not in lines
    assert 'File "shop_front/receipts.py", line 6, in refuse' in lines
    assert causes or 'File "shop_front/receipts.py", line 4, in refuse' in lines  # The member of the group.


def test_an_error_that_cannot_be_rendered_is_named_by_its_class(stage: Stage) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "Mute" in render_error(Mute(), stage.clock).text


# --- A worker that is abandoned ---


def stalled_worker(stage: Stage) -> Worker:
    """Return a worker that holds a failed item and a completed one, and whose ends are not committed."""

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


def test_items_that_have_ended_are_settled_when_their_worker_is_abandoned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a failed item was returned as if it had not run, and failed the next fleet again."""
    monkeypatch.setattr(
        "fairlead.actors.execution.completer.Completer._run", lambda completer: None
    )  # The loop that has failed.
    worker = stalled_worker(stage)
    stage.pass_ms(100)
    assert stage.do(worker.counts)["held"] == 2
    stage.do(worker.abandon)
    (dead_letter,) = stage.dead_letters()
    assert dead_letter.record.error == "ValueError: no such order"
    assert stage.count() == {}


def test_running_items_are_returned_when_their_worker_is_abandoned(stage: Stage) -> None:
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


def test_an_error_whose_class_cannot_be_tested_is_a_failure(stage: Stage) -> None:
    """Otherwise the item would count as completed."""

    class Unasked(type):
        def __instancecheck__(cls, instance: object) -> bool:
            raise SystemExit(3)

    class Permanent(Exception, metaclass=Unasked):
        pass

    handler = handler_of("mail", lambda job: None, permanent=(Permanent,))
    failure = failure_of(ValueError("gone"), handler, b"0" * 16, stage.clock)
    assert (failure.cause, failure.text) == (Cause.HANDLER, "ValueError: gone")


def test_items_whose_return_has_not_ended_are_returned_when_their_worker_is_abandoned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, their leases had to expire if the loop that returns items had failed."""
    monkeypatch.setattr("fairlead.actors.execution.lease_keeper.LeaseKeeper._run", lambda lease_keeper: None)
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(60_000))], slots=1)
    ids = [stage.enqueue("mail") for _ in range(2)]
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(800)  # The second item has waited too long for a slot.
    stage.do(worker.abandon)
    record = stage.record(ids[1])
    assert record is not None
    assert (record.lease_id, record.expiry_count) == (b"", 0)
