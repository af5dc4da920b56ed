"""Circuit breaker: a loop over several shards skips a shard that does not answer.

A transaction on an unreachable cluster waits until its timeout, and delays the shards after it. So such a loop uses a
timeout of its own, far shorter than the engine's. The breaker of a shard opens when a transaction times out (error
1031), and closes after three seconds: an unreachable shard takes at most a quarter of the loop's time. A transaction
that fails at once does not open it.
"""

from collections.abc import Callable
from typing import TypeVar

from fairlead.zones.engines import RETRIES_MAX, Clock, Transaction
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, error_code
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

ANSWER_TIMEOUT_MS = 1_000  # For transactions of milliseconds. A fifth of the time in which a session needs a heartbeat.
OPEN_US = 3_000_000  # The time for which a shard is skipped.


class CircuitBreaker:
    """The circuit breakers of the shards of one thread: which shards it skips, and until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_us: dict[str, int] = {}

    def is_open(self, name: str) -> bool:
        """Return whether a shard is skipped now. A clock that is set back does not prolong it."""
        return 0 < self._until_us.get(name, 0) - self._clock.now_us() <= OPEN_US

    def transact(
        self,
        shard: Shard,
        body: Callable[[Attempt], T],
        *,
        applied: Callable[[Transaction], bool] | None = None,
        retries_max: int = RETRIES_MAX,
    ) -> T:
        """As `shard.transact`, within `ANSWER_TIMEOUT_MS` including retries, if the store is not in this process.

        For bodies that may be applied although they timed out (1031), and whose caller retries later.
        """
        if not shard.db.results_can_be_unknown:
            return shard.transact(body, applied=applied, retries_max=retries_max)

        def in_time(attempt: Attempt) -> T:
            attempt.tr.options.set_timeout(ANSWER_TIMEOUT_MS)
            return body(attempt)

        try:
            return shard.transact(in_time, applied=applied, retries_max=retries_max)
        except shard.db.errors as error:
            if error_code(error) == TRANSACTION_TIMED_OUT:
                probe("a shard that does not answer is left alone for a while")
                self._until_us[shard.name] = self._clock.now_us() + OPEN_US
            raise
