"""What people and programs are shown of items: plain data, the payload unpacked."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from fairlead.zones.engines import Reader
from fairlead.zones.errors import PayloadDamaged
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.records import GivenId, ItemRecord, Progress
from fairlead.zones.shard import Shard


class State(Enum):
    """What an item in its queue waits for."""

    VESTED = "vested"  # nothing: the next visit may take it
    DELAYED = "delayed"  # its time, set by the enqueuer or by a retry
    LEASED = "leased"  # a worker, which holds it until then and extends that while it lives


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
    progress: Progress | None  # as the last attempt told that told any


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """An item that will not run again by itself, and why. Times in microseconds since the epoch.

    `reason`: "error", it failed for good; "lapsed", its worker died or stalled while it ran alone.
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


def item_view(
    shard: Shard, tr: Reader, location: ZoneLocation, item_id: bytes, record: ItemRecord, *, now_us: int
) -> ItemView:
    """Return the view of an item, its payload read by snapshot if it lies apart."""
    state = State.VESTED if record.vesting_us <= now_us else State.LEASED if record.lease_id else State.DELAYED
    return ItemView(
        id=item_id,
        given_id=record.given_id,
        shard=shard.name,
        tenant=location.tenant,
        zone=location.name,
        kind=record.kind,
        payload=_payload(tr, location, item_id, record),
        priority=record.priority,
        state=state,
        enqueued_us=record.enqueued_us,
        vesting_us=record.vesting_us,
        error_count=record.error_count,
        expiry_count=record.expiry_count,
        last_error=record.last_error,
        progress=record.progress,
    )


def dead_letter_view(shard: Shard, tr: Reader, buried: DeadLetter) -> DeadLetterView:
    """Return the view of a buried item, its payload read by snapshot if it lies apart."""
    location = shard.layout.location(buried.tenant, buried.zone)
    item = buried.record.item
    return DeadLetterView(
        id=buried.id,
        given_id=item.given_id,
        shard=shard.name,
        tenant=buried.tenant,
        zone=buried.zone,
        kind=item.kind,
        payload=_payload(tr, location, buried.id, item),
        reason=buried.record.reason,
        error=buried.record.error,
        traceback=buried.record.traceback,
        error_count=item.error_count,
        enqueued_us=item.enqueued_us,
        dead_lettered_us=buried.record.dead_lettered_us,
    )


def progress_in_words(progress: Progress) -> str:
    """Return progress as people say it: "40 of 100, resizing"."""
    of = "" if progress.total is None else f" of {_number(progress.total)}"
    return f"{_number(progress.done)}{of}" + (f", {progress.note}" if progress.note else "")


def _number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def _payload(tr: Reader, location: ZoneLocation, item_id: bytes, record: ItemRecord) -> Any:
    """Return a payload, read by snapshot if it lies apart; of one that is damaged, what is wrong."""
    try:
        return unpack_payload(stored_item.read_payload(tr, location, item_id, record))
    except PayloadDamaged as error:
        return str(error)
