"""Asynchronous workflows: branches side by side, suspended together, and the same in every replay."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead import App, Retry
from fairlead.actors.handlers import PermanentError
from fairlead.workflows import asynchronous, own_event_loop
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.asynchronous import AsyncDriver
from fairlead.workflows.context import child
from fairlead.workflows.errors import BranchNotEnded, CallNotAwaited
from fairlead.workflows.replay import CheckpointBesideSteps, ConcurrentSteps, StepsDiffer
from fairlead.workflows.run_log import RunLog
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.workflows.application import ELSEWHERE, HOME, add, append, count, enqueue, kept_keys, run, two_shards, words
from tests.workflows.test_children import with_children


def test_an_async_workflow_does_its_steps_once() -> None:
    app, calls = two_shards(), []

    async def pay(key: str, price: int) -> str:
        await asyncio.sleep(0)
        calls.append(key)
        return f"paid {price}"

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext, order: int) -> Any:
        first = await wf.step(add, "done")
        paid = await wf.effect(pay, order)
        await wf.sleep(10)
        await wf.step(add, "done", on=ELSEWHERE)
        return await wf.finish(lambda tr: [first, paid])

    item = enqueue(app, "w", {"order": 7})
    run(app, within=60)
    assert item.result(0) == [1, "paid 7"]
    assert (count(app, HOME, "done"), count(app, ELSEWHERE, "done"), len(calls)) == (1, 1, 1)
    assert kept_keys(app) == []


@pytest.mark.parametrize("replays", [True, False])
def test_branches_run_side_by_side_and_each_step_happens_once(replays: bool) -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> Any:
        async def branch(number: int) -> int:
            place = ELSEWHERE if number % 2 else HOME
            for each in range(3):
                await wf.step(add, f"{number}", name=f"step {number} {each}", on=place)
            return number

        return await asyncio.gather(*map(branch, range(4)))

    item = enqueue(app, "w")
    run(app, replays=replays)
    assert item.result(0) == [0, 1, 2, 3]
    assert [count(app, ELSEWHERE if n % 2 else HOME, f"{n}") for n in range(4)] == [3, 3, 3, 3]


@pytest.mark.parametrize("replays", [True, False])
def test_a_run_is_suspended_once_all_branches_wait_and_woken_by_the_first(replays: bool) -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        async def branch(signal: str) -> None:
            await wf.step(append, f"before-{signal}", name=f"before {signal}")
            await wf.wait_for(signal)
            await wf.step(append, f"after-{signal}", name=f"after {signal}")

        async with asyncio.TaskGroup() as branches:
            for signal in "ab":
                branches.create_task(branch(signal))

    item = enqueue(app, "w")
    assert run(app, replays=replays).suspended["w"] == 1
    app.tenant(HOME).signal(item.item_id, "b")
    assert run(app, replays=replays).suspended["w"] == 1
    assert sorted(words(app).split()) == ["after-b", "before-a", "before-b"]
    app.tenant(HOME).signal(item.item_id, "a")
    assert run(app, replays=replays).completed["w"] == 1
    assert words(app).split()[2:] == ["after-b", "after-a"]


@pytest.mark.parametrize("replays", [True, False])
@pytest.mark.parametrize("sent_first", [True, False])
def test_of_two_branches_that_wait_for_the_same_signal_one_gets_it(sent_first: bool, replays: bool) -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> Any:
        return await asyncio.gather(*(wf.wait_for("n", 60, default=None, name=name) for name in "ab"))

    item = enqueue(app, "w")
    if not sent_first:
        run(app, replays=replays)
    app.tenant(HOME).signal(item.item_id, "n", 1)
    run(app, within=100, replays=replays)
    assert sorted(item.result(0), key=str) == [1, None]


def test_a_branch_goes_on_while_another_one_waits() -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        async def other() -> None:
            for each in range(5):
                await wf.step(append, str(each), name=f"step {each}")

        await asyncio.gather(wf.wait_for("go"), other())

    enqueue(app, "w")
    drained = run(app, replays=False)
    assert (drained.suspended["w"], words(app)) == (1, "0 1 2 3 4")


def test_two_steps_of_one_name_at_once_are_refused() -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(wf.step(add, "a"), wf.step(add, "b"))

    enqueue(app, "w")
    drained = run(app)
    assert isinstance(drained.errors[0], ConcurrentSteps)
    assert drained.dead_lettered["w"] == 1


def test_a_failure_of_one_branch_undoes_the_steps_of_all() -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        async def good(name: str) -> None:
            await wf.step(append, name, name=name, undo=lambda tr, word: append(tr, f"undo-{word}"))

        async def bad() -> None:
            await wf.sleep(1)
            raise PermanentError("no")

        await asyncio.gather(good("a"), good("b"), bad())

    enqueue(app, "w")
    drained = run(app, within=10)
    assert drained.dead_lettered["w"] == 1
    done = words(app).split()
    assert done[2:] == [f"undo-{word}" for word in reversed(done[:2])]


def test_time_and_chance_are_the_same_in_every_replay_whichever_branch_is_faster() -> None:
    app = two_shards()
    seen: list[tuple[Any, ...]] = []

    async def call(key: str, first: asyncio.Event, *, waits: bool) -> None:
        if waits:
            await first.wait()
        app.clock.advance(10)  # type: ignore[attr-defined]
        first.set()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        first = asyncio.Event()

        async def branch(name: str) -> None:
            begun = (wf.random(), wf.uuid())
            effect: Any = partial(call, first=first, waits=name == "a")
            await wf.effect(effect, name=f"call {name}")
            seen.append((name, *begun, wf.now(), wf.random(), wf.uuid()))
            await wf.step(add, "done", name=f"step {name}")

        await asyncio.gather(branch("a"), branch("b"))
        seen.append(("end", wf.random()))
        await wf.sleep(60)

    enqueue(app, "w")
    run(app, within=120, replays=False)
    assert len(seen) == 6
    assert len(set(seen)) == 3
    assert len({value for each in seen for value in each[1:]}) == 11


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
def test_a_step_that_commits_while_another_branch_fails_is_undone(place: str) -> None:
    app, begun = two_shards(), threading.Event()

    def slow(tr: TenantTransaction, word: str) -> None:
        append(tr, word)
        begun.set()
        time.sleep(0.05)

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        async def bad() -> None:
            await asyncio.to_thread(begun.wait)
            raise PermanentError("no")

        await asyncio.gather(wf.step(slow, "a", on=place, undo=lambda tr, word: append(tr, f"undo-{word}")), bad())

    enqueue(app, "w")
    assert run(app, replays=False).dead_lettered["w"] == 1
    assert words(app, place) == "a undo-a"


@pytest.mark.parametrize("waits_first", [True, False])
def test_a_cancelled_run_of_which_a_branch_waits_is_undone(waits_first: bool) -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        async def book() -> None:
            for word in "ab":
                await wf.step(append, word, name=word, undo=lambda tr, word: append(tr, f"undo-{word}"))
            await wf.wait_for("later")

        branches = [wf.wait_for("go"), book()]
        await asyncio.gather(*(branches if waits_first else reversed(branches)))

    item = enqueue(app, "w")
    run(app)
    item.cancel()
    assert run(app).cancelled["w"] == 1
    assert words(app) == "a b undo-b undo-a"


def test_a_step_of_a_cancelled_branch_commits_before_the_next_one_begins() -> None:
    app, begun = two_shards(), threading.Event()

    def slow(tr: TenantTransaction, word: str) -> None:
        begun.set()
        time.sleep(0.05)
        append(tr, word)

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        branch = asyncio.create_task(wf.step(slow, "a"))
        await asyncio.to_thread(begun.wait)
        branch.cancel()
        await wf.step(append, "b")

    enqueue(app, "w")
    assert run(app, replays=False).completed["w"] == 1
    assert words(app) == "a b"


@pytest.mark.parametrize("replays", [True, False])
def test_children_of_an_async_workflow_run_side_by_side(replays: bool) -> None:
    app = two_shards()
    with_children(app)

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> Any:
        both = wf.gather([child("double", {"n": n}, on=ELSEWHERE) for n in range(3)])
        return await asyncio.gather(both, wf.call("nested", {"n": 5}, name="mine"))

    item = enqueue(app, "w")
    run(app, within=60, replays=replays)
    assert item.result(0) == [[0, 2, 4], 20]


def test_an_async_function_that_is_not_deterministic_fails_its_first_test() -> None:
    app, seen = two_shards(), []

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        seen.append(1)
        await wf.step(add, "x", name=f"step {len(seen)}")

    enqueue(app, "w")
    drained = run(app)
    assert isinstance(drained.errors[0], StepsDiffer)


@pytest.mark.parametrize("checkpoint_first", [True, False])
@pytest.mark.parametrize("replays", [True, False])
def test_a_checkpoint_beside_a_step_of_another_branch_is_refused(checkpoint_first: bool, replays: bool) -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        if wf.state is None:
            both = [wf.wait_for("go", name="wait for go"), wf.checkpoint(1)]
            await asyncio.gather(*(reversed(both) if checkpoint_first else both))

    enqueue(app, "w")
    (error,) = run(app, replays=replays).errors
    assert isinstance(error, CheckpointBesideSteps)
    assert error.fields["steps"] == ["wait for go"]


@pytest.mark.parametrize("replays", [True, False])
def test_a_branch_that_ignores_its_cancellation_fails_the_attempt_and_does_no_more_steps(
    replays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asynchronous, "BRANCH_END_S", 0.05)
    app, kept = two_shards(), []

    @app.workflow("w", retry=Retry(attempts=1))
    async def work(wf: AsyncWorkflowContext) -> None:
        async def stubborn() -> None:
            await wf.step(append, "a")
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            await asyncio.sleep(3600)

        kept.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0.2)

    enqueue(app, "w")
    errors = run(app, replays=replays).errors
    assert {type(error) for error in errors} == {BranchNotEnded}  # The undo runs the function, too.
    assert "stubborn" in str(errors[0])
    assert words(app) == "a"


async def never_ends() -> None:
    """Swallow each cancellation."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "BRANCH_END_S", 0.05)
    monkeypatch.setattr(own_event_loop, "TASKS_END_S", 0.05)


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("soon")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("replays", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_a_drain_ends_although_a_branch_swallows_each_cancellation(waits: bool, replays: bool) -> None:
    app, kept = two_shards(), []

    @app.workflow("w", retry=Retry(attempts=1))
    async def work(wf: AsyncWorkflowContext) -> None:
        async def stubborn() -> None:
            await wf.step(append, "a")
            await never_ends()

        kept.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0.2)
        if waits:
            await wf.sleep(60)

    enqueue(app, "w")
    drained = run(app, replays=replays)
    assert {type(error) for error in drained.errors} == {BranchNotEnded}
    assert "stubborn" in str(drained.errors[0])
    assert (words(app), drained.completed["w"]) == ("a", 0)


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("soon")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_drain_ends_although_a_task_of_an_async_handler_swallows_each_cancellation() -> None:
    app, kept = two_shards(), []

    @app.handler("mail", retry=Retry(attempts=1))
    async def mail(job: Any) -> None:
        kept.append(asyncio.create_task(never_ends()))
        await asyncio.sleep(0)

    enqueue(app, "mail")
    (error,) = run(app).errors
    assert isinstance(error, BranchNotEnded)
    assert error.fields == {"kind": "mail", "branches": ["never_ends"]}


