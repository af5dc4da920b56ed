"""Kinds: how much of each waits, who does it, what holds it back, and how it went within the last hour."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead.queries.activity import Work, by_kind
from fairlead.status import ShardStatus
from fairlead.zones.records import KindRule
from fairlead.zones.reporting.rollups import KindTally


class KindSeen(NamedTuple):
    """A kind on all shards.

    `served`: live consumers that know it. `rules`: by shard. `unserved`: shards on which nobody knows what waits.
    `tally`: what became of its attempts within the last hour.
    """

    kind: str
    waiting: int
    served: int
    rules: Mapping[str, KindRule]
    unserved: Sequence[str]
    tally: KindTally

    @property
    def paused(self) -> bool:
        """Whether it is paused anywhere."""
        return any(rule.paused for rule in self.rules.values())


def kinds_of(found: Sequence[ShardStatus], work: Sequence[Work], now_us: int) -> list[KindSeen]:
    """Return all kinds that wait, ran, are known to a live consumer, or have a rule, by name."""
    tallies = by_kind(work, now_us)
    names = {kind for each in found for kind in (*each.depth, *each.kind_rules)}
    names |= {kind for each in found for one in each.consumers if one.live for kind in one.presence.kinds}
    return [_seen(name, found, tallies.get(name, KindTally())) for name in sorted(names | set(tallies))]


def _seen(name: str, found: Sequence[ShardStatus], tally: KindTally) -> KindSeen:
    knowing = {one.consumer_id for each in found for one in each.consumers if one.live and name in one.presence.kinds}
    return KindSeen(
        name,
        sum(each.depth.get(name, 0) for each in found),
        len(knowing),
        {each.name: each.kind_rules[name] for each in found if name in each.kind_rules},
        [each.name for each in found if name in each.unserved],
        tally,
    )
