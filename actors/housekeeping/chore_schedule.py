"""Which chores of housekeeping are due on a shard: a chore that found nothing to do rests, an active one continues.

Where a read is a round trip on a shared cluster, a chore that is seldom needed must not read every second. Pure
decisions, counted in heartbeats.
"""

from typing import Final

WATCHED_REST_HEARTBEATS = 20  # Of a chore that nothing waits for: it reads a key or two.
LISTING = "listing"
LOADING = "loading"
WAKING = "waking"
LATE_POINTERS = "waking what oversleeps"
SILENT_SESSIONS = "ending silent worker sessions"
LEFTOVERS = "settling transactions across shards"
SNAPSHOTS = "tending snapshots"
# Of chores that something waits for, and of the search for pointers that oversleep, part by part.
# A transaction that meets what one across shards has left settles it. The visit of a queue does not: items wait.
# A snapshot that is dropped a minute late harms nobody.
REST_HEARTBEATS: Final = {
    SILENT_SESSIONS: 3, LISTING: 3, LOADING: 3, LATE_POINTERS: 5, WAKING: 10, LEFTOVERS: 5, SNAPSHOTS: 60
}  # fmt: skip
ALONE_REST_HEARTBEATS: Final = {LEFTOVERS: 40}  # Where no transaction can span shards; an older program may have.
TICK_LOOK_US = 60_000_000


class ChoreSchedule:
    """When each chore of one consumer is due on one shard.

    Args:
      backs_off: whether reads are expensive; if not, every chore is due at every heartbeat.
      is_alone: whether it is the only shard of the fleet.
    """

    def __init__(self, *, backs_off: bool, is_alone: bool = False) -> None:
        self._backs_off = backs_off
        self._rest_heartbeats = REST_HEARTBEATS | ALONE_REST_HEARTBEATS if is_alone else REST_HEARTBEATS
        self._due_heartbeat: dict[str, int] = {}
        self._times_done: dict[str, int] = {}

    def is_due(self, chore: str, heartbeat: int) -> bool:
        """Say whether a chore is due at this heartbeat. A chore that failed, and was not noted, is due again."""
        return heartbeat >= self._due_heartbeat.get(chore, 0)

    def times_done(self, chore: str) -> int:
        """Return how often a chore was done. A chore that works part by part uses it to select the next part."""
        return self._times_done.get(chore, 0)

    def note(self, chore: str, heartbeat: int, *, did: bool) -> None:
        """Note that a chore was done at a heartbeat, and whether there was anything to do."""
        self._times_done[chore] = self.times_done(chore) + 1
        rest_heartbeats = self._rest_heartbeats.get(chore, WATCHED_REST_HEARTBEATS)
        self._due_heartbeat[chore] = heartbeat + (rest_heartbeats if self._backs_off and not did else 1)


def is_tick_due(next_us: int, looked_us: int, now_us: int) -> bool:
    """Say whether to read the record of a period whose next tick was `next_us` at the last read.

    `looked_us`: when that was. A clock that was set back, and any change that this process does not know, such as
    another program's period for the kind, is found within a minute.
    """
    return now_us >= next_us or not 0 <= now_us - looked_us < TICK_LOOK_US
