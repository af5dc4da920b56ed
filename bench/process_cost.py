"""The cost of a process: CPU time, its own memory, and mapped pages."""

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (10^6 bytes).

    `mapped_mb`: resident pages of files, also the store's; the system can drop these pages.
    `anon_mb`: memory that the process allocated. Only the end of the process frees it for certain.
    """

    anon_mb: float
    mapped_mb: float


def memory(pid: int) -> Memory:
    """Return the memory of a process. Raises `psutil.NoSuchProcess` if the process has ended."""
    found = psutil.Process(pid).memory_info()
    return Memory(anon_mb=(found.rss - found.shared) / 1e6, mapped_mb=found.shared / 1e6)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process since its start: all threads, user and system."""
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system
