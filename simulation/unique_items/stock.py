"""What there is in a world of unique items: tenants, queue zones, unique keys, and the items at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from fairlead.records.on_shards.unique_items import pack_unique_key
from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.errors import LeaseLost
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.ownership import check_home, check_owner
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.items import Item
from fairlead.zones.queue.queue_zone import LATER_THAN_ANY_US, QueueZone
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

WORK = "work"  # The kind of the items with unique keys.
ZONES = (DEFAULT_ZONE, "mail")
ITEMS_MAX = 50


class Habits(NamedTuple):
    """What the plan of a run has drawn.

    Attributes:
      tenants: whose items there are.
      keys: the unique keys, packed.
      pauses_frac: how often a process pauses before an access.
      at_once: whether an enqueue on one shard is made in one transaction.
      holds_us: for how long a reservation may be held before it is used.
      kept_us: for how long a key may stay taken after the completion of its item.
      takes, ends: how often each operation of a taker, and of an ender, is drawn, by its name.
    """

    tenants: tuple[Tenant, ...]
    keys: tuple[bytes, ...]
    pauses_frac: float
    at_once: bool
    holds_us: tuple[int, ...]
    kept_us: tuple[int, ...]
    takes: Mapping[str, int]
    ends: Mapping[str, int]


def unique_keys(count: int) -> tuple[bytes, ...]:
    """Return so many unique keys, packed."""
    return tuple(pack_unique_key(("report", number)) for number in range(count))


def on_zone(shards: OpenShards, tenant: Tenant, zone: str, body: Callable[[QueueZone, Attempt], T]) -> T:
    """Return what `body` returns in a transaction on a queue zone, wherever its tenant lives."""

    def once(shard: Shard) -> T:
        queue = shard.zone(tenant, zone)
        return shard.transact(lambda attempt: body(queue, attempt))

    return shards.at_home(tenant, once)


def items_in(shards: OpenShards, tenant: Tenant, zone: str) -> list[Item]:
    """Return the items of a queue zone, also those that are leased, and those whose time has not come."""

    def body(queue: QueueZone, attempt: Attempt) -> list[Item]:
        check_home(attempt.tr, queue.location)
        return queue.peek(attempt.tr, items_max=ITEMS_MAX, now_us=LATER_THAN_ANY_US)

    return on_zone(shards, tenant, zone, body)


def dead_letters_in(shards: OpenShards, tenant: Tenant, zone: str) -> list[DeadLetter]:
    """Return the dead letters of a queue zone."""

    def body(queue: QueueZone, attempt: Attempt) -> list[DeadLetter]:
        check_home(attempt.tr, queue.location)
        return dead_letters.in_zone(attempt.tr, queue.location, items_max=ITEMS_MAX)[0]

    return on_zone(shards, tenant, zone, body)


def make_dead_letter(queue: QueueZone, attempt: Attempt, item_id: bytes, reason: str, lease_id: bytes = b"") -> None:
    """Let an item become a dead letter. `lease_id`: that of who says so; empty: nobody holds it.

    Raises:
      LeaseLost: the item has another lease, or it is gone.
    """
    tr, location = attempt.tr, queue.location
    owner, value = tr.get(location.keys.tenant.owner), tr.get(location.keys.item(item_id)).value
    check_owner(tr, queue.layout, location.keys.tenant, owner.value)
    record = None if value is None else decode(ItemRecord, value)
    if record is None or record.lease_id != lease_id:
        raise LeaseLost(item=item_id.hex())
    dead_letters.move_to_dead_letters(
        tr, location, item_id, record, reason=reason, error="as drawn", traceback="", now_us=attempt.now_us
    )


def retry_dead_letter(queue: QueueZone, attempt: Attempt, item_id: bytes) -> None:
    """Put a dead letter back into its queue, if it is still there."""
    tr, location, now_us = attempt.tr, queue.location, attempt.now_us
    found = dead_letters.read(tr, location, item_id)
    if found is not None:
        dead_letters.retry_dead_letter(tr, location, item_id, found, now_us=now_us)
        run_one(queue.wake_op(tr, earliest_us=now_us, now_us=now_us))
