"""Other processes on the same store, which do what a test tells them, or are stopped where it hurts most."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fairlead.zones.engines import Database, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.embedded import lmdb_files, stored_log
from tests.clocks import WallClock

ANSWER_WITHIN_S = 60


class Neighbour:
    """A process of its own with the store open."""

    def __init__(self, url: str, *, map_bytes: int = lmdb_files.MAP_BYTES) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(url, map_bytes, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what `function(db, *args)` returns there."""
        self.tell(function, *args)
        return self.hear()

    def tell(self, function: Callable[..., Any], *args: Any) -> None:
        """Let it run `function(db, *args)`, without waiting."""
        self._pipe.send((function, args))

    def hear(self) -> Any:
        """Return the next thing it says: the result of what it was told, or what that said by `say`."""
        assert self._pipe.poll(ANSWER_WITHIN_S), "the neighbour says nothing"
        return self._pipe.recv()

    def hear_all(self) -> list[Any]:
        """Return what a killed neighbour had said before."""
        said = []
        try:
            while self._pipe.poll(0):
                said.append(self._pipe.recv())
        except EOFError:
            pass
        return said

    def kill(self) -> None:
        """SIGKILL it."""
        self._process.kill()
        self._process.join()


def _serve(url: str, map_bytes: int, pipe: Connection[Any, Any]) -> None:
    lmdb_files.MAP_BYTES = map_bytes  # type: ignore[misc]
    db: Database = open_database(url, clock=WallClock(), random=random.Random(2))
    say.pipe = pipe  # type: ignore[attr-defined]
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        pipe.send(function(db, *args))


def say(thing: Any) -> None:
    """Say something to the test, from within a function that a neighbour runs."""
    say.pipe.send(thing)  # type: ignore[attr-defined]


@contextmanager
def stopped_holder(url: str) -> Iterator[int]:
    """Yield the id of a process that is stopped (SIGSTOP) while it has the store's write lock; it dies at the end."""
    with Neighbour(url) as holder:
        holder.tell(_stop_in_mid_commit)
        pid: int = holder.hear()
        until = time.monotonic() + ANSWER_WITHIN_S
        while "State:\tT" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < until, "it was not stopped"
            time.sleep(0.01)
        yield pid


def _stop_in_mid_commit(db: Database) -> None:
    begin = stored_log.StoredLog.begin

    def begin_and_stop(self: stored_log.StoredLog, txn: Any) -> None:
        begin(self, txn)
        os.kill(os.getpid(), signal.SIGSTOP)

    stored_log.StoredLog.begin = begin_and_stop  # type: ignore[method-assign]
    say(os.getpid())
    transact(db, lambda tr: tr.set(b"of the one that was stopped", b""))
