"""Telling of handlers that fail: at once for the first time, and then now and then, by kind.

A kind that fails may fail a thousand times a second, and a line for each would bury the one that helps.
"""

import logging
from dataclasses import dataclass

from actors.settlement import Verdict
from zones.engines import Clock

log = logging.getLogger("fairlead.worker")

QUIET_US = 10_000_000  # Between two lines about one kind.


@dataclass(slots=True)
class _Count:
    """What has not been told yet of a kind. `told_us`: when something was told last."""

    told_us: int = 0
    attempts: int = 0
    given_up: int = 0


class Failures:
    """The failures of one worker's handlers. Called with the worker's lock held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, _Count] = {}

    def note(self, verdict: Verdict) -> None:
        """Count a failed attempt; say so, and what the error was, unless its kind was spoken of a moment ago."""
        ref = verdict.held.ref
        count = self._kinds.setdefault(ref.kind, _Count())
        count.attempts += 1
        count.given_up += verdict.delay_us is None
        now_us = self._clock.now_us()
        if now_us - count.told_us < QUIET_US:
            return
        log.warning(
            "handler of %s failed: %s; item %s of %s/%s %s%s",
            ref.kind, verdict.error, ref.item_id.hex(), ref.tenant.app or "-", ref.tenant.user,
            "is given up: see fairlead buried" if verdict.delay_us is None else
            f"is tried again in {verdict.delay_us / 1e6:.1f} s",
            "" if count.attempts == 1 else
            f"; {count.attempts} attempts failed since the last such line, {count.given_up} of them for good",
        )  # fmt: skip
        self._kinds[ref.kind] = _Count(told_us=now_us)
