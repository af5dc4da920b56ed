"""Arguments and results of the operations: new items, leased items, and how an operation on an item went."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import msgspec

from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.errors import BadArgument, PayloadDamaged, PayloadNotData, PayloadTooLarge
from fairlead.zones.index_values import IndexValue
from fairlead.zones.keyspace import PRIORITY_MAX
from fairlead.zones.layout import check_name
from fairlead.zones.queue.item_keys import pack_keys
from fairlead.zones.records import UNDECODABLE, GivenId, ItemRecord, Parent, Trace
from fairlead.zones.settings import PAYLOAD_BYTES_MAX

DEFAULT_PRIORITY = 100
GIVEN_ID_BYTES_MAX = 1_024  # It is kept in the record, which every lease rewrites.

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})

_payloads = msgspec.msgpack.Encoder()
_payload_reader = msgspec.msgpack.Decoder()


def pack_payload(payload: Any) -> bytes:
    """Return `payload` as msgpack. What it holds comes back equal, tuples as lists.

    Raises:
      PayloadNotData: it holds something else than None, bool, int (64 bit), float, text, bytes, lists and dicts.
      PayloadTooLarge: the packed form is longer than 1,000,000 bytes.
    """
    try:
        if type(payload) not in _SCALARS:
            foreign = _foreign(payload)
            if foreign is not None:
                raise PayloadNotData(found=foreign.__name__)
        packed = _payloads.encode(payload)
    except (OverflowError, ValueError, RecursionError) as error:
        raise PayloadNotData(found=type(payload).__name__, reason=str(error)[:200]) from None
    if len(packed) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(bytes=len(packed), bytes_max=PAYLOAD_BYTES_MAX)
    return packed


def _foreign(payload: Any) -> type | None:
    """Return the type of something in `payload` that is not data, or None.

    The encoder would take more (dates, sets, decimals), and they would come back as something else.
    """
    if type(payload) in _SCALARS:
        return None
    if isinstance(payload, dict):
        for key, value in payload.items():
            if type(key) not in _SCALARS:
                return type(key)
            foreign = _foreign(value)
            if foreign is not None:
                return foreign
        return None
    if isinstance(payload, list | tuple):
        return next(filter(None, map(_foreign, payload)), None)
    return type(payload)


def unpack_payload(packed: bytes) -> Any:
    """Return the payload that `pack_payload` packed.

    Raises:
      PayloadDamaged: it is none.
    """
    try:
        return _payload_reader.decode(packed)
    except UNDECODABLE as error:
        raise PayloadDamaged(bytes=len(packed), reason=f"{type(error).__name__}: {error}") from None


def is_payload(packed: bytes) -> bool:
    """Say whether `unpack_payload` can read it."""
    try:
        unpack_payload(packed)
    except PayloadDamaged:
        return False
    return True


class HasKind:
    """An object that stands for its kind where an item is enqueued, such as a registered handler."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class ItemOptions(TypedDict, total=False):
    """How one item is enqueued, besides its kind and payload.

    Every way to enqueue takes these options: a tenant's database, a transaction, a handler, `new_item`, and the command
    line.

    Attributes:
      item_id: your own name for the item, text or bytes, 1 to 1,024 bytes. A second enqueue of it changes nothing
        until the item has completed.
      priority: 0 to 255, lower first; default 100.
      delay: how long from now until the item may run, 0 to ten years; default 0.
      unique_for: how long `item_id` stays taken after the item's completion, 0 to ten years; default 0. Only with an
        `item_id`.
      keys: up to four names with values, such as `{"order": 7}`, by which `app.find_items` finds the item on any shard.
        A name: text of 1 to 32 bytes; a value: text, bytes or a whole number, not empty, at most 10,000 bytes.

    Durations are seconds or a `timedelta`.
    """

    item_id: GivenId | None
    priority: int
    delay: Duration
    unique_for: Duration
    keys: Mapping[str, IndexValue] | None


class EnqueueOptions(ItemOptions, total=False):
    """How one item of a tenant is enqueued: `ItemOptions`, and the queue zone.

    Attributes:
      zone: one of the tenant's queue zones; default "queue".
      unique_key: what no other item of the whole application has: text, bytes, a whole number, or a tuple of these. It
        is held by the item, by its dead letter, and for `unique_for` after its completion. Not with an `item_id`.
      within: a connection to an external store, with an open transaction: the item lies there.
    """

    zone: str
    unique_key: Any
    within: Any


class NewItem(NamedTuple):
    """An item to enqueue. Build it with `new_item`, which checks it.

    `run`: 16 bytes that name this life of the item, drawn by whoever enqueues an item with a `given_id`; None: the id
    of the item, which no other has. `parent`: the workflow's call that the item answers. `keys`: packed by `pack_keys`.
    `unique_key`: packed; whoever enqueues it has claimed it.
    """

    kind: str
    payload: bytes
    priority: int = DEFAULT_PRIORITY
    delay_us: int = 0
    given_id: GivenId | None = None
    unique_us: int = 0
    trace: Trace | None = None
    run: bytes | None = None
    parent: Parent | None = None
    keys: tuple[bytes, ...] = ()
    unique_key: bytes = b""


