"""`tenant.lock`: processes hold locks outside of workflows, in line with workflows, and lose them when they die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from fairlead import (
    App,
    BadArgument,
    Busy,
    Cause,
    HeldLock,
    Job,
    LockInTransaction,
    LockLost,
    LockOrder,
    NestedTransaction,
    Retry,
    TenantDatabase,
    TenantLock,
    TenantTransaction,
    TooManyLocks,
    WorkflowContext,
)
from fairlead.formatting import iso_time
from fairlead.store_threads import THREADS_MAX
from fairlead.testing import drain
from fairlead.workflows.lock_keeper import LockKeeper
from fairlead.workflows.locks import LOCKS_MAX
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.claims import release_all
from fairlead.zones.top_level.worker_sessions import end_session_op, look_op
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds
from fairlead.zones.workflow.locks import HOLD_KIND, StoredRequest, all_requests
from tests.fairlead.live_consumers import PATIENCE_S, consumer, eventually
from tests.fairlead.shell import ROOT, run
from tests.workflows.application import ELSEWHERE, HOME, append, two_shards, words

KEY = ("account", 7)
HIGHER = ("account", 9)


@pytest.fixture
def shop() -> Iterator[App]:
    """Two stores in memory, and a clock that stands still."""
    made = two_shards()
    yield made
    made.close()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[App]:
    """A store that commands open, too."""
    made = App(f"embedded:{tmp_path / 'store'}")
    yield made
    made.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def requests(database: TenantDatabase) -> list[StoredRequest]:
    """Return the requests of a tenant's locks, in their order."""
    keys = database.shard.layout.location(database.tenant, DEFAULT_ZONE).keys.tenant
    return database.shard.transact(lambda attempt: list(all_requests(attempt.tr, keys, requests_max=100)))


def assert_nothing_left(database: TenantDatabase) -> None:
    assert (requests(database), database.count()) == ([], {})


def is_busy(database: TenantDatabase, key: Any = KEY) -> bool:
    try:
        database.transact(lambda tr: tr.require_unlocked(key))
    except Busy:
        return True
    return False


@contextmanager
def elsewhere(block: TenantLock) -> Iterator[HeldLock]:
    """Hold a lock as another thread would, which holds nothing else."""
    context = Context()
    held = context.run(block.__enter__)
    try:
        yield held
    finally:
        context.run(block.__exit__, None, None, None)


def end_sessions(database: TenantDatabase) -> list[bytes]:
    """End the worker sessions of a tenant's shard, and return them."""
    shard = database.shard
    session_ids = list(shard.transact(lambda attempt: run_one(look_op(attempt.tr))).beats)
    for session_id in session_ids:
        shard.transact(lambda attempt: run_one(end_session_op(attempt.tr, session_id)))  # noqa: B023 - called here
    return session_ids


def lose_claim(database: TenantDatabase) -> None:
    """Let the hold of a tenant vest, though the session of its process lives: its claim was lost."""
    queue, (hold,) = database.shard.zone(database.tenant), database.peek()

    def body(attempt: Attempt) -> None:
        run_one(queue.extend_op(attempt.tr, [(hold.id, None)], lease_us=1, now_us=attempt.now_us - 1, died=True))

    database.shard.transact(body)


def take_for_dead(database: TenantDatabase) -> None:
    """Do what consumers do when a process sends no heartbeats: end its sessions, and release what they claim."""
    shard = database.shard
    for session_id in end_sessions(database):
        release_all(shard.layout, shard.transact, session_id, now_us=shard.clock.now_us())


def locking(app: App, seconds: float = 10) -> None:
    """Make "w" a workflow that says when it begins and ends to hold the lock."""

    @app.workflow("w")
    def work(wf: WorkflowContext, name: str, shared: bool = False) -> None:
        with wf.lock(KEY, on=HOME, shared=shared):
            wf.step(append, f"+{name}", on=HOME)
            wf.sleep(seconds)
            wf.step(append, f"-{name}", on=HOME)


# --- Held and released ---


