"""The interface between an actor's decisions and the environment that it runs in.

The classes in scanner.py, manager.py, worker.py and coordinator.py are plain. Threads, time, calls of other actors and
counters come from a `Host`. Ray and threads share `thread_host.ThreadHost`: threads inside a process, and handles that
Ray or the process supplies. The simulator has a host of greenlets and virtual time.
"""

import logging
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Protocol

from fairlead.actors.runtime.supervisor import Supervisor
from fairlead.actors.telemetry.telemetry import Telemetry
from fairlead.zones.engines import Clock
from fairlead.zones.errors import QueueError


class ActorDied(QueueError):
    """A call went to an actor that is dead or being restarted; whether it was carried out is unknown.

    Do: assume nothing about the effect of the call, and call again later. The store holds all truth.
    """

    message = "the actor called is dead or being restarted"


class Lock(Protocol):
    """A lock, as `threading.Lock`."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class Condition(Protocol):
    """A condition variable, as `threading.Condition`. Callers of its methods hold its lock."""

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification or `timeout` seconds, take the lock; False after a timeout."""
        ...

    def notify(self, n: int = 1) -> None:
        """Wake up to `n` waiting tasks."""
        ...

    def notify_all(self) -> None:
        """Wake all waiting tasks."""
        ...


class Task(Protocol):
    """Something that runs beside its spawner."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, `timeout` seconds at most."""
        ...

    def is_alive(self) -> bool:
        """Return whether it still runs."""
        ...


class Host(Protocol):
    """The environment of one actor."""

    @property
    def clock(self) -> Clock:
        """The time."""
        ...

    @property
    def random(self) -> Random:
        """Randomness."""
        ...

    @property
    def telemetry(self) -> Telemetry:
        """The counters of this actor, and the spans of its process."""
        ...

    def lock(self) -> Lock:
        """Return a new lock."""
        ...

    def condition(self, lock: Lock) -> Condition:
        """Return a new condition variable around `lock`; several may share one. A wait counts as progress."""
        ...

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of this actor's tasks."""
        ...

    def spawn(self, name: str, body: Callable[[], None], stalled: Callable[[], None] | None = None) -> Task:
        """Run `body` beside the caller, under the actor's supervisor: an error fails the actor.

        `stalled`: called if it stalls; None: a stall fails the actor, too.
        """
        ...

    @property
    def incarnation(self) -> bytes:
        """The name of this incarnation of the actor. No other incarnation of any actor has it."""
        ...

    def has_ended(self, incarnation: bytes) -> bool:
        """Return whether another incarnation has certainly ended; False also if that is unknown here."""
        ...

    def recycle(self, reason: str) -> None:
        """Restart this actor's process, if it has one of its own. Its items are returned, or their leases expire."""
        ...


class Remote(Protocol):
    """Another actor, called by message. Arguments and results are data."""

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """Send a call without waiting for anything; the caller may hold a lock.

        `done(result, error)` runs later on another thread. It may take a lock, record the result and notify, and no
        more.

        `error` is `ActorDied`, or what the method raised.
        """
        ...


def note_failed_call(log: logging.Logger, actor: str, error: Exception) -> None:
    """Log a failed call: at info level if the actor died, which is ordinary; else with a traceback."""
    if isinstance(error, ActorDied):
        log.info("%s did not answer: %s", actor, error)
    else:
        log.error("%s failed", actor, exc_info=error)
