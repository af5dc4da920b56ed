"""What an actor gets of telemetry, through its host: counts of its own, and the process's spans if there are any."""

from collections.abc import Callable

from fairlead.actors.telemetry.counters import Counters, Reading
from fairlead.actors.telemetry.spans import Spans


class Telemetry:
    """One actor's. `spans`: None where nobody records any, as in a simulated world."""

    __slots__ = ("_read", "counters", "spans")

    def __init__(self, spans: Spans | None = None) -> None:
        self.counters = Counters()
        self.spans = spans
        self._read: Callable[[], Reading] = self.counters.read

    def read_by(self, read: Callable[[], Reading]) -> None:
        """Say how the actor is read: under its lock, with what it has to add."""
        self._read = read

    def read(self) -> Reading:
        """Return what the actor counts now."""
        return self._read()


Fail = Callable[[str, BaseException], None]  # Takes the reason and the error; see `Supervisor.fail`.
ProcessSetup = Callable[
    [], Callable[[], None]
]  # Crosses to other processes by pickle. What it returns sends what waits.


class Exports:
    """Where a process's telemetry goes: nowhere. `fairlead.telemetry` knows of better places."""

    def telemetry(self, actor: str, fail: Fail) -> Telemetry:
        """Return the telemetry of an actor of this process; `actor` is its name in the fleet, such as "worker-0".

        `fail`: called once if what exports the telemetry dies of an error, from its thread.
        """
        return Telemetry()

    def process_setup(self) -> ProcessSetup:
        """Return what lets the telemetry of another process, such as a Ray task's, go to the same places."""
        return _no_setup

    def close(self) -> None:
        """Send what waits to be sent, for the last time. Takes two seconds at most, and raises nothing."""


def _no_setup() -> Callable[[], None]:
    return _nothing_to_send


def _nothing_to_send() -> None:
    pass
