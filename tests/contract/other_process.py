"""Other processes on the same store: they run functions of a test, or are stopped in the middle of a commit."""

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


class OtherProcess:
    """A process of its own with the store open."""

    def __init__(self, url: str, *, map_bytes: int = lmdb_files.MAP_BYTES) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(url, map_bytes, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> OtherProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(db, *args)` in the process, and return its result."""
        self.start(function, *args)
        return self.receive()

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Start `function(db, *args)` in the process, without waiting."""
        self._pipe.send((function, args))

    def receive(self) -> Any:
        """Return the next object from the process: the result of a function, or an argument of `send`."""
        assert self._pipe.poll(ANSWER_WITHIN_S), "the process sends nothing"
        return self._pipe.recv()

    def receive_all(self) -> list[Any]:
        """Return all objects that a killed process had sent before."""
        received = []
        try:
            while self._pipe.poll(0):
                received.append(self._pipe.recv())
        except EOFError:
            pass
        return received

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.join()


def _serve(url: str, map_bytes: int, pipe: Connection[Any, Any]) -> None:
    lmdb_files.MAP_BYTES = map_bytes  # type: ignore[misc]
    db: Database = open_database(url, clock=WallClock(), random=random.Random(2))
    send.pipe = pipe  # type: ignore[attr-defined]
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        pipe.send(function(db, *args))


def send(value: Any) -> None:
    """Send an object to the test, from a function that an `OtherProcess` runs."""
    send.pipe.send(value)  # type: ignore[attr-defined]


@contextmanager
def stopped_holder(url: str) -> Iterator[int]:
    """Yield the id of a process that is stopped (SIGSTOP) while it has the store's write lock. Kill it at the end."""
    with OtherProcess(url) as holder:
        holder.start(_stop_in_mid_commit)
        pid: int = holder.receive()
        until = time.monotonic() + ANSWER_WITHIN_S
        while "State:\tT" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < until, "the process was not stopped"
            time.sleep(0.01)
        yield pid


def _stop_in_mid_commit(db: Database) -> None:
    begin = stored_log.StoredLog.begin

    def begin_and_stop(self: stored_log.StoredLog, txn: Any) -> None:
        begin(self, txn)
        os.kill(os.getpid(), signal.SIGSTOP)

    stored_log.StoredLog.begin = begin_and_stop  # type: ignore[method-assign]
    send(os.getpid())
    transact(db, lambda tr: tr.set(b"by the stopped process", b""))
