"""The event loop of a worker: no coroutine ends it, and one that blocks it fails no other attempt."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from fairlead.actors.execution.event_loop import EventLoopBlocked, EventLoopEnded, EventLoopLost, EventLoopLostAgain
from fairlead.actors.execution.failed_attempt import failure_of, render_error
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry_decision import RetryDecision, decide_retry
from fairlead.actors.runtime.supervisor import STALL_US, Supervisor
from fairlead.actors.runtime.thread_host import BLOCKED_LOOPS_MAX, ThreadHost, ThreadRunners
from fairlead.clock import SystemClock
from tests.acceptance.fleets import eventually
from tests.actors.stage import held_item

PATIENCE_S = 20.0


class Bench:
    """Runners on threads, under a supervisor that checks when the test calls it."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.before_a_stall_is_told: Callable[[], object] = lambda: None
        self.supervisor = Supervisor(self.failures.append, self._stack_of)
        self.recycled: list[str] = []
        host = ThreadHost(
            clock=SystemClock(), random=Random(1), supervisor=self.supervisor, on_recycle=self.recycled.append
        )
        self.runners = ThreadRunners(host)
        self.pool = ThreadPoolExecutor(8)

    def _stack_of(self, thread_id: int) -> str:
        self.before_a_stall_is_told()
        return ""

    def begin(self, function: Callable[[Job], Any], number: int = 0) -> Any:
        held = held_item(number)
        return self.pool.submit(self.runners.run_coroutine, function, held)

    def find_standing_still(self) -> None:
        """Let the supervisor find a loop that is blocked."""
        for _ in range(3):  # The first check may find earlier progress.
            self.supervisor.check_loops(STALL_US)

    def run(self, function: Callable[[Job], Any]) -> Any:
        return self.begin(function).result(PATIENCE_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.runners.close()
    bench.pool.shutdown(wait=False)


async def good(job: Job) -> str:
    await asyncio.sleep(0)
    return "good"


async def leaving(job: Job) -> None:
    sys.exit(3)


async def interrupted(job: Job) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("bad", "error"), [(leaving, SystemExit), (interrupted, KeyboardInterrupt)])
def test_a_coroutine_that_exits_has_failed_and_the_next_one_runs(
    bench: Bench, bad: Callable[[Job], Any], error: type[BaseException]
) -> None:
    """Before, the loop's thread ended without a log line, and every later coroutine occupied a slot for ever."""
    with pytest.raises(error):
        bench.run(bad)
    assert bench.run(good) == "good"
    assert bench.failures == []


def test_a_child_task_of_a_coroutine_ends_no_loop(bench: Bench) -> None:
    async def starts_another(job: Job) -> str:
        task = asyncio.create_task(leaving(job))
        await asyncio.wait([task])
        return type(task.exception()).__name__

    assert bench.run(starts_another) == "Exited"
    assert bench.run(good) == "good"


async def stopping(job: Job) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(3_600)


async def exiting_in_a_callback(job: Job) -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(3_600)


async def exiting_in_a_callback_of_a_task(job: Job) -> None:
    await asyncio.create_task(exiting_in_a_callback(job))


