"""Kinds: how much of each waits, who does it, what holds it back, and how it went within the last hour."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead.queries.activity import Activity, by_kind
from fairlead.status import ShardStatus
from fairlead.zones.records import KindPolicy
from fairlead.zones.reporting.rollups import KindRollup


class KindSummary(NamedTuple):
    """A kind on all shards.

    `consumer_count`: live consumers that know it. `policies`: by shard. `unserved`: shards on which nobody knows what
    waits. `rollup`: what became of its attempts within the last hour.
    """

    kind: str
    waiting: int
    consumer_count: int
    policies: Mapping[str, KindPolicy]
    unserved: Sequence[str]
    rollup: KindRollup

    @property
    def paused(self) -> bool:
        """Whether it is paused anywhere."""
        return any(policy.paused for policy in self.policies.values())


def kinds_of(found: Sequence[ShardStatus], activity: Sequence[Activity], now_us: int) -> list[KindSummary]:
    """Return all kinds that wait, ran, are known to a live consumer, or have a rule, by name."""
    all_rollups = by_kind(activity, now_us)
    names = {kind for each in found for kind in (*each.depth, *each.kind_policies)}
    names |= {kind for each in found for one in each.consumers if one.live for kind in one.record.kinds}
    return [
        _kind_summary(name, found, all_rollups.get(name, KindRollup())) for name in sorted(names | set(all_rollups))
    ]


def _kind_summary(name: str, found: Sequence[ShardStatus], rollup: KindRollup) -> KindSummary:
    knowing = {one.consumer_id for each in found for one in each.consumers if one.live and name in one.record.kinds}
    return KindSummary(
        name,
        sum(each.depth.get(name, 0) for each in found),
        len(knowing),
        {each.name: each.kind_policies[name] for each in found if name in each.kind_policies},
        [each.name for each in found if name in each.unserved],
        rollup,
    )
