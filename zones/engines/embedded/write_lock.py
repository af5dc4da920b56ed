"""Which process holds an embedded store's write lock, and whether this process makes progress.

One process at a time writes. A process that is stopped in the middle of a commit (SIGSTOP, a debugger, a frozen
container) blocks all others until it continues or dies. If it dies, LMDB passes the lock on. LMDB's lock file shows the
holder: the lock is a robust mutex, and the kernel needs the id of the holding thread there (`set_robust_list`(2)).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from fairlead.zones.engines.api.clock import Clock

# The head of LMDB 0.9's lock file, with glibc's mutexes on x86-64. On other systems the holder is unknown.
_LAYOUT_KNOWN: Final = sys.platform == "linux" and platform.machine() == "x86_64"
_HEAD_BYTES: Final = 128
_LAST_TRANSACTION: Final = struct.Struct("<48xQ")
_MUTEX: Final = struct.Struct("<64xI")
_MUTEX_WORD: Final = slice(64, 68)
_FREE: Final = bytes(4)
_USE_BYTE: Final = 0  # Each process that uses the store holds a shared lock of it. Byte N belongs to process N.
_HAS_OFD_LOCKS: Final = sys.platform == "linux" and sys.maxsize > 1 << 32
_USE_LOCK: Final = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, _USE_BYTE, 1, 0)  # A `struct flock`.
_THREAD_ID: Final = 0x3FFFFFFF  # The other bits mean that others wait, or that the holder died.

STALL_US: Final = 1_000_000  # A commit takes milliseconds; on a busy disk some hundred.
_POLL_US: Final = 5_000

_STOPPED: Final = ("stopped", "tracing stop")


class LockState(NamedTuple):
    """The lock at one instant: the thread that holds it (0: none), and the last commit. Equal states: no progress."""

    thread_id: int
    last_transaction: int


class Stall(NamedTuple):
    """A process blocks all writers. Nothing is lost: they go on when the lock is free.

    Attributes:
      path: the store's directory.
      pid: the process that holds the write lock; None if unknown here.
      state: its state in the kernel's terms: "stopped", "running", "disk sleep", ...; empty if unknown.
      command: its command line, cut; empty if unknown.
    """

    path: str
    pid: int | None
    state: str
    command: str

    @property
    def holder(self) -> str:
        """The holding process, for messages."""
        if self.pid is None:
            return "an unknown process"
        return f"process {self.pid} ({self.state}; {self.command})"

    @property
    def remedy(self) -> str:
        """What an operator can do."""
        if self.pid is None:
            return (
                f"`fuser {self.path}/lock.mdb` lists the processes of its container that use the store. Find the one "
                "that is stopped; `kill -CONT` lets it go on, `kill -KILL` frees the lock. Nothing that was "
                "acknowledged is lost."
            )
        kill = f"`kill -KILL {self.pid}` frees the lock. Nothing that was acknowledged is lost."
        if self.state in _STOPPED:
            return f"`kill -CONT {self.pid}` lets it go on, {kill}"
        return f"It is not stopped: check whether its disk answers. {kill}"


class WriteLock:
    """Observes the write lock of a store that this process has open. It never takes the write lock itself.

    The lock file stays open and mapped for as long as the environment is open. LMDB's processes detect each other by
    fcntl locks, and a process loses all of these when it closes any descriptor of that file. A program may do so by
    copying the store's folder: see `hold_use_lock` and `retake_locks`.
    """

    def __init__(self, store: Path) -> None:
        """Map the lock file, before the environment is opened. A file that LMDB has not filled yet is not observed."""
        self._store = store
        self._file = store / "lock.mdb"
        self._head: mmap.mmap | bytes = b""
        self._pid = os.getpid()
        self._holds_use_lock = False
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
        with suppress(ValueError):
            self._head = mmap.mmap(self._descriptor, _HEAD_BYTES, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Close the file. Only after the environment is closed."""
        self._head = b""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._holds_use_lock = False

    def hold_use_lock(self) -> None:
        """Lock the use byte a second time, by a lock of this open file that no other close releases.

        Only after the environment is opened: LMDB would mistake this lock for another process. Where the system has no
        such locks, `retake_use_lock` takes LMDB's own lock again.
        """
        if _HAS_OFD_LOCKS:
            with suppress(OSError):
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _USE_LOCK)
                self._holds_use_lock = True

    def retake_use_lock(self) -> None:
        """Take the use lock again, unless `hold_use_lock` holds it for good.

        Without this lock, a process that opens the store would consider it unused and reset the lock file.
        """
        if not self._holds_use_lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _USE_BYTE)

    def retake_locks(self) -> None:
        """Take LMDB's locks again that show that this process lives and uses the store.

        Without them, other processes would free this process's readers and overwrite the pages that they read. One
        system call of some microseconds, so only before reads.

        Raises:
          OSError: a process with the same process id, in another container, has the store open (EAGAIN).
        """
        self.retake_use_lock()
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._pid)

    def is_free(self) -> bool:
        """Return whether the lock is free now; False also if that is unknown. Costs a tenth of a microsecond."""
        return _LAYOUT_KNOWN and self._head[_MUTEX_WORD] == _FREE

    def lock_state(self) -> LockState | None:
        """Return the state of the lock; None if it is unknown."""
        head = self._head[:_HEAD_BYTES]
        if not _LAYOUT_KNOWN or not head:
            return None
        return LockState(_MUTEX.unpack_from(head)[0] & _THREAD_ID, _LAST_TRANSACTION.unpack_from(head)[0])

    def find_stall(self, clock: Clock) -> Stall | None:
        """Return the process that has held the lock for `STALL_US` without a commit; None if there is none.

        Returns at once if the lock is free, and otherwise as soon as there is progress.
        """
        first = self.lock_state()
        if first is None or not first.thread_id:
            return None
        for _ in range(STALL_US // _POLL_US):  # Sleeps are counted, because the clock may be set back.
            clock.sleep_us(_POLL_US)
            if self.lock_state() != first:
                return None
        return self.stall_of(first)

    def stall_of(self, lock_state: LockState | None) -> Stall:
        """Return what is known about the holder of a lock state.

        The thread id belongs to the holder's process namespace. In this namespace it may belong to another process: one
        that has not mapped the lock file, or this process, which cannot wait for itself.
        """
        unknown = Stall(str(self._store), None, "", "")
        if lock_state is None:
            return unknown
        thread = Path(f"/proc/{lock_state.thread_id}")
        try:
            if not _has_mapped(thread, self._file):
                return unknown
            lines = (thread / "status").read_text(errors="replace").splitlines()
            command = (thread / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # It has ended, or belongs to another user.
            return unknown
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if int(status["Tgid"]) == os.getpid():
            return unknown
        state = status["State"].partition("(")[2].removesuffix(")")
        return Stall(str(self._store), int(status["Tgid"]), state, command[:80])


def _has_mapped(process: Path, file: Path) -> bool:
    inode = str(file.stat().st_ino)
    lines = (process / "maps").read_text(errors="replace").splitlines()
    return any(line.split(maxsplit=5)[4] == inode for line in lines)
