"""The disk beside a load: a process that makes a page durable again and again, and how long each flush took.

A commit waits for a flush. So no store can answer a write sooner than the disk flushes a page at that moment.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import SPAWN
from bench.machine import PAGE_BYTES

PAUSE_S = 0.01  # Between two flushes: a hundredth of the flushes of a store with two clients that write all the time.


class Flush(NamedTuple):
    """One flush: when it began, in seconds since the epoch, and how long it took."""

    began_s: float
    took_ms: float


@contextmanager
def watched(directory: Path) -> Iterator[list[Flush]]:
    """Flush a page to a file in `directory` all the time meanwhile. The list has all at the end, at least one."""
    flushes: list[Flush] = []
    ready, stop, answer = SPAWN.Event(), SPAWN.Event(), SPAWN.Queue()
    process = SPAWN.Process(target=_flush_until, args=(directory / "flushes", ready, stop, answer))
    process.start()
    try:
        ready.wait()
        yield flushes
    finally:
        stop.set()
        flushes += answer.get()
        process.join()


def _flush_until(path: Path, ready: Any, stop: Any, answer: Any) -> None:
    flushes: list[Flush] = []
    with path.open("wb", buffering=0) as file:
        file.write(bytes(PAGE_BYTES))
        ready.set()
        while not (flushes and stop.is_set()):
            began_s, at_s = time.time(), time.perf_counter()
            os.pwrite(file.fileno(), os.urandom(PAGE_BYTES), 0)
            os.fdatasync(file.fileno())
            flushes.append(Flush(began_s, (time.perf_counter() - at_s) * 1000))
            time.sleep(PAUSE_S)
    path.unlink()
    answer.put(flushes)
