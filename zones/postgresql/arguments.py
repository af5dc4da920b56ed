"""How items and queues are named in calls of the schema's functions, and what calls on held items answer."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from fairlead.zones.external.names import Queue
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef

OUTCOMES = (Outcome.DONE, Outcome.LEASE_LOST, Outcome.GONE, None)  # By the numbers of fairlead.outcomes.


def ids_of(held: Sequence[LeaseRef]) -> tuple[list[UUID], list[UUID | None]]:
    """Return the ids of items, and those of their leases."""
    leases = [None if lease_id is None else UUID(bytes=lease_id) for _, lease_id in held]
    return [UUID(bytes=item_id) for item_id, _ in held], leases


def names_of(queues: Iterable[Queue]) -> tuple[list[str], list[str], list[str]]:
    """Return the apps, users and zones of queues."""
    queues = list(queues)
    return ([each.tenant.app for each in queues], [each.tenant.user for each in queues], [each.zone for each in queues])
