"""What an actor says of a shard that refuses: once, however often it refuses, and for however long."""

from logging import Logger
from typing import Final

from fairlead.zones.engines import Clock

LOG_AGAIN_US: Final = 10_000_000  # Without a refusal for so long it was well: an almost full disk takes some commits.


class RateLimitedLog:
    """The shards that refuse, as far as the log has been told. `message`: takes a shard's name, and the reason."""

    def __init__(self, clock: Clock, log: Logger, message: str) -> None:
        self._clock = clock
        self._log = log
        self._message = message
        self._last_us: dict[str, int] = {}

    def note(self, shard_name: str, error: Exception) -> None:
        """Say that a shard refuses, unless that is known."""
        now_us = self._clock.now_us()
        last_us = self._last_us.get(shard_name)
        self._last_us[shard_name] = now_us
        if last_us is None or now_us - last_us >= LOG_AGAIN_US:
            self._log.warning(self._message, shard_name, error)