@pytest.mark.parametrize("ends", [stopping, exiting_in_a_callback, exiting_in_a_callback_of_a_task])
def test_a_coroutine_that_ends_the_loop_fails_and_the_others_do_not(
    bench: Bench, ends: Callable[[Job], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """If its attempt did not fail, it would end one loop after the other."""
    begun, told = threading.Event(), threading.Event()

    async def waits(job: Job) -> None:
        begun.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            told.set()

    waiting = bench.begin(waits)
    assert begun.wait(PATIENCE_S)
    guilty = bench.begin(ends, 1)
    with pytest.raises(EventLoopEnded):
        guilty.result(PATIENCE_S)
    with pytest.raises(EventLoopLost):
        waiting.result(PATIENCE_S)
    assert told.wait(PATIENCE_S), "a coroutine that goes back is told, and may tidy up"
    assert "the event loop ended" in caplog.text
    assert bench.run(good) == "good"
    assert bench.failures == []


def blocking_itself(block: Callable[[], object]) -> None:
    block()


def blocking_in_a_task(block: Callable[[], object]) -> asyncio.Task[None]:
    async def blocks() -> None:
        block()

    return asyncio.create_task(blocks())


def blocking_in_a_callback(block: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_soon(block)


def blocking_in_a_callback_of_a_task(block: Callable[[], object]) -> asyncio.Task[None]:
    async def asks() -> None:
        asyncio.get_running_loop().call_soon(block)

    return asyncio.create_task(asks())


@pytest.mark.parametrize(
    "begin_to_block",
    [blocking_itself, blocking_in_a_task, blocking_in_a_callback, blocking_in_a_callback_of_a_task],
)
def test_a_coroutine_that_blocks_the_loop_fails_and_the_others_do_not(
    bench: Bench, begin_to_block: Callable[[Callable[[], object]], object]
) -> None:
    """Before, a coroutine whose callback blocked the loop did not fail, and blocked one loop after the other."""
    begun, blocking, release = threading.Event(), threading.Event(), threading.Event()

    async def waits(job: Job) -> None:
        begun.set()
        await asyncio.sleep(3_600)

    def block() -> None:
        blocking.set()
        release.wait(PATIENCE_S)

    async def blocks(job: Job) -> None:
        kept = begin_to_block(block)
        await asyncio.sleep(3_600)
        del kept

    waiting = bench.begin(waits)
    assert begun.wait(PATIENCE_S)
    guilty = bench.begin(blocks, 1)
    assert blocking.wait(PATIENCE_S)
    bench.find_standing_still()
    with pytest.raises(EventLoopBlocked):
        guilty.result(PATIENCE_S)
    with pytest.raises(EventLoopLost):
        waiting.result(PATIENCE_S)
    assert bench.run(good) == "good"
    assert bench.failures == [], "the worker goes on"
    release.set()


def run_until_the_loop_is_lost(bench: Bench, held: HeldItem, *, exits: bool) -> BaseException:
    """Run a coroutine whose loop is lost by a callback of a thread without a context; return the failure."""
    blocking, release = threading.Event(), threading.Event()

    def block() -> None:
        blocking.set()
        release.wait(PATIENCE_S)

    async def lets_a_thread_ask(job: Job) -> None:
        ask = asyncio.get_running_loop().call_soon_threadsafe
        threading.Thread(target=ask, args=(sys.exit if exits else block,)).start()
        await asyncio.sleep(3_600)

    running = bench.pool.submit(bench.runners.run_coroutine, lets_a_thread_ask, held)
    if not exits:
        assert blocking.wait(PATIENCE_S)
        bench.find_standing_still()
    error = running.exception(PATIENCE_S)
    release.set()
    assert error is not None
    return error


def judged(held: HeldItem, error: BaseException) -> RetryDecision:
    failure = failure_of(error, held.handler, held.ref.item_id, SystemClock())
    return decide_retry(held, failure, now_us=0, random=Random(1))


@pytest.mark.parametrize("exits", [False, True])
def test_an_item_that_loses_its_loop_twice_by_an_unknown_cause_has_failed(bench: Bench, exits: bool) -> None:
    """One of the items may block or end each loop: none runs again for ever without a failed attempt."""
    held = held_item(1)
    first = judged(held, run_until_the_loop_is_lost(bench, held, exits=exits))
    assert not first.counted
    held = held_item(1)
    held.record.last_error = first.error  # As it is stored with the item, wherever it runs next.
    error = run_until_the_loop_is_lost(bench, held, exits=exits)
    assert isinstance(error, EventLoopLostAgain)
    assert judged(held, error).counted


def test_an_item_that_loses_its_loop_twice_by_other_coroutines_has_not_failed(bench: Bench) -> None:
    release = threading.Event()
    waiting = wait_once_more(bench)
    block(bench, 2, release)
    with pytest.raises(EventLoopLost):
        waiting.result(PATIENCE_S)
    release.set()


def test_an_item_whose_worker_stops_has_not_failed(bench: Bench) -> None:
    waiting = wait_once_more(bench)
    bench.runners.close()
    with pytest.raises(EventLoopLost):
        waiting.result(PATIENCE_S)


def wait_once_more(bench: Bench) -> Future[Any]:
    """Run a coroutine that waits, for an item that has lost its loop before."""
    begun = threading.Event()

    async def waits(job: Job) -> None:
        begun.set()
        await asyncio.sleep(3_600)

    held = held_item(1)
    held.record.last_error = render_error(EventLoopLost(), SystemClock()).text
    waiting = bench.pool.submit(bench.runners.run_coroutine, waits, held)
    assert begun.wait(PATIENCE_S)
    return waiting


def block(bench: Bench, number: int, release: threading.Event) -> None:
    """Run a coroutine that blocks its loop until `release`, and let the supervisor find that."""
    blocking = threading.Event()

    async def blocks(job: Job) -> None:
        blocking.set()
        release.wait(PATIENCE_S)

    guilty = bench.begin(blocks, number)
    assert blocking.wait(PATIENCE_S)
    bench.find_standing_still()
    with pytest.raises(EventLoopBlocked):
        guilty.result(PATIENCE_S)


def test_a_worker_with_many_blocked_loops_restarts(bench: Bench) -> None:
    """Each has a thread that never ends: if it computes, it takes processor time from the others."""
    release = threading.Event()
    for number in range(BLOCKED_LOOPS_MAX):
        assert bench.recycled == []
        block(bench, number, release)
    assert bench.run(good) == "good"
    assert len(bench.recycled) == 1
    release.set()


def test_blocked_loops_that_end_later_are_not_counted(bench: Bench) -> None:
    for number in range(BLOCKED_LOOPS_MAX + 1):
        release = threading.Event()
        block(bench, number, release)
        (lost,) = [bench.runners._loop]
        assert lost is not None
        release.set()
        eventually(lambda lost=lost: lost.has_ended)  # type: ignore[misc]
    assert bench.run(good) == "good"
    assert bench.recycled == []


def test_a_coroutine_that_lost_its_loop_has_not_failed_and_one_that_blocked_or_ended_it_has() -> None:
    lost = judged(held_item(1), EventLoopLost())
    assert (lost.counted, lost.delay_us) == (False, 0)
    for error in (EventLoopBlocked(), EventLoopEnded(), EventLoopLostAgain()):
        assert judged(held_item(2), error).counted


def test_a_cancelled_coroutine_is_interrupted_and_its_slot_is_free_at_once(bench: Bench) -> None:
    begun, told = threading.Event(), threading.Event()

    async def waits(job: Job) -> None:
        begun.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            told.set()

    held = held_item(1)
    running = bench.pool.submit(bench.runners.run_coroutine, waits, held)
    assert begun.wait(PATIENCE_S)
    held.cancel(now_us=1)
    assert running.exception(PATIENCE_S) is not None
    assert told.wait(PATIENCE_S)


def cancel_one_that(bench: Bench, function: Callable[[Job], Any], begun: threading.Event) -> None:
    """Start a coroutine, and cancel it once it has begun."""
    held = held_item(1)
    running = bench.pool.submit(bench.runners.run_coroutine, function, held)
    assert begun.wait(PATIENCE_S)
    held.cancel(now_us=1)
    assert running.exception(PATIENCE_S) is not None


def test_a_coroutine_that_ignores_its_cancellation_is_named_in_the_log_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, it ran on beside its own retries, and the log did not show it."""
    monkeypatch.setattr("fairlead.actors.execution.event_loop.STUCK_US", 50_000)
    begun, release = threading.Event(), threading.Event()

    async def deaf(job: Job) -> None:
        begun.set()
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    cancel_one_that(bench, deaf, begun)
    eventually(lambda: "ignores job.cancelled" in caplog.text, within_s=PATIENCE_S)
    release.set()
    assert bench.run(good) == "good"
    (record,) = caplog.records
    assert "deaf" in record.getMessage()
    assert held_item(1).ref.item_id.hex() in record.getMessage()


def test_a_coroutine_that_ends_when_it_is_cancelled_is_not_named_in_the_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlead.actors.execution.event_loop.STUCK_US", 50_000)
    begun = threading.Event()

    async def waits(job: Job) -> None:
        begun.set()
        await asyncio.sleep(3_600)

    async def outlasts_it(job: Job) -> None:
        await asyncio.sleep(0.1)

    cancel_one_that(bench, waits, begun)
    bench.run(outlasts_it)  # On the same loop, whose timers fire in order.
    assert caplog.records == []


def test_closed_runners_leave_no_thread_behind(bench: Bench) -> None:
    """Before, a fleet that had stopped inside a program left a loop that woke up every second."""
    loops: list[threading.Thread] = []

    async def names_its_thread(job: Job) -> None:
        loops.append(threading.current_thread())

    bench.run(names_its_thread)
    bench.runners.close()
    loops[0].join(PATIENCE_S)
    assert not loops[0].is_alive()
    assert bench.failures == []


def test_a_loop_that_ends_while_the_supervisor_finds_it_blocked_fails_no_actor(bench: Bench) -> None:
    """Before, the supervisor died of "Event loop is closed", and the actor with it."""
    blocking, release = threading.Event(), threading.Event()

    async def blocks(job: Job) -> None:
        blocking.set()
        release.wait(PATIENCE_S)

    def let_it_end() -> None:
        bench.runners.close()
        release.set()
        eventually(lambda: loop is not None and loop.has_ended, within_s=PATIENCE_S)

    bench.begin(blocks)
    assert blocking.wait(PATIENCE_S)
    (loop,) = [bench.runners._loop]
    assert loop is not None
    bench.before_a_stall_is_told = let_it_end
    bench.find_standing_still()
    assert loop.has_ended
