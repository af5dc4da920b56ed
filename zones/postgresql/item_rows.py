"""What a row of an item holds beside its columns, and how a record is made of both."""

import msgspec
from msgspec.structs import replace

from fairlead.zones.external.item_ids import unpacked_given
from fairlead.zones.external.store import Start
from fairlead.zones.queue.items import NewItem, pack_payload
from fairlead.zones.records import DeadLetterRecord, ItemRecord, encode

EXPIRED_ALONE = 3  # In the column `started`, of an item that is leased anew.


def packed_new(item: NewItem) -> bytes | None:
    """Return what the columns do not say of a new item; None: they say it all."""
    if item.trace is None and item.run is None and item.parent is None and not item.keys and not item.unique_key:
        return None
    record = ItemRecord(
        kind=item.kind, payload=b"", priority=item.priority, vesting_us=0, enqueued_us=0, trace=item.trace,
        run=item.run, parent=item.parent, keys=item.keys, unique_key=item.unique_key,
    )  # fmt: skip
    return encode(record)


def packed_history(record: ItemRecord) -> bytes:
    """Return a record without what is in columns."""
    return encode(_history(record))


def packed_dead_letter(record: DeadLetterRecord) -> bytes:
    """Return a dead letter without what is in columns."""
    return encode(replace(record, item=replace(_history(record.item), enqueued_us=record.item.enqueued_us)))


def fill_record(
    record: ItemRecord,
    kind: str,
    priority: int,
    unique_us: int,
    given: bytes | None,
    payload: bytes | None,
    args: str | None,
) -> None:
    """Give a record what is in columns of its own. `args`: the payload as JSON, if `payload` is None."""
    record.kind, record.priority, record.unique_us = kind, priority, unique_us
    record.payload = pack_payload(None if args is None else msgspec.json.decode(args)) if payload is None else payload
    record.given_id = None if given is None else unpacked_given(given)


def fill_deaths(record: ItemRecord, expired: int, deaths: int, started: int) -> None:
    """Give a record what columns say of its leases that expired. `started`: a `Start`, or `EXPIRED_ALONE`."""
    record.expired_count, record.expiry_count = expired, deaths
    record.started, record.ran_isolated = 0 < started < EXPIRED_ALONE, started > Start.BESIDE_OTHERS


def _history(record: ItemRecord) -> ItemRecord:
    return replace(record, payload=b"", vesting_us=0, enqueued_us=0, lease_id=b"", given_id=None)
