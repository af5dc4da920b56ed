"""Awaited calls: they do what the plain calls do, and do not block the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead import (
    App,
    ApplicationTransaction,
    BadArgument,
    EnqueueStatus,
    ItemFailed,
    Job,
    NoResult,
    PayloadNotData,
    ResultPending,
    Retry,
    TenantTransaction,
)
from fairlead.store_threads import THREADS_MAX
from fairlead.testing import drain
from tests.contract.other_process import stopped_holder
from tests.zones.faults import FaultyDatabase

# What an event loop may be blocked for. To begin or end 200 calls takes 7 ms on a slow machine.
LOOP_GAP_S_MAX = 0.02
ROUNDS = 20  # A busy machine opens gaps of its own; a call that blocks does so in every round.
CALLS = 200
TICK_S = 0.001


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"embedded:{tmp_path / 'data'}")
    app.shards.on_store_created = lambda sentence: None
    yield app
    app.close()


# --- The same effects as the plain calls ---


def test_a_coroutine_enqueues_and_transacts(app: App) -> None:
    send_mail = app.handler("mail")(lambda job: None)
    alice = app.tenant("shop/alice")

    def order(tr: ApplicationTransaction) -> int:
        tr.set(("order", 7), b"paid")
        tr.enqueue(send_mail, {"order": 7})
        return 7

    async def request() -> None:
        assert await alice.atransact(order) == 7
        made = await alice.aenqueue(send_mail, {"order": 8}, item_id="mail-8", delay=timedelta(hours=1))
        assert made.status is EnqueueStatus.ENQUEUED
        again = await send_mail.aenqueue("shop/alice", {"order": 8}, item_id="mail-8")
        assert again.status is EnqueueStatus.PRESENT

    asyncio.run(request())
    assert alice.count() == {"mail": 2}


def test_what_a_call_raises_is_raised_where_it_is_awaited(app: App) -> None:
    alice = app.tenant("shop/alice")

    def fail(tr: ApplicationTransaction) -> None:
        raise LookupError("no such order")

    async def request() -> None:
        with pytest.raises(PayloadNotData):
            await alice.aenqueue("mail", object())
        with pytest.raises(TypeError, match="delay_ms"):
            await alice.aenqueue("mail", delay_ms=1)  # type: ignore[call-arg]
        with pytest.raises(LookupError):
            await alice.atransact(fail)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await alice.atransact(lambda tr: next(iter(())))

    asyncio.run(request())


def test_an_async_function_is_no_body_of_a_transaction(app: App) -> None:
    """It would run nothing, and the transaction would silently commit nothing."""

    async def body(tr: ApplicationTransaction) -> None: ...

    with pytest.raises(BadArgument, match="a plain function"):
        asyncio.run(app.tenant("shop/alice").atransact(body))  # type: ignore[unused-coroutine]


def test_a_body_runs_in_the_context_of_its_coroutine(app: App) -> None:
    """A span and the request's id in a log are current there."""
    request_id = contextvars.ContextVar[str]("request_id")

    async def request() -> str:
        request_id.set("r-7")
        return await app.tenant("shop/alice").atransact(lambda tr: request_id.get())

    assert asyncio.run(request()) == "r-7"


def test_a_result_is_awaited(app: App) -> None:
    app.handler("square", keep_result=60)(lambda job: job.payload**2)
    app.handler("fail", keep_result=60, retry=Retry(attempts=1))(lambda job: 1 / 0)
    app.handler("forget")(lambda job: None)
    alice = app.tenant("shop/alice")

    async def request() -> None:
        square = await alice.aenqueue("square", 7)
        failed, forgotten = await alice.aenqueue("fail"), await alice.aenqueue("forget")
        with pytest.raises(ResultPending):
            await square.aresult(timeout=0)
        with pytest.raises(ResultPending):
            await square.aresult(timeout=timedelta(milliseconds=20))
        with pytest.raises(BadArgument, match="timeout"):
            await square.aresult(timeout=-1)
        waiting = asyncio.create_task(square.aresult(timeout=60))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(drain, app, raise_errors=False)
        assert await waiting == 49
        with pytest.raises(ItemFailed):
            await failed.aresult()
        with pytest.raises(NoResult):
            await forgotten.aresult()

    asyncio.run(request())


