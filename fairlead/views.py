"""Items as plain data for the command line, the dashboard and programs, with payloads unpacked."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fairlead.zones.engines import Reader
from fairlead.zones.errors import PayloadDamaged
from fairlead.zones.external.names import Queue
from fairlead.zones.index_values import IndexValue
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.item_keys import unpack_key
from fairlead.zones.queue.items import Item, unpack_payload
from fairlead.zones.records import DeadLetterRecord, GivenId, ItemRecord, Progress
from fairlead.zones.shard import Shard

LEASE_EXPIRED = "lapsed"  # As `DeadLetterRecord.reason` stores it.


class State(Enum):
    """The state of an item in its queue."""

    VESTED = "vested"  # due: the next dequeue may lease it
    DELAYED = "delayed"  # not due yet, because of a delay or a backoff
    LEASED = "leased"  # a worker holds its lease, and extends it while it lives


@dataclass(frozen=True, slots=True)
class ItemView:
    """An item in its queue. Times in microseconds since the epoch."""

    id: bytes
    given_id: GivenId | None
    shard: str
    tenant: Tenant
    zone: str
    kind: str
    payload: Any
    priority: int
    state: State
    enqueued_us: int
    vesting_us: int
    error_count: int
    expiry_count: int
    last_error: str
    progress: Progress | None  # as the handler last reported it
    keys: Mapping[str, IndexValue | None]  # see `keys_of`
    store: str | None = None  # the external store in which it lies; then `shard` has its queue's pointer


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """An item that failed for good, and why. Times in microseconds since the epoch.

    `reason`: "error", its handler failed; "undone", likewise, and its steps as a workflow were undone; "lease expired",
    its worker died or stalled while it ran isolated.
    """

    id: bytes
    given_id: GivenId | None
    shard: str
    tenant: Tenant
    zone: str
    kind: str
    payload: Any
    reason: str
    error: str
    traceback: str
    error_count: int
    enqueued_us: int
    dead_lettered_us: int
    keys: Mapping[str, IndexValue | None]  # see `keys_of`
    store: str | None = None  # see `ItemView`


def item_view(
    shard: Shard, tr: Reader, location: ZoneLocation, item_id: bytes, record: ItemRecord, *, now_us: int
) -> ItemView:
    """Return the view of an item. A payload that is stored apart is read by snapshot."""
    payload = _payload(tr, location, item_id, record)
    return _item_view(shard.name, location.tenant, location.name, item_id, record, payload, now_us=now_us)


def external_item_view(shard_name: str, store: str, queue: Queue, item: Item, *, now_us: int) -> ItemView:
    """Return the view of an item in an external store."""
    payload = _unpacked(item.record.payload)
    return _item_view(shard_name, *queue, item.id, item.record, payload, now_us=now_us, store=store)


def _item_view(
    shard_name: str,
    tenant: Tenant,
    zone: str,
    item_id: bytes,
    record: ItemRecord,
    payload: Any,
    *,
    now_us: int,
    store: str | None = None,
) -> ItemView:
    state = State.VESTED if record.vesting_us <= now_us else State.LEASED if record.lease_id else State.DELAYED
    return ItemView(
        id=item_id,
        given_id=record.given_id,
        shard=shard_name,
        tenant=tenant,
        zone=zone,
        kind=record.kind,
        payload=payload,
        priority=record.priority,
        state=state,
        enqueued_us=record.enqueued_us,
        vesting_us=record.vesting_us,
        error_count=record.error_count,
        expiry_count=record.expiry_count,
        last_error=record.last_error,
        progress=record.progress,
        keys=keys_of(record),
        store=store,
    )


def dead_letter_view(shard: Shard, tr: Reader, dead_letter: DeadLetter) -> DeadLetterView:
    """Return the view of a dead letter. A payload that is stored apart is read by snapshot."""
    location = shard.layout.location(dead_letter.tenant, dead_letter.zone)
    payload = _payload(tr, location, dead_letter.id, dead_letter.record.item)
    return _dead_letter_view(shard.name, dead_letter, payload)


def external_dead_letter_view(shard_name: str, store: str, dead_letter: DeadLetter) -> DeadLetterView:
    """Return the view of a dead letter in an external store."""
    return _dead_letter_view(shard_name, dead_letter, _unpacked(dead_letter.record.item.payload), store=store)


def _dead_letter_view(
    shard_name: str, dead_letter: DeadLetter, payload: Any, *, store: str | None = None
) -> DeadLetterView:
    item = dead_letter.record.item
    return DeadLetterView(
        id=dead_letter.id,
        given_id=item.given_id,
        shard=shard_name,
        tenant=dead_letter.tenant,
        zone=dead_letter.zone,
        kind=item.kind,
        payload=payload,
        reason=reason_in_words(dead_letter.record),
        error=dead_letter.record.error,
        traceback=dead_letter.record.traceback,
        error_count=item.error_count,
        enqueued_us=item.enqueued_us,
        dead_lettered_us=dead_letter.record.dead_lettered_us,
        keys=keys_of(item),
        store=store,
    )


def keys_of(record: ItemRecord) -> dict[str, IndexValue | None]:
    """Return the keys by which an item is found. None: the value is long, and only its hash is kept."""
    return dict(map(unpack_key, record.keys))


def reason_in_words(record: DeadLetterRecord) -> str:
    """Return why an item became a dead letter; see `DeadLetterView.reason`."""
    return "lease expired" if record.reason == LEASE_EXPIRED else record.reason


def progress_in_words(progress: Progress) -> str:
    """Return progress in words: "40 of 100, resizing"."""
    of = "" if progress.total is None else f" of {_number(progress.total)}"
    return f"{_number(progress.done)}{of}" + (f", {progress.note}" if progress.note else "")


def _number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def _payload(tr: Reader, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> Any:
    """Return a payload, read by snapshot if it is stored apart; for a damaged payload, the text of the error."""
    try:
        packed = stored_item.read_payload(tr, location, item_id, record)
    except PayloadDamaged as error:
        return str(error)
    return _unpacked(packed)


def _unpacked(packed: bytes) -> Any:
    try:
        return unpack_payload(packed)
    except PayloadDamaged as error:
        return str(error)
