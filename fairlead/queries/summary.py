"""An application at a glance: the numbers that come first, on the dashboard and in `fairlead top`."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.app import App
from fairlead.queries.activity import Work, completed_per_s, look_at_work
from fairlead.queries.health import Concern, concerns
from fairlead.queries.per_shard import Seen, look_apart
from fairlead.status import ShardStatus, read_status


@dataclass(frozen=True, slots=True)
class Glance:
    """What there is to see at once. Times in microseconds.

    Attributes:
      per_shard: the status of each shard; `work`: what the workers of those that can be read tell.
      concerns: what needs attention, what matters most first.
      waiting: items in all queues. `oldest_us`: how long the oldest that has vested has waited, held back or
        not; None: none does. `oldest_whole`: whether all were looked at that could have waited longer.
      held: items that a limit, a pause, or an unknown kind holds back, at least so many if not `held_whole`.
        `held_oldest_us`: how long the oldest of them has waited.
      dead_letters: counted up to 10,000 on each shard. `consumers`: live ones. `running`: items.
      completed_per_s: over the last minute.
    """

    now_us: int
    per_shard: Sequence[Seen[ShardStatus]]
    work: Sequence[Work]
    concerns: Sequence[Concern]
    waiting: int
    oldest_us: int | None
    oldest_whole: bool
    held: int
    held_whole: bool
    held_oldest_us: int | None
    dead_letters: int
    consumers: int
    running: int
    completed_per_s: float

    @property
    def statuses(self) -> list[ShardStatus]:
        """The status of each shard that can be read."""
        return [each.found for each in self.per_shard if each.found is not None]


def statuses(app: App) -> list[Seen[ShardStatus]]:
    """Return the status of every shard, each apart."""
    return look_apart(app.shards, lambda shard: read_status(shard, app.shards.urls[shard.name]))


def working(app: App) -> list[Work]:
    """Return what the workers of all shards that can be read tell."""
    return [each.found for each in look_apart(app.shards, look_at_work) if each.found is not None]


def glance(app: App) -> Glance:
    """Return what there is to see at once. One that cannot be read is among `per_shard` and `concerns`."""
    seen, work, now_us = statuses(app), working(app), app.clock.now_us()
    found = [each.found for each in seen if each.found is not None]
    return Glance(
        now_us=now_us,
        per_shard=seen,
        work=work,
        concerns=concerns(seen),
        waiting=sum(sum(each.depth.values()) for each in found),
        oldest_us=max((each.now_us - each.oldest_us for each in found if each.oldest_us is not None), default=None),
        oldest_whole=all(each.waits.whole for each in found),
        held=sum(each.waits.held_items for each in found),
        held_whole=all(each.waits.held_whole for each in found),
        held_oldest_us=max(
            (each.now_us - each.waits.held_oldest_us for each in found if each.waits.held_oldest_us is not None),
            default=None,
        ),
        dead_letters=sum(each.dead_letters for each in found),
        consumers=len({one.consumer_id for each in found for one in each.consumers if one.live}),
        running=sum(each.running for each in work),
        completed_per_s=completed_per_s(work, now_us),
    )
