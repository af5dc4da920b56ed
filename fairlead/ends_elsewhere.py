"""How items ended on other shards, where their tenant lived before it moved.

A completion log belongs to its shard, and covers an hour: a move leaves it where it is. So the logs of all other shards
are read for an item that has ended, of a tenant that has ever moved; for no other item.
"""

from functools import partial
from typing import NamedTuple

from fairlead.queries.per_shard import query_each_shard
from fairlead.shards import Shards
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.moving.source import read_owner
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import Ended
from fairlead.zones.shard import Shard


class EndsElsewhere(NamedTuple):
    """Ends of items of one id and zone on other shards, the latest first, each with the name of the shard.

    `unread`: the names of shards that could not be read.
    """

    ends: list[tuple[str, Ended]]
    unread: list[str]


def ends_elsewhere(shards: Shards, home: Shard, location: ZoneLocation, item_id: bytes) -> EndsElsewhere:
    """Return how items of a tenant ended on other shards than its home; none if it has never moved.

    Reads one key, and then each other shard's completion log: a hundredth of a second at most. Snapshot reads.
    """
    if len(shards) == 1 or not location.tenant.app or not _has_moved(home, location.keys.tenant):
        return EndsElsewhere([], [])
    read = partial(_read_ends, home=home.name, location=location, item_id=item_id)
    found = query_each_shard(shards, read)
    ends = [(each.shard, ended) for each in found for ended in each.found or ()]
    unread = [each.shard for each in found if each.error is not None]
    return EndsElsewhere(sorted(ends, key=lambda each: -each[1].ended_us), unread)


def _has_moved(shard: Shard, keys: TenantKeys) -> bool:
    owner = shard.transact(lambda attempt: read_owner(shard.layout, keys, attempt.tr.snapshot.get(keys.owner).value))
    return owner is not None and owner.epoch > 0


def _read_ends(shard: Shard, home: str, location: ZoneLocation, item_id: bytes) -> list[Ended]:
    if shard.name == home:
        return []
    found = shard.transact(lambda attempt: completion_log.find(attempt.tr, item_id))
    return [each for each in found if each.is_at(location)]
