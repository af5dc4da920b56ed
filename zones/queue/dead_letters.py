"""Dead letters: items that failed for good, kept with their errors until an operator retries or discards them.

A dead letter lies in its tenant's zone, so it moves with the tenant and is deleted with the tenant. One key per dead
letter in an index of the shard, ordered by time, lets an operator find all of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import (
    DEAD_LETTER_INDEX,
    ROOT,
    pack_bytes,
    pack_int,
    pack_text,
    range_begin,
    range_end,
    unpack_bytes,
    unpack_int,
    unpack_names,
)
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.moving.move_record import take_back_instead
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.insertion import wake_op
from fairlead.zones.queue.stored_item import shortened
from fairlead.zones.queue.unique_keys import release_op
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode, encode
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.workflow.run_end import end_run_op

_INDEX = ROOT + pack_int(DEAD_LETTER_INDEX)


class DeadLetter(NamedTuple):
    """A dead letter and where it lies."""

    tenant: Tenant
    zone: str
    id: bytes
    record: DeadLetterRecord


def move_to_dead_letters(
    tr: Transaction,
    location: ZoneLocation,
    item_id: bytes,
    record: ItemRecord,
    *,
    reason: str,
    error: str,
    traceback: str,
    now_us: int,
) -> None:
    """Move an item, whose record and ownership the caller has read with conflict, from its queue to the dead letters.

    The caller then calls `children.report_dead_letters`, after all other operations of its transaction.
    Writes: the item's record and index entry (cleared), the key of its claim, the count, the dead letter, its entry in
    the shard's index.
    """
    if record.claim:
        worker_sessions.take_away(tr, location, item_id, record, notify=False)
    stored_item.remove(tr, location, item_id, record, becomes_dead_letter=True)
    stored_item.change_count(tr, location, record.kind, -1)
    record.lease_id = b""
    record.last_error = shortened(error)
    dead_letter = DeadLetterRecord(record, reason, record.last_error, shortened(traceback), now_us)
    tr.set(location.keys.dead_letter(item_id), encode(dead_letter))
    tr.set(dead_letter_index_key(location, item_id, now_us), record.kind.encode())


def read(tr: Transaction, location: ZoneLocation, item_id: bytes) -> DeadLetterRecord | None:
    """Return the dead letter of an item, or None. Reads its key and ownership with conflict.

    Raises:
      TenantMoved: another shard owns the tenant.
    """
    owner = tr.get(location.keys.tenant.owner)
    stored = tr.get(location.keys.dead_letter(item_id))
    check_owner(tr, location.layout, location.keys.tenant, owner.value)
    return None if stored.value is None else decode(DeadLetterRecord, stored.value)


def remove(tr: Transaction, location: ZoneLocation, item_id: bytes, dead_letter: DeadLetterRecord) -> None:
    """Clear a dead letter and its index entry, not its payload nor its keys. The caller has called `read`."""
    tr.clear(location.keys.dead_letter(item_id))
    tr.clear(dead_letter_index_key(location, item_id, dead_letter.dead_lettered_us))


def retry_dead_letter(
    tr: Transaction, location: ZoneLocation, item_id: bytes, dead_letter: DeadLetterRecord, *, now_us: int
) -> None:
    """Put a dead letter back into its queue: due now, its attempts reset. The caller has called `read`.

    The caller wakes the pointer (`QueueZone.wake_op`).
    """
    probe("a dead letter is retried")
    remove(tr, location, item_id, dead_letter)
    record = dead_letter.item
    reset_attempts(record, now_us=now_us)
    tr.set(location.keys.item(item_id), encode(record))
    tr.set(location.keys.vest(record.priority, now_us, item_id), record.kind.encode())
    stored_item.change_count(tr, location, record.kind, 1)


def reset_attempts(record: ItemRecord, *, now_us: int) -> None:
    """Give an item all its attempts again, from now on."""
    record.error_count = record.expiry_count = record.expired_count = record.died = record.return_count = 0
    record.ran_isolated = record.started = False
    record.vesting_us = record.delayed_until_us = now_us


def discard(
    tr: Transaction, location: ZoneLocation, item_id: bytes, dead_letter: DeadLetterRecord, *, now_us: int
) -> None:
    """Delete a dead letter, its payload and the entries of its keys; end its run. The caller has called `read`.

    A move that is under way needs its item to end: it is asked to be taken back, and the item is retried instead.

    Reads with conflict: nothing more, unless keys of its run are stored, or it carries out a move; then see
    `end_run_op`, and `take_back_instead` and `wake_op`.
    """
    if take_back_instead(tr, location, item_id, dead_letter.item):
        probe("the dead letter of a move is discarded, and the move is taken back")
        retry_dead_letter(tr, location, item_id, dead_letter, now_us=now_us)
        run_one(wake_op(tr, location, earliest_us=now_us, now_us=now_us))
        return
    remove(tr, location, item_id, dead_letter)
    if dead_letter.item.keeps_run:
        run_one(end_run_op(tr, location, dead_letter.item.run_of(item_id), now_us=now_us))
    if dead_letter.item.unique_key:
        run_one(release_op(tr, location, [(item_id, dead_letter.item)], now_us=now_us))
    stored_item.clear_what_is_kept(tr, location, item_id, dead_letter.item)


def listing(tr: Reader, layout: ShardLayout, *, items_max: int) -> Iterator[DeadLetter]:
    """Yield the shard's dead letters, oldest first. Snapshot reads; one that is unreadable is passed over."""
    for row in tr.snapshot.get_range(_INDEX, range_end(_INDEX), limit=items_max):
        entry = parse_dead_letter_index_key(row.key, layout)
        if entry is None:
            continue
        location, item_id = entry
        value = tr.snapshot.get(location.keys.dead_letter(item_id)).value
        record = None if value is None else decode(DeadLetterRecord, value)
        if record is not None:
            yield DeadLetter(location.tenant, location.name, item_id, record)


