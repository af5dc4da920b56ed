"""Checks of worker sessions and claims: each claim has a key, each key a claim, and each session is looked at."""

from collections.abc import Callable
from functools import partial

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import ROOT, WORKER_SESSION, pack_int
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.records import DAMAGED_RECORD, check_damaged_key
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.records import ItemRecord, decode, is_newer
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import ALIVE, BEAT, CLAIM, NOTICE, OVER
from fairlead.zones.tuples import elements_of

NO_KEY = "a claim has no key in the session of its worker"
NO_SESSION = "a claim belongs to a session that nobody looks at"
ORPHAN_KEY = "a key of a worker session belongs to no claim"
ORPHAN_SESSION_KEY = "a key belongs to no worker session"

_PREFIX = ROOT + pack_int(WORKER_SESSION)


def claim_problems_op(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, key: bytes
) -> Operation[list[Problem]]:
    """Check the claim in a record: its session names it, and is looked at. A repair lists the session as ended."""
    session_id = record.claim
    claim_key = worker_sessions.claim_key(session_id, location, item_id)
    claim = tr.get(claim_key)
    alive, over = (tr.get(each(session_id)) for each in (worker_sessions.alive_key, worker_sessions.over_key))
    yield
    unlisted = alive.value is None and over.value is None
    if claim.value is not None and not unlisted:
        return []

    def mend(tr: Transaction) -> None:
        tr.set(claim_key, b"")
        if unlisted:
            tr.set(worker_sessions.over_key(session_id), b"")

    return [Problem(NO_KEY if claim.value is None else NO_SESSION, key, location, item_id, mend)]


def session_key_check(layout: ShardLayout) -> Callable[[KeyValue], Check | None]:
    """Return the function that gives the check of a key of the worker sessions."""

    def check_of(row: KeyValue) -> Check | None:
        match elements_of(row.key):
            case (_, _, int(number), bytes(session_id)) if number in (ALIVE, BEAT, OVER):
                return {
                    ALIVE: partial(_check_alive, key=row.key, session_id=session_id),
                    BEAT: partial(_check_beat, key=row.key, session_id=session_id),
                    OVER: None,
                }[number]
            case (_, _, int(number), bytes(session_id), str(app), str(user), str(zone), bytes(item_id)) if (
                number in (CLAIM, NOTICE) and "\0" not in app + user + zone
            ):
                location = layout.location_of(b"".join(b"\x02%b\x00" % name.encode() for name in (app, user, zone)))
                if location is not None:
                    check = _check_claim if number == CLAIM else _check_notice
                    return partial(check, key=row.key, location=location, session_id=session_id, item_id=item_id)
            case (_, _, int(number), *_) if number not in (ALIVE, BEAT, CLAIM, NOTICE, OVER):
                return None
        return partial(check_damaged_key, key=row.key, derived=True)

    return check_of


def _check_alive(tr: Transaction, *, key: bytes, session_id: bytes) -> Operation[list[Problem]]:
    """Check whose session it is. A repair ends it: its worker goes on under a new one."""
    stored = tr.get(key)
    yield
    if stored.value is None or worker_sessions.is_readable(stored.value) or is_newer(stored.value):
        return []
    return [Problem(DAMAGED_RECORD, key, mend=lambda tr: _end(tr, session_id))]


def _end(tr: Transaction, session_id: bytes) -> None:
    run_one(worker_sessions.end_session_op(tr, session_id))


def _check_beat(tr: Transaction, *, key: bytes, session_id: bytes) -> Operation[list[Problem]]:
    """Check that the session of a beat has not ended."""
    beat, alive = tr.get(key), tr.get(worker_sessions.alive_key(session_id))
    yield
    if beat.value is None or alive.value is not None:
        return []
    return [Problem(ORPHAN_SESSION_KEY, key, mend=lambda tr: tr.clear(key))]


def _check_claim(
    tr: Transaction, *, key: bytes, location: ZoneLocation, session_id: bytes, item_id: bytes
) -> Operation[list[Problem]]:
    """Check that the record of an item says that it is claimed so. The session is checked with the record."""
    claim, stored = tr.get(key), tr.get(location.keys.item(item_id))
    yield
    if claim.value is None:
        return []
    record = None if stored.value is None else decode(ItemRecord, stored.value)
    unreadable = record is None and stored.value is not None
    if unreadable or (record is not None and record.claim == session_id):
        return []
    return [Problem(ORPHAN_KEY, key, location, item_id, lambda tr: tr.clear(key))]


def _check_notice(
    tr: Transaction, *, key: bytes, location: ZoneLocation, session_id: bytes, item_id: bytes
) -> Operation[list[Problem]]:
    """Check that there is a session to be notified."""
    notice = tr.get(key)
    alive, over = (tr.get(each(session_id)) for each in (worker_sessions.alive_key, worker_sessions.over_key))
    yield
    if notice.value is None or alive.value is not None or over.value is not None:
        return []
    return [Problem(ORPHAN_SESSION_KEY, key, location, item_id, lambda tr: tr.clear(key))]
