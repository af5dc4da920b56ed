"""One LMDB environment: opening, growing, forking, closing, and errors with their remedy.

LMDB has three rules. A process opens a file once. A map that another process has grown must be adopted before anything
else works. A child must not use an environment of its parent. A growth or a fork ends open transactions, and reads
through them raise 1007.
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
MAP_BYTES: Final = 64 << 30  # Address space, not disk: the file grows with its content. So the map rarely has to grow.
READERS_MAX: Final = 4_096  # Open read transactions of all processes together; 64 bytes each in the lock file.

READS_WAIT_S: Final = 1.0  # A read of a whole range takes tenths of a second.
_READS_POLL_S: Final = 0.001


def end_broken(txn: lmdb.Transaction[bytes]) -> None:
    """End a write transaction if LMDB has marked it as broken, by an error such as a full map.

    py-lmdb's `abort` waits until no other thread is in a call of LMDB; with busy readers this never happens. `commit`
    aborts a broken transaction without this wait. A transaction that is not broken is aborted without a wait when its
    last reference goes.
    """
    try:
        txn.get(b"\x00")
    except lmdb.BadTxnError:
        with suppress(lmdb.BadTxnError):
            txn.commit()
    except lmdb.Error:
        pass  # It has ended: its commit failed.


class LmdbFiles:
    """An environment. It stores users' keys and values as they are; for all other keys see `reserved_keys`."""

    def __init__(self, path: Path, *, first_version: int) -> None:
        """Open the environment, and create it if it is missing. A new log starts at `first_version`."""
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
        with ExitStack() as refused:  # Closes the files on an error, although its traceback refers to them.
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
        self._preallocated_end = 0  # There are no holes before this offset.

    def is_current(self) -> bool:
        """Return whether the path still leads to the open files; False if they were deleted or replaced."""
        return self._file_identity() == self._identity

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            return _identity_of(os.stat(self._data_path))  # noqa: PTH116 - before each commit, at half the cost
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
                "A FUSE file system counts as remote unless it is known as local.",
                path=str(self.path),
                filesystem=kind,
            )

    def _is_of_this_format(self, env: lmdb.Environment) -> bool:
        """Return whether the environment holds a store; False if it is empty. Raises for anything else."""
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
        """Make an empty environment a store, in one transaction, so that no process sees half of it."""
        with env.begin(write=True) as txn:
            if txn.put(FORMAT_KEY, str(FORMAT).encode(), overwrite=False):
                start_log(txn, self._first_version)

    def close(self) -> None:
        """Close the environment for good."""
        with self._lock:
            self._closed = True
            self._close_env()

    def close_inherited(self) -> None:
        """Close the copy that a fork left in the child. The next transaction opens the environment again.

        Only after the parent has ended its read transactions: the child would end the parent's readers.
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
        """Begin a read transaction. Waits while reads are held back."""
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
          StoreUnavailable: the store's files were deleted or replaced, so no other process would see the commit.
        """
        txn: lmdb.Transaction[bytes] = self._begin(self._begin_write)
        if not self.is_current():
            del txn  # Releases the write lock, although the error's traceback refers to this frame.
            raise StoreUnavailable(
                "the store was deleted or replaced",
                remedy="Restart this program to use the store that is at the path now. Its earlier commits are in the "
                "deleted or moved files; this commit was not made.",
                path=str(self.path),
            )
        self._preallocate()
        return txn

    def last_transaction(self) -> int:
        """Return the number of the last write transaction, of any process, that a read sees now."""
        # Not from `info()`, which reads the root on disk: the root changes a moment before readers see the change. A
        # caller would notice the change, read the state before it, and not look again.
        txn = self.begin_read()
        number = int(txn.id())
        txn.abort()
        return number

    def grow(self) -> None:
        """Double the map, which is full. Ends this process's transactions."""
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
        """Open the environment again after LMDB has refused it (a failed write of its root)."""
        with self._lock:
            self._close_env()
            self._usable_env()

    def clear_dead_readers(self) -> None:
        """Free the reader slots of dead processes, and so the pages that they pin."""
        self._usable_env().reader_check()

    def hold_reads(self) -> bool:
        """Let no read begin until `resume_reads`. Returns False, and does nothing, if a beginning read hangs.

        After a fork in the middle of a call of LMDB, the child would wait for this call for ever when it closes its
        copy.
        """
        return self._lock.acquire(timeout=READS_WAIT_S)

    def resume_reads(self) -> None:
        """Let reads begin again. Only on the thread that held them back."""
        self._lock.release()

    def await_reads(self) -> None:
        """Wait until no thread of this process reads. Otherwise the child of a fork would end its parent's reads.

        Only while reads are held back and all snapshots are closed. Takes milliseconds, at most `READS_WAIT_S`.
        """
        pause = threading.Event()
        for _ in range(int(READS_WAIT_S / _READS_POLL_S)):
            if self._env is None or not _reads_of(os.getpid(), self._env.readers()):
                return
            pause.wait(_READS_POLL_S)

    def has_panicked(self) -> bool:
        """Return whether LMDB refuses this environment because it failed to write its root."""
        try:
            if self._env is not None:
                self._env.begin().abort()
        except lmdb.PanicError:
            return True
        except lmdb.Error:
            return False
        return False

    def unavailable(self, error: Exception) -> StoreUnavailable:
        """Return the store's error for an error of LMDB or the system, with its remedy."""
        return unavailable_error(error, self.path, map_bytes=self._map_bytes)

    def _preallocate(self) -> None:
        """Fill the holes that commits of any process have left. Within a write transaction."""
        env = self._env or self._usable_env()
        end = (env.info()["last_pgno"] + 1) * self._page_bytes
        if end <= self._preallocated_end:
            return
        # The disk may be full, and the commit may still fit. If it does not fit, it raises the error.
        with suppress(OSError), (self.path / "data.mdb").open("r+b", buffering=0) as file:
            if _identity_of(os.fstat(file.fileno())) == self._identity:  # else the file was replaced
                preallocate(file.fileno(), self._preallocated_end, end)
                self._preallocated_end = end

    def _begin(self, begin: Callable[[lmdb.Environment], _T]) -> _T:
        for _ in range(8):  # Each cause below is temporary; eight in a row are an error.
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
                self._usable_env()  # Raises if the store was closed meanwhile.
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
    """Return how many transactions a process has open in LMDB's table of lines `process thread number-or-dash`."""
    rows = [line.split() for line in readers.splitlines()]
    return sum(row[0] == str(pid) and row[-1] != "-" for row in rows if len(row) == 3)


def _make_directory(path: Path) -> list[Path]:
    """Create a directory and its parents, if they are missing; return the directories that got new entries."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [each.parent for each in missing]


def _fsync_directories(*directories: Path) -> None:
    """Make the entries of directories durable. A commit syncs only the data of its file.

    Before anything is in the store, so that an existing store is a durable one. A directory that this user may enter
    but not read is skipped.
    """
    for directory in dict.fromkeys(directories):
        with suppress(PermissionError):
            number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def _make_lock_file(path: Path) -> None:
    """Create a new store's lock file with all its blocks, so that a full disk raises an error here.

    LMDB maps the file without writing it: the first use of a page without a block would end the process (SIGBUS). The
    file is written under another name and linked, because another process may open the store at the same time.
    """
    if path.exists():
        return
    temporary_path = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary_path.write_bytes(bytes((READERS_MAX + 2) * 64))  # As long as LMDB itself would make it.
        with suppress(OSError):  # Another process was first; or there are no links here, and LMDB creates the file.
            os.link(temporary_path, path)
    finally:
        temporary_path.unlink(missing_ok=True)
