"""Results: what handlers returned, kept for a time after completion where their kind asks for it.

A result lies beside its queue zone under the item's id, after the time until which it is kept. `id_retention` expires
it. An enqueue of the same id clears it before that: a result belongs to the last item of an id.
"""

from typing import Any, NamedTuple

import msgspec

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import PayloadNotData, PayloadTooLarge, QueueError
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.queue.id_retention import TIME_BYTES, retention_key
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.records import DeadLetterRecord, TimeUs, decode, pack_value, unpacked
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndReason

RESULT_BYTES_MAX = 64_000  # It is one value, and FoundationDB's end at 100,000 bytes.


class ResultNotKept(QueueError):
    """A handler, or a step of a workflow, returned something that cannot be kept. The item becomes a dead letter.

    Do: return plain data of up to 64,000 bytes; keep more in the tenant's own keys, and return which.
    """

    message = "a result cannot be kept: return plain data of up to 64,000 bytes, or a key to it"


class KeptResult(msgspec.Struct, array_like=True):
    """What a handler returned, packed, and when its item ended."""

    packed: bytes
    ended_us: TimeUs


class Returned(NamedTuple):
    """A result, unpacked."""

    value: Any


class Pending(NamedTuple):
    """The item has not ended. `watch`: ready once its record changes; None: the store has no watches."""

    watch: Any


class Failed(NamedTuple):
    """The item failed for good; `dead_letter`: it can be retried."""

    error: str
    dead_letter: bool


class NotKept(NamedTuple):
    """The item has ended, or never was, and has no result. `end_reason`: None if it is not in the completion log."""

    end_reason: EndReason | None


_decoder = msgspec.msgpack.Decoder(KeptResult)


def pack_result(value: Any) -> bytes:
    """Return a result as it is stored.

    Raises:
      ResultNotKept: it is no plain data, or longer than 64,000 bytes.
    """
    try:
        packed = pack_payload(value)
    except (PayloadNotData, PayloadTooLarge) as error:
        limits = {"bytes_max": RESULT_BYTES_MAX} if isinstance(error, PayloadTooLarge) else {}
        raise ResultNotKept(**(error.fields | limits)) from None
    if len(packed) > RESULT_BYTES_MAX:
        raise ResultNotKept(bytes=len(packed), bytes_max=RESULT_BYTES_MAX)
    return packed


def keep_result(
    tr: Transaction, location: ZoneLocation, item_id: bytes, packed: bytes, *, now_us: int, kept_us: int
) -> None:
    """Keep the result of an item that this transaction completes, in place of one of its name. Writes two keys."""
    key, until_us = location.keys.result(item_id), now_us + kept_us
    kept = pack_value(KeptResult(packed, now_us))
    tr.set(key, until_us.to_bytes(TIME_BYTES, "big") + kept)
    tr.set(retention_key(location, key, until_us), b"")


def ending(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Returned | Pending | Failed | NotKept:
    """Return how the last item of this id ended, or that it has not. Snapshot reads, and a watch.

    Raises:
      TenantMoved: another shard owns the tenant.
      PayloadDamaged: there is a result, and it is damaged.
    """
    snapshot = tr.snapshot
    stored = snapshot.get(location.keys.item(item_id))
    dead_letter = snapshot.get(location.keys.dead_letter(item_id))
    kept = snapshot.get(location.keys.result(item_id))
    owner = snapshot.get(location.keys.tenant.owner)
    check_owner(tr, location.layout, location.keys.tenant, owner.value, writes=False)
    if stored.value is not None:
        return Pending(tr.watch(location.keys.item(item_id)))
    result = None if kept.value is None else unpacked(_decoder, kept.value[TIME_BYTES:])
    dead_letter_record = None if dead_letter.value is None else decode(DeadLetterRecord, dead_letter.value)
    if dead_letter_record is not None and (result is None or result.ended_us <= dead_letter_record.dead_lettered_us):
        return Failed(dead_letter_record.error, dead_letter=True)
    if result is not None:
        return Returned(unpack_payload(result.packed))
    return ending_without_result(completion_log.end_reason_of(tr, location, item_id))


def ending_without_result(end_reason: EndReason | None) -> Failed | NotKept:
    """Return how an item ended that has no result, by its end in a completion log."""
    return Failed("", dead_letter=False) if end_reason is EndReason.DROPPED else NotKept(end_reason)
