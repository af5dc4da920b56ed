"""A FoundationDB cluster on which each test has a key space of its own: every key gets the test's prefix on its way.

So tests run side by side on one cluster, and beside whatever else it holds. Between the product and the binding this is
all there is: futures, errors and commits are the binding's own. The contract tests use the binding as it is, under
prefixes that they write themselves. Acceptance tests, whose processes open a cluster by its file, have a server of
their own (`tests.foundationdb_server`).

Chosen over FoundationDB's own tenants, which a cluster must be configured for, and which are an experiment in 7.3; and
over a root in the cluster's url, which no application needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any, cast
from uuid import uuid4

import pytest

from fairlead.zones import engines
from fairlead.zones.engines import Clock, Database, KeyValue, StreamingMode, transact

ROOTS = b"\x15fairlead tests/"  # Nobody's keys: those of a shard begin with another byte.
_KEYED = frozenset(
    {"set", "clear", "add", "bit_and", "bit_or", "bit_xor", "max", "min", "byte_max", "byte_min", "append_if_fits"}
    | {"compare_and_clear", "set_versionstamped_value", "add_read_conflict_key", "add_write_conflict_key", "watch"}
)
_RANGED = frozenset({"clear_range", "add_read_conflict_range", "add_write_conflict_range"})
_STAMP_AT_BYTES = 4
ROOT_VARIABLE = "ROOT_OF_THE_TEST"  # tells processes that a test starts which prefix is its own; see `enter_root`


def new_root() -> bytes:
    """Return a prefix that nobody else has."""
    return ROOTS + uuid4().hex.encode() + b"/"


class RootedDatabase:
    """What lies below a prefix of a database, as a database; what it does not say itself the other one says.

    Closing it clears what lies there.
    """

    def __init__(self, db: Database, root: bytes) -> None:
        self._db = db
        self._root = root
        self.url, self.errors = db.url, db.errors
        self.limits = replace(db.limits, key_bytes_max=db.limits.key_bytes_max - len(root))
        self.results_can_be_unknown = db.results_can_be_unknown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def create_transaction(self) -> RootedTransaction:
        return RootedTransaction(self._db.create_transaction(), self._root)

    @contextmanager
    def burst(self, tr: RootedTransaction) -> Iterator[RootedTransaction]:
        with self._db.burst(tr.below) as below:
            yield RootedTransaction(below, self._root)

    def close(self) -> None:
        transact(self._db, lambda tr: tr.clear_range(self._root, self._root + b"\xff"))
        self._db.close()


class SharedDatabase(RootedDatabase):
    """The same in a process that a test has started: what lies there is the test's, which clears it."""

    def close(self) -> None:
        self._db.close()


def on_cluster(
    *, clock: Clock, random: Random, rooted: Callable[[Database, bytes], RootedDatabase] = RootedDatabase
) -> Database:
    """Open the cluster that is named to the tests, empty to whoever looks. `rooted`: makes it so, of a prefix."""
    db = engines.open(f"fdb:{os.environ['FDB_CLUSTER_FILE']}", clock=clock, random=random)
    return cast(Database, rooted(db, new_root()))


def cluster_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the url of the cluster that is named to the tests; to this process it is empty until the test ends.

    So it is to the processes that this one starts, if they `enter_root`.
    """
    root = new_root()
    monkeypatch.setenv(ROOT_VARIABLE, root.hex())
    _open_below(root, monkeypatch, RootedDatabase)
    return f"fdb:{os.environ['FDB_CLUSTER_FILE']}"


def enter_root() -> None:
    """Let this process, which a test has started, see of a cluster what the test sees. Call it before it opens one."""
    if ROOT_VARIABLE in os.environ:
        _open_below(bytes.fromhex(os.environ[ROOT_VARIABLE]), pytest.MonkeyPatch(), SharedDatabase)


def _open_below(root: bytes, monkeypatch: pytest.MonkeyPatch, rooted: type[RootedDatabase]) -> None:
    from fairlead.zones.engines.foundationdb import engine

    open_cluster = engine.open_cluster
    monkeypatch.setattr(engine, "open_cluster", lambda url, cluster_file: rooted(open_cluster(url, cluster_file), root))


class RootedReads:
    """The reads of a transaction, or of its snapshot. `kept`: what must live as long as it is used."""

    def __init__(self, reader: Any, root: bytes, kept: object = None) -> None:
        self._reader = reader
        self._root = root
        self._kept = kept

    def get(self, key: bytes) -> Any:
        return self._reader.get(self._root + key)

    def get_range(
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> RootedRange:
        rows = self._reader.get_range(
            self._root + (begin or b""), _end(self._root, end), limit, reverse, streaming_mode
        )
        return RootedRange(rows, len(self._root))


class RootedTransaction(RootedReads):
    """A transaction on what lies below a prefix."""

    @property
    def below(self) -> Any:
        """The transaction that knows of no prefix."""
        return self._reader

    @property
    def snapshot(self) -> RootedReads:
        return RootedReads(self._reader.snapshot, self._root, kept=self)

    def set_versionstamped_key(self, key: bytes, param: bytes) -> None:
        at = int.from_bytes(key[-_STAMP_AT_BYTES:], "little") + len(self._root)
        stamped = self._root + key[:-_STAMP_AT_BYTES] + at.to_bytes(_STAMP_AT_BYTES, "little")
        self._reader.set_versionstamped_key(stamped, param)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._reader, name)
        if name in _KEYED:
            return lambda key, *args: method(self._root + key, *args)
        if name in _RANGED:
            return lambda begin, end: method(self._root + begin, _end(self._root, end))
        return method


class RootedRange:
    """Rows that lose the prefix again. The read was sent when it was made."""

    def __init__(self, rows: Any, root_bytes: int) -> None:
        self._rows = rows
        self._root_bytes = root_bytes

    def __iter__(self) -> Iterator[KeyValue]:
        return (KeyValue(row.key[self._root_bytes :], row.value) for row in self._rows)


def _end(root: bytes, end: bytes | None) -> bytes:
    return root + (b"\xff" if end is None else end)