def test_more_coroutines_await_results_than_there_are_threads(app: App) -> None:
    app.handler("square", keep_result=60)(lambda job: job.payload**2)
    alice = app.tenant("shop/alice")

    async def request() -> list[int]:
        handles = await asyncio.gather(*(alice.aenqueue("square", number) for number in range(5 * THREADS_MAX)))
        waiting = asyncio.gather(*(handle.aresult(timeout=60) for handle in handles))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(drain, app)
        return await waiting

    assert asyncio.run(request()) == [number**2 for number in range(5 * THREADS_MAX)]


# --- Cancellation ---


def test_a_cancelled_await_does_not_undo_a_transaction_that_has_begun(app: App) -> None:
    begun, go_on = threading.Event(), threading.Event()
    alice = app.tenant("shop/alice")

    def body(tr: ApplicationTransaction) -> None:
        tr.set(("order", 7), b"paid")
        begun.set()
        go_on.wait(60)

    async def request() -> None:
        call = asyncio.create_task(alice.atransact(body))
        await asyncio.to_thread(begun.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()

    asyncio.run(request())
    until = time.monotonic() + 60
    while alice.transact(lambda tr: tr.get(("order", 7))) is None:
        assert time.monotonic() < until


def test_a_cancelled_await_drops_a_call_that_has_not_begun(app: App) -> None:
    go_on = threading.Event()
    alice = app.tenant("shop/alice")

    async def request() -> None:
        busy = [asyncio.create_task(alice.atransact(lambda tr: go_on.wait(60))) for _ in range(THREADS_MAX)]
        await asyncio.sleep(0.05)
        dropped = asyncio.create_task(alice.aenqueue("mail"))
        await asyncio.sleep(0.01)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        go_on.set()
        await asyncio.gather(*busy)

    asyncio.run(request())
    assert alice.count() == {}


def test_a_cancelled_await_of_a_result_leaves_the_item(app: App) -> None:
    app.handler("square", keep_result=60)(lambda job: job.payload**2)
    handle = app.tenant("shop/alice").enqueue("square", 7)

    async def request() -> None:
        waiting = asyncio.create_task(handle.aresult())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(request())
    drain(app)
    assert handle.result(timeout=0) == 49


# --- In handlers ---


def test_an_async_handler_completes_its_item_in_a_transaction_that_it_awaits(app: App) -> None:
    @app.handler("count")
    async def count(job: Job) -> None:
        def body(tr: TenantTransaction) -> None:
            tr.add(("count",), 1)
            job.complete_in(tr)

        await job.atransact(body)

    count.enqueue("shop/alice")
    assert drain(app).completed == {"count": 1}
    assert app.tenant("shop/alice").transact(lambda tr: tr.get(("count",))) == (1).to_bytes(8, "little")


def test_a_closed_application_leaves_no_thread(app: App) -> None:
    before = set(threading.enumerate())  # Other tests may have left applications open.
    handle = app.tenant("shop/alice").enqueue("mail")

    async def request() -> None:
        with pytest.raises(ResultPending):
            await handle.aresult(timeout=0.01)

    asyncio.run(request())
    app.close()
    until = time.monotonic() + 30
    while [each for each in threading.enumerate() if each.name.startswith("fairlead-async") and each not in before]:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_forked_child_awaits_with_threads_of_its_own(app: App) -> None:
    alice = app.tenant("shop/alice")
    asyncio.run(alice.aenqueue("mail", "of the parent"))
    child = os.fork()
    if not child:
        try:
            asyncio.run(alice.aenqueue("mail", "of the child"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert sorted(item.payload for item in alice.peek()) == ["of the child", "of the parent"]


# --- The event loop is not blocked ---


def waited_for_cpu_s() -> float:
    """Return how long this thread was ready to run and waited for a CPU; 0 if the system does not count that."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


async def longest_gap_s(calls: Awaitable[Any]) -> float:
    """Return the longest time for which the event loop was blocked while `calls` were awaited.

    Time in which this thread waited for a CPU does not count.
    """
    longest, done = 0.0, asyncio.ensure_future(calls)
    while not done.done():
        waited_s, last_s = waited_for_cpu_s(), time.perf_counter()
        await asyncio.sleep(TICK_S)
        gap_s = time.perf_counter() - last_s - TICK_S
        longest = max(longest, gap_s - (waited_for_cpu_s() - waited_s))
    await done
    return longest


def shortest_longest_gap_s(calls: Callable[[int], Awaitable[Any]]) -> float:
    """Return the longest gap of the best round: a busy machine can only make a gap longer."""
    best = float("inf")
    for number in range(ROUNDS):
        best = min(best, asyncio.run(longest_gap_s(calls(number))))
        if best < LOOP_GAP_S_MAX:
            break
    return best


def test_a_call_that_blocks_is_found() -> None:
    """Tests the measurement."""

    async def block(number: int) -> None:
        await asyncio.sleep(0.01)
        time.sleep(2 * LOOP_GAP_S_MAX)  # noqa: ASYNC251 - what is to be found
        await asyncio.sleep(0.01)

    assert shortest_longest_gap_s(block) > LOOP_GAP_S_MAX


def test_many_calls_at_once_do_not_block_the_event_loop(app: App) -> None:
    alice = app.tenant("shop/alice")

    async def requests(number: int) -> None:
        await asyncio.gather(*(alice.aenqueue("mail", {"order": order}) for order in range(CALLS)))

    assert shortest_longest_gap_s(requests) < LOOP_GAP_S_MAX


def test_many_awaited_results_do_not_block_the_event_loop(app: App) -> None:
    alice = app.tenant("shop/alice")
    handles = [alice.enqueue("mail", number) for number in range(CALLS)]

    async def requests(number: int) -> None:
        await asyncio.gather(*(handle.aresult(timeout=0.3) for handle in handles), return_exceptions=True)

    assert shortest_longest_gap_s(requests) < LOOP_GAP_S_MAX


class SlowDatabase(FaultyDatabase):
    """A store with slow commits."""

    def commit(self, tr: Any) -> None:
        time.sleep(2 * LOOP_GAP_S_MAX)
        tr.commit().wait()


def test_a_store_whose_commits_are_slow_does_not_block_the_event_loop(app: App) -> None:
    alice = app.tenant("shop/alice")
    shard = app.shards["main"]
    shard.db = SlowDatabase(shard.db)

    async def requests(number: int) -> None:
        await asyncio.gather(*(alice.aenqueue("mail", order) for order in range(CALLS)))

    assert shortest_longest_gap_s(requests) < LOOP_GAP_S_MAX


def test_a_store_that_another_process_keeps_locked_does_not_block_the_event_loop(app: App) -> None:
    """The plain call waits for as long as the lock is held."""
    alice = app.tenant("shop/alice")
    alice.enqueue("mail")

    async def requests(pid: int) -> None:
        calls = [asyncio.ensure_future(alice.aenqueue("mail", number)) for number in range(CALLS)]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
        os.kill(pid, signal.SIGCONT)
        await asyncio.gather(*calls)

    def locked(number: int) -> float:
        with stopped_holder(app.config.shards["main"]) as pid:
            return asyncio.run(longest_gap_s(requests(pid)))

    assert any(locked(number) < LOOP_GAP_S_MAX for number in range(ROUNDS // 2))
