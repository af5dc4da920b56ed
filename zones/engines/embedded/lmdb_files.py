"""One LMDB environment: opening, growing, forking, closing, and the errors that name the remedy.

LMDB's rules, kept here: a file is opened once per process; a map that another process has grown must be adopted
before anything else works; and an environment must not be carried over a fork. Transactions open across a growth or a
fork end, and whoever reads through them learns 1007.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import lmdb

from fairlead.zones.engines.api.errors import PROCESS_BEHIND, TRANSACTION_CANCELLED, StoreError, StoreUnavailable
from fairlead.zones.engines.embedded.filesystems import network_filesystem
from fairlead.zones.engines.embedded.lmdb_errors import unavailable_error
from fairlead.zones.engines.embedded.preallocation import preallocate
from fairlead.zones.engines.embedded.stored_log import start_log
from fairlead.zones.engines.embedded.write_lock import WriteLock
from fairlead.zones.engines.optimistic.reserved_keys import FORMAT_KEY

_T = TypeVar("_T")

FORMAT: Final = 1
MAP_BYTES: Final = 64 << 30  # Address space, not disk: the file grows as it fills. So growing the map is the exception.
READERS_MAX: Final = 4_096  # Open read transactions of all processes together; 64 bytes each in the lock file.

READS_WAIT_S: Final = 1.0  # A read of a whole range takes tenths of a second.
_READS_POLL_S: Final = 0.001


def end_broken(txn: lmdb.Transaction[bytes]) -> None:
    """End a write transaction if LMDB has marked it as broken, by an error such as a full map.

    py-lmdb's `abort` waits for a moment in which no other thread is in a call of LMDB, and with busy readers there is
    none. A commit of a broken transaction does not wait, and aborts it. One that is not broken is aborted without
    waiting too when its last reference goes.
    """
    try:
        txn.get(b"\x00")
    except lmdb.BadTxnError:
        with suppress(lmdb.BadTxnError):
            txn.commit()
    except lmdb.Error:
        pass  # It has ended: its commit was what failed.


class LmdbFiles:
    """An environment. Users' keys and values are in it as they are; what else there is, `reserved_keys` says."""

    def __init__(self, path: Path, *, first_version: int) -> None:
        """Open the environment, created if it is missing; a new log starts at `first_version`."""
        self.path = path
        self._data_path = str(path / "data.mdb")
        self._first_version = first_version
        self._map_bytes = MAP_BYTES
        self._lock = threading.RLock()
        self._env: lmdb.Environment | None = None
        self._closed = False
        self._open()

    # --- Opening and closing ---

    def _open(self) -> None:
        self._check_path()
        with ExitStack() as refused:  # Whoever keeps the error does not keep the files open.
            try:
                made_in = _make_directory(self.path)
                _make_lock_file(self.path / "lock.mdb")
                self.write_lock = WriteLock(self.path)
                refused.callback(self.write_lock.close)
                env = lmdb.open(str(self.path), map_size=self._map_bytes, max_readers=READERS_MAX)
                refused.callback(env.close)
                self.write_lock.hold_use_lock()
                env.reader_check()
                if not self._is_of_this_format(env):
                    _fsync_directories(self.path, self.path.parent, *made_in)
                    self._create(env)
            except (OSError, lmdb.Error) as error:
                self._raise_unavailable(error)
            refused.pop_all()
        self._env = env
        self._identity = self._file_identity()
        self._page_bytes = env.stat()["psize"]
        self._preallocated_end = 0  # Before this offset there are no holes.

    def is_current(self) -> bool:
        """Whether the path still leads to the files that are open; not if they were deleted, or made anew."""
        return self._file_identity() == self._identity

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            return _identity_of(os.stat(self._data_path))  # noqa: PTH116 - before each commit, and half as dear
        except FileNotFoundError:
            return None

    def _check_path(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise StoreUnavailable("the path is a file", remedy="Name a directory of its own.", path=str(self.path))
        kind = network_filesystem(self.path)
        if kind is not None:
            raise StoreUnavailable(
                "the path is on another machine's disk",
                remedy="Use a local disk: memory maps and locks do not reach across machines. "
                "For several machines, use FoundationDB. "
                "What a program serves (fuse) is taken for another machine's unless it is known as local.",
                path=str(self.path),
                filesystem=kind,
            )

    def _is_of_this_format(self, env: lmdb.Environment) -> bool:
        """Whether the environment holds a store; False if it is empty. Refuses all else, unchanged."""
        with env.begin() as txn:
            if txn.stat()["entries"] == 0:
                return False
            written = txn.get(FORMAT_KEY)
        if written is None:
            raise StoreUnavailable(
                "the path holds another program's LMDB store", remedy="Name another directory.", path=str(self.path)
            )
        if int(written) > FORMAT:
            raise StoreUnavailable(
                "the store was written by a newer version",
                remedy="Use the version that wrote it, or a later one. Nothing was changed.",
                path=str(self.path),
                format=int(written),
                format_known=FORMAT,
            )
        return True

    def _create(self, env: lmdb.Environment) -> None:
        """Make an empty environment a store: all at once, so that no process ever sees half of it."""
        with env.begin(write=True) as txn:
            if txn.put(FORMAT_KEY, str(FORMAT).encode(), overwrite=False):
                start_log(txn, self._first_version)

    def close(self) -> None:
        """Close the environment for good."""
        with self._lock:
            self._closed = True
            self._close_env()

    def close_inherited(self) -> None:
        """Close the copy that a fork left in the child; the next transaction opens anew.

        Only after the parent has ended its read transactions: a child that ends its copies would unpin the parent's.
        """
        self._lock = threading.RLock()
        self._close_env()

    def _close_env(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
        self.write_lock.close()

    # --- Transactions ---

    def begin_read(self) -> lmdb.Transaction[bytes]:
        """Begin a read transaction; while reads are held back, once they go on."""
        with self._lock:
            return self._begin(self._begin_read)

    def _begin_read(self, env: lmdb.Environment) -> lmdb.Transaction[bytes]:
        self.write_lock.retake_locks()
        return env.begin()

    def _begin_write(self, env: lmdb.Environment) -> lmdb.Transaction[bytes]:
        self.write_lock.retake_use_lock()
        return env.begin(write=True)

    def begin_write(self) -> lmdb.Transaction[bytes]:
        """Begin a write transaction, once no other process has one.

        Raises:
          StoreUnavailable: the path leads to this store's files no more: what is committed here, nobody else would see.
        """
        txn: lmdb.Transaction[bytes] = self._begin(self._begin_write)
        if not self.is_current():
            del txn  # Whoever keeps the error does not keep the lock.
            raise StoreUnavailable(
                "the store was deleted or replaced",
                remedy="Start this program anew, to use what is at the path now. What it committed before is in the "
                "files that were taken away, and nothing since.",
                path=str(self.path),
            )
        self._preallocate()
        return txn

    def last_transaction(self) -> int:
        """Return the number of the last write transaction, of all processes, that a read begun now would see."""
        # Not from `info()`: that looks at the root on disk, which is new a moment before readers see it. Whoever
        # noticed the change there, and then read what was before it, would not look again.
        txn = self.begin_read()
        number = int(txn.id())
        txn.abort()
        return number

    def grow(self) -> None:
        """Double the map after it was found full. Ends this process's transactions."""
        with self._lock:
            map_bytes = 2 * self._usable_env().info()["map_size"]
            try:
                self._usable_env().set_mapsize(map_bytes)
            except lmdb.Error as error:
                self.reopen()
                raise StoreUnavailable(
                    "the store cannot grow",
                    remedy="Give the process more address space, or move some tenants to another store.",
                    path=str(self.path),
                    map_bytes=map_bytes,
                    cause=str(error),
                ) from error
            self._map_bytes = map_bytes

    def reopen(self) -> None:
        """Open anew after LMDB has given up on the environment (a failed write of its root)."""
        with self._lock:
            self._close_env()
            self._usable_env()

    def clear_dead_readers(self) -> None:
        """Free the slots of processes that died, and with them the pages that they pin."""
        self._usable_env().reader_check()

    def hold_reads(self) -> bool:
        """Let no read begin until `resume_reads`; False if one does not get begun, and nothing is held back.

        A fork in the middle of a call of LMDB leaves a child that waits for that call for ever when it closes its copy.
        """
        return self._lock.acquire(timeout=READS_WAIT_S)

    def resume_reads(self) -> None:
        """Let reads begin again, on the thread that held them back."""
        self._lock.release()

    def await_reads(self) -> None:
        """Wait until no thread of this process reads: a fork's child would end what its parent is in the middle of.

        Once reads are held back and all snapshots have been let go of, so for milliseconds; and at most for
        `READS_WAIT_S`.
        """
        pause = threading.Event()
        for _ in range(int(READS_WAIT_S / _READS_POLL_S)):
            if self._env is None or not _reads_of(os.getpid(), self._env.readers()):
                return
            pause.wait(_READS_POLL_S)

    def has_panicked(self) -> bool:
        """Whether LMDB refuses this environment since it failed to write its root."""
        try:
            if self._env is not None:
                self._env.begin().abort()
        except lmdb.PanicError:
            return True
        except lmdb.Error:
            return False
        return False

    def unavailable(self, error: Exception) -> StoreUnavailable:
        """Return the error that says what an error of LMDB or the system means, and what to do."""
        return unavailable_error(error, self.path, map_bytes=self._map_bytes)

    def _preallocate(self) -> None:
        """Fill the holes that commits have left, of whichever process. Within a write transaction."""
        env = self._env or self._usable_env()
        end = (env.info()["last_pgno"] + 1) * self._page_bytes
        if end <= self._preallocated_end:
            return
        # The disk may be full, and the commit fit all the same; if not, that says why.
        with suppress(OSError), (self.path / "data.mdb").open("r+b", buffering=0) as file:
            if _identity_of(os.fstat(file.fileno())) == self._identity:  # else it is another store's by now
                preallocate(file.fileno(), self._preallocated_end, end)
                self._preallocated_end = end

    def _begin(self, begin: Callable[[lmdb.Environment], _T]) -> _T:
        for _ in range(8):  # Each reason below passes; several of them in a row would be strange.
            try:
                return begin(self._env or self._usable_env())
            except lmdb.MapResizedError:
                # Another process has grown the map.
                with self._lock:
                    self._usable_env().set_mapsize(0)
            except lmdb.ReadersFullError:
                if not self._usable_env().reader_check():
                    raise StoreError(
                        PROCESS_BEHIND, remedy="Close transactions sooner, or use fewer.", readers_max=READERS_MAX
                    ) from None
            except lmdb.InvalidParameterError:
                # Another thread is changing the map; it holds the lock until it is done.
                with self._lock:
                    pass
            except lmdb.PanicError:
                self.reopen()
            except (OSError, lmdb.Error) as error:
                self._usable_env()  # Says so if it was closed meanwhile.
                self._raise_unavailable(error)
        raise StoreUnavailable("the map changes all the time", remedy="Try again.", path=str(self.path))

    def _usable_env(self) -> lmdb.Environment:
        with self._lock:
            if self._closed:
                raise StoreError(TRANSACTION_CANCELLED, remedy="The database was closed.", path=str(self.path))
            if self._env is None:
                self._open()
            assert self._env is not None
            return self._env

    def _raise_unavailable(self, error: Exception) -> NoReturn:
        raise self.unavailable(error) from error


def _identity_of(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _reads_of(pid: int, readers: str) -> int:
    """Return how many transactions a process has open, by LMDB's table: lines of process, thread, and number or `-`."""
    rows = [line.split() for line in readers.splitlines()]
    return sum(row[0] == str(pid) and row[-1] != "-" for row in rows if len(row) == 3)


def _make_directory(path: Path) -> list[Path]:
    """Make a directory and its parents, if they are missing; return in which directories some were made."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [each.parent for each in missing]


def _fsync_directories(*directories: Path) -> None:
    """Let the names in directories survive a loss of power: a commit syncs the data of its file only.

    Before anything is in the store: whoever finds it made, finds it durable. One that may not be read (it may be
    entered) is left to its file system.
    """
    for directory in dict.fromkeys(directories):
        with suppress(PermissionError):
            number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def _make_lock_file(path: Path) -> None:
    """Make a new store's lock file with all its blocks, so that a full disk is met here, as an error.

    LMDB maps the file without having written it: the first use of a page for which there is no room would end the
    process (SIGBUS). Made apart and linked, since another process may be opening the store at this moment.
    """
    if path.exists():
        return
    temporary_path = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary_path.write_bytes(bytes((READERS_MAX + 2) * 64))  # As long as LMDB itself would make it.
        with suppress(OSError):  # Another was quicker; or there are no links here, and LMDB makes the file itself.
            os.link(temporary_path, path)
    finally:
        temporary_path.unlink(missing_ok=True)
