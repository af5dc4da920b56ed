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

WORK_US_MAX = 1_000_000  # Of one look. A consumer needs a heartbeat in five seconds, and has other chores.


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

        After a second the rest is left to the next look, and to other consumers: the caller's own session needs its
        heartbeats. Returns whether there is a session. `now_us`: by a clock that was found good; released items vest
        then.

        Raises:
          What the store raises. If the look itself was not answered, the looks begin anew.
        """
        shard = self._shard
        try:
            seen = self._breaker.transact(shard, _read_sessions, retries_max=self._retries_max)
        except shard.db.errors:
            self._silence.note_failure()
            raise
        looked_us = shard.clock.now_us()
        silent = self._silence.note(seen.beats, now_us=looked_us)
        for session_id in [*silent, *seen.over]:
            if not 0 <= shard.clock.now_us() - looked_us < WORK_US_MAX:
                break
            if session_id not in seen.beats or self._ends(session_id, seen.beats[session_id]):
                self._release(session_id, now_us)
        return bool(seen.beats or seen.over)

    def _ends(self, session_id: bytes, silent_since: bytes) -> bool:
        """End a silent session; False: it has ended already, or lives."""
        end = partial(_end, session_id=session_id, silent_since=silent_since)
        ended = self._breaker.transact(self._shard, end, retries_max=self._retries_max)
        if ended:
            probe("a consumer ends a silent worker session")
            log.warning("a worker of shard %s sends no heartbeat; the items that it claims run again", self._shard.name)
        return ended

    def _release(self, session_id: bytes, now_us: int) -> None:
        transact = partial(self._breaker.transact, self._shard, retries_max=self._retries_max)
        released = release_all(self._shard.layout, transact, session_id, now_us=now_us)
        if released:
            log.info("a worker session of shard %s has ended; %d items vest now", self._shard.name, released)


def _read_sessions(attempt: Attempt) -> Look:
    return run_one(look_op(attempt.tr))


def _end(attempt: Attempt, *, session_id: bytes, silent_since: bytes) -> bool:
    return run_one(end_session_op(attempt.tr, session_id, silent_since=silent_since))
