"""The FoundationDB engine: the official binding, opened. Nothing of ours lies between a caller and its transactions.

But for two things: bodies of the product's own call the client directly, see `direct_calls`, and have their writes done
together, see `write_bursts`; and a thread that waits for a future does so in the client, see `_wait_in_client`.

This is the one module that loads the binding, and it is imported only when a store of this kind is opened: the binding
needs FoundationDB's client library (`libfdb_c`), which other engines do without.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import fdb

from fairlead.zones.engines.api.database import Limits, Transaction
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, StoreUnavailable
from fairlead.zones.engines.foundationdb.direct_calls import Client, DirectTransaction
from fairlead.zones.engines.foundationdb.write_bursts import BurstTransaction

API_VERSION: Final = 730
LIMITS: Final = Limits(key_bytes_max=10_000, value_bytes_max=100_000, transaction_bytes_max=10_000_000)
_LIBRARY: Final = "libfdb_c.dylib" if sys.platform == "darwin" else "libfdb_c.so"
# How long a transaction may take with all its retries: the binding counts from its creation. It lives five seconds, so
# one that came to their end can be tried once more; and nine recoveries of a cluster in ten are over after 5.3 s
# (FoundationDB section 5). Without it a read would wait for a cluster that is away for as long as that is away.
TRANSACTION_TIMEOUT_MS: Final = 10_000
CONNECT_TIMEOUT_MS: Final = 5_000  # How long `open` waits for a cluster to answer at all.
NO_CLUSTER_FILE: Final = 1515
_CHECK_THE_FILE: Final = "Check the path and the content of the cluster file: one line, such as name:id@127.0.0.1:4500."


class FoundationDatabase:
    """A cluster. `create_transaction` is the binding's own, and so is what it returns.

    In a process that was forked after a cluster had been opened `create_transaction` raises StoreUnavailable. There the
    client's network thread is missing, and nothing that a transaction asks for would be answered, nor time out.
    """

    results_can_be_unknown = True
    limits = LIMITS

    def __init__(self, url: str, cluster_file: str, errors: tuple[type[Exception], ...], database: Any) -> None:
        self.url = url
        self.cluster_file = cluster_file
        self.errors = errors
        self.create_transaction: Callable[[], Transaction] = database.create_transaction
        self._database = database  # The binding destroys it when the last reference goes.

    def commit_sequence(self) -> int | None:
        """Return None: FoundationDB tells through a read version only, which costs a round trip."""
        return None

    def listener(self) -> None:
        """Return nothing: see `Database`."""

    def exclusive_section(self) -> AbstractContextManager[object]:
        """Return nothing to wait for."""
        return nullcontext()

    def burst(self, tr: Transaction) -> AbstractContextManager[Transaction]:
        """Return the transaction as one that keeps its writes and does them together, by direct calls."""
        if not isinstance(tr, fdb.impl.Transaction):  # Tests put something around it.
            return BurstTransaction(tr)
        direct = DirectTransaction(_load_client(), tr)
        return BurstTransaction(cast("Transaction", direct), direct.send_reads)

    def invalidate_after_fork(self) -> None:
        """Make no more transactions; called in a forked process."""
        self.create_transaction = _refuse_after_fork

    def close(self) -> None:
        """Do nothing: the binding keeps one connection per cluster file for the life of the process."""


class Clusters:
    """The clusters that this process has opened, and what has become of the client's network thread.

    The first cluster starts that thread, and a fork does not take it along. If the parent had opened none, a child may.
    """

    def __init__(self) -> None:
        self._opened: dict[str, FoundationDatabase] = {}
        self._lock = threading.Lock()
        self._network_runs = False
        self._invalid_after_fork = False

    def open(self, url: str, cluster_file: str) -> FoundationDatabase:
        """See `open_cluster`."""
        if self._invalid_after_fork:
            _refuse_after_fork()
        with self._lock:
            database = self._opened.get(cluster_file)
            if database is None:
                _load_client()
                database = FoundationDatabase(url, cluster_file, (fdb.FDBError,), self.connect(cluster_file))
                _check_reachable(database)
                self._opened[cluster_file] = database
            return database

    def connect(self, cluster_file: str) -> Any:
        """Return the client's database of a cluster file, which is not read yet."""
        self._network_runs = True
        return _connect(cluster_file)

    def invalidate_after_fork(self) -> None:
        """Mark what the parent had opened; called in a forked process before anything else runs there."""
        self._lock = threading.Lock()  # Another thread of the parent may have held it.
        self._invalid_after_fork = self._invalid_after_fork or self._network_runs
        for database in self._opened.values():
            database.invalidate_after_fork()


