"""A world that is run for its times, not for its faults: what happens is neither logged nor checked.

That makes it some five times as fast, so that it can be large.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.simulation.event_log import EventLog
from fairlead.simulation.network import Network
from fairlead.simulation.oracles.oracle import HandlerRun, OracleSuite
from fairlead.simulation.store import SimulatedStore


class NoLog(EventLog):
    """Keeps no lines."""

    def add(self, line: str) -> None:
        """Let it go."""


class NoOracles(OracleSuite):
    """A bench on which nobody sits."""

    def attach(self, stores: Iterable[SimulatedStore], network: Network) -> None:
        """Ask to be told of nothing: a store that tells nobody need not work out what a commit changed."""

    def on_start(self, run: HandlerRun) -> None:
        """Do not look."""

    def on_end(self, run: HandlerRun) -> None:
        """Do not look."""
