"""An item as it is stored: record, index entry, counts, payload, entries of its keys, always changed together.

All code that inserts, moves or removes an item calls the functions here, so that the index names every record exactly
once and the counts equal the items. The functions only write. Their callers state what must be read first, and with
which conflicts.
"""

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.probes import probe
from fairlead.zones.queue import item_keys
from fairlead.zones.records import ItemRecord, encode
from fairlead.zones.settings import INLINE_PAYLOAD_BYTES_MAX, PIECE_BYTES, TEXT_BYTES_MAX
from fairlead.zones.top_level.part_writes import PartWrites, add_to_count


def insert(tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> None:
    """Write a new item: index entry, payload, entries of its keys. The caller counts it with `change_count`."""
    payload = record.payload
    if len(payload) > INLINE_PAYLOAD_BYTES_MAX:
        record.payload_bytes = len(payload)
        record.payload = b""
        for number, begin in enumerate(range(0, len(payload), PIECE_BYTES)):
            tr.set(location.keys.piece(item_id, number), payload[begin : begin + PIECE_BYTES])
    tr.set(location.keys.item(item_id), encode(record))
    tr.set(location.keys.vest(record.priority, record.vesting_us, item_id), record.kind.encode())
    if record.keys:
        item_keys.add(tr, location, item_id, record.keys)


def rewrite(tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> None:
    """Store `record`, in which the caller changed neither priority nor vesting time."""
    tr.set(location.keys.item(item_id), encode(record))


def move(tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, vesting_us: int) -> bytes:
    """Store `record`, changed by the caller, under a new vesting time; return its stored form."""
    tr.clear(location.keys.vest(record.priority, record.vesting_us, item_id))
    record.vesting_us = vesting_us
    value = encode(record)
    tr.set(location.keys.item(item_id), value)
    tr.set(location.keys.vest(record.priority, vesting_us, item_id), record.kind.encode())
    return value


def remove(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, *, becomes_dead_letter: bool = False
) -> None:
    """Clear an item, its index entry, its traceback. The caller counts it.

    A dead letter keeps the payload, and the entries of its keys. Else they are cleared, too.
    """
    tr.clear(location.keys.item(item_id))
    tr.clear(location.keys.vest(record.priority, record.vesting_us, item_id))
    if record.last_error:
        tr.clear(location.keys.traceback(item_id))
    if not becomes_dead_letter:
        clear_what_is_kept(tr, location, item_id, record)


def clear_what_is_kept(tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> None:
    """Clear what an item has beside its record, its index entry and its traceback: payload, entries of its keys."""
    if record.payload_bytes:
        clear_payload(tr, location, item_id)
    if record.keys:
        item_keys.remove(tr, location, item_id, record.keys)


def note_failure(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, *, error: str, traceback: str
) -> None:
    """Note in `record`, which the caller stores, how an attempt failed; write the traceback beside it.

    The traceback has a key of its own, so that leases do not rewrite it. Only an item that has failed has one, and its
    record says so: an item that never fails costs no write and no clear.
    """
    had_one = bool(record.last_error)
    record.last_error = shortened(error)
    if record.last_error and traceback:
        tr.set(location.keys.traceback(item_id), shortened(traceback).encode())
    elif had_one:
        tr.clear(location.keys.traceback(item_id))


def shortened(text: str) -> str:
    """Return `text` cut in its middle to what a record may hold; its end is the most useful part.

    A character that cannot be stored (a lone surrogate, as in the name of a file) is written as its number.
    """
    if len(text) > TEXT_BYTES_MAX // 4:
        half = TEXT_BYTES_MAX // 8
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text.encode(errors="backslashreplace").decode()


def clear_payload(tr: Transaction, location: ZoneLocation, item_id: bytes) -> None:
    """Clear the pieces of a payload that was too long for its record."""
    prefix = location.keys.payload_prefix(item_id)
    tr.clear_range(range_begin(prefix), range_end(prefix))


def read_payload(tr: Reader, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> bytes:
    """Return the payload of an item, put together from its pieces by snapshot reads if it has any."""
    if not record.payload_bytes:
        return record.payload
    probe("a payload is put together from its pieces")
    prefix = location.keys.payload_prefix(item_id)
    return b"".join(pair.value for pair in tr.snapshot.get_range(range_begin(prefix), range_end(prefix)))


def change_count(
    tr: Transaction, location: ZoneLocation, kind: str, change: int, parts: PartWrites | None = None
) -> None:
    """Add `change` to the counts of the zone and of its part; a count's key goes when it reaches zero.

    Atomic adds: no reads, no conflicts. Not idempotent: the caller has read, with conflict, that the items are
    there (or are not). `parts` gathers the change of the part's count; None: it is written now.
    """
    add_to_count(tr, location.keys.count(kind), change)
    if parts is None:
        add_to_count(tr, location.part.depth(kind), change)
    else:
        parts.count(location.part.depth(kind), change)


def number_of(value: bytes) -> int:
    """Return the number in a count; a damaged count is read as an atomic add reads it."""
    return int.from_bytes(value[:8].ljust(8, b"\0"), "little", signed=True)
