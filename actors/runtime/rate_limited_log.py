"""Rate-limited log: a shard that refuses is logged once, however often and for however long it refuses."""

from logging import Logger
from typing import Final

from fairlead.zones.engines import Clock

LOG_AGAIN_US: Final = (
    10_000_000  # A shard without a refusal for this long works again. An almost full disk takes some commits.
)


class RateLimitedLog:
    """Logs refusing shards. `message`: a format of a shard's name and the reason."""

    def __init__(self, clock: Clock, log: Logger, message: str) -> None:
        self._clock = clock
        self._log = log
        self._message = message
        self._last_us: dict[str, int] = {}

    def note(self, shard_name: str, error: Exception) -> None:
        """Log that a shard refuses, unless it was logged already."""
        now_us = self._clock.now_us()
        last_us = self._last_us.get(shard_name)
        self._last_us[shard_name] = now_us
        if last_us is None or now_us - last_us >= LOG_AGAIN_US:
            self._log.warning(self._message, shard_name, error)
