"""Threads for the lock keeper: what it needs of a process (`fairlead.workflows.lock_keeper`)."""

import threading
from collections.abc import Callable

from fairlead.actors.runtime import process_identity
from fairlead.zones.process_lock import ProcessLock


class LockThreads:
    """See `fairlead.workflows.lock_keeper.KeeperTasks`."""

    @property
    def incarnation(self) -> bytes | None:
        """See `KeeperTasks`."""
        return process_identity.this_incarnation()

    def lock(self) -> ProcessLock:
        """See `KeeperTasks`. In a forked child it is free."""
        return ProcessLock()

    def stop_signal(self) -> threading.Event:
        """See `KeeperTasks`."""
        return threading.Event()

    def start(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """See `KeeperTasks`."""
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread
