"""One operation on many held items, zone by zone: all zones send their reads together.

A tenant that has moved, or is locked, refuses its own items only: the others of the transaction go on.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fairlead.actors.messages import ItemRef
from fairlead.zones.errors import OwnerUnreadable, TenantLocked, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import Operation, run_together
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.shard import Shard

T = TypeVar("T")

Refusal = TenantMoved | TenantLocked  # Why nothing was written for a tenant: it lives elsewhere, or is locked.


def zone_by_zone(
    shard: Shard, refs: Sequence[ItemRef], operate: Callable[[QueueZone, list[LeaseRef]], Operation[list[Outcome]]]
) -> list[Outcome | Refusal]:
    """Run an operation on the items of each queue zone, all in one transaction; return the outcome for each item.

    For an item whose tenant has moved, or is locked, that is the refusal. An item counts as lost if its tenant's
    ownership record cannot be read.
    """
    zones: dict[tuple[Tenant, str], list[int]] = {}
    for number, ref in enumerate(refs):
        zones.setdefault((ref.tenant, ref.zone), []).append(number)
    answers = run_together(
        or_refusal(
            operate(shard.zone(tenant, zone), [(refs[number].item_id, refs[number].lease_id) for number in numbers]),
            [Outcome.LEASE_LOST] * len(numbers),
        )
        for (tenant, zone), numbers in zones.items()
    )
    outcomes: list[Outcome | Refusal] = [Outcome.LEASE_LOST] * len(refs)
    for numbers, some in zip(zones.values(), answers, strict=True):
        for at, number in enumerate(numbers):
            outcomes[number] = some[at] if isinstance(some, list) else some
    return outcomes


def or_refusal(operation: Operation[T], lost: T) -> Operation[T | Refusal]:
    """Run an operation on held items of a zone; return why its tenant refuses it, if it does.

    `lost`: is returned if the tenant's ownership record cannot be read.
    """
    try:
        return (yield from operation)
    except OwnerUnreadable:  # Each of these is raised before anything was written.
        return lost
    except (TenantMoved, TenantLocked) as refusal:
        return refusal
