"""An exception in a committing thread, at any instant, loses, doubles and blocks no commit of other threads.

Each scenario runs under many schedules. Under each schedule, it runs with the exception at the first instant, then at
the second, and so on until the thread ends before its exception.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import lmdb
import pytest

from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.embedded import engine, group_commit, lmdb_commit, stored_log
from fairlead.zones.engines.embedded.cross_process import flat_combining, mailbox
from fairlead.zones.engines.embedded.cross_process.flat_combining import CrossProcessCommit
from fairlead.zones.engines.embedded.cross_process.mailbox import Mailbox
from fairlead.zones.engines.embedded.engine import EmbeddedStore
from fairlead.zones.engines.embedded.group_commit import GroupCommit
from fairlead.zones.engines.embedded.lmdb_commit import LmdbCommits
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles
from fairlead.zones.engines.embedded.stored_log import StoredLog
from fairlead.zones.engines.embedded.write_lock import WriteLock
from fairlead.zones.engines.optimistic.commit import CommitRequest
from fairlead.zones.engines.optimistic.transaction import Transaction
from fairlead.zones.engines.optimistic.writes import Writes
from tests.clocks import WallClock
from tests.contract.interruptions import WAITS, Hang, Interruptions, Scheduler
from tests.simulation.mutations.mutation import mutation

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="an exception of a trace function kills the interpreter of 3.12.1, and other instructions are traced since",
)

CLOCK = WallClock()
ONE = (1).to_bytes(8, "little")
MODULES = (group_commit, engine, flat_combining, mailbox, lmdb_commit, stored_log)

Run = Callable[[int, Interruptions, str], Scheduler]


class Doubled(Exception):
    """A commit was made or answered twice, or not at all."""


# --- Threads of one process, whose commits are recorded in a list ---


class OneProcess:
    """Bodies of threads that commit through the product's `GroupCommit`, and a list of the commits."""

    def __init__(self, scheduler: Scheduler, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(group_commit, "threading", scheduler.locks())
        patch.setattr(group_commit, "_thread", scheduler.locks())
        self.scheduler = scheduler
        self.made: list[CommitRequest] = []
        self.acknowledged: list[CommitRequest] = []
        self.called_back: list[CommitRequest] = []
        self.unknown = 0
        self.group = GroupCommit(self._commit_all, self._afterwards)

    def _commit_all(self, requests: list[CommitRequest]) -> None:
        for request in requests:
            if not request.done and request not in self.made:
                self.scheduler.switch()  # LMDB's lock
                self.made.append(request)
                self.scheduler.switch()
            request.done = True

    def _afterwards(self, request: CommitRequest) -> None:
        if request not in self.called_back:
            self.called_back.append(request)

    def commit_twice(self) -> None:
        for _ in range(2):
            request = CommitRequest(CLOCK, None, None, Writes(), [], [])
            try:
                self.group.submit(request).wait()
            except StoreError as error:
                raise Doubled("the result is unknown, so the commit is repeated") from error
            self.acknowledged.append(request)

    def poll(self) -> None:
        """Commit, and poll the result instead of waiting."""
        request = CommitRequest(CLOCK, None, None, Writes(), [], [])
        queued = self.group.submit(request)
        while not queued.is_ready():
            self.scheduler.switch()
        self.acknowledged.append(request)

    def pause(self) -> None:
        pause = self.group.pause()
        try:
            before = len(self.made)
            self.scheduler.switch()
            if len(self.made) != before:
                raise Doubled("a commit was made during a pause")
        finally:
            self.group.resume(pause)

    def check(self) -> None:
        if len(set(self.made)) != len(self.made) or not set(self.acknowledged) <= set(self.made):
            raise Doubled
        if not set(self.made) <= set(self.called_back):
            raise Doubled("a commit was made without its callback")
        assert self.group._leader is None


def run_in_one_process(seed: int, interruptions: Interruptions, within: str = "") -> Scheduler:
    with pytest.MonkeyPatch.context() as patch:
        scheduler = Scheduler(seed, interruptions, [group_commit], within=within)
        process = OneProcess(scheduler, patch)
        bodies: dict[str, Callable[[], None]] = {
            "one": process.commit_twice, "two": process.commit_twice, "polling": process.poll, "pausing": process.pause,
        }  # fmt: skip
        scheduler.run(bodies)
        process.check()
        return scheduler


def interrupt_everywhere(run: Run, seeds: Iterable[int], name: str, within: str = "") -> int:
    """Run each schedule once per instant of a thread, with an interruption there; return the number of instants."""
    instants = 0
    for seed in seeds:
        point = 1
        while run(seed, {name: {point}}, within).interrupted:
            point += 1
        instants += point - 1
    return instants


@pytest.mark.parametrize("name", ["one", "polling"])
def test_a_thread_may_be_interrupted_at_every_instant(name: str) -> None:
    assert interrupt_everywhere(run_in_one_process, range(8), name) > 400


@pytest.mark.parametrize("name", ["one", "polling", "pausing"])
def test_a_thread_may_be_interrupted_in_every_wait(name: str) -> None:
    assert interrupt_everywhere(run_in_one_process, range(20), name, WAITS) > 60


def test_several_threads_may_be_interrupted_again_and_again() -> None:
    dice = Random(1)
    for seed in range(300):
        interruptions = {name: dice.sample(range(1, 25), 4) for name in ("one", "two", "polling")}
        run_in_one_process(seed, interruptions, WAITS)


# --- Processes whose threads share LMDB commits: the product's whole commit path, on a real LMDB environment ---


class Files(LmdbFiles):
    """An environment that is already open; the scheduler controls waits for its write lock."""

    scheduler: Scheduler
    env: lmdb.Environment
    write_locks: list[WriteLock]

    def _open(self) -> None:
        self._env = self.env
        self.write_lock = WriteLock(self.path)
        self.write_locks.append(self.write_lock)

    def begin_write(self) -> lmdb.Transaction[bytes]:
        self.scheduler.wait(self.write_lock.is_free)
        txn: lmdb.Transaction[bytes] = self._env.begin(write=True)  # type: ignore[union-attr]
        self.scheduler.switch()  # The product preallocates pages here.
        return txn


class ScheduledMailbox(Mailbox):
    """A mailbox with locks and wake-ups of the scheduler: those of the system would treat both as one process."""

    scheduler: Scheduler
    locks: dict[int, ScheduledMailbox]
    wakeups: set[int]

    def acquire_slot(self) -> bool:
        self.scheduler.switch()
        return super().acquire_slot()

    def await_wakeup(self, wait_s: float) -> None:
        self.scheduler.wait(lambda: self._slot in self.wakeups, timed=True)
        self.wakeups.discard(self.slot)

    def wake(self, slot: int) -> None:
        self.wakeups.add(slot)

    def _try_lock(self, byte: int) -> bool:
        return self.locks.setdefault(byte, self) is self

    def _unlock(self, byte: int) -> None:
        if self.locks.get(byte) is self:
            del self.locks[byte]


class Process:
    """A simulated process: a store of its own on the common environment."""

    def __init__(self, scheduler: Scheduler, path: Path) -> None:
        self.scheduler = scheduler
        self.store = EmbeddedStore(path, CLOCK)
        self.store.cross_process._pause = SimpleNamespace(wait=lambda _: scheduler.switch())  # type: ignore[assignment]
        self.acknowledged: dict[bytes, int] = {}
        self.interrupted: set[bytes] = set()

    def count(self, name: bytes) -> None:
        """Count up twice, each time in a transaction of its own."""
        for _ in range(2):
            tr = Transaction(self, self.store, CLOCK, Random(1))  # type: ignore[arg-type]
            tr.add(name, ONE)
            try:
                self.interrupted.add(name)
                tr.commit().wait()
                self.acknowledged[name] = self.acknowledged.get(name, 0) + 1
                self.interrupted.discard(name)
            except StoreError as error:
                raise Doubled("the result is unknown, so the commit is repeated") from error
            finally:
                tr.cancel()


class CommonStore:
    """A store on a real environment, for one run after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store"
        first = LmdbFiles(self.path, first_version=1)
        first.close()
        self.env = lmdb.open(str(self.path), sync=False, map_size=1 << 30, max_readers=4_096)
        self.write_locks: list[WriteLock] = []

    def run(self, seed: int, interruptions: Interruptions, within: str = "") -> Scheduler:
        with pytest.MonkeyPatch.context() as patch:
            scheduler = Scheduler(seed, interruptions, MODULES, within=within)
            for module in (group_commit, engine):
                patch.setattr(module, "threading", scheduler.locks())
            patch.setattr(group_commit, "_thread", scheduler.locks())
            patch.setattr(engine, "LockWatchdog", lambda _: SimpleNamespace(watched_wait=nullcontext))
            patch.setattr(engine, "CommitNotifier", lambda _: SimpleNamespace(notify=lambda: None))
            files = {"scheduler": scheduler, "env": self.env, "write_locks": self.write_locks}
            patch.setattr(engine, "LmdbFiles", type("_", (Files,), files))
            mailbox_class = type("_", (ScheduledMailbox,), {"scheduler": scheduler, "locks": {}, "wakeups": set()})
            patch.setattr(flat_combining, "Mailbox", mailbox_class)
            patch.setattr(flat_combining, "WAKEUP_WAITS_MAX", 6)
            processes = [Process(scheduler, self.path) for _ in range(2)]
            names = [b"a one", b"a two", b"b one", b"b two"]
            with self.env.begin(write=True) as txn:
                for name in names:
                    txn.delete(name)
            owners = [processes[0]] * 2 + [processes[1]] * 2
            bodies = {name.decode(): partial(process.count, name) for process, name in zip(owners, names, strict=True)}
            try:
                scheduler.run(bodies)
            finally:
                for process in processes:
                    process.store.cross_process.close()
            self.check(processes)
            assert 0 not in mailbox_class.locks, "a process is still leader"  # type: ignore[attr-defined]
            return scheduler

    def check(self, processes: list[Process]) -> None:
        with self.env.begin() as txn:
            for process in processes:
                for name in process.interrupted | process.acknowledged.keys():
                    acknowledged = process.acknowledged.get(name, 0)
                    counted = int.from_bytes(txn.get(name) or b"", "little")
                    if not acknowledged <= counted <= acknowledged + (name in process.interrupted):
                        raise Doubled(f"{name!r}: {acknowledged} acknowledged, {counted} counted")
        for process in processes:
            store = process.store
            assert store.group._leader is None
            assert store._section_lock.owner == 0  # type: ignore[attr-defined]
            assert store.files.write_lock.is_free()


@pytest.fixture
def common_store(tmp_path: Path) -> Iterator[CommonStore]:
    opened = CommonStore(tmp_path)
    yield opened
    opened.write_locks.append(WriteLock(opened.path))
    if opened.write_locks[-1].is_free():  # else a hanging thread has the lock, and LMDB would wait for the thread
        opened.env.close()
    for write_lock in opened.write_locks:  # Each has the lock file open, and a run opens two.
        write_lock.close()


leaves_files_open = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def test_no_process_loses_or_doubles_a_commit(common_store: CommonStore) -> None:
    for seed in range(40):
        common_store.run(seed, {})


@leaves_files_open
def test_a_thread_interrupted_at_some_instant_loses_and_doubles_no_commit(common_store: CommonStore) -> None:
    dice = Random(1)
    interrupted = 0
    for seed in range(150):
        interrupted += bool(common_store.run(seed, {"a one": {dice.randrange(1, 800)}}).interrupted)
    assert interrupted > 75


def test_threads_interrupted_in_their_waits_lose_and_double_no_commit(common_store: CommonStore) -> None:
    dice = Random(1)
    for seed in range(100):
        common_store.run(seed, {"a one": dice.sample(range(1, 40), 2), "b one": dice.sample(range(1, 40), 2)}, WAITS)


@leaves_files_open
@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_thread_interrupted_at_every_instant_loses_and_doubles_no_commit(common_store: CommonStore) -> None:
    assert interrupt_everywhere(common_store.run, range(10), "a one") > 5_000


# --- The removal of each guard is noticed ---


class Guard(NamedTuple):
    """A guard: a fragment of a function, its replacement, and where an interruption shows that it is missing."""

    function: Callable[..., Any]
    fragment: str
    without: str
    within: str
    of_processes: bool = False
    seeds: Iterable[int] = range(20)


GUARDS = {
    "an interrupted waiting thread passes on leadership": Guard(
        GroupCommit._finish_duty, "self._wake_next()", "pass", "await_answer"
    ),
    "an interrupted leader commits its whole group": Guard(GroupCommit._finish_duty, "if not left:", "if True:", ""),
    "an interrupted leader passes on leadership": Guard(
        GroupCommit.await_answer, "self._finish_duty(interruption, duty, queued)", "pass", "_lead"
    ),
    "an interrupted leader that polls passes on leadership": Guard(
        GroupCommit.lead_if_free, "self._finish_duty(interruption, duty, queued)", "pass", "_lead"
    ),
    "an interrupted pause is withdrawn": Guard(GroupCommit.pause, "self._pausing.remove(pause_token)", "pass", WAITS),
    "a commit that LMDB has made is not repeated": Guard(
        LmdbCommits._settle_interrupted,
        "_set_outcomes(pending_commit.group, pending_commit.outcomes)",
        "pass",
        "_try_group",
        True,
    ),
    "a commit that another process may have made is not repeated": Guard(
        LmdbCommits._make, "any(request.commit_id for request in group)", "False", "_await_answer", True
    ),
    "a log is read again after an interrupted commit": Guard(
        StoredLog.begin, "if self._in_transaction:", "if False:", "_try_group", True
    ),
    "LMDB's lock is released": Guard(group_commit._clear_frames, "error is not None", "False", WAITS, True),
    "leadership among processes is released": Guard(
        CrossProcessCommit._try_to_lead,
        "self._is_leader = True  # Set",
        "pass  # Set",
        "try_become_leader",
        True,
        range(100),
    ),
    "the exclusive section is released": Guard(
        EmbeddedStore._commit_all, "_release_if_held(self._section_lock)", "pass", "_release_if_held", True
    ),
}

# A short run leaves these out, which are noticed only after a hundred interruptions.
NOTICED_LATE = (
    "a commit that another process may have made is not repeated",
    "leadership among processes is released",
)


@leaves_files_open
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in NOTICED_LATE else ()) for name in GUARDS]
)
def test_the_removal_of_a_guard_is_noticed(name: str, common_store: CommonStore) -> None:
    guard = GUARDS[name]
    run: Run = common_store.run if guard.of_processes else run_in_one_process
    bug = mutation(name, (guard.function, guard.fragment, guard.without), found_by=())
    with bug.planted(), pytest.raises((Hang, Doubled, AssertionError, StopIteration)):
        for each in ("one", "polling", "pausing") if not guard.of_processes else ("a one",):
            interrupt_everywhere(run, guard.seeds, each, guard.within)