def test_a_step_that_comes_while_its_run_is_suspended_is_not_done_without_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, queued = two_shards(), threading.Event()
    go: list[partial[Any]] = []
    suspend, at_home = RunLog.suspend, AsyncDriver._at_home

    def suspend_late(log: RunLog, *arguments: Any) -> Any:
        go[0]()
        assert queued.wait(10)
        return suspend(log, *arguments)

    async def at_home_noted(driver: AsyncDriver, call: Any) -> Any:
        if driver._home.locked():
            queued.set()  # The call waits for its turn, behind the suspension.
        return await at_home(driver, call)

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        begun = asyncio.Event()
        go.append(partial(asyncio.get_running_loop().call_soon_threadsafe, begun.set))

        async def late() -> None:
            await begun.wait()
            await wf.step(lambda tr: tr.add(("late",), 1), name="late")

        for number in range(2):
            await wf.step(lambda tr: tr.add(("before",), 1), name=f"before {number}")
        await asyncio.gather(wf.wait_for("signal"), late())

    monkeypatch.setattr(RunLog, "suspend", suspend_late)
    monkeypatch.setattr(AsyncDriver, "_at_home", at_home_noted)
    enqueue(app, "w")
    assert run(app, replays=False).suspended["w"] == 1
    assert (count(app, HOME, "before"), count(app, HOME, "late")) == (2, 0)


