"""One operation on many held items, zone by zone: all zones send their reads together."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fairlead.actors.messages import ItemRef
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import Operation, run_together
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.shard import Shard

T = TypeVar("T")


def zone_by_zone(
    shard: Shard, refs: Sequence[ItemRef], operate: Callable[[QueueZone, list[LeaseRef]], Operation[list[Outcome]]]
) -> list[Outcome]:
    """Run an operation on the items of each queue zone, all in one transaction; return the outcome for each item.

    An item counts as lost if its tenant has moved to another shard.
    """
    zones: dict[tuple[Tenant, str], list[int]] = {}
    for number, ref in enumerate(refs):
        zones.setdefault((ref.tenant, ref.zone), []).append(number)
    answers = run_together(
        lost_if_moved(
            operate(shard.zone(tenant, zone), [(refs[number].item_id, refs[number].lease_id) for number in numbers]),
            [Outcome.LEASE_LOST] * len(numbers),
        )
        for (tenant, zone), numbers in zones.items()
    )
    outcomes = [Outcome.LEASE_LOST] * len(refs)
    for numbers, some in zip(zones.values(), answers, strict=True):
        for number, outcome in zip(numbers, some, strict=True):
            outcomes[number] = outcome
    return outcomes


def lost_if_moved(operation: Operation[T], lost: T) -> Operation[T]:
    """Run an operation on held items of a zone; return `lost` if its tenant has moved to another shard."""
    try:
        return (yield from operation)
    except TenantMoved:  # Raised before anything was written.
        return lost
