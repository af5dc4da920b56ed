"""The seam between an actor's decisions and where it lives.

The classes in scanner.py, manager.py, worker.py and coordinator.py are plain: what runs beside what, how time
passes, how another actor is called and where they count what they do comes from a `Host`. Ray and threads share one,
`thread_host.ThreadHost`: threads inside a process, and handles that Ray or the process supplies. The simulator brings
greenlets and virtual time.
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

    Do: count on nothing the call was to do, and call again later; all truth is in the store.
    """

    message = "the actor called is dead or being restarted"


class Lock(Protocol):
    """A lock, as `threading.Lock`."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class Condition(Protocol):
    """A condition variable, as `threading.Condition`; its lock is taken by who calls its methods."""

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock, wait for a notification or `timeout` seconds, take it again; False if time ran out."""
        ...

    def notify(self, n: int = 1) -> None:
        """Wake up to `n` that wait."""
        ...

    def notify_all(self) -> None:
        """Wake all that wait."""
        ...


class Task(Protocol):
    """Something that runs beside its spawner."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, `timeout` seconds at most."""
        ...

    def is_alive(self) -> bool:
        """Say whether it still runs."""
        ...


class Host(Protocol):
    """Where the code of one actor lives."""

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
        """What this actor counts, and the spans of its process."""
        ...

    def lock(self) -> Lock:
        """Return a new lock."""
        ...

    def condition(self, lock: Lock) -> Condition:
        """Return a new condition variable around `lock`; several may share one. To wait counts as progress."""
        ...

    @property
    def supervisor(self) -> Supervisor:
        """Who watches the tasks of this actor."""
        ...

    def spawn(self, name: str, body: Callable[[], None], stalled: Callable[[], None] | None = None) -> Task:
        """Run `body` beside the caller, under the actor's supervisor: what it raises fails the actor.

        `stalled`: called if it stands still; None: that fails the actor, too.
        """
        ...

    @property
    def incarnation(self) -> bytes:
        """The name of this life of this actor's process; no other life, of any actor, bears it."""
        ...

    def has_ended(self, incarnation: bytes) -> bool:
        """Say whether another life has certainly ended; False also where that cannot be seen from here."""
        ...

    def recycle(self, reason: str) -> None:
        """End this actor's process and start it anew, if it has one of its own; its leases lapse or are given back."""
        ...


class Remote(Protocol):
    """Another actor, called by message. Arguments and results are data."""

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """Send a call without waiting for anything; the caller may hold a lock.

        `done(result, error)` runs later on some other thread: it takes a lock, notes, notifies, and no more.

        `error` is `ActorDied`, or what the method raised.
        """
        ...


def note_failed_call(log: logging.Logger, actor: str, error: Exception) -> None:
    """Log that a call failed: quietly if the actor died, which is ordinary; with a traceback if its code is wrong."""
    if isinstance(error, ActorDied):
        log.info("%s did not answer: %s", actor, error)
    else:
        log.error("%s failed", actor, exc_info=error)
