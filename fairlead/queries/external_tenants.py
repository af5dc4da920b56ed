"""What an external store holds of one tenant: its queues there, with their first items and their dead letters."""

from typing import NamedTuple

from fairlead.queries.tenants import DEAD_LETTERS_MAX, ITEMS_MAX, QUEUES_MAX, QueueDetails
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.names import Queue
from fairlead.zones.layout import DEFAULT_ZONE, Tenant


class QueuesInStore(NamedTuple):
    """A tenant's queues in an external store: those that hold items, and the default one if it has dead letters.

    `whole`: whether these are all that hold items.
    """

    queues: list[QueueDetails]
    whole: bool


def read_tenant_in_store(store: InspectedStore, tenant: Tenant, *, now_us: int) -> QueuesInStore:
    """Return a tenant's queues in an external store.

    Raises:
      StoreUnavailable: the store does not answer.
    """
    default = Queue(tenant, DEFAULT_ZONE)
    behind = store.queues_behind(Queue(tenant, ""), QUEUES_MAX + 1)
    others = [queue for queue in behind if queue.tenant == tenant and queue != default]
    found = [_read_queue(store, queue, now_us) for queue in sorted([default, *others[: QUEUES_MAX - 1]])]
    return QueuesInStore([each for each in found if each.total or each.dead_letters], len(others) < QUEUES_MAX)


def _read_queue(store: InspectedStore, queue: Queue, now_us: int) -> QueueDetails:
    waiting = store.queues.count(queue)
    items = store.queues.peek(queue, items_max=ITEMS_MAX, vested_only=False, now_us=now_us) if waiting else []
    rows = store.queues.dead_letters(queue, items_max=DEAD_LETTERS_MAX + 1)
    found = [row.dead_letter for row in rows[:DEAD_LETTERS_MAX] if row.dead_letter is not None]
    return QueueDetails(queue.zone, waiting, items, found, len(rows) <= DEAD_LETTERS_MAX)
