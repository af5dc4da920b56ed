"""Rounds: something that is done now and then beside an actor's calls, from its first work to its stop."""

from collections.abc import Callable

from fairlead.actors.runtime.host import Host, Lock


class PeriodicTask:
    """Does `body` again and again, `pause_s` before each time. `lock`: the actor's; `body` is called without it."""

    def __init__(self, host: Host, name: str, lock: Lock, body: Callable[[], None], *, pause_s: float) -> None:
        self._host = host
        self._name = name
        self._lock = lock
        self._body = body
        self._pause_s = pause_s
        self._pause = host.condition(lock)
        self._runs = False
        self._stopping = False

    def begin(self) -> None:
        """Go round from now on, if it does not yet. The lock is held."""
        if not self._runs:
            self._runs = True
            self._host.spawn(self._name, self._run)

    def stop(self) -> None:
        """Begin no round any more. The lock is held."""
        self._stopping = True
        self._pause.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._stopping:
                    self._pause.wait(self._pause_s)
                if self._stopping:
                    return
            self._body()
