"""Patience with shards that do not answer, of whoever asks several of them in turn.

A cluster that is away refuses nothing: a transaction waits until its timeout, and so do the shards that come after it.
So what is asked in turn has a timeout of its own, far shorter than the engine's, and a shard that used it up is left
alone for some time: it has a quarter of the asker's time, and the others share the rest. One that refuses at once is
asked each time.
"""

from collections.abc import Callable
from typing import TypeVar

from fairlead.zones.engines import RETRIES_MAX, Clock, Transaction
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, error_code
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

ANSWER_TIMEOUT_MS = 1_000  # For what takes milliseconds. A fifth of a session, which is kept up on all shards in turn.
OPEN_US = 3_000_000  # For so long a shard is left alone after that.


class CircuitBreaker:
    """What one thread knows of its shards: which did not answer, and until when it leaves them alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_us: dict[str, int] = {}

    def is_open(self, name: str) -> bool:
        """Say whether a shard did not answer a short while ago. A clock that is set back makes it no longer."""
        return 0 < self._until_us.get(name, 0) - self._clock.now_us() <= OPEN_US

    def transact(
        self,
        shard: Shard,
        body: Callable[[Attempt], T],
        *,
        applied: Callable[[Transaction], bool] | None = None,
        retries_max: int = RETRIES_MAX,
    ) -> T:
        """As `shard.transact`, for `ANSWER_TIMEOUT_MS` with all its retries, where the store is not in this process.

        For bodies that may be applied although they timed out (1031), and whose caller tries again later.
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
