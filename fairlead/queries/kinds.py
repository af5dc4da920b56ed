"""Kinds: of each, how many items wait, its consumers, its policies, and its outcomes in the last hour."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead.queries.activity import Activity, by_kind
from fairlead.queries.external_stores import ExternalStatus
from fairlead.status import ShardStatus
from fairlead.zones.records import KindPolicy
from fairlead.zones.reporting.rollups import KindRollup


class KindSummary(NamedTuple):
    """A kind on all shards, and in external stores.

    `waiting`: of a store with very many items, only those that were counted. `consumer_count`: live consumers with a
    handler for it. `policies`: by shard. `unserved`: shards with items of the kind and without such a consumer.
    `rollup`: the outcomes of its attempts in the last hour.
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


def kinds_of(
    found: Sequence[ShardStatus],
    activity: Sequence[Activity],
    now_us: int,
    externals: Sequence[ExternalStatus] = (),
) -> list[KindSummary]:
    """Return all kinds that have items, outcomes, a live consumer, or a policy, by name."""
    all_rollups = by_kind(activity, now_us)
    names = {kind for each in found for kind in (*each.depth, *each.kind_policies)}
    names |= {kind for each in found for one in each.consumers if one.live for kind in one.record.kinds}
    depths = _depths(externals)
    names |= set(depths) | set(all_rollups)
    return [
        _kind_summary(name, found, all_rollups.get(name, KindRollup()), depths.get(name, 0)) for name in sorted(names)
    ]


def kind_summary(
    name: str,
    found: Sequence[ShardStatus],
    activity: Sequence[Activity],
    now_us: int,
    externals: Sequence[ExternalStatus] = (),
) -> KindSummary:
    """Return one kind, which need not be known anywhere."""
    rollup = by_kind(activity, now_us).get(name, KindRollup())
    return _kind_summary(name, found, rollup, _depths(externals).get(name, 0))


def _depths(externals: Sequence[ExternalStatus]) -> dict[str, int]:
    """Return how many items of each kind external stores hold."""
    found: dict[str, int] = {}
    for each in externals:
        for kind, items in ({} if each.totals is None else each.totals.kinds).items():
            found[kind] = found.get(kind, 0) + items
    return found


def _kind_summary(name: str, found: Sequence[ShardStatus], rollup: KindRollup, external: int) -> KindSummary:
    serving = {one.consumer_id for each in found for one in each.consumers if one.live and name in one.record.kinds}
    return KindSummary(
        name,
        sum(each.depth.get(name, 0) for each in found) + external,
        len(serving),
        {each.name: each.kind_policies[name] for each in found if name in each.kind_policies},
        [each.name for each in found if name in each.unserved],
        rollup,
    )