def kind_of(kind: str | HasKind) -> str:
    """Return the name of a kind that is given by its name, or by its handler.

    Raises:
      BadArgument: it cannot be the name of a kind.
    """
    if isinstance(kind, HasKind):
        return kind.kind
    if callable(kind):
        allowed = "the text of a kind, or its handler, which the decorator @app.handler(...) has made"
        raise BadArgument(argument="kind", value=kind, allowed=allowed)
    return check_name("kind", kind)


def new_item(
    kind: str | HasKind,
    payload: Any = None,
    *,
    item_id: GivenId | None = None,
    priority: int = DEFAULT_PRIORITY,
    delay: Duration = 0,
    unique_for: Duration = 0,
    keys: Mapping[str, IndexValue] | None = None,
) -> NewItem:
    """Return a checked item.

    Args:
      kind: the handler, or its kind: text of 1 to 96 bytes.
      payload: plain data, at most 1,000,000 bytes packed.
      item_id, priority, delay, unique_for, keys: see `ItemOptions`.

    Raises:
      BadArgument: an argument is outside its range.
      PayloadNotData, PayloadTooLarge: see `pack_payload`.
    """
    name = kind_of(kind)
    _check_priority(priority)
    delay_us, unique_us = duration_us("delay", delay), duration_us("unique_for", unique_for)
    if item_id is not None:
        _check_given_id(item_id)
    elif unique_us:
        allowed = "0 without an item_id, or a unique_key in tenant.enqueue: one of them stays taken"
        raise BadArgument(argument="unique_for", value=unique_for, allowed=allowed)
    packed_keys = pack_keys(keys) if keys else ()
    return NewItem(name, pack_payload(payload), priority, delay_us, item_id, unique_us, keys=packed_keys)


def refuse_option(options: Mapping[str, object], name: str, allowed: str) -> None:
    """Refuse an option that only another way to enqueue takes. `allowed`: what to write.

    Raises:
      BadArgument: it is given.
    """
    if name in options:
        raise BadArgument(argument=name, value=type(options[name]).__name__, allowed=allowed)


def new_record(item: NewItem, item_id: bytes, *, vesting_us: int, now_us: int) -> ItemRecord:
    """Return the record of an item that is enqueued now."""
    return ItemRecord(
        kind=item.kind,
        payload=item.payload,
        priority=item.priority,
        vesting_us=vesting_us,
        enqueued_us=now_us,
        given_id=None if item.given_id == item_id else item.given_id,
        unique_us=item.unique_us,
        trace=item.trace,
        run=item.run,
        parent=item.parent,
        delayed_until_us=vesting_us if item.delay_us else 0,
        keys=item.keys,
        unique_key=item.unique_key,
    )


def _check_priority(value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= PRIORITY_MAX:
        raise BadArgument(argument="priority", value=value, allowed=f"a whole number, 0 to {PRIORITY_MAX}")


def _check_given_id(given_id: GivenId) -> None:
    allowed = f"text or bytes, 1 to {GIVEN_ID_BYTES_MAX:,} bytes"
    if not isinstance(given_id, str | bytes):
        raise BadArgument(argument="item_id", value=given_id, allowed=allowed)
    try:
        size = len(given_id if isinstance(given_id, bytes) else given_id.encode())
    except UnicodeEncodeError:  # a lone surrogate
        size = 0
    if not 1 <= size <= GIVEN_ID_BYTES_MAX:
        raise BadArgument(argument="item_id", value=given_id[:120], allowed=allowed)


class EnqueueStatus(Enum):
    """What an enqueue found."""

    ENQUEUED = "enqueued"
    PRESENT = "present"  # an item of this id waits or runs; nothing was changed
    DEAD_LETTER = "dead letter"  # a dead letter has this id; nothing was changed
    COMPLETED = "completed"  # it completed, and `unique_for` has not passed; nothing was changed


class Enqueued(NamedTuple):
    """The id of the item, and whether this call put it there."""

    item_id: bytes
    status: EnqueueStatus


class Outcome(Enum):
    """How an operation on a leased item went."""

    DONE = "done"
    LEASE_LOST = "lease lost"
    GONE = "gone"
    UNREADABLE = "unreadable"  # written by a newer version: left alone


class Item(NamedTuple):
    """An item as `peek` shows it. `payload` is packed; it is empty here if it lies in pieces."""

    id: bytes
    record: ItemRecord


class LeasedItem(NamedTuple):
    """An item that the caller holds until its vesting time.

    `isolated`: its leases expired so often that it must run isolated. `stored`: the record as it was written.
    `vested_us`: from when it could be leased. `had_expired`: its last lease had expired.
    """

    id: bytes
    record: ItemRecord
    isolated: bool
    stored: bytes
    vested_us: int
    had_expired: bool
