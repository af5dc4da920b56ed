"""An exception in a thread that commits, at any instant, costs others nothing: no commit is lost, doubled, or waits.

Each story is played again and again: by one schedule after the other, and in each with the exception one instant later
than before, until the thread has ended before it.
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
from tests.contract.interruptions import WAITS, Hang, Interruptions, Stage
from tests.simulation.mutations.mutation import mutation

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="an exception of a trace function kills the interpreter of 3.12.1, and other instructions are traced since",
)

CLOCK = WallClock()
ONE = (1).to_bytes(8, "little")
MODULES = (group_commit, engine, flat_combining, mailbox, lmdb_commit, stored_log)

Play = Callable[[int, Interruptions, str], Stage]


class Doubled(Exception):
    """A commit was made, or answered, more or less often than once."""


# --- Threads of one process, whose commits are notes in a list ---


class Notes:
    """Threads that commit notes, through the product's `GroupCommit`."""

    def __init__(self, stage: Stage, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(group_commit, "threading", stage.locks())
        patch.setattr(group_commit, "_thread", stage.locks())
        self.stage = stage
        self.made: list[CommitRequest] = []
        self.acknowledged: list[CommitRequest] = []
        self.called_back: list[CommitRequest] = []
        self.unknown = 0
        self.group = GroupCommit(self._commit_all, self._afterwards)

    def _commit_all(self, requests: list[CommitRequest]) -> None:
        for request in requests:
            if not request.done and request not in self.made:
                self.stage.switch()  # LMDB's lock
                self.made.append(request)
                self.stage.switch()
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
                raise Doubled("nobody knows, so it is made again") from error
            self.acknowledged.append(request)

    def ask(self) -> None:
        """Commit, without waiting."""
        request = CommitRequest(CLOCK, None, None, Writes(), [], [])
        queued = self.group.submit(request)
        while not queued.is_ready():
            self.stage.switch()
        self.acknowledged.append(request)

    def stand_still(self) -> None:
        pause = self.group.pause()
        try:
            before = len(self.made)
            self.stage.switch()
            if len(self.made) != before:
                raise Doubled("a commit was made while all stood still")
        finally:
            self.group.resume(pause)

    def check(self) -> None:
        if len(set(self.made)) != len(self.made) or not set(self.acknowledged) <= set(self.made):
            raise Doubled
        if not set(self.made) <= set(self.called_back):
            raise Doubled("a commit without its afterwards")
        assert self.group._leader is None


def play_notes(seed: int, interruptions: Interruptions, within: str = "") -> Stage:
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage(seed, interruptions, [group_commit], within=within)
        notes = Notes(stage, patch)
        bodies: dict[str, Callable[[], None]] = {
            "one": notes.commit_twice, "two": notes.commit_twice, "asking": notes.ask, "standing": notes.stand_still,
        }  # fmt: skip
        stage.play(bodies)
        notes.check()
        return stage


def interrupt_everywhere(play: Play, seeds: Iterable[int], name: str, within: str = "") -> int:
    """Play schedules, each with an interruption at each instant of a thread in turn; return how many there were."""
    instants = 0
    for seed in seeds:
        point = 1
        while play(seed, {name: {point}}, within).interrupted:
            point += 1
        instants += point - 1
    return instants


@pytest.mark.parametrize("name", ["one", "asking"])
def test_a_thread_may_be_interrupted_at_every_instant(name: str) -> None:
    assert interrupt_everywhere(play_notes, range(8), name) > 400


@pytest.mark.parametrize("name", ["one", "asking", "standing"])
def test_a_thread_may_be_interrupted_in_every_wait(name: str) -> None:
    assert interrupt_everywhere(play_notes, range(20), name, WAITS) > 60


def test_several_threads_may_be_interrupted_again_and_again() -> None:
    dice = Random(1)
    for seed in range(300):
        interruptions = {name: dice.sample(range(1, 25), 4) for name in ("one", "two", "asking")}
        play_notes(seed, interruptions, WAITS)


# --- Processes, whose threads share LMDB's commits: all of the product's commit, on a real LMDB environment ---


class Files(LmdbFiles):
    """An environment that is open already, and whose write lock is waited for on the stage."""

    stage: Stage
    env: lmdb.Environment
    write_locks: list[WriteLock]

    def _open(self) -> None:
        self._env = self.env
        self.write_lock = WriteLock(self.path)
        self.write_locks.append(self.write_lock)

    def begin_write(self) -> lmdb.Transaction[bytes]:
        self.stage.wait(self.write_lock.is_free)
        txn: lmdb.Transaction[bytes] = self._env.begin(write=True)  # type: ignore[union-attr]
        self.stage.switch()  # It fills holes.
        return txn


class StagedMailbox(Mailbox):
    """A mailbox with the stage's locks and wake-ups: the system's belong to one process, and cannot tell two apart."""

    stage: Stage
    locks: dict[int, StagedMailbox]
    wakeups: set[int]

    def acquire_slot(self) -> bool:
        self.stage.switch()
        return super().acquire_slot()

    def await_wakeup(self, wait_s: float) -> None:
        self.stage.wait(lambda: self._slot in self.wakeups, timed=True)
        self.wakeups.discard(self.slot)

    def wake(self, slot: int) -> None:
        self.wakeups.add(slot)

    def _try_lock(self, byte: int) -> bool:
        return self.locks.setdefault(byte, self) is self

    def _unlock(self, byte: int) -> None:
        if self.locks.get(byte) is self:
            del self.locks[byte]


class Process:
    """One process's part of a store."""

    def __init__(self, stage: Stage, path: Path) -> None:
        self.stage = stage
        self.store = EmbeddedStore(path, CLOCK)
        self.store.cross_process._pause = SimpleNamespace(wait=lambda _: stage.switch())  # type: ignore[assignment]
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
                raise Doubled("nobody knows, so it is made again") from error
            finally:
                tr.cancel()


class Shop:
    """A store on a real environment, on which plays are played one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store"
        first = LmdbFiles(self.path, first_version=1)
        first.close()
        self.env = lmdb.open(str(self.path), sync=False, map_size=1 << 30, max_readers=4_096)
        self.write_locks: list[WriteLock] = []

    def play(self, seed: int, interruptions: Interruptions, within: str = "") -> Stage:
        with pytest.MonkeyPatch.context() as patch:
            stage = Stage(seed, interruptions, MODULES, within=within)
            for module in (group_commit, engine):
                patch.setattr(module, "threading", stage.locks())
            patch.setattr(group_commit, "_thread", stage.locks())
            patch.setattr(engine, "LockWatchdog", lambda _: SimpleNamespace(watched_wait=nullcontext))
            patch.setattr(engine, "CommitNotifier", lambda _: SimpleNamespace(notify=lambda: None))
            files = {"stage": stage, "env": self.env, "write_locks": self.write_locks}
            patch.setattr(engine, "LmdbFiles", type("_", (Files,), files))
            staged_mailbox = type("_", (StagedMailbox,), {"stage": stage, "locks": {}, "wakeups": set()})
            patch.setattr(flat_combining, "Mailbox", staged_mailbox)
            patch.setattr(flat_combining, "WAKEUP_WAITS_MAX", 6)
            processes = [Process(stage, self.path) for _ in range(2)]
            names = [b"a one", b"a two", b"b one", b"b two"]
            with self.env.begin(write=True) as txn:
                for name in names:
                    txn.delete(name)
            owners = [processes[0]] * 2 + [processes[1]] * 2
            bodies = {name.decode(): partial(process.count, name) for process, name in zip(owners, names, strict=True)}
            try:
                stage.play(bodies)
            finally:
                for process in processes:
                    process.store.cross_process.close()
            self.check(processes)
            assert 0 not in staged_mailbox.locks, "a process kept the lead"  # type: ignore[attr-defined]
            return stage

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
def shop(tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path)
    yield opened
    opened.write_locks.append(WriteLock(opened.path))
    if opened.write_locks[-1].is_free():  # else a thread that hangs has it, and LMDB would wait for that
        opened.env.close()
    for write_lock in opened.write_locks:  # Each has the lock file open, and a play opens two.
        write_lock.close()


interrupted_while_it_opens = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def test_no_process_loses_or_doubles_a_commit(shop: Shop) -> None:
    for seed in range(40):
        shop.play(seed, {})


@interrupted_while_it_opens
def test_nor_one_of_which_a_thread_is_interrupted_at_any_instant(shop: Shop) -> None:
    dice = Random(1)
    interrupted = 0
    for seed in range(150):
        interrupted += bool(shop.play(seed, {"a one": {dice.randrange(1, 800)}}).interrupted)
    assert interrupted > 75


def test_nor_one_of_which_threads_are_interrupted_in_their_waits(shop: Shop) -> None:
    dice = Random(1)
    for seed in range(100):
        shop.play(seed, {"a one": dice.sample(range(1, 40), 2), "b one": dice.sample(range(1, 40), 2)}, WAITS)


@interrupted_while_it_opens
@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_nor_one_of_which_a_thread_is_interrupted_at_every_instant(shop: Shop) -> None:
    assert interrupt_everywhere(shop.play, range(10), "a one") > 5_000


# --- Each guard taken away is noticed ---


class Guard(NamedTuple):
    """A guard: its fragment of a function, what is there without it, and where an interruption shows that."""

    function: Callable[..., Any]
    fragment: str
    without: str
    within: str
    of_processes: bool = False
    seeds: Iterable[int] = range(20)


GUARDS = {
    "a waiting thread that is interrupted hands on the lead": Guard(
        GroupCommit._finish_duty, "self._wake_next()", "pass", "await_answer"
    ),
    "a leader that is interrupted sees its group through": Guard(
        GroupCommit._finish_duty, "if not left:", "if True:", ""
    ),
    "and hands over the lead": Guard(
        GroupCommit.await_answer, "self._finish_duty(interruption, duty, queued)", "pass", "_lead"
    ),
    "also where it only asked": Guard(
        GroupCommit.lead_if_free, "self._finish_duty(interruption, duty, queued)", "pass", "_lead"
    ),
    "a fork that is interrupted while it waits is forgotten": Guard(
        GroupCommit.pause, "self._pausing.remove(pause_token)", "pass", WAITS
    ),
    "a commit that LMDB has made is not made again": Guard(
        LmdbCommits._settle_interrupted,
        "_set_outcomes(pending_commit.group, pending_commit.outcomes)",
        "pass",
        "_try_group",
        True,
    ),
    "nor one that another process may have made": Guard(
        LmdbCommits._make, "any(request.commit_id for request in group)", "False", "_await_answer", True
    ),
    "a log that was left in the middle of a commit is read again": Guard(
        StoredLog.begin, "if self._in_transaction:", "if False:", "_try_group", True
    ),
    "LMDB's lock is released": Guard(group_commit._clear_frames, "error is not None", "False", WAITS, True),
    "leadership among processes is given up": Guard(
        CrossProcessCommit._try_to_lead, "self._is_leader = True  # Set", "pass  # Set", "try_become_leader", True
    ),
    "the exclusive section is released": Guard(
        EmbeddedStore._commit_all, "_release_if_held(self._section_lock)", "pass", "_release_if_held", True
    ),
}


@interrupted_while_it_opens
@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_is_taken_away_is_missed(name: str, shop: Shop) -> None:
    guard = GUARDS[name]
    play: Play = shop.play if guard.of_processes else play_notes
    bug = mutation(name, (guard.function, guard.fragment, guard.without), found_by=())
    with bug.planted(), pytest.raises((Hang, Doubled, AssertionError, StopIteration)):
        for each in ("one", "asking", "standing") if not guard.of_processes else ("a one",):
            interrupt_everywhere(play, guard.seeds, each, guard.within)
