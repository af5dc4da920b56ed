"""A consumer in threads: how it stops. Real threads and real time; tests wait for events only."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fairlead.actors.consumer import Consumer, Resources
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.runtime.supervisor import ActorFailed
from fairlead.actors.runtime.thread_host import CALLS_AT_ONCE, ThreadRemote, thread_supervisor
from fairlead.actors.settings import ConsumerSettings
from fairlead.clock import SystemClock
from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.top_level.sessions import ListedSession, listing
from tests.zones.faults import FaultyDatabase

ALICE = Tenant("shop", "alice")
CLOCK = SystemClock()
PATIENCE_S = 20.0


class SlowForManagers(FaultyDatabase):
    """A database that answers a manager's commit late: meanwhile the items are leased and on no worker."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.leased = threading.Event()
        self.never = threading.Event()

    def commit(self, tr: Any) -> None:
        super().commit(tr)
        if threading.current_thread().name.startswith("manager"):
            self.leased.set()
            self.never.wait(0.3)


def opened_shard() -> tuple[SlowForManagers, Shard]:
    db = SlowForManagers(engines.open("memory:", clock=CLOCK, random=Random(1)))
    return db, open_shard("main", db, clock=CLOCK, random=Random(2))


def consumer(shard: Shard, function: Callable[[Job], None], **settings: Any) -> Consumer:
    registry = Registry()
    registry.add(handler_of("mail", function))
    submitted = SubmittedHandlers(registry, b"", allow=False)
    opened = Resources({"main": shard}, ConsumerSettings(**settings), (), submitted, CLOCK, Random(3))
    return Consumer(opened, Identity(b"consumer", "test", 1, 0))


def enqueue(shard: Shard, count: int) -> None:
    items = [new_item("mail", number) for number in range(count)]
    for item in items:
        shard.transact(
            lambda attempt, item=item: shard.zone(ALICE).enqueue(  # type: ignore[misc]
                attempt.tr, item, item_id=attempt.new_id(), now_us=attempt.now_us
            )
        )


