"""Checks of the locks of workflows: each request can be read and will be removed, and each line has a holder."""

from collections.abc import Iterator
from functools import partial

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import LOCK, range_begin, range_end
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_value
from fairlead.zones.maintenance.integrity.runs import RunsSeen, is_held
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.locks import NUMBER_BYTES, decode_request, line_prefix, number_of, of_run_key, request_key

UNLISTED = "the end of its run would not find a lock request"
LEADS_NOWHERE = "a run is said to have a lock request that is not there"
NOBODY_HOLDS = "nobody holds a lock, and requests wait for it"
ORPHAN_REQUEST = "a lock request belongs to no item"
REMEDY_OF_DAMAGE = (
    "set aside, it counts as released: first see by `fairlead locks` and `fairlead steps` what its workflow does"
)
_LINE, _OF_RUN = 1, 2


def lock_checks(key: bytes, *, layout: ShardLayout, seen: RunsSeen, looked: set[bytes], now_us: int) -> Iterator[Check]:
    """Yield the checks of a tenant's row in the subspace `LOCK`. `looked`: lines that are checked already."""
    match elements_of(key):
        case (_, _, str(app), str(user), int(sort), int(part), *rest) if sort == LOCK and "\0" not in app + user:
            location = layout.location(Tenant(app, user), DEFAULT_ZONE)
            match part, *rest:
                case int(_), bytes(lock), int(number) if part == _LINE and number >= 0:
                    yield partial(_check_request, location=location, lock=lock, number=number, seen=seen, now_us=now_us)
                    prefix = line_prefix(location.keys.tenant, lock)
                    if prefix not in looked:
                        looked.add(prefix)
                        yield partial(_check_holder, location=location, lock=lock, now_us=now_us)
                    return
                case int(_), bytes(run), bytes(lock) if part == _OF_RUN:
                    yield partial(_check_of_run, location=location, run=run, lock=lock)
                    return
    yield partial(check_damaged_key, key=key)


def _check_request(
    tr: Transaction, *, location: ZoneLocation, lock: bytes, number: int, seen: RunsSeen, now_us: int
) -> Operation[list[Problem]]:
    """Check that a request can be read, that its run leads to it, and, if that is at home here, has not ended.

    A repair lets its run lead to it again; or removes what the end of its run has left.
    """
    keys = location.keys.tenant
    key = request_key(keys, lock, number)
    found = yield from check_value(tr, lambda value: decode_request(value) is not None, key)
    if found:
        return [problem._replace(location=location, remedy=REMEDY_OF_DAMAGE) for problem in found]
    stored = tr.get(key)
    yield
    request = None if stored.value is None else decode_request(stored.value)
    if request is None:
        return []
    run = request.run
    listed = tr.get(of_run_key(keys, run, lock))
    yield
    expected = number.to_bytes(NUMBER_BYTES, "big")
    if listed.value is None:
        again = partial(_set, key=of_run_key(keys, run, lock), value=expected)
        return [Problem(UNLISTED, key, location, mend=again, run=run)]
    if listed.value != expected:

        def remove(tr: Transaction) -> None:
            tr.clear(key)
            locks.hand_over(tr, location, lock, now_us=now_us)

        return [Problem(UNLISTED, key, location, mend=remove, run=run)]
    if request.tenant != location.tenant or seen.has(key, run) or is_held(tr, location, run):
        return []
    release = partial(locks.release_all, location=location, run=run, now_us=now_us)
    return [Problem(ORPHAN_REQUEST, key, location, mend=release, run=run)]


def _set(tr: Transaction, *, key: bytes, value: bytes) -> None:
    tr.set(key, value)


def _check_holder(tr: Transaction, *, location: ZoneLocation, lock: bytes, now_us: int) -> Operation[list[Problem]]:
    """Check that the first request of a line holds the lock. A repair hands the lock over."""
    prefix = line_prefix(location.keys.tenant, lock)
    rows = tr.get_range(range_begin(prefix), range_end(prefix), limit=1)
    yield
    first = next(iter(rows), None)
    request = None if first is None else decode_request(first.value)
    if first is None or request is None or request.held_us is not None:
        return []
    hand_over = partial(locks.hand_over, location=location, lock=lock, now_us=now_us)
    return [Problem(NOBODY_HOLDS, first.key, location, mend=hand_over, run=request.run)]


def _check_of_run(tr: Transaction, *, location: ZoneLocation, run: bytes, lock: bytes) -> Operation[list[Problem]]:
    """Check that a run leads to a request of its own. A repair clears the key."""
    keys = location.keys.tenant
    key = of_run_key(keys, run, lock)
    listed = tr.get(key)
    yield
    if listed.value is None:
        return []
    number = number_of(listed.value)
    if number is not None:
        stored = tr.get(request_key(keys, lock, number))
        yield
        request = None if stored.value is None else decode_request(stored.value)
        if stored.value is not None and (request is None or request.run == run):
            return []
    return [Problem(LEADS_NOWHERE, key, location, mend=lambda tr: tr.clear(key), run=run)]
