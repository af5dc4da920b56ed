"""How the room of one call is portioned out: which pointers a manager visits, and how many items each tenant may give.

A visit writes the pages that its zone lies on, however few items it takes, and all commits of a store wait for one
another. So where all tenants give what they are asked for, fewer are asked for more at a time: they take turns.

The room is divided among tenants, not among queue zones: of a tenant no more zones are visited than its portion has
items. Only a tenant with which no other competes has a portion for each of its zones.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.actors.scanning.tenant_turns import by_tenant
from fairlead.zones.top_level.pointers import PointerRef

SHARE_MAX = 16  # Items. With more, hundreds of busy tenants wait longer for their turns, and nothing goes faster.
SHARES_MIN = 64  # So many make up what the workers want to hold: of long items, which are few, a portion is one.


class BatchSize(NamedTuple):
    """Of one call: how many of its tenants to serve, or zones if they are one tenant's; and how many items of each."""

    shares: int
    items_max: int


class SizedBatch(NamedTuple):
    """A call as it is portioned out: the pointers to visit, and how many tenants they belong to."""

    refs: list[PointerRef]
    tenants: int
    batch_size: BatchSize


class BatchSizer:
    """Portions out the room of calls by what the call before found in the zones of the same shard."""

    def __init__(self, *, dequeue_max: int) -> None:
        """Begin as if everybody had one item."""
        self._dequeue_max = dequeue_max
        self._expected: dict[str, int] = {}  # items that a tenant, or one's zone, gives, at least, by shard

    def choose(
        self, shard_name: str, refs: Sequence[PointerRef], *, single_tenant: bool, capacity: int, in_flight_limit: int
    ) -> SizedBatch:
        """Return what to visit of a call; see `size_batch`. `alone`: all are one tenant's, and no other competes."""
        tenants = list(by_tenant(refs).values())
        if single_tenant:
            batch_size = self.size_batch(shard_name, len(refs), capacity=capacity, in_flight_limit=in_flight_limit)
            return SizedBatch(list(refs[: batch_size.shares]), 1, batch_size)
        batch_size = self.size_batch(shard_name, len(tenants), capacity=capacity, in_flight_limit=in_flight_limit)
        chosen = [ref for some in tenants[: batch_size.shares] for ref in some[: batch_size.items_max]]
        return SizedBatch(chosen, batch_size.shares, batch_size)

    def size_batch(self, shard_name: str, shares: int, *, capacity: int, in_flight_limit: int) -> BatchSize:
        """Return the portions of a call for so many tenants, or zones of one tenant.

        Args:
          room: items that the workers can take now.
          capacity: items that they want to hold; the longer items are, the fewer.
        """
        share_max = max(1, min(SHARE_MAX, self._dequeue_max, in_flight_limit // SHARES_MIN))
        share = min(share_max, self._expected.get(shard_name, 1))
        count = min(shares, -(-capacity // share))
        return BatchSize(count, min(self._dequeue_max, capacity // max(1, count)))

    def learn(self, shard_name: str, batch_size: BatchSize, *, served_tenants: int, items: int) -> None:
        """Note what a call to so many came to. If all gave what they were asked for, they may have twice that."""
        if served_tenants:
            asked = served_tenants * batch_size.items_max
            expected = 2 * batch_size.items_max if 20 * items >= 19 * asked else -(-items // served_tenants)
            self._expected[shard_name] = max(1, expected)
