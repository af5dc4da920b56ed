"""What an actor gets of telemetry, through its host: its own counts, and the spans of its process if there are any."""

from collections.abc import Callable

from fairlead.actors.telemetry.counters import Counters, Reading
from fairlead.actors.telemetry.spans import Spans


class Telemetry:
    """One actor's telemetry. `spans`: None where nothing records spans, as in a simulated world."""

    __slots__ = ("_read", "counters", "spans")

    def __init__(self, spans: Spans | None = None) -> None:
        self.counters = Counters()
        self.spans = spans
        self._read: Callable[[], Reading] = self.counters.read

    def read_by(self, read: Callable[[], Reading]) -> None:
        """Set how the actor is read: under its lock, with additional numbers."""
        self._read = read

    def read(self) -> Reading:
        """Return what the actor counts now."""
        return self._read()


Fail = Callable[[str, BaseException], None]  # Takes the reason and the error; see `Supervisor.fail`.
ProcessSetup = Callable[
    [], Callable[[], None]
]  # Crosses to other processes by pickle. It returns a function that sends buffered telemetry.


class Exports:
    """Where a process's telemetry goes: nowhere. `fairlead.telemetry` has subclasses that export."""

    def telemetry(self, actor: str, fail: Fail) -> Telemetry:
        """Return the telemetry of an actor of this process; `actor` is its name in the fleet, such as "worker-0".

        `fail`: called once if the exporter dies of an error, from its thread.
        """
        return Telemetry()

    def process_setup(self) -> ProcessSetup:
        """Return a function that sets up the same exports in another process, such as that of a Ray task."""
        return _no_setup

    def close(self) -> None:
        """Send buffered telemetry for the last time. Takes two seconds at most, and raises nothing."""


def _no_setup() -> Callable[[], None]:
    return _nothing_to_send


def _nothing_to_send() -> None:
    pass
