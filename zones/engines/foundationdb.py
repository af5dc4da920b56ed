"""The FoundationDB engine: the official binding, opened. Nothing of ours lies between a caller and its transactions.

This is the one module that loads the binding, and it is imported only when a store of this kind is opened: the binding
needs FoundationDB's client library (`libfdb_c`), which other engines do without.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import fdb

from zones.engines.database import Limits, Transaction
from zones.engines.errors import TRANSACTION_TIMED_OUT, StoreUnavailable

API_VERSION: Final = 730
LIMITS: Final = Limits(key_bytes_max=10_000, value_bytes_max=100_000, transaction_bytes_max=10_000_000)
_LIBRARY: Final = "libfdb_c.dylib" if sys.platform == "darwin" else "libfdb_c.so"
# How long a transaction may take with all its retries: the binding counts from its creation. It lives five seconds, so
# one that came to their end can be tried once more; and nine recoveries of a cluster in ten are over after 5.3 s
# (FoundationDB section 5). Without it a read would wait for a cluster that is away for as long as that is away.
TRANSACTION_MS: Final = 10_000
REACH_MS: Final = 5_000  # How long `open` waits for a cluster to answer at all.

_opened: dict[str, FoundationDatabase] = {}
_lock = threading.Lock()


class FoundationDatabase:
    """A cluster. `create_transaction` is the binding's own, and so is what it returns."""

    results_can_be_unknown = True
    limits = LIMITS

    def __init__(self, url: str, cluster_file: str, errors: tuple[type[Exception], ...], database: Any) -> None:
        self.url = url
        self.cluster_file = cluster_file
        self.errors = errors
        self.create_transaction: Callable[[], Transaction] = database.create_transaction
        self._database = database  # The binding destroys it when the last reference goes.

    def change_token(self) -> int | None:
        """Return None: FoundationDB tells through a read version only, which costs a round trip."""
        return None

    def listener(self) -> None:
        """Return nothing: see `Database`."""

    def turn(self) -> AbstractContextManager[object]:
        """Return nothing to wait for."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing: the binding keeps one connection per cluster file for the life of the process."""


def open_cluster(url: str, cluster_file: str) -> FoundationDatabase:
    """Return the database of a cluster file; '' is the default cluster file of this machine.

    Raises:
      StoreUnavailable: the client library is missing or of another version, the cluster file cannot be read, or the
        cluster does not answer within `REACH_MS`.
    """
    with _lock:
        database = _opened.get(cluster_file)
        if database is None:
            _load_client()
            database = FoundationDatabase(url, cluster_file, (fdb.FDBError,), _connect(cluster_file))
            _reach(database)
            _opened[cluster_file] = database
        return database


def _load_client() -> None:
    # Looked for here first, because the binding says so only with a bare Exception, in the middle of its import.
    if not _client_library_found():
        raise StoreUnavailable(
            "FoundationDB's client library is missing",
            remedy="Install the package foundationdb-clients (7.3 or later) from "
            "https://github.com/apple/foundationdb/releases; it brings libfdb_c.",
            library=_LIBRARY,
        )
    try:
        fdb.api_version(API_VERSION)
    except RuntimeError as error:
        raise StoreUnavailable(
            "FoundationDB's client cannot be used",
            remedy="Select no other API version in this process, and install the clients of version 7.3 or later.",
            api_version=API_VERSION,
            cause=str(error),
        ) from error


def _client_library_found() -> bool:
    """Whether the library is in one of the places where the binding looks for it."""
    beside = Path(fdb.__file__).with_name(_LIBRARY)
    if beside.exists() or beside.with_name(f"{_LIBRARY}.pth").exists():
        return True
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return ctypes.util.find_library("fdb_c") is not None
    return True


def _connect(cluster_file: str) -> Any:
    if cluster_file and not Path(cluster_file).is_file():
        raise StoreUnavailable(
            "the cluster file cannot be read",
            remedy="Name the cluster file of the cluster, or write `fdb:` for this machine's default.",
            cluster_file=cluster_file,
        )
    try:
        database = fdb.open(cluster_file or None)
    except fdb.FDBError as error:
        raise StoreUnavailable(
            "the cluster file cannot be used",
            remedy="Check the path and the content of the cluster file.",
            cluster_file=cluster_file,
            cause=str(error),
        ) from error
    database.options.set_transaction_timeout(TRANSACTION_MS)
    return database


def _reach(database: FoundationDatabase) -> None:
    """Ask for one read version, so that a cluster that is away is noticed here and not in the middle of work."""
    tr = database.create_transaction()
    tr.options.set_timeout(REACH_MS)
    try:
        tr.get_read_version().wait()
    except fdb.FDBError as error:
        if error.code != TRANSACTION_TIMED_OUT:
            raise
        raise StoreUnavailable(
            "the cluster does not answer",
            remedy="Check with `fdbcli --exec status` that it runs, and that the cluster file is its own.",
            cluster_file=database.cluster_file,
            waited_ms=REACH_MS,
        ) from error
