"""The fleets' application in actors without telemetry. `bench.telemetry` measures the cost of telemetry against them.

The import of this module removes the telemetry of this process's actors.
"""

from typing import Any

from bench.handlers import app
from fairlead.actors.dispatch.serve_result import ServeResult
from fairlead.actors.execution import runner
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts

__all__ = ["app"]


def _nothing(*args: Any, **options: Any) -> None:
    """Do nothing."""


class _Run:
    """An attempt without a context."""

    def __init__(self, *args: Any) -> None:
        """Ignore the arguments."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *args: Any) -> None:
        """End."""


OutcomeCounts.end = _nothing  # type: ignore[method-assign]
ServeResult.record_metrics = _nothing  # type: ignore[method-assign]
for name, instead in (("Run", _Run), ("RunningJob", _nothing), ("passed_on", _nothing)):
    assert hasattr(runner, name)
    setattr(runner, name, instead)
