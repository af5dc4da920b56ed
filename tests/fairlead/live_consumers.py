"""Real consumers, by the machine's own time, and items that are asked why they do not run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead import App, Cause, Explanation, Job, fleet

PATIENCE_S = 30.0
HELD_MAX = 4  # By a worker of two slots whose handlers do not end: they, and as many in reserve.


def until(wanted: Cause, look: Callable[[], Explanation]) -> Explanation:
    """Wait until an item is explained in this way."""
    end = time.monotonic() + PATIENCE_S
    while (said := look()).cause is not wanted:
        assert time.monotonic() < end, said
        time.sleep(0.01)
    return said


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


@contextmanager
def consumer(app: App) -> Iterator[None]:
    """A consumer in threads of this process."""
    running = fleet.start(app, "tests:app", runtime="threads")
    try:
        yield
    finally:
        running.stop(drain=0.1)


class Gate:
    """A handler that waits until it is let through."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, job: Job) -> None:
        while not self.opened.wait(0.01) and not job.cancelled:
            pass
