"""The clock of an engine; it arrives as an argument."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The time of the machine, or of the simulator."""

    def now_us(self) -> int:
        """Microseconds since the epoch. It may step back; engines stay correct if it does."""
        ...

    def sleep_us(self, duration_us: int) -> None:
        """Return after about `duration_us` microseconds have passed on this clock."""
        ...
