"""Clocks for tests: time passes when the test says so."""

from __future__ import annotations

import time


class ManualClock:
    """A clock that stands still until it is advanced, or slept on."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def sleep_us(self, duration_us: int) -> None:
        self.advance_us(duration_us)

    def advance_us(self, duration_us: int) -> None:
        """Let time pass; a negative duration steps the clock back."""
        self._now_us += duration_us


class WallClock:
    """The machine's clock, for tests whose processes really run side by side."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def sleep_us(self, duration_us: int) -> None:
        time.sleep(duration_us / 1_000_000)