def test_a_block_holds_a_lock_and_leaves_nothing_behind(app: App, alice: TenantDatabase) -> None:
    with alice.lock(KEY) as held:
        assert is_busy(alice)
        assert alice.count() == {HOLD_KIND: 1}
        alice.transact(lambda tr: tr.set(("balance",), b"1"), under=held)
    assert not is_busy(alice)
    assert_nothing_left(alice)


def test_an_error_that_leaves_a_block_releases_its_locks(alice: TenantDatabase) -> None:
    with pytest.raises(ZeroDivisionError), alice.lock(KEY):
        raise ZeroDivisionError
    assert_nothing_left(alice)


def test_locks_can_be_released_within_their_block(alice: TenantDatabase) -> None:
    with alice.lock(KEY) as held:
        held.release()
        held.release()
        assert not is_busy(alice)
        with alice.lock(("account", 1)):
            pass
    assert_nothing_left(alice)


def test_one_block_takes_locks_of_tenants_on_several_shards(shop: App) -> None:
    alice, other = shop.tenant(HOME), shop.tenant(ELSEWHERE)
    assert alice.shard is not other.shard
    with alice.lock((other, HIGHER), KEY, (ELSEWHERE, KEY)) as held:
        assert [is_busy(alice), is_busy(other), is_busy(other, HIGHER)] == [True] * 3
        alice.transact(lambda tr: append(tr, "here"), under=held)
        other.transact(lambda tr: append(tr, "there"), under=held)
    assert_nothing_left(alice)
    assert_nothing_left(other)


def test_shared_locks_are_held_together_and_exclude_others(alice: TenantDatabase) -> None:
    with alice.lock(KEY, shared=True), elsewhere(alice.lock(KEY, shared=True, wait=0)), pytest.raises(Busy):
        elsewhere(alice.lock(KEY, wait=0)).__enter__()


def test_a_transaction_under_a_lock_may_require_it_to_be_free(alice: TenantDatabase) -> None:
    with alice.lock(KEY) as held:
        alice.transact(lambda tr: tr.require_unlocked(KEY), under=held)


# --- Waiting ---


def test_a_lock_that_is_not_free_in_time_is_busy_and_its_place_is_given_up(shop: App) -> None:
    alice = shop.tenant(HOME)
    with alice.lock(KEY):
        for wait in (0, 2.0):
            before_us = shop.clock.now_us()
            with pytest.raises(Busy) as busy:
                Context().run(alice.lock(("account", 1), KEY, wait=wait).__enter__)
            assert shop.clock.now_us() - before_us == wait * 1_000_000
            assert busy.value.by.startswith("process ")
            assert f":{os.getpid()} of " in busy.value.by
            assert busy.value.kind == HOLD_KIND
        assert busy.value.held_for == 2.0
        assert len(requests(alice)) == 1
    assert_nothing_left(alice)


def test_locks_of_one_block_are_asked_for_one_after_the_other(shop: App) -> None:
    """Otherwise a block that waits for the first lock would keep others from the second one."""
    alice = shop.tenant(HOME)
    taking = alice.lock(KEY, HIGHER)._begin()
    with alice.lock(KEY):
        assert taking.go_on(may_wait=True) is not None
        with elsewhere(alice.lock(HIGHER, wait=0)):
            pass
        taking.give_up()


def test_processes_and_workflows_get_a_lock_in_the_order_in_which_they_asked(
    live: App, threads: ThreadPoolExecutor
) -> None:
    locking(live, 0.05)
    alice = live.tenant(HOME)

    def hold(name: str) -> None:
        with alice.lock(KEY, wait=PATIENCE_S) as held:
            alice.transact(lambda tr: append(tr, name), under=held)

    with consumer(live):
        with alice.lock(KEY):
            asked: list[Future[None]] = []
            for number, name in enumerate("abcd", 1):
                if name in "bd":
                    asked.append(threads.submit(hold, name))
                else:
                    alice.enqueue("w", {"name": name})
                eventually(lambda: len(requests(alice)) == number + 1)  # noqa: B023 - called here
        for each in asked:
            each.result(PATIENCE_S)
        eventually(lambda: alice.count() == {})
    assert words(live) == "+a -a b +c -c d"
    assert requests(alice) == []


