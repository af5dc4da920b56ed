"""The life of a process: a name that no other process of any machine bears, and whether it has ended.

A name is the machine's boot, the process namespace, the process id, and when the process started. Only who shares the
first two can see whether it still runs; Linux tells (`/proc`), and elsewhere nobody knows.
"""

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_DEAD = frozenset("ZX")  # Its parent has not looked yet, or is looking.


def this_incarnation() -> bytes | None:
    """Return the name of this process's life; None where the system does not tell what it takes."""
    try:
        return b" ".join([*_boot_and_namespace(), str(os.getpid()).encode(), _stat(os.getpid())[1].encode()])
    except OSError:
        return None


def has_ended(incarnation: bytes) -> bool:
    """Say whether that life has certainly ended; False also where nobody can tell."""
    parts = incarnation.split(b" ")
    try:
        if len(parts) != 4 or parts[:2] != _boot_and_namespace():
            return False
        state, started = _stat(int(parts[2]))
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return state in _DEAD or started.encode() != parts[3]


@cache
def _boot_and_namespace() -> list[bytes]:
    """Return which boot of which machine, and which process namespace there, this process is of."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_bytes().strip()
    return [boot, str((_PROC / "self/ns/pid").stat().st_ino).encode()]


def _stat(pid: int) -> tuple[str, str]:
    """Return a process's state, and when it started."""
    # Bytes: the name of a process, in parentheses, is cut at 15 bytes, perhaps within a letter.
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    return fields[0], fields[19]
