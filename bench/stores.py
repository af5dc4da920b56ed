"""The stores of a command: embedded ones, or one FoundationDB cluster that is emptied for each store.

A store is a path. For an embedded store, the path is its directory. On FoundationDB, the path is a copy of the cluster
file. So each store has its own name, and its own place where the handlers write their records.
"""

import shutil
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from bench.floor import Floor, PlainLoop
from bench.floor_foundationdb import FoundationFloor
from bench.harness import store_url
from bench.machine import describe, scratch
from bench.report import Options, parser
from fairlead.clock import SystemClock
from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.keyspace import ROOT_RANGE

COMMITS = 100
BARE = b"fl bare commit"


class StoreInUse(Exception):
    """The cluster has a store, which a benchmark would clear."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one command. `cluster_file`: None if the stores are embedded."""

    directory: Path
    cluster_file: Path | None = None

    def new(self, name: str) -> Path:
        """Return the path of a new, empty store. On FoundationDB this deletes the store before it."""
        store = self.directory / name
        if self.cluster_file is not None:
            shutil.copyfile(self.cluster_file, store)
            _clear(store)
        return store

    def describe(self) -> dict[str, Any]:
        """Return the properties of the machine, and the time of a bare commit."""
        found = describe(self.directory)
        if self.cluster_file is not None:
            found["commit_ms"] = round(commit_ms(_opened(self.cluster_file)), 3)
        return found


def options_with_store(description: str | None) -> tuple[Options, Path | None]:
    """Parse the command line of a command that has `--store`, too. Return its options and the cluster file, if any."""
    commands = parser(description)
    commands.add_argument("--store", type=cluster_file_of, metavar="URL",
        help="fdb:CLUSTER_FILE, of a cluster without a store; it is emptied (default: new embedded ones)")  # fmt: skip
    parsed = commands.parse_args()
    return Options(as_json=parsed.json, quick=parsed.quick), parsed.store


@contextmanager
def prepared_stores(cluster_file: Path | None) -> Iterator[Stores]:
    """Yield the stores of a command, and delete them afterwards.

    Raises:
      StoreInUse: the cluster has a store that the command has not created.
    """
    with scratch() as directory:
        if cluster_file is None:
            yield Stores(directory)
            return
        if not _is_empty(cluster_file):
            raise StoreInUse(
                f"the cluster of {cluster_file} holds a store of Fairlead, and a benchmark clears it: name another "
                "cluster, or clear it with fdbcli: writemode on; clearrange \\x02fl\\x00 \\x02fl\\x01"
            )
        try:
            yield Stores(directory, cluster_file)
        finally:
            _clear(cluster_file)


def floor_beside(store: Path) -> PlainLoop:
    """Return an empty floor on the engine of the store."""
    if store.is_file():
        return FoundationFloor(_opened(store))
    return Floor(store.with_name(store.name + ".floor"))


def commit_ms(db: Database) -> float:
    """Return the median time of a commit that writes one key and reads nothing, in milliseconds."""

    def commit() -> float:
        tr = db.create_transaction()
        tr.set(BARE, bytes(8))
        began_s = perf_counter()
        tr.commit().wait()
        return perf_counter() - began_s

    took_s = [commit() for _ in range(COMMITS)]
    _transact(db, lambda tr: tr.clear(BARE))
    return median(took_s) * 1000


def cluster_file_of(url: str) -> Path:
    """Return the cluster file of `fdb:CLUSTER_FILE`, an argument of a command.

    Raises:
      ArgumentTypeError: it is another url, or there is no such file.
    """
    engine, _, place = url.partition(":")
    if engine != "fdb" or not place:
        raise ArgumentTypeError(f"{url!r}: write fdb:CLUSTER_FILE")
    if not Path(place).is_file():
        raise ArgumentTypeError(f"{place}: no such file")
    return Path(place).resolve()


def _opened(store: Path) -> Database:
    return engines.open(store_url(store), clock=SystemClock(), random=Random(0))


def _transact(db: Database, body: Callable[[Any], None]) -> None:
    engines.transact(db, body)


def _clear(store: Path) -> None:
    _transact(_opened(store), lambda tr: tr.clear_range(*ROOT_RANGE))


def _is_empty(store: Path) -> bool:
    return engines.transact(_opened(store), lambda tr: not list(tr.get_range(*ROOT_RANGE, limit=1)))