_clusters = Clusters()
os.register_at_fork(after_in_child=_clusters.invalidate_after_fork)


def open_cluster(url: str, cluster_file: str) -> FoundationDatabase:
    """Return the database of a cluster file; '' is the default cluster file of this machine.

    Raises:
      StoreUnavailable: the client library is missing or of another version, the cluster file cannot be read or used,
        the cluster does not answer within `CONNECT_TIMEOUT_MS`, or this process was forked from one that had opened a
        cluster.
    """
    return _clusters.open(url, cluster_file)


def _refuse_after_fork() -> NoReturn:
    raise StoreUnavailable(
        "FoundationDB's client does not survive a fork",
        remedy="Open the application after the fork (gunicorn: without --preload, or in post_fork; Celery: in"
        " worker_process_init; multiprocessing: with the start method spawn).",
        pid=os.getpid(),
    )


@cache
def _load_client() -> Client:
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
    _wait_in_client(fdb.impl.Future)
    return Client(fdb.impl.Future.capi._name, _await, fdb.FDBError)


def _await(pointer: int) -> None:
    """Wait for a future of the client as the binding does."""
    future = fdb.impl.Future(pointer)
    try:
        future.block_until_ready()
    finally:
        future.fpointer = None  # It is not the binding's to let go of.


def _wait_in_client(futures: Any) -> None:
    """Let threads wait for `futures`, the binding's class, in the client; not the main thread, which hears of signals.

    The binding waits in Python: it has the client's network thread call back. That thread then waits for the
    interpreter, which another thread may keep for five milliseconds; meanwhile nothing else comes from the cluster.
    """
    await_call_back = futures.block_until_ready
    if await_call_back.__module__ == __name__:
        return
    wait = futures.capi.fdb_future_block_until_ready
    wait.argtypes = [ctypes.c_void_p]
    main = threading.main_thread()

    def block_until_ready(future: Any) -> None:
        if not future.is_ready():
            if threading.current_thread() is main:
                await_call_back(future)
            else:
                wait(future.fpointer)

    futures.block_until_ready = block_until_ready


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
        raise unreachable(cluster_file, error) from error
    database.options.set_transaction_timeout(TRANSACTION_TIMEOUT_MS)
    return database


def _check_reachable(database: FoundationDatabase) -> None:
    """Ask for one read version, so that a cluster that is away is noticed here and not in the middle of work."""
    tr = database.create_transaction()
    tr.options.set_timeout(CONNECT_TIMEOUT_MS)
    try:
        tr.get_read_version().wait()
    except fdb.FDBError as error:
        raise unreachable(database.cluster_file, error) from error


def unreachable(cluster_file: str, error: Any) -> StoreUnavailable:
    """Return why a cluster cannot be reached, in words, of the client's error.

    The client reads a cluster file when the first transaction needs it, so opening may succeed with one that is none.
    """
    if error.code == TRANSACTION_TIMED_OUT:
        return StoreUnavailable(
            "the cluster does not answer",
            remedy="Check with `fdbcli --exec status` that it runs, and that the cluster file is its own.",
            cluster_file=cluster_file,
            waited_ms=CONNECT_TIMEOUT_MS,
        )
    if error.code == NO_CLUSTER_FILE and not cluster_file:
        return StoreUnavailable(
            "this machine has no default cluster file",
            remedy="Name the cluster file, `fdb:/path/to/fdb.cluster`, or put it at /etc/foundationdb/fdb.cluster.",
            cause=str(error),
        )
    return StoreUnavailable(
        "the cluster file cannot be used", remedy=_CHECK_THE_FILE, cluster_file=cluster_file, cause=str(error)
    )