def test_a_workflow_gets_a_lock_that_a_process_releases(shop: App) -> None:
    locking(shop)
    for place in (HOME, ELSEWHERE):
        with shop.tenant(HOME).lock(KEY):
            shop.tenant(place).enqueue("w", {"name": "a"})
            drain(shop, within=60)
            assert words(shop).count("+a") == (place == ELSEWHERE)
        drain(shop, within=60)
        assert_nothing_left(shop.tenant(HOME))
    assert words(shop) == "+a -a +a -a"


def test_a_coroutine_holds_a_lock_and_waits_for_one_without_blocking_its_event_loop(live: App) -> None:
    alice, seen = live.tenant(HOME), []

    async def other() -> None:
        async with alice.lock(KEY, wait=PATIENCE_S) as held:
            await alice.atransact(lambda tr: append(tr, "other"), under=held)

    async def story() -> None:
        async with alice.lock(KEY) as held:
            waiting = asyncio.get_running_loop().create_task(other(), context=Context())
            await asyncio.to_thread(eventually, lambda: len(requests(alice)) == 2)
            await alice.atransact(lambda tr: append(tr, "first"), under=held)
            async with alice.lock(HIGHER) as higher:
                await higher.arelease()
                assert not await asyncio.to_thread(is_busy, alice, HIGHER)
            with pytest.raises(Busy):
                await asyncio.get_running_loop().create_task(alice.lock(KEY, wait=0.05).__aenter__(), context=Context())
            seen.append(words(live))
        await waiting

    asyncio.run(story())
    assert (seen, words(live)) == (["first"], "first other")
    eventually(lambda: not requests(alice))  # Who gave up is withdrawn beside the event loop, on a busy machine later.
    assert_nothing_left(alice)


def test_a_task_that_is_cancelled_while_it_waits_gives_up_its_place(live: App) -> None:
    alice = live.tenant(HOME)

    async def story() -> None:
        async with alice.lock(KEY):
            entering = alice.lock(KEY, wait=PATIENCE_S).__aenter__()
            waiting = asyncio.get_running_loop().create_task(entering, context=Context())
            await asyncio.to_thread(eventually, lambda: len(requests(alice)) == 2)
            waiting.cancel()
            await asyncio.to_thread(eventually, lambda: len(requests(alice)) == 1)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    assert_nothing_left(alice)


def test_a_task_that_is_cancelled_as_it_leaves_its_block_releases_its_lock(live: App) -> None:
    """All threads that wait for the store are busy, so the release has not begun."""
    alice, begun, go_on = live.tenant(HOME), threading.Semaphore(0), threading.Event()

    def block() -> None:
        begun.release()
        go_on.wait(PATIENCE_S)

    async def leave() -> None:
        async with alice.lock(KEY):
            busy.extend(asyncio.ensure_future(live.shards.calls.run(block)) for _ in range(THREADS_MAX))
            await asyncio.sleep(0)
            while not all(begun.acquire(timeout=PATIENCE_S) for _ in range(THREADS_MAX)):
                pass
            left.set()

    async def story() -> None:
        leaving = asyncio.get_running_loop().create_task(leave(), context=Context())
        await left.wait()
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        go_on.set()
        await asyncio.gather(*busy)
        await asyncio.to_thread(eventually, lambda: not is_busy(alice))

    busy: list[asyncio.Future[None]] = []
    left = asyncio.Event()
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    assert_nothing_left(alice)


# --- A tenant that moves ---


def test_a_lock_goes_along_with_its_tenant_and_its_process_claims_it_there(tmp_path: Path) -> None:
    app = App({name: f"embedded:{tmp_path / name}" for name in ("a", "b")})
    alice = app.tenant(HOME)
    source = alice.shard
    (destination,) = (shard for shard in app.shards.values() if shard is not source)
    with alice.lock(KEY) as held:
        app.move(HOME, to=destination.name)
        eventually(lambda: bool(drain(app)) and alice.find() is destination)
        alice.transact(lambda tr: append(tr, "here"), under=held)
        with pytest.raises(Busy):
            elsewhere(alice.lock(KEY, wait=0)).__enter__()
        eventually(lambda: bool(destination.transact(lambda attempt: run_one(look_op(attempt.tr))).beats))
        eventually(lambda: take_for_dead(alice) is None and alice.count() == {})
        with pytest.raises(LockLost):
            held.release()
    assert requests(alice) == []
    app.close()


