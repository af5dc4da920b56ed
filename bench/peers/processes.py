"""The processes below this one: their CPU time, and their certain end.

Workers and servers start children, and some of these outlive their parents. This process adopts orphans below it (a
"child subreaper", prctl(2)), so the tree below it is complete. The measure of idle CPU and the end of a round reach all
processes of the round.
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
    """Return the CPU seconds of each of `pids` so far, without those that have ended."""
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
    """Send SIGKILL to each process that still runs."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def end_all_below() -> None:
    """Kill all processes below this one, and wait for their end. No other code may wait for them."""
    until_s = time.monotonic() + END_S_MAX
    while time.monotonic() < until_s:
        # Python's resource tracker ends with this process. If killed before, it prints a warning and is started again.
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
    except ChildProcessError:  # Its parent still lives, or has waited for it.
        return


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