@pytest.mark.parametrize("loop", ["scanner", "housekeeping", "deadlines"])
def test_a_consumer_whose_loop_dies_reports_it_and_returns_its_items(
    monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Before, the thread ended unnoticed: the consumer counted as live, and held its items or found none."""

    def dies(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    _, shard = opened_shard()
    release, running_now = threading.Event(), threading.Event()

    def handler(job: Job) -> None:
        running_now.set()
        release.wait(PATIENCE_S)

    running = consumer(shard, handler, slots=1, workers=1)
    running.check()
    enqueue(shard, 3)
    assert running_now.wait(PATIENCE_S)
    places = {
        "scanner": "scanning.manager_calls.ManagerCalls._takes_calls",
        "housekeeping": "housekeeping.housekeeping.Housekeeping._heartbeat",
        "deadlines": "execution.slots.due_work",
    }
    monkeypatch.setattr(f"fairlead.actors.{places[loop]}", dies)
    eventually(lambda: failure_of(running) is not None)
    assert f"'{loop}'" in str(failure_of(running))
    eventually(lambda: leased_count(shard) == 0)
    eventually(lambda: not any(each.live for each in sessions(shard)))
    release.set()
    running.stop(drain=0)


STUCK = """
import sys, threading
from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.runtime.thread_host import ThreadRemote

class Stuck:
    def serve(self):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
ThreadRemote(Stuck(), "manager", Supervisor(print, lambda thread_id: "")).call("serve", done=print)
begun.wait()
sys.exit(1)
"""


def test_a_process_ends_although_a_call_of_an_actor_hangs() -> None:
    """Before, `fairlead run` logged that its fleet had failed, and waited for the call: it was not restarted."""
    assert subprocess.run([sys.executable, "-c", STUCK], timeout=PATIENCE_S, check=False).returncode == 1


def failure_of(running: Consumer) -> ActorFailed | None:
    try:
        running.check()
    except ActorFailed as error:
        return error
    return None


def sessions(shard: Shard) -> list[ListedSession]:
    return shard.transact(lambda attempt: listing(attempt.tr, now_us=attempt.now_us))


def leased_count(shard: Shard) -> int:
    """Return how many items are under a lease."""
    begin, end = shard.zone(ALICE).location.keys.item_range()
    rows = shard.transact(lambda attempt: list(attempt.tr.snapshot.get_range(begin, end)))
    records = [decode(ItemRecord, row.value) for row in rows]
    return sum(bool(record.lease_id) for record in records if record is not None)


def test_items_that_a_manager_leases_while_its_consumer_stops_are_returned_at_once() -> None:
    """Before, it was handed to a worker that was closed already, waited out its lease, and counted as expired."""
    db, shard = opened_shard()
    running = consumer(shard, lambda job: None, workers=2)
    enqueue(shard, 5)
    assert db.leased.wait(PATIENCE_S)
    running.stop(drain=1)
    assert leased_count(shard) == 0


def test_workers_drain_at_the_same_time() -> None:
    """One grace for all of them, not one each."""
    begun = threading.Semaphore(0)
    ended = threading.Event()

    def until_told(job: Job) -> None:
        begun.release()
        ended.wait(PATIENCE_S)

    _, shard = opened_shard()
    running = consumer(shard, until_told, workers=4, managers=1, slots=1)
    enqueue(shard, 20)
    for _ in range(4):
        assert begun.acquire(timeout=PATIENCE_S)
    start = time.monotonic()
    running.stop(drain=1)
    took_s = time.monotonic() - start
    ended.set()
    assert 1.0 <= took_s < 2.5
    assert leased_count(shard) == 0


class SlowForSheets(FaultyDatabase):
    """A database that takes a moment for a worker's status."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.never = threading.Event()
        self.written = threading.Event()

    def commit(self, tr: Any) -> None:
        if threading.current_thread().name != "worker status":
            super().commit(tr)
            return
        self.never.wait(0.3)
        super().commit(tr)
        self.written.set()


def test_a_consumer_that_has_stopped_has_written_its_last_worker_status() -> None:
    """Before, the store was closed first, and each end of a fleet in threads was logged as a store that refuses."""
    db = SlowForSheets(engines.open("memory:", clock=CLOCK, random=Random(1)))
    shard = open_shard("main", db, clock=CLOCK, random=Random(2))
    ran = threading.Event()
    running = consumer(shard, lambda job: ran.set(), workers=1)
    enqueue(shard, 1)
    assert ran.wait(PATIENCE_S)
    running.stop(drain=1)
    assert db.written.is_set()


class Slow:
    """An actor that answers once it is told to."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def ask(self, number: int) -> int:
        assert self.told.wait(PATIENCE_S)
        return number


def test_waiting_calls_of_a_closed_actor_are_executed_and_answered() -> None:
    """Such a call may carry leased items."""
    actor, answers, all_answered = Slow(), list[int](), threading.Semaphore(0)
    remote = ThreadRemote(actor, "slow", thread_supervisor(print))

    def note(result: int, error: Exception | None) -> None:
        assert error is None
        answers.append(result)
        all_answered.release()

    count = 2 * CALLS_AT_ONCE
    for number in range(count):
        remote.call("ask", number, done=note)
    remote.close()
    actor.told.set()
    for _ in range(count):
        assert all_answered.acquire(timeout=2.0)
    assert sorted(answers) == list(range(count))


def test_a_call_to_a_closed_actor_is_answered_and_never_on_the_callers_thread() -> None:
    remote = ThreadRemote(Slow(), "slow", thread_supervisor(print))
    remote.close()
    answered, told = threading.Event(), list[tuple[Any, Exception | None, int]]()

    def note(result: Any, error: Exception | None) -> None:
        told.append((result, error, threading.get_ident()))
        answered.set()

    remote.call("ask", 1, done=note)
    assert answered.wait(PATIENCE_S)
    ((result, error, thread),) = told
    assert (result, type(error)) == (None, ActorDied)
    assert thread != threading.get_ident()


@pytest.mark.parametrize("drain", [0, 1])
def test_an_idle_consumer_stops_at_once(drain: float) -> None:
    _, shard = opened_shard()
    running = consumer(shard, lambda job: None, workers=2)
    start = time.monotonic()
    running.stop(drain=drain)
    assert time.monotonic() - start < 3.0


def test_each_worker_of_a_process_has_its_own_status_and_row() -> None:
    """They share the incarnation of the process, and overwrote each other's."""
    _, shard = opened_shard()
    held, go_on = threading.Barrier(3), threading.Event()

    def handle(job: Job) -> None:
        held.wait(PATIENCE_S)
        go_on.wait(PATIENCE_S)

    running = consumer(shard, handle, workers=2, managers=1, slots=1)
    enqueue(shard, 2)
    held.wait(PATIENCE_S)
    try:
        eventually(lambda: sorted(len(status.running) for status in sheets(shard)) == [1, 1])
        go_on.set()
        eventually(lambda: completed(shard) == 2)
    finally:
        go_on.set()
        running.stop()


def eventually(what: Callable[[], bool]) -> None:
    """Wait until it is so; what workers tell comes once a second."""
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def sheets(shard: Shard) -> list[worker_status.WorkerStatus]:
    return shard.transact(lambda attempt: worker_status.read(attempt.tr, now_us=attempt.now_us))


def completed(shard: Shard) -> int:
    slots = shard.transact(lambda attempt: rollups.read(attempt.tr, now_us=attempt.now_us))
    return sum(kind.completed for slot in slots for kind in slot.rollup.kinds.values())
