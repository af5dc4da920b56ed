"""How the capacity of one call is divided: which pointers a manager processes, and how many items each tenant may give.

To process a pointer writes the pages of its zone, however few items are taken, and all commits of a store wait for one
another. So if all tenants give as many items as they may, each call takes more items of fewer tenants.

The capacity is divided among tenants, not among queue zones: no more zones of a tenant are processed than its share has
items. Only a tenant without competing tenants has a share for each of its zones.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.actors.scanning.tenant_turns import by_tenant
from fairlead.zones.top_level.pointers import PointerRef

SHARE_MAX = 16  # Items. With more, hundreds of busy tenants wait longer for their shares, and throughput does not rise.
SHARES_MIN = (
    64  # So many make up the workers' in-flight limit. Of long items that limit is low, and a share is one item.
)


class BatchSize(NamedTuple):
    """How many tenants one call serves, or zones if all are one tenant's; and how many items each may give."""

    shares: int
    items_max: int


class SizedBatch(NamedTuple):
    """The pointers that a call processes, and how many tenants they belong to."""

    refs: list[PointerRef]
    tenants: int
    batch_size: BatchSize


class BatchSizer:
    """Divides the capacity of calls by what the call before found in the zones of the same shard."""

    def __init__(self, *, dequeue_max: int) -> None:
        """Begin as if each tenant had one item."""
        self._dequeue_max = dequeue_max
        # By shard: how many items a tenant, or a zone of a single tenant, gives at least.
        self._expected: dict[str, int] = {}

    def choose(
        self, shard_name: str, refs: Sequence[PointerRef], *, single_tenant: bool, capacity: int, in_flight_limit: int
    ) -> SizedBatch:
        """Return the pointers to process; see `size_batch`. `single_tenant`: see `ScanInfo`."""
        tenants = list(by_tenant(refs).values())
        if single_tenant:
            batch_size = self.size_batch(shard_name, len(refs), capacity=capacity, in_flight_limit=in_flight_limit)
            return SizedBatch(list(refs[: batch_size.shares]), 1, batch_size)
        batch_size = self.size_batch(shard_name, len(tenants), capacity=capacity, in_flight_limit=in_flight_limit)
        chosen = [ref for some in tenants[: batch_size.shares] for ref in some[: batch_size.items_max]]
        return SizedBatch(chosen, batch_size.shares, batch_size)

    def size_batch(self, shard_name: str, shares: int, *, capacity: int, in_flight_limit: int) -> BatchSize:
        """Return the size of a call for so many `shares`: tenants, or zones of one tenant.

        Args:
          capacity: items that the workers can take now.
          in_flight_limit: items that they want to hold; the longer items run, the fewer.
        """
        share_max = max(1, min(SHARE_MAX, self._dequeue_max, in_flight_limit // SHARES_MIN))
        share = min(share_max, self._expected.get(shard_name, 1))
        count = min(shares, -(-capacity // share))
        return BatchSize(count, min(self._dequeue_max, capacity // max(1, count)))

    def learn(self, shard_name: str, batch_size: BatchSize, *, served_tenants: int, items: int) -> None:
        """Note the result of a call. If all tenants gave as many items as they might, the next share is twice that."""
        if served_tenants:
            asked = served_tenants * batch_size.items_max
            expected = 2 * batch_size.items_max if 20 * items >= 19 * asked else -(-items // served_tenants)
            self._expected[shard_name] = max(1, expected)
