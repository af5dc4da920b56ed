"""A database whose commits end as a story wants them to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from fairlead.zones.engines import Database, Listener
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT

WRITES = frozenset(
    {"set", "clear", "clear_range", "compare_and_clear", "add", "set_versionstamped_key", "set_versionstamped_value"}
)


@dataclass
class Fault:
    """How one commit ends: with an error, although it was `applied` or because it was not; `then` something happens."""

    applied: bool
    code: int = COMMIT_UNKNOWN_RESULT
    then: Callable[[], object] = lambda: None


class FaultyDatabase:
    """Passes everything on to a database whose results can be unknown.

    Commits of transactions that wrote something meet `faults`, one after the other; None is a commit without one.
    """

    results_can_be_unknown = True

    def __init__(self, db: Database) -> None:
        self._db = db
        self.faults: deque[Fault | None] = deque()
        self.url, self.limits, self.errors = db.url, db.limits, db.errors

    def create_transaction(self) -> Any:
        return FaultyTransaction(self, self._db.create_transaction())

    def exclusive_section(self) -> AbstractContextManager[object]:
        return self._db.exclusive_section()

    @contextmanager
    def burst(self, tr: Any) -> Iterator[Any]:
        with self._db.burst(tr) as kept:
            yield kept if kept is tr else FaultyBurst(tr, kept)

    def commit_sequence(self) -> int | None:
        return self._db.commit_sequence()

    def close(self) -> None:
        self._db.close()

    def listener(self) -> Listener | None:
        return self._db.listener()

    def commit(self, tr: Any) -> None:
        fault = self.faults.popleft() if self.faults else None
        if fault is None or fault.applied:
            tr.commit().wait()
        if fault is not None:
            fault.then()
            raise self.errors[0](fault.code)


class FaultyTransaction:
    """Passes everything on to a transaction, but its commit may meet a fault."""

    def __init__(self, db: FaultyDatabase, tr: Any) -> None:
        self._db = db
        self._tr = tr
        self._wrote = False

    def __getattr__(self, name: str) -> Any:
        self.note(name)
        return getattr(self._tr, name)

    def note(self, name: str) -> None:
        """Note what is asked of it, or of its burst: after a write its commit may meet a fault."""
        self._wrote = self._wrote or name in WRITES

    def commit(self) -> Any:
        return FaultyCommit(self._db, self._tr) if self._wrote else self._tr.commit()


class FaultyBurst:
    """What the engine puts around such a transaction to do its writes together."""

    def __init__(self, tr: FaultyTransaction, kept: Any) -> None:
        self._tr = tr
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        self._tr.note(name)
        return getattr(self._kept, name)


class FaultyCommit:
    """The future of such a commit."""

    def __init__(self, db: FaultyDatabase, tr: Any) -> None:
        self._db = db
        self._tr = tr

    def wait(self) -> None:
        self._db.commit(self._tr)
