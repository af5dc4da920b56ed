"""Silence: which worker sessions one consumer takes for dead, by looks a second apart. Plain decisions.

A session is silent if its beat was the same in `LOOKS` looks in a row. The looks are a second apart by the clock of the
consumer that looks, and each was answered. A look that failed, or came too late, begins the count anew: the store was
away, or the consumer stood still, and the workers may not have been able to send a heartbeat either. So no clocks are
compared, and neither a store that was away nor a machine that was suspended ends a session.
"""

from collections.abc import Mapping

from fairlead.zones.probes import probe

LOOKS = 5
LOOK_APART_US_MIN = 800_000
# Of looks a second apart: on a busy machine, and at a shard beside four that take a second each and do not answer.
LOOK_APART_US_MAX = 6_000_000


class Silence:
    """What one consumer has seen of the worker sessions of one shard."""

    def __init__(self) -> None:
        self._looked_us: int | None = None
        self._seen: dict[bytes, tuple[bytes, int]] = {}  # the last beat of each, and in how many looks it was there

    def note(self, beats: Mapping[bytes, bytes], *, now_us: int) -> list[bytes]:
        """Note the answer to a look; return the sessions that are silent. `now_us`: when the look ended."""
        apart_us = None if self._looked_us is None else now_us - self._looked_us
        if apart_us is not None and 0 <= apart_us < LOOK_APART_US_MIN:
            return []
        if apart_us is not None and not 0 <= apart_us <= LOOK_APART_US_MAX and self._seen:
            probe("looks at worker sessions begin anew, because the store or the consumer stood still")
            self._seen.clear()
        self._looked_us = now_us
        seen = {}
        for session_id, beat in beats.items():
            last, looks = self._seen.get(session_id, (beat, 0))
            seen[session_id] = beat, looks + 1 if beat == last else 1
        self._seen = seen
        return [session_id for session_id, (_, looks) in seen.items() if looks >= LOOKS]

    def note_failure(self) -> None:
        """Note that a look was not answered."""
        self._seen.clear()
        self._looked_us = None
