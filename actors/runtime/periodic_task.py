"""Periodic task: work that an actor repeats beside its calls, from its first work to its stop."""

from collections.abc import Callable

from fairlead.actors.runtime.host import Host, Lock


class PeriodicTask:
    """Repeats `body`, with a pause of `pause_s` before each time. `lock`: the actor's; `body` is called without it."""

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
        """Start, unless it runs already. The caller holds the lock."""
        if not self._runs:
            self._runs = True
            self._host.spawn(self._name, self._run)

    def stop(self) -> None:
        """Stop: `body` is not called again. The caller holds the lock."""
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
