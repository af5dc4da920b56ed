"""What a process costs: CPU time, memory of its own, and pages it maps."""

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (10^6 bytes).

    `mapped_mb`: resident pages of files, the store's among them; the system can drop them.
    `anon_mb`: memory that the process allocated for itself. Only the end of the process returns it for certain.
    """

    anon_mb: float
    mapped_mb: float


def memory(pid: int) -> Memory:
    """Return what a process holds in memory now. `psutil.NoSuchProcess`: it has ended."""
    found = psutil.Process(pid).memory_info()
    return Memory(anon_mb=(found.rss - found.shared) / 1e6, mapped_mb=found.shared / 1e6)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used since its start, all threads, user and system."""
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system
