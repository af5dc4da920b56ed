"""Other processes on the same store, which do what a test tells them."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.clocks import WallClock
from zones.engines import Database, lmdb_files
from zones.engines import open as open_database

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