# --- Stored ---


def test_a_store_in_which_processes_hold_locks_and_wait_for_them_is_whole(
    on_disk: App, threads: ThreadPoolExecutor
) -> None:
    alice, url = on_disk.tenant(HOME), on_disk.config.shards["main"]
    with alice.lock(KEY, HIGHER):
        waiting = threads.submit(alice.lock(KEY, wait=PATIENCE_S).__enter__)
        eventually(lambda: len(requests(alice)) == 3)
        assert run("check", "--store", url).code == 0
    waiting.result(PATIENCE_S).release()
    assert run("check", "--store", url).code == 0
    assert_nothing_left(alice)


# --- Taken for dead ---


def test_a_process_that_was_taken_for_dead_can_commit_nothing_under_its_lock(shop: App) -> None:
    alice = shop.tenant(HOME)
    with pytest.raises(LockLost), alice.lock(KEY) as held:
        take_for_dead(alice)
        drain(shop)
        with alice.lock(HIGHER), pytest.raises(LockLost):
            alice.transact(lambda tr: append(tr, "late"), under=held)
    assert words(shop) == ""
    assert_nothing_left(alice)


def test_a_transaction_under_a_lock_conflicts_with_its_loss(shop: App) -> None:
    """The lock is lost between the first read of the transaction and its commit."""
    alice = shop.tenant(HOME)

    def late(tr: TenantTransaction) -> None:
        take_for_dead(alice)
        append(tr, "late")

    with suppress(LockLost), alice.lock(KEY) as held, pytest.raises(LockLost):
        alice.transact(late, under=held)
    assert words(shop) == ""


def test_a_lock_whose_holder_is_dead_goes_to_the_next_in_line(shop: App) -> None:
    locking(shop)
    alice = shop.tenant(HOME)
    with suppress(LockLost), alice.lock(KEY):
        shop.tenant(ELSEWHERE).enqueue("w", {"name": "a"})
        drain(shop)
        take_for_dead(alice)
        drain(shop, within=60)
        assert words(shop) == "+a -a"


def test_a_process_that_stood_still_goes_on_with_a_lock_that_nobody_has_released(live: App) -> None:
    alice = live.tenant(HOME)
    with alice.lock(KEY) as held:
        (ended,) = end_sessions(alice)
        eventually(lambda: alice.shard.transact(lambda attempt: run_one(look_op(attempt.tr))).beats != {})
        release_all(alice.shard.layout, alice.shard.transact, ended, now_us=live.clock.now_us())
        alice.transact(lambda tr: append(tr, "here"), under=held)
        assert not held.is_lost
    assert words(live) == "here"


def test_a_process_that_lost_a_lock_learns_of_it(live: App) -> None:
    alice = live.tenant(HOME)
    with suppress(LockLost), alice.lock(KEY) as held:
        (hold,) = alice.peek()
        alice.cancel(hold.id)
        eventually(lambda: held.is_lost)
        assert not is_busy(alice)


