"""The supervisor fails an actor when one of its loops ends by an error, or stalls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.actors.runtime.ray_host.restarts import restart_pause_s
from fairlead.actors.runtime.supervisor import STALL_US, Supervisor
from fairlead.actors.runtime.thread_host import thread_supervisor
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, StoreError
from fairlead.zones.engines.api.progress import report_loop_progress, unsupervised
from tests.actors.stage import Stage

SECOND = 1_000_000


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def supervisor(failures: list[str]) -> Supervisor:
    return Supervisor(failures.append, lambda thread_id: "a stack")


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), SystemExit(3), KeyboardInterrupt()])
def test_a_loop_that_dies_of_any_error_fails_its_actor_and_is_logged_with_its_traceback(
    supervisor: Supervisor, failures: list[str], caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    supervisor.supervised("scanner", raising(error))()
    assert len(failures) == 1
    assert "scanner" in failures[0]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_an_actor_fails_although_its_log_is_not_read() -> None:
    """Ctrl-S in a terminal, a pager, a stalled log driver: a write to the log waits for ever."""
    failed, read = threading.Event(), threading.Event()

    class Unread(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            read.wait()

    log, unread = logging.getLogger("fairlead.supervisor"), Unread()
    log.addHandler(unread)
    supervisor = thread_supervisor(lambda reason: failed.set())
    try:
        threading.Thread(target=supervisor.supervised("scanner", raising(ValueError("gone")))).start()
        assert failed.wait(10)
        assert supervisor.failure is not None
    finally:
        read.set()
        log.removeHandler(unread)


def test_an_actor_fails_once_although_more_loops_die(supervisor: Supervisor, failures: list[str]) -> None:
    for name in ("scanner", "housekeeping"):
        supervisor.supervised(name, raising(ValueError(name)))()
    assert len(failures) == 1
    assert supervisor.failure == failures[0]


def test_a_loop_that_ends_without_an_error_does_not_fail_the_actor(supervisor: Supervisor, failures: list[str]) -> None:
    supervisor.supervised("scanner", lambda: None)()
    supervisor.check_loops(10 * STALL_US)
    assert failures == []


def looks_within(supervisor: Supervisor, body: Callable[[], Any], seconds: int) -> None:
    """Run a loop that does something and is then checked for some seconds."""

    def loop() -> None:
        body()
        for _ in range(seconds):
            supervisor.check_loops(SECOND)

    supervisor.supervised("deadlines", loop)()


def test_a_loop_without_progress_for_ten_seconds_has_stalled(
    supervisor: Supervisor, failures: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    looks_within(supervisor, report_loop_progress, 11)
    assert failures == []
    looks_within(supervisor, report_loop_progress, 12)
    assert len(failures) == 1
    assert "a stack" in caplog.text


def test_a_loop_may_be_silent_for_as_long_as_it_reported(supervisor: Supervisor, failures: list[str]) -> None:
    looks_within(supervisor, lambda: report_loop_progress(60 * SECOND), 71)
    looks_within(supervisor, lambda: report_loop_progress(None), 100_000)
    assert failures == []


def test_a_users_handler_may_take_any_time(supervisor: Supervisor, failures: list[str]) -> None:
    def slot() -> None:
        with unsupervised():
            report_loop_progress()  # Reports of the handler's transactions do not count for the slot.
            for _ in range(1_000):
                supervisor.check_loops(SECOND)

    supervisor.supervised("slot", slot)()
    assert failures == []


def test_a_loop_with_a_remedy_of_its_own_does_not_fail_the_actor(supervisor: Supervisor, failures: list[str]) -> None:
    stalled: list[str] = []

    def loop() -> None:
        for _ in range(30):
            supervisor.check_loops(SECOND)

    supervisor.supervised("event loop", loop, lambda: stalled.append("replaced"))()
    assert (stalled, failures) == (["replaced"], [])


def test_a_store_that_does_not_answer_for_two_minutes_fails_no_actor(stage: Stage) -> None:
    stage.store.silent = True

    def loop() -> None:
        until_us = stage.now_us + 120 * SECOND
        while stage.now_us < until_us:
            with pytest.raises(StoreError, match=str(TRANSACTION_TIMED_OUT)):
                stage.shard.transact(lambda attempt: attempt.tr.get(b"key").value)

    stage.host.spawn("lease keeper", loop)
    stage.pass_ms(150_000)
    assert stage.failed == []


def test_a_store_whose_commits_wait_for_two_minutes_fails_no_actor(stage: Stage) -> None:
    stage.store.on_commit(1, lambda: stage.world.sleep_us(120 * SECOND))
    stage.host.spawn("lease keeper", lambda: stage.shard.transact(lambda attempt: attempt.tr.set(b"key", b"value")))
    stage.pass_ms(150_000)
    assert stage.failed == []


@pytest.mark.parametrize(
    ("restarts", "ran_s", "pause_s"), [(0, 1, 1), (1, 1, 2), (3, 1, 8), (40, 1, 30), (40, 3_600, 1)]
)
def test_an_actor_that_fails_repeatedly_waits_longer_each_time(restarts: int, ran_s: float, pause_s: float) -> None:
    assert restart_pause_s(restarts, ran_s=ran_s) == pause_s
