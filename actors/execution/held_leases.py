"""The leases of held items as the lease keeper writes them, wherever the items are stored."""

from collections.abc import Sequence
from typing import Protocol

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.returned_items import return_where_they_live
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt


class HeldLeases(Protocol):
    """The leases of items of one place. Raises what its store raises."""

    def start(self, held: HeldItem, lease_us: int, *, ran_isolated: bool) -> tuple[int, Outcome]:
        """Extend a lease and mark the item as started; return when the lease ends, and how that went."""
        ...

    def return_items(self, items: Sequence[HeldItem]) -> None:
        """Let items vest now, neither as errors nor as lease expiries."""
        ...


class ShardLeases:
    """The leases of items that lie in a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def start(self, held: HeldItem, lease_us: int, *, ran_isolated: bool) -> tuple[int, Outcome]:
        """See `HeldLeases`. The marks: see `QueueZone.extend_op`.

        Raises:
          TenantMoved: its tenant lives on another shard.
        """
        shard, ref = self._shard, held.ref
        zone = shard.zone(ref.tenant, ref.zone)

        def body(attempt: Attempt) -> tuple[int, Outcome]:
            now_us = attempt.now_us
            operation = zone.extend_op(
                attempt.tr,
                [(ref.item_id, ref.lease_id)],
                lease_us=lease_us,
                now_us=now_us,
                started=True,
                ran_isolated=ran_isolated,
            )
            (outcome,) = run_one(operation)
            return now_us + lease_us, outcome

        return shard.transact(shard.in_exclusive_section(body))

    def return_items(self, items: Sequence[HeldItem]) -> None:
        """See `HeldLeases`, on the shards where the tenants live by now."""
        return_where_they_live(self._shard, [held.ref for held in items])
