"""Why an item of an external store is not running, or how it ended.

The store knows the item while it is there, and what it has left; the shard of its pointer knows the rest, and in its
completion log how items of the store have ended in the last hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fairlead.causes import Cause, Explained, span_text
from fairlead.error_text import sentence_of
from fairlead.explanation import (
    ENDED,
    Explanation,
    attempts_of,
    cause_of,
    ended_in_words,
    explain_at,
    holder_in_words,
)
from fairlead.queries.activity import RunningItem, find_running
from fairlead.queries.external_stores import ReaderState, read_reader_state
from fairlead.shards import Shards
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import BadArgument, TenantBusy
from fairlead.zones.external.inspection import InspectedItem, InspectedStore, StoredState
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import ID_BYTES
from fairlead.zones.records import ItemRecord
from fairlead.zones.reporting.completion_log import Ended
from fairlead.zones.reporting.diagnosis import Diagnosis, diagnose
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

_HOLDS_ROW = "the transaction of its handler is open, and holds its row"
_LEASED = "a consumer has leased it"  # Which one is not known: workers report what has run for a second or two.
NOWHERE = (Cause.NEVER_SEEN, Cause.NOT_FOUND)

# What the shard says of an item that could run. That the reader has not seen it explains more.
_COULD_RUN = (
    Cause.POINTER_MISSING,
    Cause.POINTER_ASLEEP,
    Cause.POINTER_LEASED,
    Cause.LEASE_EXPIRED,
    Cause.BEHIND,
    Cause.NEXT,
)
# That its row is locked explains these, too: a visit that cannot lease it takes its kind for full.
_COULD_RUN_UNLOCKED = (*_COULD_RUN, Cause.TENANT_AT_LIMIT, Cause.KIND_AT_LIMIT)


def explain_in_stores(
    on_shards: Explanation,
    shards: Shards,
    stores: Mapping[str, InspectedStore],
    item_id: str | bytes,
    queue: Queue | None,
) -> Explanation:
    """Explain an item that may lie in an external store; `on_shards`, if a shard has it, or nobody does.

    Args:
      on_shards: what the shards say of it; also how an item of an external store has ended.
      item_id: the 16 bytes of its id, or the name that it was given.
      queue: where it is; None: the tenant is not known, so it is found by its id only.
    """
    may_be_there = on_shards.cause in NOWHERE or on_shards.store is not None
    if not may_be_there or not stores:
        return on_shards
    ended = on_shards if on_shards.store is not None and on_shards.cause in ENDED else None
    unread: list[str] = []
    for name, store in stores.items():
        ids = list(_ids(store, item_id, queue))
        reader, now_us = read_reader_state(shards, name), shards.clock.now_us()
        try:
            found = store.inspect(ids, seen=reader.seen, now_us=now_us) if ids else []
            cancelled = store.cancelled(ids, now_us=now_us) if ids else []
        except StoreUnavailable as error:
            unread.append(f"external store {name} cannot be read: {sentence_of(error)}")
            continue
        for item in found:
            if queue in (None, item.queue):
                explain_there = partial(_explain_at, shards=shards, name=name, item=item, reader=reader)
                return shards.at_home(item.queue.tenant, explain_there)
        ended = _later(ended, _cancelled(shards, name, cancelled, queue, now_us))
        if queue is not None:
            ended = _later(ended, _ended(shards, name, queue, ids))
    if ended is not None:
        return replace(ended, sentence="; ".join([ended.sentence, *unread]))
    if unread:
        return replace(on_shards, cause=Cause.STORE_AWAY, sentence="; ".join(unread))
    return replace(on_shards, sentence=f"{on_shards.sentence}; {' and '.join(stores)} has none either")


def _later(one: Explanation | None, other: Explanation | None) -> Explanation | None:
    """Return the later of two ends: the name of an item may have been used again."""
    ends = [each for each in (one, other) if each is not None]
    return max(ends, key=lambda each: each.details["ended_us"], default=None)


def _cancelled(
    shards: Shards, name: str, cancelled: Sequence[Ended], queue: Queue | None, now_us: int
) -> Explanation | None:
    """Explain that an item of a store was cancelled, if that is the end of an item in this queue, or anywhere."""
    for each in cancelled:
        if queue in (None, Queue(each.tenant, each.zone)):
            shard = shards.find(each.tenant).name
            cause, sentence, details = ended_in_words(each, now_us)
            where = (shard, each.tenant, each.zone, each.item.kind)
            return Explanation(each.item.item_id, cause, sentence, *where, details=details, store=name)
    return None


def _ended(shards: Shards, name: str, queue: Queue, ids: Sequence[bytes]) -> Explanation | None:
    """Explain how an item of a store has ended, by the completion log of its tenant's shard; None: it is not there."""
    try:
        zone = pointer_zone(name, queue.zone)
    except BadArgument:  # No external store has a zone of so long a name.
        return None
    for item_id in ids:
        explain_there = partial(explain_at, tenant=queue.tenant, zone=zone, item_id=item_id, shards=shards)
        found = shards.at_home(queue.tenant, explain_there)
        if found.cause in ENDED:
            return found
    return None


