"""Results: what handlers returned, kept for a time after completion where their kind asks for it.

A result lies beside its queue zone under the item's id, behind the time until which it is kept; `history` forgets it
together with the ids that stayed taken, and an enqueue of the same id before that: a result is the last item's.
"""

from typing import Any, NamedTuple

import msgspec

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import PayloadNotData, PayloadTooLarge, QueueError
from fairlead.zones.layout import Place
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.id_retention import TIME_BYTES, forget_key
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.records import BuriedRecord, TimeUs, decode, pack_value, unpacked
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import How

RESULT_BYTES_MAX = 64_000  # It is one value, and FoundationDB's end at 100,000 bytes.


class ResultNotKept(QueueError):
    """A handler returned something that cannot be kept, and its kind asks for that. The item is buried.

    Do: return plain data of up to 64,000 bytes; keep more in the tenant's own keys, and return which.
    """

    message = "what the handler returned cannot be kept"


class KeptResult(msgspec.Struct, array_like=True):
    """What a handler returned, packed, and when its item ended."""

    packed: bytes
    ended_us: TimeUs


class Returned(NamedTuple):
    """A result, unpacked."""

    value: Any


class Pending(NamedTuple):
    """The item has not ended. `watch`: ready once its record changes."""

    watch: Any


class Failed(NamedTuple):
    """The item failed for good; `buried`: it can be revived."""

    error: str
    buried: bool


class NotKept(NamedTuple):
    """The item has ended, or never was, and there is no result of it. `how`: as far as that is remembered."""

    how: How | None


_decoder = msgspec.msgpack.Decoder(KeptResult)


def pack_result(value: Any) -> bytes:
    """Return a result as it is stored.

    Raises:
      ResultNotKept: it is no plain data, or longer than 64,000 bytes.
    """
    try:
        packed = pack_payload(value)
    except (PayloadNotData, PayloadTooLarge) as error:
        raise ResultNotKept(**error.fields) from None
    if len(packed) > RESULT_BYTES_MAX:
        raise ResultNotKept(bytes=len(packed), bytes_max=RESULT_BYTES_MAX)
    return packed


def keep(tr: Transaction, place: Place, item_id: bytes, packed: bytes, *, now_us: int, kept_us: int) -> None:
    """Keep the result of an item that this transaction completes, in place of one of its name. Writes two keys."""
    key, until_us = place.keys.result(item_id), now_us + kept_us
    kept = pack_value(KeptResult(packed, now_us))
    tr.set(key, until_us.to_bytes(TIME_BYTES, "big") + kept)
    tr.set(forget_key(place, key, until_us), b"")


def ending(tr: Transaction, place: Place, item_id: bytes) -> Returned | Pending | Failed | NotKept:
    """Return how the last item of this id ended, or that it has not. Snapshot reads, and a watch.

    Raises:
      TenantMoved: the tenant is another shard's.
      PayloadDamaged: there is a result, and it is no plain data any more.
    """
    snapshot = tr.snapshot
    stored = snapshot.get(place.keys.item(item_id))
    buried = snapshot.get(place.keys.buried(item_id))
    kept = snapshot.get(place.keys.result(item_id))
    stored_item.check_owner(place.layout, snapshot.get(place.keys.tenant.owner).value)
    if stored.value is not None:
        return Pending(tr.watch(place.keys.item(item_id)))
    result = None if kept.value is None else unpacked(_decoder, kept.value[TIME_BYTES:])
    grave = None if buried.value is None else decode(BuriedRecord, buried.value)
    if grave is not None and (result is None or result.ended_us <= grave.buried_us):
        return Failed(grave.error, buried=True)
    if result is not None:
        return Returned(unpack_payload(result.packed))
    how = completion_log.how_ended(tr, place, item_id)
    return Failed("", buried=False) if how is How.DROPPED else NotKept(how)
