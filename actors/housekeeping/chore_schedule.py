"""Which chores of housekeeping are due on a shard: one that found nothing to do rests, one that did something goes on.

Where a read is a round trip that others pay for, too, a chore that seldom has anything to do must not ask every second.
Plain decisions, counted in beats.
"""

from typing import Final

WATCHED_REST_HEARTBEATS = 20  # Of a chore that keeps nobody waiting: it reads a key or two.
LISTING = "listing"
LOADING = "loading"
WAKING = "waking"
LATE_POINTERS = "waking what oversleeps"
# Of those that somebody waits for, and of the look at one part after the other for pointers that oversleep.
REST_HEARTBEATS: Final = {LISTING: 3, LOADING: 3, LATE_POINTERS: 5, WAKING: 10}
TICK_LOOK_US = 60_000_000


class ChoreSchedule:
    """The rests of one consumer's chores on one shard.

    Args:
      has_rests: whether reads cost; if not, every chore is due at every beat.
    """

    def __init__(self, *, backs_off: bool) -> None:
        self._backs_off = backs_off
        self._due_heartbeat: dict[str, int] = {}
        self._times_done: dict[str, int] = {}

    def is_due(self, chore: str, heartbeat: int) -> bool:
        """Say whether a chore is to be done at this beat. One that broke off, and was not noted, is due again."""
        return heartbeat >= self._due_heartbeat.get(chore, 0)

    def times_done(self, chore: str) -> int:
        """Return how often a chore was done: of the parts that it goes through, the next is this one's."""
        return self._times_done.get(chore, 0)

    def note(self, chore: str, heartbeat: int, *, did: bool) -> None:
        """Note that a chore was done at a beat, and whether there was anything to do."""
        self._times_done[chore] = self.times_done(chore) + 1
        rest_heartbeats = REST_HEARTBEATS.get(chore, WATCHED_REST_HEARTBEATS)
        self._due_heartbeat[chore] = heartbeat + (rest_heartbeats if self._backs_off and not did else 1)


def is_tick_due(next_us: int, looked_us: int, now_us: int) -> bool:
    """Say whether a period's record must be read, of which `next_us` was the next tick when it was read last.

    `looked_us`: when that was. A clock that was set back, and whatever else a reader may not know of, such as another
    program's period for the kind, is found within a minute.
    """
    return now_us >= next_us or not 0 <= now_us - looked_us < TICK_LOOK_US
