"""Real consumers, with the machine's clock, and waits for an item's explanation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead import App, Cause, Explanation, Job, fleet

PATIENCE_S = 30.0
HELD_MAX = 4  # The items that a worker of two slots holds while its handlers do not end: two running, two prefetched.


def until(wanted: Cause, look: Callable[[], Explanation]) -> Explanation:
    """Wait until an item has this cause."""
    end = time.monotonic() + PATIENCE_S
    while (said := look()).cause is not wanted:
        assert time.monotonic() < end, said
        time.sleep(0.01)
    return said


def eventually(what: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
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
    """A handler that waits for an event."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, job: Job) -> None:
        while not self.opened.wait(0.01) and not job.cancelled:
            pass
