"""Silent worker sessions: a consumer ends those of dead workers, and releases their claims, on one shard.

It looks once a second; see `zones.top_level.silence` for which sessions are silent. Every consumer does this. Of two
that end one session, one finds it ended. Any of them releases the claims of a session that has ended.
"""

import logging
from functools import partial

from fairlead.actors.runtime.circuit_breaker import CircuitBreaker
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue.claims import release_all
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.silence import Silence
from fairlead.zones.top_level.worker_sessions import Look, end_session_op, look_op
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.housekeeping")


class SilentSessions:
    """What one consumer does about the worker sessions of one shard.

    `breaker`: of the loop that calls. `retries_max`: how often a transaction is repeated; the loop looks again soon.
    """

    def __init__(self, shard: Shard, breaker: CircuitBreaker, *, retries_max: int) -> None:
        self._shard = shard
        self._breaker = breaker
        self._retries_max = retries_max
        self._silence = Silence()

    def look(self, *, now_us: int) -> bool:
        """Look at the sessions, end those that are silent, and release the claims of all that have ended.

        Returns whether there is a session. `now_us`: by a clock that was found good; released items vest then.

        Raises:
          What the store raises. If the look itself was not answered, the looks begin anew.
        """
        shard, breaker = self._shard, self._breaker
        try:
            seen = breaker.transact(shard, _read_sessions, retries_max=self._retries_max)
        except shard.db.errors:
            self._silence.note_failure()
            raise
        ended = list(seen.over)
        for session_id in self._silence.note(seen.beats, now_us=shard.clock.now_us()):
            end = partial(_end, session_id=session_id, silent_since=seen.beats[session_id])
            if breaker.transact(shard, end, retries_max=self._retries_max):
                probe("a consumer ends a silent worker session")
                log.warning("a worker of shard %s sends no heartbeat; the items that it claims run again", shard.name)
                ended.append(session_id)
        transact = partial(breaker.transact, shard, retries_max=self._retries_max)
        for session_id in ended:
            released = release_all(shard.layout, transact, session_id, now_us=now_us)
            if released:
                log.info("a worker session of shard %s has ended; %d items vest now", shard.name, released)
        return bool(seen.beats or seen.over)


def _read_sessions(attempt: Attempt) -> Look:
    return run_one(look_op(attempt.tr))


def _end(attempt: Attempt, *, session_id: bytes, silent_since: bytes) -> bool:
    return run_one(end_session_op(attempt.tr, session_id, silent_since=silent_since))
