"""Lock watchdog: logs that writers of an embedded store wait for a process without progress, and that they go on.

A wait for LMDB's write lock has no limit and cannot be interrupted, so another thread must notice it. This thread
starts with the first wait, looks once a second, and ends after some seconds without a wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles
from fairlead.zones.engines.embedded.write_lock import STALL_US

log = logging.getLogger("fairlead.store")

_POLL_S: Final = STALL_US / 1_000_000
_IDLE_POLLS_MAX: Final = 10  # Starting the thread takes 50 µs, which is too long for each wait.


class LockWatchdog:
    """Watches the waits of this process for one store's write lock. At most one thread waits: the group's leader."""

    def __init__(self, files: LmdbFiles) -> None:
        """Watch nothing yet."""
        self._files = files
        self.reset()

    def reset(self) -> None:
        """Start over in a forked child, which does not have the parent's thread."""
        self._lock = threading.Lock()
        self._is_running = False
        self._wait_number = 0
        self._waiting = False

    @contextmanager
    def watched_wait(self) -> Iterator[None]:
        """Watch the wait that happens inside."""
        self._wait_number += 1
        try:
            self._waiting = True
            if not self._is_running:
                self._start()
            yield
        finally:
            self._waiting = False

    def _start(self) -> None:
        with self._lock:
            if self._is_running:
                return
            try:
                threading.Thread(target=self._run, name="lock watchdog", daemon=True).start()
            except RuntimeError as error:  # Too many threads, or the interpreter ends. The commit must not fail for it.
                log.info("waits of writers of %s are not watched: %s", self._files.path, error)
                return
            self._is_running = True

    def _run(self) -> None:
        pause = threading.Event()
        last_number = idle_polls = 0
        while idle_polls < _IDLE_POLLS_MAX or not self._may_end(last_number):
            pause.wait(_POLL_S)
            number = self._wait_number
            if self._waiting:
                self._follow(number, pause)
            idle_polls = idle_polls + 1 if number == last_number else 0
            last_number = number

    def _may_end(self, last_number: int) -> bool:
        with self._lock:
            # A wait that began meanwhile may have found the thread still running.
            self._is_running = self._wait_number != last_number
        return not self._is_running

    def _follow(self, number: int, pause: threading.Event) -> None:
        """Follow one wait to its end; log a warning if the lock's holder makes no progress."""
        store = self._files.path
        before = self._files.write_lock.lock_state()
        waited_s = 0.0
        warned = False
        while not pause.wait(_POLL_S) and self._waiting and self._wait_number == number:
            waited_s += _POLL_S
            lock = self._files.write_lock  # It may have changed: the wait may have opened the store.
            lock_state = lock.lock_state()
            if not warned and lock_state == before:
                warned = True
                stall = lock.stall_of(lock_state)
                log.warning(
                    "writers of %s have waited more than %.0f s for its write lock, held by %s. Do: %s",
                    store, waited_s, stall.holder, stall.remedy,
                )  # fmt: skip
            before = lock_state
        if warned:
            log.warning("writers of %s go on, after more than %.0f s", store, waited_s)
