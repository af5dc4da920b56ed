"""The summary: the numbers that come first, on the dashboard and in `fairlead top`."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.app import App
from fairlead.queries.activity import Activity, completed_per_s, read_activity
from fairlead.queries.external_stores import ExternalStatus, read_externals
from fairlead.queries.health import Concern, concerns
from fairlead.queries.per_shard import ShardResult, query_each_shard
from fairlead.status import ShardStatus, read_status


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers that come first. Times in microseconds.

    Attributes:
      per_shard: the status of each shard; `activity`: what the workers of the readable shards report. `externals`: the
        status of each external store.
      concerns: what needs attention, the most severe first.
      waiting: items in all queues, also in external stores. `oldest_us`: how long the oldest due item has waited, held
        back or not; None: no item is due. `oldest_whole`: whether all items that could have waited longer were read.
      blocked: items that a limit, a pause or an unknown kind holds back; at least so many if not `blocked_whole`.
        `blocked_oldest_us`: how long the oldest of them has waited.
      dead_letters: counted up to 10,000 on each shard and in each store. `consumers`: live ones. `running`: items.
      completed_per_s: over the last minute.
    """

    now_us: int
    per_shard: Sequence[ShardResult[ShardStatus]]
    externals: Sequence[ExternalStatus]
    activity: Sequence[Activity]
    concerns: Sequence[Concern]
    waiting: int
    oldest_us: int | None
    oldest_whole: bool
    blocked: int
    blocked_whole: bool
    blocked_oldest_us: int | None
    dead_letters: int
    consumers: int
    running: int
    completed_per_s: float

    @property
    def statuses(self) -> list[ShardStatus]:
        """The status of each shard that can be read."""
        return [each.found for each in self.per_shard if each.found is not None]


def statuses(app: App) -> list[ShardResult[ShardStatus]]:
    """Return the status of each shard, apart."""
    return query_each_shard(app.shards, lambda shard: read_status(shard, app.shards.urls[shard.name]))


def all_activity(app: App) -> list[Activity]:
    """Return what the workers of all readable shards report."""
    return [each.found for each in query_each_shard(app.shards, read_activity) if each.found is not None]


def summarize(app: App) -> Summary:
    """Return the summary. A shard that cannot be read is in `per_shard` and `concerns`; so are external stores."""
    per_shard, activity, now_us = statuses(app), all_activity(app), app.clock.now_us()
    externals = read_externals(app.shards, app.externals)
    found = [each.found for each in per_shard if each.found is not None]
    totals = [each.totals for each in externals if each.totals is not None]
    ages_us = [each.now_us - each.oldest_us for each in found if each.oldest_us is not None]
    ages_us += [each.waits_us for each in totals if each.waits_us is not None]
    return Summary(
        now_us=now_us,
        per_shard=per_shard,
        externals=externals,
        activity=activity,
        concerns=concerns(per_shard, externals),
        waiting=sum(sum(each.depth.values()) for each in found) + sum(each.items for each in totals),
        oldest_us=max(ages_us, default=None),
        oldest_whole=all(each.waits.whole for each in found) and all(each.waits_whole for each in totals),
        blocked=sum(each.waits.blocked_items for each in found),
        blocked_whole=all(each.waits.blocked_whole for each in found),
        blocked_oldest_us=max(
            (each.now_us - each.waits.blocked_oldest_us for each in found if each.waits.blocked_oldest_us is not None),
            default=None,
        ),
        dead_letters=sum(each.dead_letters for each in found) + sum(each.dead_letters for each in totals),
        consumers=len({one.consumer_id for each in found for one in each.consumers if one.live}),
        running=sum(each.running for each in activity),
        completed_per_s=completed_per_s(activity, now_us),
    )
