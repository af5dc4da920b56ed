"""A world for measurements of virtual time: its events are neither logged nor checked.

It is some five times as fast as a world with log and oracles, so that it can be large.
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
        """Drop the line."""


class NoOracles(OracleSuite):
    """A suite without oracles."""

    def attach(self, stores: Iterable[SimulatedStore], network: Network) -> None:
        """Do nothing: a store without observers does not compute the changes of its commits."""

    def on_start(self, run: HandlerRun) -> None:
        """Do nothing."""

    def on_end(self, run: HandlerRun) -> None:
        """Do nothing."""
