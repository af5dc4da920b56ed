"""What a process costs: CPU time, memory of its own, and pages it maps. Read from Linux's /proc."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_FIELD = re.compile(r"^(RssAnon|RssFile):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (10^6 bytes). `mapped_mb`: resident pages of files, the store's among them; the system can drop them.

    `anon_mb`: what the process allocated for itself; nothing but its end gives it back for certain.
    """

    anon_mb: float
    mapped_mb: float


def memory(pid: int) -> Memory:
    """Return what a process holds in memory now. `FileNotFoundError`: it has ended."""
    found = {name: int(kilobytes) * 1024 / 1e6 for name, kilobytes in _FIELD.findall(_read(pid, "status"))}
    return Memory(anon_mb=found["RssAnon"], mapped_mb=found["RssFile"])


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used since its start, all threads, user and system."""
    after_name = _read(pid, "stat").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()
