"""The application of the fleets, in actors that tell nothing: what telemetry costs is measured beside them.

To load it takes out of this process's actors what they do for telemetry, and leaves the names where others look.
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
    """A run that nobody can name."""

    def __init__(self, *args: Any) -> None:
        """Take no notice."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *args: Any) -> None:
        """End."""


for each in ("end", "settle", "fail"):
    setattr(OutcomeCounts, each, _nothing)
ServeResult.record_metrics = _nothing  # type: ignore[method-assign]
for name, instead in (("Run", _Run), ("RunningJob", _nothing), ("passed_on", _nothing)):
    assert hasattr(runner, name)
    setattr(runner, name, instead)
