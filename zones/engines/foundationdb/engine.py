"""The FoundationDB engine: the official binding, opened. Callers use the binding's own transactions.

There are two exceptions. Bodies of the product call the client directly (`direct_calls`), and do their writes together
(`write_bursts`). A thread that waits for a future waits in the client (`_wait_in_client`).

Only this module loads the binding. It is imported when a FoundationDB store is opened, because the binding needs
FoundationDB's client library (`libfdb_c`).
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
# The time of a transaction with all its retries, from its creation. An attempt has five seconds, so a transaction that
# used them up can be retried once. Nine of ten recoveries of a cluster take at most 5.3 s (FoundationDB, section 4.2).
# Without this timeout a read would wait for an unreachable cluster without limit.
TRANSACTION_TIMEOUT_MS: Final = 10_000
CONNECT_TIMEOUT_MS: Final = 5_000  # How long `open` waits for a cluster to answer at all.
NO_CLUSTER_FILE: Final = 1515
_CHECK_THE_FILE: Final = "Check the path and the content of the cluster file: one line, such as name:id@127.0.0.1:4500."


class FoundationDatabase:
    """A cluster. `create_transaction` and its result are the binding's own.

    In a process that was forked after a cluster was opened, `create_transaction` raises StoreUnavailable. This process
    lacks the client's network thread, so a transaction would get no answer and no timeout.
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
        """Return None: on FoundationDB this needs a read version, which costs a round trip."""
        return None

    def listener(self) -> None:
        """Return None: see `Database`."""

    def exclusive_section(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def burst(self, tr: Transaction) -> AbstractContextManager[Transaction]:
        """Return a transaction that buffers its writes and does them together, by direct calls."""
        if not isinstance(tr, fdb.impl.Transaction):  # Tests wrap it.
            return BurstTransaction(tr)
        direct = DirectTransaction(_load_client(), tr)
        return BurstTransaction(cast("Transaction", direct), direct.send_reads)

    def invalidate_after_fork(self) -> None:
        """Refuse new transactions; called in a forked process."""
        self.create_transaction = _refuse_after_fork

    def close(self) -> None:
        """Do nothing: the binding keeps one connection per cluster file for the life of the process."""


class Clusters:
    """The clusters that this process has opened, and whether the client's network thread runs.

    The first cluster starts this thread, and a forked child does not have it. If the parent had opened no cluster, the
    child may open one.
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
        """Invalidate the parent's databases; called first in a forked process."""
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
    # Checked first, because the binding would raise a bare Exception in the middle of its import.
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
        future.fpointer = None  # So the binding does not destroy it.


def _wait_in_client(futures: Any) -> None:
    """Let threads wait for `futures`, the binding's class, in the client. Not the main thread, which handles signals.

    The binding waits in Python: the client's network thread calls back. This thread then waits for the interpreter
    lock, which another thread may hold for five milliseconds. Meanwhile no other answer of the cluster is delivered.
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
    """Return whether the library is in one of the places that the binding searches."""
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
    """Get one read version, so that an unreachable cluster is noticed now, and not in the middle of work."""
    tr = database.create_transaction()
    tr.options.set_timeout(CONNECT_TIMEOUT_MS)
    try:
        tr.get_read_version().wait()
    except fdb.FDBError as error:
        raise unreachable(database.cluster_file, error) from error


def unreachable(cluster_file: str, error: Any) -> StoreUnavailable:
    """Return the error of an unreachable cluster, with its remedy, from the client's error.

    The client reads a cluster file with the first transaction, so `fdb.open` may succeed with a bad file.
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
