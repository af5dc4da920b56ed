"""The processes below this one: what they cost, and their certain end.

Workers start children, servers too, and some of them leave their parents. This process adopts what is orphaned below it
(a "child subreaper", prctl(2)), so the tree below it is complete: nothing that a turn started is missed, by the
measure of idle CPU as little as by the end of the turn.
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from bench.process_cost import cpu_s

PR_SET_CHILD_SUBREAPER = 36
END_S_MAX = 10.0


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def below(pid: int) -> list[int]:
    """Return every process below `pid`, parents before their children; none if `pid` has ended."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True) if _runs(child)]
    except psutil.NoSuchProcess:
        return []


def spent_s(pids: Iterable[int]) -> dict[int, float]:
    """Return the CPU seconds that each of `pids` has used so far; one that has ended is left out."""
    spent: dict[int, float] = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            spent[pid] = cpu_s(pid)
    return spent


def name(pid: int) -> str:
    """Return the command line of a process, empty if it has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return ""


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each that still runs."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def end_all_below() -> None:
    """Kill whatever runs below this process, and collect it. Nobody else may be waiting for it."""
    until_s = time.monotonic() + END_S_MAX
    while time.monotonic() < until_s:
        # Python's own tracker of semaphores ends with this process; killed before, it complains and is started again.
        left = [pid for pid in below(os.getpid()) if "multiprocessing.resource_tracker" not in name(pid)]
        if not left:
            return
        kill(left)
        for pid in left:
            _collect(pid)
        time.sleep(0.01)


def _collect(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # Its parent still lives, or did this.
        return


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
