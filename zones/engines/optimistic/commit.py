"""A commit request: what a transaction submits to its store, and the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import Future, Limits
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.optimistic.commit_log import ReadSet
from fairlead.zones.engines.optimistic.snapshot import Snapshot
from fairlead.zones.engines.optimistic.watches import Versionstamp, Watch, Watches
from fairlead.zones.engines.optimistic.writes import Mutations, Writes

Outcome = tuple[int, Mutations] | StoreError  # Version and mutations of a commit, or its error.

NO_VERSION = -1  # As in the binding, for a transaction that has not written.


class Store(Protocol):
    """What `Transaction` needs of an engine: snapshots, and commits one after the other."""

    limits: Limits
    watches: Watches
    backoff_us: int
    """The longest delay before the first retry; it doubles with every further one."""

    def snapshot(self, clock: Clock) -> Snapshot:
        """Return the newest snapshot."""
        ...

    def snapshot_at(self, clock: Clock, version: int) -> Snapshot:
        """Return the snapshot of a version. StoreError 1007 if it is too old, 1009 if it is in the future."""
        ...

    def submit(self, request: CommitRequest) -> Future:
        """Start a commit. It is made and answered, at the latest, when a caller waits for the future."""
        ...

    def commit_sequence(self) -> int:
        """A number that changes with every commit."""
        ...


class CommitRequest:
    """The request of one commit, and then its answer.

    `reads` and `read_version` are None if no read can conflict. A store that begins the request (`begin`) answers it by
    `succeed` or `fail`. Then it calls `call_back` without holding a lock.

    Attributes:
      commit_id: identifies the commit in the log, above version `floor`, if another process may make it; else empty.
      outcome: the outcome, once the store knows it. The answer follows from it.
    """

    __slots__ = (
        "_lock",
        "clock",
        "commit_id",
        "committed_version",
        "done",
        "error",
        "floor",
        "is_begun",
        "mutations",
        "outcome",
        "read_version",
        "reads",
        "stamps",
        "watches",
        "writes",
    )

    def __init__(
        self,
        clock: Clock,
        reads: ReadSet | None,
        read_version: int | None,
        writes: Writes,
        watches: list[Watch],
        stamps: list[Versionstamp],
    ) -> None:
        assert (reads is None) == (read_version is None)
        self.clock = clock
        self.reads = reads
        self.read_version = read_version
        self.writes = writes
        self.watches = watches
        self.stamps = stamps
        self.committed_version = NO_VERSION
        self.error: StoreError | None = None
        self.mutations: Mutations | None = None
        self.commit_id = b""
        self.outcome: Outcome | None = None
        self.floor = NO_VERSION
        self.done = False
        self.is_begun = False
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Begin the request; False if it was withdrawn."""
        with self._lock:
            self.is_begun = not self.done
            return self.is_begun

    def withdraw(self, error: StoreError) -> bool:
        """Fail it with `error`, unless the store has begun it. Returns whether it was withdrawn."""
        with self._lock:
            if self.is_begun or self.done:
                return False
            self.error = error
            self.done = True
            return True

    def succeed(self, version: int, mutations: Mutations, store: Store) -> None:
        """Answer that the commit is durable, at `version`."""
        self.committed_version = version
        self.mutations = mutations
        for stamp in self.stamps:
            stamp.resolve(version_stamp(version))
        for watch in self.watches:
            watch.arm(store)
        self.done = True

    def fail(self, error: StoreError) -> None:
        """Answer that the commit failed, or, with 1021, that its result is unknown."""
        self.error = error
        for waiting in (*self.stamps, *self.watches):
            waiting.settle(error)
        self.done = True

    def call_back(self, watches: Watches) -> None:
        """Call all callbacks after the answer. Without a lock, because a callback may start a commit."""
        for watch in self.watches:
            watch.is_ready()  # Another commit may have come before it was armed.
        for waiting in (*self.stamps, *self.watches):
            waiting.call_back()
        if self.mutations is not None and watches:
            watches.check(self.mutations)
        self.mutations = None


class AnsweredCommit:
    """The future of a commit that has been answered."""

    __slots__ = ("_request",)

    def __init__(self, request: CommitRequest) -> None:
        self._request = request

    def wait(self) -> None:
        """Return if the commit is durable; raise its error otherwise."""
        if self._request.error is not None:
            raise self._request.error

    def is_ready(self) -> bool:
        """True."""
        return True

    def block_until_ready(self) -> None:
        """Return at once."""

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` now."""
        callback(self)


def version_stamp(version: int) -> bytes:
    """Return the ten bytes of a commit's versionstamp: the version, and which of the commits of that version."""
    return version.to_bytes(8, "big") + b"\x00\x00"
