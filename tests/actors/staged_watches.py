"""A cluster whose watches fire in a story's own time: in the turn in which a commit of the story changes their key.

The client fires its own on its network thread, as soon as the cluster has told it. A story's time does not pass
meanwhile, so a story of seconds would be over before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fairlead.simulation.host import SimulatedHost
from fairlead.zones.engines import Database, transact
from tests.rooted import RootedDatabase, RootedTransaction

OPERATION_CANCELLED = 1101


class StagedDatabase(RootedDatabase):
    """What lies below a prefix of a cluster. Its watches see what is committed through it.

    Args:
      host: who hears of a watch, in a task of its own, as from a thread of the client's.
    """

    def __init__(self, db: Database, root: bytes, host: SimulatedHost) -> None:
        super().__init__(db, root)
        self.host = host
        self._armed: list[StagedWatch] = []

    def create_transaction(self) -> StagedTransaction:
        return StagedTransaction(self._db.create_transaction(), self._root, self, [])

    @contextmanager
    def burst(self, tr: Any) -> Iterator[RootedTransaction]:
        with self._db.burst(tr.below) as below:
            yield StagedTransaction(below, self._root, self, tr.asked)

    def committed(self, asked: list[StagedWatch]) -> None:
        """Arm what a transaction has asked for, and fire what is news by now."""
        self._armed = [watch for watch in [*self._armed, *asked] if not watch.is_ready()]
        asked.clear()
        if self._armed:
            for watch, value in zip(self._armed, transact(self._db, self._read), strict=True):
                if value != watch.seen:
                    watch.fire()

    def _read(self, tr: Any) -> list[bytes | None]:
        return [read.value for read in [tr.get(self._root + watch.key) for watch in self._armed]]


class StagedTransaction(RootedTransaction):
    """A transaction of such a database. `asked`: its watches, which its commit arms."""

    def __init__(self, reader: Any, root: bytes, db: StagedDatabase, asked: list[StagedWatch]) -> None:
        super().__init__(reader, root)
        self._staged = db
        self.asked = asked

    def watch(self, key: bytes) -> StagedWatch:
        watch = StagedWatch(self._staged, key, self.snapshot.get(key).value)
        self.asked.append(watch)
        return watch

    def commit(self) -> StagedCommit:
        return StagedCommit(self.below.commit(), partial(self._staged.committed, self.asked))

    def on_error(self, error: Exception) -> Any:
        self.asked.clear()
        return self.below.on_error(error)


class StagedCommit:
    """The future of such a commit. `then` happens once it has been waited for, and did not fail."""

    def __init__(self, future: Any, then: Callable[[], None]) -> None:
        self._future = future
        self._then = then

    def wait(self) -> None:
        self._future.wait()
        self._then()


class StagedWatch:
    """A watch on one key. `seen`: its value as of the transaction."""

    def __init__(self, db: StagedDatabase, key: bytes, seen: bytes | None) -> None:
        self.key = key
        self.seen = seen
        self._db = db
        self._ready = False
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)
        self._call_back()

    def is_ready(self) -> bool:
        return self._ready

    def fire(self, error: Exception | None = None) -> None:
        """Become ready; nothing happens if it is."""
        if not self._ready:
            self._ready, self._error = True, error
            self._call_back()

    def cancel(self) -> None:
        self.fire(self._db.errors[0](OPERATION_CANCELLED))

    def wait(self) -> None:
        """Raise what it failed by. It is for callbacks, so it is ready."""
        assert self._ready, "a story would wait for it in real time"
        if self._error is not None:
            raise self._error

    def _call_back(self) -> None:
        host = self._db.host
        if self._ready and not host.dead:
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                host.spawn("watch", partial(callback, self))
