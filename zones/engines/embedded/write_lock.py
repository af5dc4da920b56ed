"""Who holds an embedded store's write lock, and whether that gets anywhere.

One process at a time writes, so one that is stopped (SIGSTOP, a debugger, a frozen container) in the middle of a commit
holds up all others until it goes on or dies; if it dies, LMDB passes the lock on. LMDB's lock file tells who it is: the
lock is a robust mutex, and the kernel wants the id of the thread that holds it there (`set_robust_list`(2)).
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

# The head of LMDB 0.9's lock file with glibc's mutexes on x86-64. Elsewhere nobody can tell who holds the lock.
_LAYOUT_KNOWN: Final = sys.platform == "linux" and platform.machine() == "x86_64"
_HEAD_BYTES: Final = 128
_LAST_TRANSACTION: Final = struct.Struct("<48xQ")
_MUTEX: Final = struct.Struct("<64xI")
_MUTEX_WORD: Final = slice(64, 68)
_FREE: Final = bytes(4)
_USE_BYTE: Final = 0  # The byte that each process on the store has locked, shared; byte N is process N's own.
_HAS_OFD_LOCKS: Final = sys.platform == "linux" and sys.maxsize > 1 << 32
_USE_LOCK: Final = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, _USE_BYTE, 1, 0)  # A `flock` of theirs.
_THREAD_ID: Final = 0x3FFFFFFF  # The other bits say that others wait, or that the holder died.

STALL_US: Final = 1_000_000  # A commit takes milliseconds, and some hundred on a disk that is busy.
_POLL_US: Final = 5_000

_STOPPED: Final = ("stopped", "tracing stop")


class LockState(NamedTuple):
    """The lock at one instant: the thread that has it (0: none), and the last commit. Equal later: no progress."""

    thread_id: int
    last_transaction: int


class Stall(NamedTuple):
    """Nobody can write for now. Nothing is lost by it: who waits goes on when the lock is free.

    Attributes:
      path: the store's directory.
      pid: the process that holds the write lock; None if that cannot be told from here.
      state: the kernel's word for what it does: "stopped", "running", "disk sleep", ...; empty if unknown.
      command: its command line, cut; empty if unknown.
    """

    path: str
    pid: int | None
    state: str
    command: str

    @property
    def who(self) -> str:
        """The holder, in a few words."""
        if self.pid is None:
            return "a process that cannot be told from here"
        return f"process {self.pid} ({self.state}; {self.command})"

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.pid is None:
            return (
                f"`fuser {self.path}/lock.mdb` lists the processes on the store, those of the container that it runs "
                "in: find the one that is stopped; `kill -CONT` lets it go on, `kill -KILL` frees the lock. Nothing "
                "that was acknowledged is lost."
            )
        kill = f"`kill -KILL {self.pid}` frees the lock. Nothing that was acknowledged is lost."
        if self.state in _STOPPED:
            return f"`kill -CONT {self.pid}` lets it go on, {kill}"
        return f"It is not stopped: see whether its disk answers. {kill}"


class WriteLock:
    """The write lock of a store that this process has open, to look at. Takes no lock itself.

    The lock file stays mapped, and its file open, for as long as the environment is: fcntl's locks, by which LMDB's
    processes know of each other, go when the process closes any file of that name. A program may do so all the same,
    by copying the store's folder: see `hold_use_lock` and `retake_locks`.
    """

    def __init__(self, store: Path) -> None:
        """Map the lock file, before the environment is opened. One that LMDB is still to fill is not looked at."""
        self._store = store
        self._file = store / "lock.mdb"
        self._head: mmap.mmap | bytes = b""
        self._pid = os.getpid()
        self._holds_use_lock = False
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
        with suppress(ValueError):
            self._head = mmap.mmap(self._descriptor, _HEAD_BYTES, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Give the file back. After the environment is closed."""
        self._head = b""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._holds_use_lock = False

    def hold_use_lock(self) -> None:
        """Lock the byte that says that the store is in use once more, by a lock that goes with this very file only.

        After the environment is opened: LMDB looks for others on the store then, and would take this lock for one.
        Where the system has no such locks, `retake_use_lock` takes LMDB's own anew.
        """
        if _HAS_OFD_LOCKS:
            with suppress(OSError):
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _USE_LOCK)
                self._holds_use_lock = True

    def retake_use_lock(self) -> None:
        """Take the lock anew that tells others that this process uses the store, unless it is held for good.

        Where it was lost, who opens the store would take it for unused, and make the lock file anew.
        """
        if not self._holds_use_lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _USE_BYTE)

    def retake_locks(self) -> None:
        """Take the locks anew that tell others that this process lives and uses the store, as LMDB takes them.

        Where they were lost, others would free this process's readers, and write over the pages that they read. A call
        of the system, some microseconds; so before reads only.

        Raises:
          OSError: a process with this one's number, in another container, has the store open (EAGAIN).
        """
        self.retake_use_lock()
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._pid)

    def is_free(self) -> bool:
        """Whether nobody holds it now; False where that cannot be told. Costs a tenth of a microsecond."""
        return _LAYOUT_KNOWN and self._head[_MUTEX_WORD] == _FREE

    def lock_state(self) -> LockState | None:
        """Return who holds it; None if that cannot be told."""
        head = self._head[:_HEAD_BYTES]
        if not _LAYOUT_KNOWN or not head:
            return None
        return LockState(_MUTEX.unpack_from(head)[0] & _THREAD_ID, _LAST_TRANSACTION.unpack_from(head)[0])

    def find_stall(self, clock: Clock) -> Stall | None:
        """Return who has held it for `STALL_US` on end, without a commit; None if nobody has.

        At once if it is free, and as soon as there is progress otherwise: only a stall takes its time.
        """
        first = self.lock_state()
        if first is None or not first.thread_id:
            return None
        for _ in range(STALL_US // _POLL_US):  # What was slept is counted: the clock may be set back meanwhile.
            clock.sleep_us(_POLL_US)
            if self.lock_state() != first:
                return None
        return self.stall_of(first)

    def stall_of(self, lock_state: LockState | None) -> Stall:
        """Return what is known of a holder.

        The number of its thread counts in its own namespace of processes. Here it may be another's: of one that has
        not mapped the lock file, or of this process, which cannot be waiting for itself.
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
        except OSError:  # It has ended, or is another user's.
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
