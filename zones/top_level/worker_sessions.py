"""Worker sessions: claims that live as long as their worker (the CockroachDB recipe for exactly-once work queues).

A lease ends by time, so a short one costs a write per item and term, and a long one delays the items of a dead worker.
A *claim* is a lease of the longest term, `max_item_lease`, that ends early if the session of its worker does. A worker
makes a lease a claim when it would extend it the first time. Then one heartbeat a second keeps all of its claims. A
claim whose key is lost, or whose worker forgot it, ends by its term. An item without a claim costs nothing here.

    (ROOT, WORKER_SESSION, ALIVE, session)                        -> its worker, see `WorkerSession`
    (ROOT, WORKER_SESSION, BEAT, session)                         -> 16 bytes, new with each heartbeat
    (ROOT, WORKER_SESSION, OVER, session)                         -> empty; it has ended, and may have claims left
    (ROOT, WORKER_SESSION, CLAIM, session, app, user, zone, id)   -> empty; the item's record names the session, too
    (ROOT, WORKER_SESSION, NOTICE, session, app, user, zone, id)  -> the lease id of a claim that another process took

A session has begun if ALIVE is there, and has ended for good once it is cleared. *Silent* is a session whose BEAT is
the same in five looks, each answered, a second apart by the clock of the consumer that looks (`silence`). Clocks are
not compared, and a store that was away ends no session.

    transaction                  reads with conflict        by snapshot         writes
    claim; renewal of a claim    record, ALIVE              -                   record, CLAIM
    first claim of a session     record, ALIVE, OVER        -                   record, CLAIM, ALIVE, BEAT
    heartbeat                    ALIVE, NOTICEs             -                   BEAT, NOTICEs cleared
    look                         -                          ALIVEs, BEATs,      -
                                                            OVERs
    end of a session             ALIVE, BEAT, first CLAIM   -                   ALIVE, BEAT cleared; OVER, or, without
                                                                                a claim, NOTICEs cleared
    release of ended claims      records                    CLAIMs              records, CLAIMs cleared; if there was
                                                                                none: OVER, NOTICEs cleared
    end, return, requeue of      record                     -                   record, CLAIM cleared
    the item by its holder
    takeover by the next lease,  record                     -                   record, CLAIM cleared, NOTICE
    cancellation

A release leaves the CLAIMs of a tenant that has moved to another shard: its mover ends these claims, and clears the
keys.

A completion compares the lease id and reads no session: there is no hot key, and an item is completed once, whatever
the clocks say. The operations on records are in `fairlead.zones.queue.claims`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import (
    ROOT,
    WORKER_SESSION,
    pack_bytes,
    pack_int,
    range_begin,
    range_end,
    unpack_bytes,
    unpack_names,
)
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import ItemRecord, TimeUs, pack_value, unpacked
from fairlead.zones.tuples import elements_of

HEARTBEAT_US = 1_000_000  # How often a worker with claims sends a heartbeat, and how often a consumer looks.

ALIVE, BEAT, OVER, CLAIM, NOTICE = range(1, 6)  # The first three are read together by every look.
_PREFIX = ROOT + pack_int(WORKER_SESSION)
_ALIVE, _BEAT, _OVER, _CLAIM, _NOTICE = (_PREFIX + pack_int(number) for number in (ALIVE, BEAT, OVER, CLAIM, NOTICE))


class WorkerSession(msgspec.Struct, array_like=True, frozen=True):
    """Whose session it is, and since when, by the worker's clock. `incarnation`: see `Host` of the actors."""

    incarnation: bytes
    begun_us: TimeUs


_decoder = msgspec.msgpack.Decoder(WorkerSession)

ClaimedItem = tuple[ZoneLocation, bytes]  # where it lies, and its id


class SessionState(Enum):
    """Whether a session has begun, and whether it has ended."""

    ALIVE = "alive"
    NEW = "not begun"
    OVER = "ended"


class Look(NamedTuple):
    """The sessions of a shard: the last beat of each that has not ended, and those that may have claims left."""

    beats: Mapping[bytes, bytes]
    over: Sequence[bytes]


# --- Called by the worker ---


def session_state_op(tr: Transaction, session_id: bytes, *, begins: bool) -> Operation[SessionState]:
    """Return whether a session has begun and has not ended, for a transaction that claims items under it.

    Reads with conflict: ALIVE; if the session is about to begin, OVER. `begins`: whether this worker has not learned
    yet that the session began. Otherwise one that is not there has ended.
    """
    alive = tr.get(_key(_ALIVE, session_id))
    over = tr.get(_key(_OVER, session_id)) if begins else None
    yield
    if alive.value is not None:
        return SessionState.ALIVE
    if over is None or over.value is not None:
        return SessionState.OVER
    return SessionState.NEW