def in_zone(tr: Reader, location: ZoneLocation, *, items_max: int) -> tuple[list[DeadLetter], bool]:
    """Return dead letters of a queue zone, by their ids, and whether these are all. Snapshot reads.

    One that is unreadable is passed over.
    """
    prefix = location.keys.dead_letter_prefix()
    rows = list(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=items_max + 1))
    records = [(row.key, decode(DeadLetterRecord, row.value)) for row in rows[:items_max]]
    return [
        DeadLetter(location.tenant, location.name, unpack_bytes(key[len(prefix) :]), record)
        for key, record in records
        if record is not None
    ], len(rows) <= items_max


def zones_with_dead_letter(
    tr: Reader, layout: ShardLayout, item_id: bytes, *, dead_letters_max: int
) -> tuple[list[ZoneLocation], bool]:
    """Return the zones that hold a dead letter of this id, and whether all index entries were read. Snapshot reads.

    The youngest entries are read first.
    """
    rows = list(
        tr.snapshot.get_range(
            _INDEX, range_end(_INDEX), limit=dead_letters_max + 1, reverse=True, streaming_mode=WANT_ALL
        )
    )
    ending = pack_bytes(item_id)  # To parse thousands of keys would be half of the cost.
    entries = [
        parse_dead_letter_index_key(row.key, layout) for row in rows[:dead_letters_max] if row.key.endswith(ending)
    ]
    return [entry[0] for entry in entries if entry is not None and entry[1] == item_id], len(rows) <= dead_letters_max


def dead_letter_index_key(location: ZoneLocation, item_id: bytes, dead_lettered_us: int) -> bytes:
    """Return the key of a dead letter in the shard's index."""
    tenant = location.tenant
    names = pack_text(tenant.app) + pack_text(tenant.user) + pack_text(location.name)
    return _INDEX + pack_int(dead_lettered_us) + names + pack_bytes(item_id)


def dead_letter_index_range() -> tuple[bytes, bytes]:
    """Return begin and end of the shard's index of dead letters."""
    return _INDEX, range_end(_INDEX)


def parse_dead_letter_index_key(key: bytes, layout: ShardLayout) -> tuple[ZoneLocation, bytes] | None:
    """Parse a key of the shard's index: return the zone, and the item's id; None if it is damaged."""
    dead_lettered_us = unpack_int(key, len(_INDEX))
    named = None if dead_lettered_us is None else unpack_names(key, dead_lettered_us[1], 3)
    if named is None:
        return None
    (app, user, zone), end = named
    return layout.location(Tenant(app, user), zone), unpack_bytes(key[end:])