def test_a_heartbeat_during_the_release_does_not_make_the_process_take_its_lock_for_lost(
    shop: App, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat tries failed releases again. One that is under way has not failed."""
    alice, lock_keeper, release = shop.tenant(HOME), shop.shards.locks, holds.release

    def beside_a_heartbeat(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(holds, "release", release)
        release(*arguments, **named)
        for session in list(lock_keeper._sessions.values()):
            threads.submit(lock_keeper._send_heartbeat, session).result(PATIENCE_S)

    monkeypatch.setattr(holds, "release", beside_a_heartbeat)
    with alice.lock(KEY):
        pass
    assert requests(alice) == []


def test_a_lock_that_was_taken_and_lost_before_its_process_noticed_is_lost(
    shop: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stands still after the commit that took the lock; its heartbeats find the session ended."""
    alice, commit, sessions = shop.tenant(HOME), LockKeeper._commit, []

    def and_stand_still(lock_keeper: LockKeeper, session: Any, claim: Any) -> Any:
        result = commit(lock_keeper, session, claim)
        sessions.append(session)
        if len(sessions) == 1:
            take_for_dead(alice)
            drain(shop)
            lock_keeper._abandon(session)
        return result

    monkeypatch.setattr(LockKeeper, "_commit", and_stand_still)
    with pytest.raises(LockLost), alice.lock(KEY):
        pytest.fail("the block began")
    assert_nothing_left(alice)


def test_closing_an_application_releases_what_it_holds(live: App) -> None:
    alice = live.tenant(HOME)
    with pytest.raises(LockLost), alice.lock(KEY) as held:
        live.close()
        assert held.is_lost
        assert_nothing_left(alice)


def test_a_hold_whose_claim_was_lost_is_run_by_a_worker(shop: App) -> None:
    alice = shop.tenant(HOME)
    with suppress(LockLost), alice.lock(KEY):
        lose_claim(alice)
        assert drain(shop).completed == {HOLD_KIND: 1}
        assert_nothing_left(alice)


# --- Killed ---

HOLDER = """
import sys, threading
from fairlead import App
from tests.rooted import enter_root
enter_root()
alice = App(sys.argv[1]).tenant("shop/alice")
with alice.lock(("account", 7), wait=600):
    print("held", flush=True)
    threading.Event().wait()
"""
RELEASED_S = 10.0  # On a machine that does other work. On a quiet one it is seven seconds at most.


@contextmanager
def holder(app: App) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock, and holds it until it is killed."""
    typed = [sys.executable, "-c", HOLDER, app.config.shards["main"]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(typed, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_word(process: subprocess.Popen[str]) -> None:
    """Wait until a holder says that it holds the lock."""
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"


def test_a_lock_is_free_within_seconds_after_its_holder_was_killed(live: App, record_property: Any) -> None:
    """A real process, and a real consumer: it finds that the heartbeats have ended."""
    alice = live.tenant(HOME)
    with consumer(live), holder(live) as process:
        wait_for_word(process)
        said = alice.explain(alice.peek()[0].id).sentence
        assert f":{process.pid} of -c has held its locks for" in said
        os.kill(process.pid, signal.SIGKILL)
        killed = time.monotonic()
        with alice.lock(KEY, wait=PATIENCE_S):
            took_s = time.monotonic() - killed
        eventually(lambda: alice.count() == {})
    record_property("a lock is free after its holder's process was killed", f"{took_s:.2f} s")
    assert took_s < RELEASED_S
    assert requests(alice) == []


def test_a_process_that_is_killed_while_it_waits_loses_its_place(live: App) -> None:
    alice = live.tenant(HOME)
    with consumer(live), alice.lock(KEY), holder(live) as process:
        eventually(lambda: len(requests(alice)) == 2)
        os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: len(requests(alice)) == 1)
    assert_nothing_left(alice)


# --- Shown ---


def test_a_workflow_that_waits_for_a_lock_of_a_process_says_which_process(shop: App) -> None:
    locking(shop)
    alice = shop.tenant(HOME)
    with alice.lock(KEY):
        since = iso_time(shop.clock.now_us())
        waiting = alice.enqueue("w", {"name": "a"})
        drain(shop, within=60)
        sentence = waiting.explain().sentence
    assert sentence.startswith(f'it waits for the lock ("account", 7) of {HOME}, held by process ')
    assert f":{os.getpid()} of " in sentence
    assert f" since {since}" in sentence


def test_the_hold_of_a_process_says_whose_it_is(shop: App) -> None:
    alice = shop.tenant(HOME)
    with alice.lock(KEY):
        (hold,) = alice.peek()
        shop.clock.sleep_us(3_000_000)
        said = alice.explain(hold.id)
    assert said.cause is Cause.RUNNING
    assert "has held its locks for 3.0 s; if it dies, they are released once there is a consumer" in said.sentence


def test_the_command_lists_locks_of_processes(on_disk: App) -> None:
    url = on_disk.config.shards["main"]
    with on_disk.tenant(HOME).lock(KEY, shared=True):
        (lock,) = run("locks", "--store", url, "--json").json["locks"]
        lines = run("locks", "--store", url).out
    (holder_of_it,) = lock["holders"]
    assert (lock["tenant"], lock["lock"], lock["waiting"]) == (["shop", "alice"], '("account", 7)', 0)
    assert holder_of_it["process"].startswith("process ")
    assert f":{os.getpid()} of " in holder_of_it["process"]
    assert holder_of_it["process"] in lines


# --- Helping ---


def failing(app: App, place: str, tries: list[str]) -> None:
    """Make "failing" a workflow that fails under the lock, and backs off for an hour."""

    @app.workflow("failing", retry=Retry(backoff=3600))
    def fail(wf: WorkflowContext) -> None:
        with wf.lock(KEY, on=place):
            wf.step(lambda tr: None, name="first")
            tries.append("try")
            if len(tries) == 1:
                raise ValueError


@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
def test_a_workflow_that_backs_off_is_expedited_by_a_workflow_that_meets_its_lock(shop: App, place: str) -> None:
    tries: list[str] = []
    failing(shop, HOME, tries)
    locking(shop, 0)
    shop.tenant(place).enqueue("failing")
    drain(shop, within=60, raise_errors=False, replays=False)
    assert tries == ["try"]
    shop.tenant(HOME).enqueue("w", {"name": "a"})
    drain(shop, within=60, replays=False)
    assert (tries, words(shop)) == (["try"] * 2, "+a -a")


def test_a_workflow_that_backs_off_is_expedited_by_a_process_that_meets_its_lock(live: App) -> None:
    tries: list[str] = []
    failing(live, HOME, tries)
    alice = live.tenant(HOME)
    with consumer(live):
        alice.enqueue("failing")
        eventually(lambda: tries == ["try"] and alice.peek()[0].error_count == 1)
        with alice.lock(KEY, wait=PATIENCE_S):
            assert tries == ["try"] * 2


def test_a_workflow_that_sleeps_or_waits_under_a_lock_is_left_alone(shop: App) -> None:
    @shop.workflow("sleeping")
    def sleep(wf: WorkflowContext) -> None:
        with wf.lock(KEY):
            wf.sleep(3600)

    @shop.workflow("waiting")
    def wait(wf: WorkflowContext) -> None:
        with wf.lock(HIGHER):
            wf.wait_for("go")

    alice = shop.tenant(HOME)
    items = [alice.enqueue("sleeping"), alice.enqueue("waiting")]
    drain(shop)
    before = {each.id: each.vesting_us for each in alice.peek()}
    for key in (KEY, HIGHER):
        with pytest.raises(Busy):
            alice.lock(key, wait=0.01).__enter__()
    assert {each.id: each.vesting_us for each in alice.peek()} == before
    assert set(before) == {each.item_id for each in items}


def test_a_hold_whose_claim_was_lost_is_ended_by_who_meets_its_lock_if_no_worker_takes_it(shop: App) -> None:
    alice = shop.tenant(HOME)
    with suppress(LockLost), alice.lock(KEY):
        lose_claim(alice)
        before_us = shop.clock.now_us()
        with elsewhere(alice.lock(KEY, wait=10)):
            assert 1_000_000 <= shop.clock.now_us() - before_us <= 1_500_000


# --- Refused ---


@pytest.mark.parametrize("keys", [(), ("account",), ((),), (7,), (KEY, KEY), (("a" * 300,),), ((3.5, ("a",)),)])
def test_what_is_no_key_of_a_lock_is_refused(alice: TenantDatabase, keys: Any) -> None:
    with pytest.raises(BadArgument):
        alice.lock(*keys)


@pytest.mark.parametrize("options", [{"wait": -1}, {"wait": "soon"}, {"wait": None}, {"shared": 1}])
def test_wrong_options_are_refused(alice: TenantDatabase, options: Any) -> None:
    with pytest.raises(BadArgument):
        alice.lock(KEY, **options)


def test_more_locks_than_one_transaction_releases_are_refused(alice: TenantDatabase) -> None:
    with pytest.raises(TooManyLocks):
        alice.lock(*((number,) for number in range(LOCKS_MAX + 1)))
    with alice.lock(*((number,) for number in range(LOCKS_MAX))):
        pass
    assert_nothing_left(alice)


def test_local_items_have_no_locks(app: App) -> None:
    with pytest.raises(BadArgument, match="local items have no locks"):
        app.local("mail").lock(KEY)


def test_locks_that_are_asked_for_out_of_order_are_refused(shop: App) -> None:
    alice = shop.tenant(HOME)
    with alice.lock(KEY):
        with pytest.raises(LockOrder, match="out of order"):
            alice.lock(("account", 1)).__enter__()
        with alice.lock(HIGHER), shop.tenant(ELSEWHERE).lock(KEY):
            pass
    with alice.lock(("account", 1)):
        pass


def test_a_lock_that_this_thread_holds_already_is_refused_as_such(shop: App) -> None:
    alice = shop.tenant(HOME)
    with alice.lock(KEY), alice.lock(HIGHER):
        for wanted in ((KEY,), (HIGHER,), (("account", 1), KEY)):
            with pytest.raises(LockOrder, match="the caller holds it already") as refused:
                alice.lock(*wanted).__enter__()
            assert refused.value.fields["lock"] == refused.value.fields["held"]


def test_a_block_that_is_entered_twice_at_once_is_refused(alice: TenantDatabase) -> None:
    block = alice.lock(KEY)
    with block, pytest.raises(LockOrder):
        Context().run(block.__enter__)
    with block:
        pass


def test_a_transaction_under_a_lock_that_was_released_is_refused(alice: TenantDatabase) -> None:
    with alice.lock(KEY) as held:
        held.release()
        with pytest.raises(BadArgument, match="this one was released"):
            alice.transact(lambda tr: tr.set(("a",), b""), under=held)


def test_a_transaction_under_a_lock_of_another_tenant_is_refused(shop: App) -> None:
    with (
        shop.tenant(ELSEWHERE).lock(KEY) as held,
        pytest.raises(BadArgument, match="a lock of the transaction's tenant"),
    ):
        shop.tenant(HOME).transact(lambda tr: tr.set(("a",), b""), under=held)


@pytest.mark.parametrize("under", ["held", KEY, lambda alice: alice.lock(KEY)])
def test_what_is_no_lock_is_refused(alice: TenantDatabase, under: Any) -> None:
    with pytest.raises(BadArgument, match="what the block of a lock gave"):
        alice.transact(lambda tr: None, under=under(alice) if callable(under) else under)


def in_transact(app: App, take: Callable[[], HeldLock]) -> None:
    app.tenant(HOME).transact(lambda tr: take())


def in_handler(app: App, take: Callable[[], HeldLock], *, transactional: bool) -> None:
    @app.handler("bad", transactional=transactional)
    def handle(job: Job, *args: Any) -> None:
        if transactional:
            take()
        else:
            job.transact(lambda tr: take())

    app.tenant(HOME).enqueue("bad")
    drain(app)


def in_workflow_step(app: App, take: Callable[[], HeldLock]) -> None:
    app.workflow("bad", permanent=(LockInTransaction,))(lambda wf: wf.step(lambda tr: bool(take()), name="bad"))
    app.tenant(HOME).enqueue("bad")
    drain(app)


def refused_in_body(app: App, call: Callable[..., None]) -> None:
    with pytest.raises(LockInTransaction, match="in the body of a transaction"):
        call(app, app.tenant(HOME).lock(KEY).__enter__)


@pytest.mark.parametrize(
    "call",
    [
        in_transact,
        lambda app, take: in_handler(app, take, transactional=False),
        lambda app, take: in_handler(app, take, transactional=True),
        in_workflow_step,
    ],
)
def test_a_lock_in_the_body_of_a_transaction_is_refused(shop: App, call: Callable[..., None]) -> None:
    refused_in_body(shop, call)


def test_a_lock_in_a_transaction_across_shards_is_refused(shop: App) -> None:
    with pytest.raises(NestedTransaction):
        shop.transact(lambda tx: shop.tenant(HOME).lock(KEY).__enter__())