def begin(tr: Transaction, session_id: bytes, worker: WorkerSession, *, beat: bytes) -> None:
    """Begin a session that `session_state_op` found to be new. Writes ALIVE and BEAT."""
    tr.set(_key(_ALIVE, session_id), pack_value(worker))
    tr.set(_key(_BEAT, session_id), beat)


def heartbeat_op(
    tr: Transaction, layout: ShardLayout, session_id: bytes, *, beat: bytes
) -> Operation[dict[tuple[ZoneLocation, bytes], bytes] | None]:
    """Keep a session alive; return its notices: by item the lease id of the claim that was taken away.

    None: the session has ended. After a commit of unknown result the notices of the attempt before are cleared: a
    caller gathers those of all attempts. `beat`: 16 bytes that no other heartbeat has. Reads with conflict: ALIVE,
    NOTICEs. Writes: BEAT; clears the NOTICEs.
    """
    prefix = _NOTICE + pack_bytes(session_id)
    alive = tr.get(_key(_ALIVE, session_id))
    rows = tr.get_range(range_begin(prefix), range_end(prefix), streaming_mode=WANT_ALL)
    yield
    if alive.value is None:
        return None
    tr.set(_key(_BEAT, session_id), beat)
    notices = {}
    for row in rows:
        tr.clear(row.key)
        item = _item_of(row.key, len(prefix), layout)
        if item is not None:
            notices[item] = row.value
    return notices


# --- Called by whoever ends a session: its worker, its worker's manager, or any consumer ---


def look_op(tr: Reader) -> Operation[Look]:
    """Read all sessions of a shard. One snapshot read. A session without a beat has the empty one."""
    rows = tr.snapshot.get_range(range_begin(_ALIVE), range_end(_OVER), streaming_mode=WANT_ALL)
    yield
    found: dict[bytes, dict[bytes, bytes]] = {_ALIVE: {}, _BEAT: {}, _OVER: {}}
    for row in rows:
        prefix = row.key[: len(_ALIVE)]
        if prefix in found:  # Otherwise the key is damaged.
            found[prefix][unpack_bytes(row.key[len(prefix) :])] = row.value
    return Look({each: found[_BEAT].get(each, b"") for each in found[_ALIVE]}, list(found[_OVER]))


def sessions_of_op(tr: Reader, incarnation: bytes) -> Operation[list[bytes]]:
    """Read the ids of a worker's sessions that have not ended. Snapshot reads of all sessions."""
    rows = tr.snapshot.get_range(range_begin(_ALIVE), range_end(_ALIVE), streaming_mode=WANT_ALL)
    yield
    read = ((row.key, unpacked(_decoder, row.value)) for row in rows)
    return [
        unpack_bytes(key[len(_ALIVE) :])
        for key, worker in read
        if worker is not None and worker.incarnation == incarnation
    ]


def end_session_op(tr: Transaction, session_id: bytes, *, silent_since: bytes | None = None) -> Operation[bool]:
    """End a session for good; return False if it had ended, or a heartbeat came after `silent_since`.

    A session with claims is listed (OVER) until they are released. `silent_since`: the last beat that the caller saw;
    None: its worker has stopped, or is certainly dead. Reads with conflict: ALIVE, BEAT, the first CLAIM. Writes: these
    two, and OVER; without a claim the NOTICEs.
    """
    prefix = _CLAIM + pack_bytes(session_id)
    alive, beat = tr.get(_key(_ALIVE, session_id)), tr.get(_key(_BEAT, session_id))
    claims = tr.get_range(range_begin(prefix), range_end(prefix), limit=1)
    yield
    if alive.value is None or (silent_since is not None and (beat.value or b"") != silent_since):
        probe("a session that seemed silent has ended already, or lives")
        return False
    tr.clear(_key(_ALIVE, session_id))
    tr.clear(_key(_BEAT, session_id))
    if next(iter(claims), None) is not None:
        tr.set(_key(_OVER, session_id), b"")
    else:
        _clear_notices(tr, session_id)
    return True


