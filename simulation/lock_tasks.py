"""Tasks for the lock keeper of a simulated process; see `fairlead.workflows.lock_keeper.KeeperTasks`."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.simulation.host import SimulatedHost, SimulatedLock, SimulatedTask


class LockTasks:
    """Tasks of one simulated process."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    @property
    def incarnation(self) -> bytes:
        """See `KeeperTasks`."""
        return self._host.incarnation

    def lock(self) -> SimulatedLock:
        """See `KeeperTasks`."""
        return self._host.lock()

    def stop_signal(self) -> HostSignal:
        """See `KeeperTasks`."""
        return HostSignal(self._host)

    def start(self, name: str, body: Callable[[], None]) -> SimulatedTask:
        """See `KeeperTasks`."""
        return self._host.spawn(name, body)


class HostSignal:
    """A signal among the tasks of one process; see `fairlead.workflows.lock_keeper.StopSignal`."""

    def __init__(self, host: SimulatedHost) -> None:
        self._lock = host.lock()
        self._given = host.condition(self._lock)
        self._is_given = False

    def set(self) -> None:
        """See `StopSignal`."""
        self._is_given = True
        self._given.notify_all()

    def wait(self, timeout: float) -> bool:
        """See `StopSignal`."""
        with self._lock:
            if not self._is_given:
                self._given.wait(timeout)
        return self._is_given
