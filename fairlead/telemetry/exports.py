"""One process's exporters: what the environment asks for, fed with the spans and counts of its actors."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.spans import spans_of_process
from fairlead.actors.telemetry.telemetry import Exports, Fail, Telemetry
from fairlead.telemetry.logs import log_to_stderr
from fairlead.telemetry.otel_environment import NoSuchExporter, otel_variables, requested_exporters

if TYPE_CHECKING:
    from fairlead.telemetry.otel_sdk import MetricsLoop

log = logging.getLogger("fairlead.telemetry")

CLOSE_S_MAX = 2.0


@dataclass(frozen=True, slots=True)
class TaskExports:
    """Sets up the process of a Ray task, which may serve many tasks, one after the other."""

    variables: Mapping[str, str] = field(repr=False)  # A collector's key may be among them.
    log_level: str

    def __call__(self) -> Callable[[], None]:
        """See `Elsewhere`."""
        os.environ.update(self.variables)
        log_to_stderr(self.log_level)
        wanted = requested_exporters()
        if not wanted.traces and not wanted.metrics:
            return _nothing_to_send
        from fairlead.telemetry import otel_sdk

        try:
            otel_sdk.install(wanted)
        except NoSuchExporter as error:  # The node of this task lacks what the fleet's has; the job can be done.
            log.warning("this process exports nothing: %s", error)
        return otel_sdk.flush_spans


def _nothing_to_send() -> None:
    pass


class ProcessExports(Exports):
    """The exporters of this process. Made once the application is loaded: providers that it has set stay.

    They begin with the first actor: who opens an application only to look exports nothing.

    Args:
      variables: OpenTelemetry's variables of the process that started the fleet; they are this one's, too, then.
      log_level: from which on this process, and those of tasks, log; None: that is settled elsewhere.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, *, log_level: str | None = None) -> None:
        self._variables = dict(variables or {})
        self._log_level = log_level
        self._actors: dict[str, Callable[[], Reading]] = {}
        self._loop: MetricsLoop | None = None

    def telemetry(self, actor: str, fail: Fail) -> Telemetry:
        """See `Exports`."""
        self._begin(fail)
        made = Telemetry(spans_of_process())
        self._actors = {**self._actors, actor: made.read}
        return made

    def add(self, name: str, read: Callable[[], Reading], fail: Fail) -> None:
        """Export what `read` returns, too, as if it were an actor called `name`. `fail`: see `Exports.telemetry`."""
        self._begin(fail)
        self._actors = {**self._actors, name: read}

    def _begin(self, fail: Fail) -> None:
        """Set up this process, unless that has been done."""
        if self._actors:
            return
        os.environ.update(self._variables)
        if self._log_level is not None:
            log_to_stderr(self._log_level)
        wanted = requested_exporters()
        if wanted.traces or wanted.metrics:
            from fairlead.telemetry import otel_sdk

            otel_sdk.install(wanted)
            if wanted.metrics:
                self._loop = otel_sdk.MetricsLoop(wanted, self.readings, fail)

    def process_setup(self) -> "TaskExports":
        """See `Exports`."""
        return TaskExports(otel_variables(), self._log_level or "warning")

    def readings(self) -> dict[str, Reading]:
        """Return what the actors of this process count."""
        return {name: read() for name, read in self._actors.items()}

    def close(self) -> None:
        """See `Exports`."""
        wanted = requested_exporters()
        if not self._actors or not (wanted.traces or wanted.metrics):
            return
        # A collector that does not answer must not hold up a drain.
        closing = threading.Thread(target=self._close, name="close exporters", daemon=True)
        closing.start()
        closing.join(CLOSE_S_MAX)

    def _close(self) -> None:
        from fairlead.telemetry import otel_sdk

        otel_sdk.flush_spans()
        otel_sdk.flush_metrics()
        if self._loop is not None:
            self._loop.close()