# --- Calls without await ---


def dead_letter_of(app: App) -> str:
    (dead,) = app.tenant(HOME).dead_letters()
    return str(dead.error)


@pytest.mark.parametrize("replays", [True, False])
@pytest.mark.parametrize("finishes", [True, False])
def test_a_call_that_is_not_awaited_is_refused_before_the_item_is_completed(finishes: bool, replays: bool) -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> None:
        await wf.step(append, "a")
        wf.step(append, "forgotten", name="ship")  # type: ignore[unused-coroutine]
        wf.sleep(5)  # type: ignore[unused-coroutine]
        await wf.step(append, "b")
        if finishes:
            await wf.finish(append, "end")

    enqueue(app, "w")
    assert {type(each) for each in run(app, replays=replays).errors} == {CallNotAwaited}
    assert words(app) == "a b"
    assert "wf.step(ship)" in dead_letter_of(app)
    assert "wf.sleep" in dead_letter_of(app)


def test_a_finish_that_is_not_awaited_is_named() -> None:
    app = two_shards()

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> Any:
        return wf.finish(append, "end")

    enqueue(app, "w")
    run(app)
    assert "wf.finish(append)" in dead_letter_of(app)


def test_a_dead_letter_of_a_call_that_is_not_awaited_can_be_cancelled() -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        await wf.step(append, "a", undo=append_undo)
        wf.step(append, "b")  # type: ignore[unused-coroutine]

    item = enqueue(app, "w")
    run(app)
    item.cancel()
    assert run(app).cancelled["w"] == 1
    assert words(app) == "a -a"


