"""A simulated shard's store: the memory engine with latency, and with commits that fail.

A commit is applied some time between its call and its answer, even if its caller is killed meanwhile. Its result may be
unknown. Commits that follow each other closely have one version, as those of a batch have on FoundationDB. Latencies
default to FoundationDB's own figures. Actors read through `database`.
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
    StoreUnavailable,
)
from fairlead.zones.engines.memory import sorted_map
from fairlead.zones.engines.memory.engine import MemorySnapshot, MemoryStore
from fairlead.zones.engines.optimistic.commit import CommitRequest, version_stamp


class Latencies(NamedTuple):
    """Mean latencies in microseconds; FoundationDB section 4.1 gives the defaults."""

    read_version_us: int = 1_000
    read_us: int = 350
    commit_us: int = 2_000


class Fate(Enum):
    """The fate of a commit that reached its store."""

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
}  # The error that the sender gets.
_APPLIED_LATE = (Fate.UNKNOWN_LATE, Fate.TIMED_OUT_LATE)
_NOT_APPLIED = (Fate.CONFLICT, Fate.TOO_OLD, Fate.UNKNOWN_LOST)
LOST_WAKEUPS_FRAC = 0.1  # A listener's full buffer drops them.
# The delays of a commit's application and answer. The maximum is far below the five seconds after which a shard
# refuses a transaction as too old.
LATE_US_MIN, LATE_US_MAX = 500, 2_000_000
BATCH_US_MAX = 1_000  # FoundationDB's proxies gather commits for about as long.


class Change(NamedTuple):
    """The change of one key by a commit; None is no value."""

    key: bytes
    before: bytes | None
    after: bytes | None


class Commit(NamedTuple):
    """An applied commit: its shard, the name of the host that sent it, and its changes in key order.

    `read_version`: None if the commit had no read that could conflict.
    """

    shard: str
    by: str
    version: int
    changes: list[Change]
    read_version: int | None = None


class SimulatedStore(MemoryStore):
    """The store of one shard.

    Attributes:
      draw_fate: functions of faults that decide the fate of a commit; the first that is not `DECIDED` counts.
      forgets_version: functions of faults that decide whether a read fails as too old (1007).
      refuses: functions of faults that decide whether the store does not answer a process that asks for a read version.
      loses_watch, refuses_watch: functions of faults that decide whether a watch is lost, or fails.
      on_commit: is called with each applied commit.
      on_applied: is called after each applied commit.
      unavailable_until_us: until when it answers nothing.
      sender: the name under which commits are sent; None: that of the host that sends them.
      commits_sent, commits: how many were sent, and how many applied.
      late_commits: how many will be applied after their answers.
    """

    def __init__(self, world: World, name: str, latencies: Latencies) -> None:
        super().__init__(world.now_us())
        self.world = world
        self.name = name
        self.draw_fate: list[Callable[[], Fate]] = []
        self.forgets_version: list[Callable[[], bool]] = []
        self.refuses: list[Callable[[], bool]] = []
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
        self._batch_version: int | None = None  # Of the latest commits; None: somebody has read since.

    @property
    def contents(self) -> sorted_map.Map:
        """All keys and values. This map never changes; a later commit creates another map."""
        return self._newest[1]

    def preload(self, contents: sorted_map.Map) -> None:
        """Start with the contents of another world's store."""
        self._newest = (self._newest[0], contents)

    def snapshot(self, clock: Clock) -> MemorySnapshot:
        """Return the version that is the newest at some time between call and return.

        Outside of tasks it does not wait: the store itself reads its watches when a commit arrives.
        """
        if self.world.current is None:
            return super().snapshot(clock)
        wait_us = self._wait_us(self._latencies.read_version_us)
        if any(refuses() for refuses in self.refuses):
            self.world.sleep_us(wait_us)
            raise StoreUnavailable("the store does not answer", remedy="Do: try again later.", store=self.name)
        away_us = self.unavailable_until_us - self.world.now_us()
        if away_us > 0 or self._random.random() < 0.5:
            self.world.sleep_us(max(0, away_us) + wait_us)
            self._batch_version = None
            return super().snapshot(clock)
        self._batch_version = None
        opened = super().snapshot(clock)
        self.world.sleep_us(wait_us)
        return opened

    def submit(self, request: CommitRequest) -> PendingCommit:  # type: ignore[override]
        """Send a commit. It is applied even if its sender is killed now."""
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
        """Draw whether a read now fails because its version is too old."""
        return any(forgets() for forgets in self.forgets_version)

    def read_ready_us(self) -> int:
        """Draw the time of the answer to a read that is sent now."""
        return self.world.now_us() + self._wait_us(self._latencies.read_us)

    def _arrive(self, request: CommitRequest, pending: PendingCommit, fate: Fate, by: str, back_us: int) -> None:
        error = StoreError(_ANSWERS[fate]) if fate in _ANSWERS else None
        applied = ""
        if fate in _APPLIED_LATE:
            self.late_commits += 1
            self.world.after(self._late_us(), partial(self._apply_late, request, by))
            back_us += self._late_us()  # The sender notices late that its connection is lost.
            applied = ", on its way"
        elif fate in _NOT_APPLIED:
            assert error is not None
            request.fail(error)
        else:
            self._apply(request, by)
            applied = ", applied" if request.error is None else ""
            error = request.error or error
        if error is not None:
            self.world.note(f"{self.name} refuses {by}: {error.code}{applied}")
        pending.answer(error, back_us)

    def loses_wakeup(self) -> bool:
        """Draw whether a listener misses the wake-up of a commit."""
        return self._wakeup_random.random() < LOST_WAKEUPS_FRAC

    def wakeup_us(self) -> int:
        """Draw the latency of a commit's wake-up of a waiting task."""
        return 1 + int(self._wakeup_random.expovariate(1 / self._latencies.read_us))

    def _late_us(self) -> int:
        """Draw a delay. Each order of magnitude between the limits has the same probability."""
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
            for wake in self.on_applied:
                wake()
            if self.on_commit:
                self._announce(request, before, by)
            self._join_batch(request)

    def _join_batch(self, request: CommitRequest) -> None:
        """Give a commit the version of its batch. A read at this version conflicts with no commit of the batch.

        A batch ends when somebody reads, since nobody reads a part of one.
        """
        commit, version = self._log[-1], self._batch_version
        if version is None or commit.version > version + BATCH_US_MAX:
            self._batch_version = commit.version
        else:
            commit.version = request.committed_version = version

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
        for show in self.on_commit:
            show(commit)

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
        """Send the answer back. It arrives after `back_us`."""
        self._error = error
        self._ready_us = self._world.now_us() + back_us
        for task in self._waiting:
            self._world.wake(task, back_us)
        for callback in self._callbacks:
            self._world.after(back_us, partial(callback, self))

    def wait(self) -> None:
        """Return if the commit is durable; otherwise raise its error, such as an unknown result."""
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