def claimed_op(
    tr: Reader, layout: ShardLayout, session_id: bytes, *, claims_max: int, begin: bytes = b""
) -> Operation[list[tuple[bytes, ClaimedItem | None]]]:
    """Read up to `claims_max` claims of a session from the key `begin` on: keys and items. Snapshot reads.

    None: the key is damaged, and names no item.
    """
    prefix = _CLAIM + pack_bytes(session_id)
    rows = tr.snapshot.get_range(
        begin or range_begin(prefix), range_end(prefix), limit=claims_max, streaming_mode=WANT_ALL
    )
    yield
    return [(row.key, _item_of(row.key, len(prefix), layout)) for row in rows]


class TenantClaims(NamedTuple):
    """Claims on items of one tenant: keys, sessions and items. `next_key`: where there may be more; None: nowhere."""

    claims: list[tuple[bytes, bytes, ClaimedItem]]
    next_key: bytes | None


def claims_of_tenant(
    tr: Reader, layout: ShardLayout, tenant: Tenant, *, begin: bytes = b"", keys_max: int
) -> TenantClaims:
    """Read up to `keys_max` claims of all sessions from the key `begin` on, and return those on items of a tenant.

    Snapshot reads.
    """
    rows = list(
        tr.snapshot.get_range(begin or range_begin(_CLAIM), range_end(_CLAIM), limit=keys_max, streaming_mode=WANT_ALL)
    )
    found = []
    for row in rows:
        match elements_of(row.key):
            case (_, _, int(_), bytes(session_id), *_):
                item = _item_of(row.key, len(_CLAIM + pack_bytes(session_id)), layout)
                if item is not None and item[0].tenant == tenant:
                    found.append((row.key, session_id, item))
    return TenantClaims(found, rows[-1].key + b"\x00" if len(rows) == keys_max else None)


def forget_session(tr: Transaction, session_id: bytes) -> None:
    """Take an ended session off the list; its last claim has been read to be gone. Clears OVER and the NOTICEs."""
    tr.clear(_key(_OVER, session_id))
    _clear_notices(tr, session_id)


# --- Called by every transaction that writes a record with a claim ---


def add_claim(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, *, session_id: bytes
) -> None:
    """Make the lease in `record`, which the caller stores, a claim of a session. Writes CLAIM; clears an older one."""
    if record.claim and record.claim != session_id:
        take_away(tr, location, item_id, record, notify=False)
    record.claim = session_id
    tr.set(claim_key(session_id, location, item_id), b"")


def take_away(tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, *, notify: bool) -> None:
    """End the claim in `record`, which the caller has read with conflict and stores or removes.

    Clears CLAIM. `notify`: whether the worker that holds the item is not the caller; then it is notified. The record
    still has the lease id of the claim.
    """
    assert record.claim
    tr.clear(claim_key(record.claim, location, item_id))
    if notify:
        probe("a claim is taken away from its worker")
        tr.set(notice_key(record.claim, location, item_id), record.lease_id)
    record.claim = b""


# --- Keys ---


def claim_key(session_id: bytes, location: ZoneLocation, item_id: bytes) -> bytes:
    """Return the key of a claim."""
    return _CLAIM + pack_bytes(session_id) + location.keys.packed + pack_bytes(item_id)


def notice_key(session_id: bytes, location: ZoneLocation, item_id: bytes) -> bytes:
    """Return the key of a notice."""
    return _NOTICE + pack_bytes(session_id) + location.keys.packed + pack_bytes(item_id)


def alive_key(session_id: bytes) -> bytes:
    """Return the key that says that a session has not ended."""
    return _key(_ALIVE, session_id)


def beat_key(session_id: bytes) -> bytes:
    """Return the key of a session's last beat."""
    return _key(_BEAT, session_id)


def over_key(session_id: bytes) -> bytes:
    """Return the key that lists an ended session."""
    return _key(_OVER, session_id)


def is_readable(value: bytes) -> bool:
    """Say whether a value says whose session it is."""
    return unpacked(_decoder, value) is not None


def _key(prefix: bytes, session_id: bytes) -> bytes:
    return prefix + pack_bytes(session_id)


def _clear_notices(tr: Transaction, session_id: bytes) -> None:
    prefix = _NOTICE + pack_bytes(session_id)
    tr.clear_range(range_begin(prefix), range_end(prefix))


def _item_of(key: bytes, at: int, layout: ShardLayout) -> ClaimedItem | None:
    """Parse the item in the key of a claim or a notice; None if it is damaged."""
    named = unpack_names(key, at, 3)
    if named is None or named[1] >= len(key):
        return None
    (app, user, zone), end = named
    return layout.location(Tenant(app, user), zone), unpack_bytes(key[end:])
