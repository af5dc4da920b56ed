"""A simulated shard's store: the memory engine, whose answers take their time, and whose commits can go wrong.

A commit is on its way for a while, is carried out somewhere between, whether or not its caller still lives, and may end
in an answer that tells nothing. Latencies default to FoundationDB's own figures. What is read through is `database`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from fairlead.simulation.world import START_US, Task, World
from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.errors import (
    COMMIT_UNKNOWN_RESULT,
    NOT_COMMITTED,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_TOO_OLD,
    StoreError,
)
from fairlead.zones.engines.memory import sorted_map
from fairlead.zones.engines.memory.engine import MemorySnapshot, MemoryStore
from fairlead.zones.engines.optimistic.commit import CommitRequest, version_stamp


class Latencies(NamedTuple):
    """Mean latencies in microseconds; FoundationDB section 5 gives the defaults."""

    read_version_us: int = 1_000
    read_us: int = 350
    commit_us: int = 2_000


class Fate(Enum):
    """What becomes of a commit that reached its store."""

    DECIDED = "carried out or refused, by what it read"
    CONFLICT = "1020, though nothing changed"
    UNKNOWN_APPLIED = "1021, and applied"
    UNKNOWN_LOST = "1021, and not applied"
    UNKNOWN_LATE = "1021, and applied later, unless something that it read has changed by then"
    TIMED_OUT_LATE = "1031, and applied later, unless something that it read has changed by then"
    TOO_OLD = "1007, though it read a moment ago"


_ANSWERS = {
    Fate.CONFLICT: NOT_COMMITTED,
    Fate.TOO_OLD: TRANSACTION_TOO_OLD,
    Fate.UNKNOWN_APPLIED: COMMIT_UNKNOWN_RESULT,
    Fate.UNKNOWN_LOST: COMMIT_UNKNOWN_RESULT,
    Fate.UNKNOWN_LATE: COMMIT_UNKNOWN_RESULT,
    Fate.TIMED_OUT_LATE: TRANSACTION_TIMED_OUT,
}  # What the sender is told, whatever became of its commit.
_APPLIED_LATE = (Fate.UNKNOWN_LATE, Fate.TIMED_OUT_LATE)
_NOT_APPLIED = (Fate.CONFLICT, Fate.TOO_OLD, Fate.UNKNOWN_LOST)
LOST_WAKEUPS_FRAC = 0.1  # Told to a listener, whose datagrams a full buffer drops.
# How late a commit may be applied, and its sender be told; at most far below the five seconds after which a shard
# refuses what read so long ago.
LATE_US_MIN, LATE_US_MAX = 500, 2_000_000


class Change(NamedTuple):
    """What a commit did to one key; None is no value."""

    key: bytes
    before: bytes | None
    after: bytes | None


class Commit(NamedTuple):
    """A commit that was applied: where, by whom (the host's name), and what it changed, in key order.

    `read_version`: what it read was as of then; None if nothing that it read could conflict.
    """

    shard: str
    by: str
    version: int
    changes: list[Change]
    read_version: int | None = None


class SimulatedStore(MemoryStore):
    """The store of one shard.

    Attributes:
      draw_fate: the faults' ways to say what becomes of a commit; the first that does not leave it to its reads has it.
      forgets_version: the faults' ways to say that reads sent now come too late (1007).
      loses_watch, refuses_watch: the faults' ways to say that a watch tells nothing, or fails.
      on_commit: told of each commit that was applied, and what it did.
      on_applied: told that there was one.
      away_until_us: until when it answers nothing.
      sender: in whose name commits are sent; None: of the process that sends them.
      commits_sent, commits: how many arrived here, and how many were applied.
      landing: how many are on their way, though their senders have their answers.
    """

    def __init__(self, world: World, name: str, latencies: Latencies) -> None:
        super().__init__(world.now_us())
        self.world = world
        self.name = name
        self.draw_fate: list[Callable[[], Fate]] = []
        self.forgets_version: list[Callable[[], bool]] = []
        self.on_commit: list[Callable[[Commit], None]] = []
        self.on_applied: list[Callable[[], None]] = []
        self.unavailable_until_us = 0
        self.sender: str | None = None
        self.commits_sent = 0
        self.commits = 0
        self.late_commits = 0
        self.loses_watch: list[Callable[[], bool]] = []
        self.refuses_watch: list[Callable[[], bool]] = []
        self._wakeup_random = world.random(f"words of {name}")
        self._latencies = latencies
        self._random = world.random(f"store {name}")

    @property
    def contents(self) -> sorted_map.Map:
        """All keys and values. It never changes: what is committed later makes another."""
        return self._newest[1]

    def preload(self, contents: sorted_map.Map) -> None:
        """Hold what another world's store held, as if it had been there from the start."""
        self._newest = (self._newest[0], contents)

    def snapshot(self, clock: Clock) -> MemorySnapshot:
        """Return the newest version, newest at some time between call and return.

        Nobody waits where no task asks: there the store itself looks at its watches, as a commit arrives.
        """
        if self.world.current is None:
            return super().snapshot(clock)
        wait_us = self._wait_us(self._latencies.read_version_us)
        away_us = self.unavailable_until_us - self.world.now_us()
        if away_us > 0 or self._random.random() < 0.5:
            self.world.sleep_us(max(0, away_us) + wait_us)
            return super().snapshot(clock)
        opened = super().snapshot(clock)
        self.world.sleep_us(wait_us)
        return opened

    def submit(self, request: CommitRequest) -> PendingCommit:  # type: ignore[override]
        """Send a commit off. It happens even if its sender dies now."""
        request.begin()
        self.commits_sent += 1
        fate = Fate.DECIDED
        for draw in self.draw_fate:
            if fate is Fate.DECIDED:
                fate = draw()
        wait_us = self._wait_us(self._latencies.commit_us)
        if self.unavailable_until_us > self.world.now_us():
            wait_us += self.unavailable_until_us - self.world.now_us()
        there_us = int(wait_us * self._random.random())
        assert self.world.current is not None
        pending = PendingCommit(self.world)
        by, back_us = self.sender or self.world.current.host.name, wait_us - there_us
        self.world.after(there_us, partial(self._arrive, request, pending, fate, by, back_us))
        return pending

    def is_forgetful(self) -> bool:
        """Draw whether the version is forgotten that somebody reads at now."""
        return any(forgets() for forgets in self.forgets_version)

    def read_ready_us(self) -> int:
        """Draw when the answer to a read that is sent now arrives."""
        return self.world.now_us() + self._wait_us(self._latencies.read_us)

    def _arrive(self, request: CommitRequest, pending: PendingCommit, fate: Fate, by: str, back_us: int) -> None:
        told = StoreError(_ANSWERS[fate]) if fate in _ANSWERS else None
        applied = ""
        if fate in _APPLIED_LATE:
            self.late_commits += 1
            self.world.after(self._late_us(), partial(self._apply_late, request, by))
            back_us += self._late_us()  # That a connection is gone is noticed late, and then it may have been applied.
            applied = ", on its way"
        elif fate in _NOT_APPLIED:
            assert told is not None
            request.fail(told)
        else:
            self._apply(request, by)
            applied = ", applied" if request.error is None else ""
            told = request.error or told
        if told is not None:
            self.world.note(f"{self.name} refuses {by}: {told.code}{applied}")
        pending.answer(told, back_us)

    def loses_wakeup(self) -> bool:
        """Draw whether somebody who listens for commits hears nothing of one."""
        return self._wakeup_random.random() < LOST_WAKEUPS_FRAC

    def wakeup_us(self) -> int:
        """Draw how long it takes until somebody who waits hears of a commit."""
        return 1 + int(self._wakeup_random.expovariate(1 / self._latencies.read_us))

    def _late_us(self) -> int:
        """Draw how late something is, from hardly to very: any order of magnitude is as likely."""
        return int(LATE_US_MIN * (LATE_US_MAX / LATE_US_MIN) ** self._random.random())

    def _apply_late(self, request: CommitRequest, by: str) -> None:
        self.late_commits -= 1
        self._apply(request, by)
        late = "applied" if request.error is None else f"{request.error.code}"
        self.world.note(f"{self.name} has a late commit of {by}: {late}")

    def _apply(self, request: CommitRequest, by: str) -> None:
        before = MemoryStore.snapshot(self, self.world)
        super().submit(request)
        if request.error is None:
            self.commits += 1
            for tell in self.on_applied:
                tell()
            if self.on_commit:
                self._announce(request, before, by)

    def _announce(self, request: CommitRequest, before: MemorySnapshot, by: str) -> None:
        version = request.committed_version
        done = request.writes.mutations(before.get, version_stamp(version))
        after = dict(done.values)
        after.update(dict.fromkeys(done.cleared))  # type: ignore[arg-type]
        for begin, end in done.ranges:
            for key, _ in before.scan(begin, end, False):
                after.setdefault(key, None)  # type: ignore[arg-type]
        changes = [Change(key, was, after[key]) for key in sorted(after) if (was := before.get(key)) != after[key]]
        self.world.note(f"{self.name} commits {by}: {version - START_US} {len(changes)}")
        commit = Commit(self.name, by, version, changes, request.read_version)
        for tell in self.on_commit:
            tell(commit)

    def _wait_us(self, mean_us: int) -> int:
        return int(mean_us * (0.5 + self._random.expovariate(2.0)))


class PendingCommit:
    """The future of a commit on its way; see `fairlead.zones.engines.api.database.Future`."""

    __slots__ = ("_callbacks", "_error", "_ready_us", "_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._callbacks: list[Callable[[PendingCommit], None]] = []
        self._ready_us: int | None = None
        self._error: StoreError | None = None
        self._waiting: list[Task] = []

    def answer(self, error: StoreError | None, back_us: int) -> None:
        """Send the answer back: it arrives after `back_us`."""
        self._error = error
        self._ready_us = self._world.now_us() + back_us
        for task in self._waiting:
            self._world.wake(task, back_us)
        for callback in self._callbacks:
            self._world.after(back_us, partial(callback, self))

    def wait(self) -> None:
        """Return if the commit is durable; raise why not, or that nobody knows."""
        if self._ready_us is None:
            assert self._world.current is not None
            self._waiting.append(self._world.current)
            self._world.suspend()
        elif self._ready_us > self._world.now_us():
            self._world.sleep_us(self._ready_us - self._world.now_us())
        if self._error is not None:
            raise self._error

    def is_ready(self) -> bool:
        """Whether the answer has arrived."""
        return self._ready_us is not None and self._ready_us <= self._world.now_us()

    def on_ready(self, callback: Callable[[PendingCommit], None]) -> None:
        """Call `callback(self)` when the answer has arrived, between turns."""
        if self._ready_us is None:
            self._callbacks.append(callback)
        else:
            self._world.at(max(self._ready_us, self._world.now_us()), partial(callback, self))