def append_undo(tr: TenantTransaction, word: str) -> None:
    append(tr, f"-{word}")


@pytest.mark.parametrize("replays", [True, False])
def test_calls_that_tasks_groups_and_waits_await_are_not_refused(replays: bool) -> None:
    """Many at once, in tasks that are cancelled by an error or an interrupt, and closed by hand."""
    app = two_shards()

    async def cancelled_in_a_group(wf: AsyncWorkflowContext) -> None:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as branches:
                branches.create_task(wf.step(refuse))
                branches.create_task(wf.wait_for("never"))

    @app.workflow("w", keep_result=60)
    async def work(wf: AsyncWorkflowContext) -> Any:
        found = await asyncio.gather(*[wf.step(add, f"{each}", name=f"step {each}") for each in range(100)])
        await cancelled_in_a_group(wf)
        first, second = wf.step(add, "x", name="first"), wf.step(add, "x", name="second")
        await second
        await asyncio.wait_for(first, 60)
        wf.step(add, "y").close()
        await asyncio.gather(wf.sleep(60), wf.sleep(30, name="shorter"))
        last = asyncio.create_task(wf.step(add, "z"))
        await asyncio.sleep(0)
        await last
        return await wf.finish(lambda tr: sum(found))

    item = enqueue(app, "w")
    drained = run(app, within=600, replays=replays)
    assert (drained.errors, item.result(0)) == ([], 100)
    assert [count(app, HOME, each) for each in ("x", "y", "z")] == [2, 0, 1]


def refuse(tr: TenantTransaction) -> None:
    raise PermanentError("no")
