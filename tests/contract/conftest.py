"""The engines, each with an empty store. Every contract test runs on each engine.

On a FoundationDB cluster a test uses only the keys below its own prefix, and clears them at its end.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.zones.engines import Database, StreamingMode, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import error_code
from tests.clocks import ManualClock

ENGINES = ["memory", "embedded", pytest.param("fdb", marks=pytest.mark.foundationdb)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(engine: str, tmp_path: Path) -> str:
    places = {"memory": "", "embedded": str(tmp_path / "store"), "fdb": os.environ.get("FDB_CLUSTER_FILE", "")}
    return f"{engine}:{places[engine]}"


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> bytes:
    """Return the prefix of this test's keys."""
    name: str = request.node.name
    return b"\x15contract/%d/%b/" % (os.getpid(), name.encode()[:100])


@pytest.fixture
def db(engine: str, url: str, clock: ManualClock, prefix: bytes) -> Iterator[Database]:
    database = open_database(url, clock=clock, random=random.Random(1))
    yield database
    if engine == "fdb":
        transact(database, lambda tr: tr.clear_range(prefix, prefix + b"\xff"))
    database.close()


@pytest.fixture
def pass_us(engine: str, clock: ManualClock) -> Callable[[int], None]:
    """Return a function that advances the manual clock; on a cluster, which has its own clock, the function sleeps."""
    return clock.advance_us if engine != "fdb" else lambda duration_us: time.sleep(duration_us / 1_000_000)


class Space:
    """The keys below a prefix, by short names. Each method is a transaction of its own."""

    def __init__(self, db: Database, prefix: bytes) -> None:
        self._db = db
        self.prefix = prefix

    def key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    def end(self) -> bytes:
        return self.prefix + b"\xff"

    def put(self, **pairs: bytes) -> None:
        """Commit some pairs."""
        transact(self._db, lambda tr: [tr.set(self.key(name), value) for name, value in pairs.items()])

    def all(self) -> dict[str, bytes]:
        """Return what is stored."""
        tr = self._db.create_transaction()
        rows = tr.get_range(self.prefix, self.end(), streaming_mode=StreamingMode.want_all)
        return {key[len(self.prefix) :].decode("latin-1"): value for key, value in rows}


@pytest.fixture
def space(db: Database, prefix: bytes) -> Space:
    return Space(db, prefix)


def read_version(db: Database) -> int:
    """Return the version that a new transaction reads at.

    The transaction is referenced until the answer has arrived: FoundationDB cancels reads of a dropped one (1025).
    """
    tr = db.create_transaction()
    version: int = tr.get_read_version().wait()
    return version


def code_of(future: object) -> int:
    """Return the code of the error that a future fails with; 0 if it succeeds."""
    try:
        future.wait()  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - an FDBError exists only where the client library does
        code: int = error_code(error)
        return code
    return 0
