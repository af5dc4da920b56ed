"""Insertion: what every transaction does that adds an item to a zone, or lets one vest earlier (QuiCK section 6).

An index entry that vests earlier than the zone's pointer would not be found. So the pointer is made or woken in the
same transaction.
"""

from collections.abc import Sequence

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import ID_BYTES, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.id_retention import IdState, read_id_state, status_of_id
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, NewItem, new_record
from fairlead.zones.records import PointerRecord, decode, is_newer
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.part_writes import PartWrites


def enqueue_op(
    tr: Transaction,
    location: ZoneLocation,
    items: Sequence[tuple[bytes, NewItem]],
    *,
    now_us: int,
    ids_are_new: bool = True,
    parts: PartWrites | None = None,
) -> Operation[list[Enqueued]]:
    """Add items under ids of 16 bytes, and see to it that the zone's pointer vests no later than they do.

    An id that is present, leased, a dead letter, or completed within its `unique_for` changes nothing, and the
    status says so; so does an id that comes a second time in one call. An id whose item has no `given_id` must be
    new, and this is not checked: so the caller's attempt needs a receipt. If `ids_are_new` is false, such an id
    that is present changes nothing.

    Reads with conflict: ownership; per item with a given id its record, dead letter and retained id; the pointer as
    `pointers.read_for_insert` says. Writes per item: record, index entry, counts, two for each of
    its keys; once: the pointer, if it must be made or woken, which reads its record with conflict too. Two enqueues of
    different ids into a zone with an awake pointer never conflict, nor does an enqueue with a dequeue. The second
    enqueue of one transaction finds the pointer as the first has left it: it makes none, and wakes it only for an item
    that vests earlier still.
    `parts` gathers what is written to the keys of the zone's part, for the caller to write.
    """
    keys = location.keys
    owner = tr.get(keys.tenant.owner)
    stored = pointers.read_for_insert(tr, location)
    asked: dict[bytes, IdState] = {}
    for item_id, item in items:
        _check_id(item_id)
        if item.given_id is not None or not ids_are_new:
            asked[item_id] = read_id_state(tr, keys, item_id, is_given=item.given_id is not None)
    yield
    policy = check_owner(tr, location.layout, location.keys.tenant, owner.value)
    results: list[Enqueued] = []
    added: dict[str, int] = {}
    new_ids: set[bytes] = set()
    earliest_us = None
    for item_id, item in items:
        status = status_of_id(asked[item_id], now_us) if item_id in asked else EnqueueStatus.ENQUEUED
        if item_id in new_ids:
            probe("an id comes twice in one enqueue")
            status = EnqueueStatus.PRESENT
        results.append(Enqueued(item_id, status))
        if status is not EnqueueStatus.ENQUEUED:
            continue
        new_ids.add(item_id)
        vesting_us = now_us + item.delay_us
        stored_item.insert(tr, location, item_id, new_record(item, item_id, vesting_us=vesting_us, now_us=now_us))
        if item.given_id is not None:
            tr.clear(keys.result(item_id))  # of an earlier item of this id
        added[item.kind] = added.get(item.kind, 0) + 1
        earliest_us = vesting_us if earliest_us is None else min(earliest_us, vesting_us)
    for kind, count in added.items():
        stored_item.change_count(tr, location, kind, count, parts)
    if earliest_us is not None:
        ensure_pointer(tr, location, stored.value, earliest_us, now_us, asleep=policy.paused, parts=parts)
    return results


def wake_op(tr: Transaction, location: ZoneLocation, *, earliest_us: int, now_us: int) -> Operation[None]:
    """Make the zone's pointer vest no later than `earliest_us`; make it if there is none.

    For every transaction that inserts an index entry earlier than the one it replaces. Reads the pointer as
    `pointers.read_for_insert` says, and its record with conflict if it must move.
    """
    stored = pointers.read_for_insert(tr, location)
    yield
    ensure_pointer(tr, location, stored.value, earliest_us, now_us)


def wake_if_there_op(tr: Transaction, location: ZoneLocation, *, earliest_us: int, now_us: int) -> Operation[None]:
    """Make the zone's pointer vest no later than `earliest_us`, if there is one; see `wake_op`.

    For a caller that does not read the tenant's ownership. A pointer that is gone was deleted because its zone was
    empty, or because its tenant had moved to another shard. Here it would lead to nothing.
    """
    stored = pointers.read_for_insert(tr, location)
    yield
    if stored.value is not None:
        ensure_pointer(tr, location, stored.value, earliest_us, now_us)


def ensure_pointer(
    tr: Transaction,
    location: ZoneLocation,
    stored: bytes | None,
    earliest_us: int,
    now_us: int,
    *,
    asleep: bool = False,
    parts: PartWrites | None = None,
) -> None:
    """Make the pointer or wake it if what vests at `earliest_us` needs that; one that exists may stay `asleep`."""
    pointer = None if stored is None else decode(PointerRecord, stored)
    if stored is None or (pointer is None and not is_newer(stored)):
        if stored is not None:  # A manager may make it anew, too.
            tr.add_read_conflict_key(location.keys.pointer)
        pointers.create(tr, location, vesting_us=max(earliest_us, now_us), now_us=now_us, parts=parts)
    elif (
        not asleep
        and pointer is not None
        and pointers.must_wake(pointer, earliest_us=earliest_us, now_us=now_us, settings=location.layout.settings)
    ):
        pointers.wake(tr, location, pointer, earliest_us=earliest_us, now_us=now_us, parts=parts)


def _check_id(item_id: bytes) -> None:
    if len(item_id) != ID_BYTES:
        raise BadArgument(argument="item_id", value=item_id, allowed="16 bytes, such as `item_id_of` returns")
