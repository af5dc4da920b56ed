"""The name of a process, unique among all machines, and whether the process has ended.

A name consists of the machine's boot id, the process namespace, the process id, and the start time of the process. Only
processes with the same boot id and namespace can see whether it still runs, by Linux's `/proc`. On other systems it is
unknown. Decision 049 says why psutil cannot answer this.
"""

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_DEAD = frozenset("ZX")  # A zombie, or being reaped by its parent.


def this_incarnation() -> bytes | None:
    """Return the name of this process; None if this system does not have the parts of a name."""
    try:
        return b" ".join([*_boot_and_namespace(), str(os.getpid()).encode(), _stat(os.getpid())[1].encode()])
    except OSError:
        return None


def has_ended(incarnation: bytes) -> bool:
    """Return whether the process of this name has certainly ended; False also if that is unknown."""
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
    """Return the boot id and the process namespace of this process."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_bytes().strip()
    return [boot, str((_PROC / "self/ns/pid").stat().st_ino).encode()]


def _stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and its start time in clock ticks."""
    # Bytes: the name in parentheses is cut at 15 bytes, perhaps within a letter.
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    return fields[0], fields[19]