def _ids(store: InspectedStore, item_id: str | bytes, queue: Queue | None) -> Iterator[bytes]:
    if isinstance(item_id, bytes) and len(item_id) == ID_BYTES:
        yield item_id
    if queue is not None:
        yield store.id_of(queue, item_id)


def _explain_at(shard: Shard, *, shards: Shards, name: str, item: InspectedItem, reader: ReaderState) -> Explanation:
    """Explain an item of a store, on the shard that holds its pointer."""
    tenant, zone = item.queue
    location = shard.layout.location(tenant, pointer_zone(name, zone))

    def body(attempt: Attempt) -> Diagnosis:
        waiting = item.record if item.state is StoredState.WAITS else None
        found = diagnose(attempt.tr, location, item.id, now_us=attempt.now_us, elsewhere=waiting)
        return found._replace(
            dead_letter=item.dead_letter,
            unreadable=item.state is StoredState.DEAD_LETTER and item.dead_letter is None,
            traceback=item.traceback,
            items_before=item.items_before,
        )

    explained = partial(Explanation, item.id, shard=shard.name, tenant=tenant, zone=zone, store=name)
    if item.state is StoredState.WAITS and item.record.lease_id:
        _fill_worker(item.record, find_running(shards, tenant, location.name, item.id))
    try:
        diagnosis = shard.transact(body)
    except TenantBusy as busy:
        return explained(Cause.TENANT_LOCKED, f"all transactions on its tenant wait: {sentence_of(busy)}")
    cause, sentence, details = _cause_of(diagnosis, item, shard.name, name, reader)
    return explained(
        cause,
        sentence,
        kind=item.record.kind,
        attempts=attempts_of(item.record, diagnosis.traceback),
        progress=item.record.progress,
        details=details,
    )


def _cause_of(
    diagnosis: Diagnosis, item: InspectedItem, shard_name: str, store_name: str, reader: ReaderState
) -> Explained:
    if item.state is StoredState.ENDED:
        return _left(diagnosis, item)
    found = cause_of(diagnosis, shard_name, item.queue.tenant)
    if item.state is StoredState.DEAD_LETTER:
        return found
    if found[0] is Cause.RUNNING:
        return _running(found, diagnosis, item)
    is_locked = item.is_locked and found[0] in _COULD_RUN_UNLOCKED
    if is_locked and item.record.lease_id:
        holder, details = _holder(diagnosis, item)
        return Cause.RUNNING, f"{holder}{_HOLDS_ROW}; if the worker is gone, the server ends it", details
    if is_locked:
        sentence = f"another transaction in {store_name} has locked its row, such as one that cancels it"
        return Cause.ROW_LOCKED, sentence, {}
    if not item.is_seen and found[0] in _COULD_RUN:
        return _unseen(store_name, reader)
    return found


def _left(diagnosis: Diagnosis, item: InspectedItem) -> Explained:
    """Say how an item has ended whose row is kept, for its id or its result."""
    cause, sentence, details = Cause.COMPLETED, "it has ended", dict[str, Any]()
    if diagnosis.ended:
        cause, sentence, details = ended_in_words(diagnosis.ended[0], diagnosis.now_us)
    return cause, f"{sentence}; its id or its result is kept for {span_text(item.kept_us)}", details


def _fill_worker(record: ItemRecord, running: RunningItem | None) -> None:
    """Give a leased item what its worker reports of this attempt. The store keeps neither consumer nor progress."""
    if running is not None and running.item.attempt == record.attempt:
        record.session, record.leased_us = running.status.consumer_id, running.item.since_us
        record.progress = running.item.progress


def _running(found: Explained, diagnosis: Diagnosis, item: InspectedItem) -> Explained:
    """Say where an item runs. `found`: what is said of one in the shard."""
    left_us = item.record.vesting_us - diagnosis.now_us
    holder, details = _holder(diagnosis, item)
    details |= {"lease_until_us": item.record.vesting_us, "row_locked": item.is_locked}
    if item.is_locked:
        return Cause.RUNNING, f"{holder}{_HOLDS_ROW}", details
    if holder:
        return Cause.RUNNING, found[1], details
    if any(each.live for each in diagnosis.consumers):
        ends = f"if it is gone, another one takes over in {span_text(left_us)}"
    else:
        ends = "no live consumer can take over: start one with fairlead run"
    return Cause.RUNNING, f"{_LEASED}; {ends}", details


def _holder(diagnosis: Diagnosis, item: InspectedItem) -> tuple[str, dict[str, Any]]:
    """Return the beginning of a sentence, which says who runs an item, and details; nothing if it is not known."""
    if item.record.session is None:
        return "", {}
    words, details = holder_in_words(diagnosis, item.record)
    return f"{words}; ", details


def _unseen(name: str, reader: ReaderState) -> Explained:
    """Say why no pointer leads to an item yet."""
    details = {} if reader.until_us is None else {"reader_lease_until_us": reader.until_us}
    if reader.error:
        return Cause.READER_BEHIND, f"what the reader of {name} has seen cannot be read: {reader.error}", details
    if not reader.is_live:
        sentence = f"no consumer reads {name} now: is one running, with {name} in its configuration?"
        return Cause.READER_BEHIND, f"{sentence} Its log says why it cannot read", details
    return Cause.READER_BEHIND, f"the reader of {name} has not seen it yet; it looks each second", details
