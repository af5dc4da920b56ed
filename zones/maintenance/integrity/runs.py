"""Checks of workflows: what is stored of a run can be read, and belongs to an item, or to a dead letter.

No key leads from a run to its item. But the zones of a tenant come before its step logs, so the walk has seen the runs
of its items by then. A run that it has not seen is searched for among the records of the tenant, in one transaction.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from fairlead.zones.engines import KeyValue, Reader, Transaction
from fairlead.zones.keyspace import (
    CHILD_RESULT,
    DEAD_LETTER,
    FENCE,
    ITEM,
    SIGNAL,
    STEP_LOG,
    TenantKeys,
    range_begin,
    range_end,
    tenant_prefix,
    unpack_names,
)
from fairlead.zones.layout import DEFAULT_ZONE, ID_BYTES, ShardLayout, Tenant, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.parsed_keys import ZoneKey
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_value
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow.children import decode_child_result
from fairlead.zones.workflow.run_end import end_run_op
from fairlead.zones.workflow.run_records import (
    FENCE_BYTES,
    decode_entry,
    decode_head,
    decode_participant,
    head_key,
)
from fairlead.zones.workflow.signals import STAMP_BYTES

ORPHAN_LOG = "a step log belongs to no item"
ORPHAN_MESSAGE = "a signal, or the result of a child, belongs to no item"

SORTS = (STEP_LOG, FENCE, SIGNAL, CHILD_RESULT)
SEARCHED_MAX = 5_000  # Records of a zone in which a run is searched for; among more it is taken to be there.
_HEAD, _PARTICIPANT, _ENTRY = 1, 2, 3


class RunsSeen:
    """The runs whose items, or dead letters, the walk has come by, by their tenants' prefixes."""

    def __init__(self) -> None:
        self._runs: dict[bytes, set[bytes]] = {}

    def note(self, rows: Sequence[tuple[KeyValue, ZoneKey | None]]) -> None:
        """Note the runs of the items and dead letters among rows for which keys are stored."""
        for row, key in rows:
            if key is None or key.number not in (ITEM, DEAD_LETTER) or not _is_id(key.rest):
                continue
            record = _record_of(row.value, is_item=key.number == ITEM)
            if record is not None and record.keeps_run:
                self._runs.setdefault(tenant_prefix(row.key), set()).add(record.run_of(key.rest[0]))

    def forget_before(self, key: bytes) -> None:
        """Forget the tenants before that of a key: the walk does not come back to them."""
        prefix = tenant_prefix(key)
        self._runs = {each: runs for each, runs in self._runs.items() if each == prefix}

    def has(self, key: bytes, run: bytes) -> bool:
        """Say whether an item, or a dead letter, of the tenant of a key was seen that has this run."""
        return run in self._runs.get(tenant_prefix(key), ())


def run_check(key: bytes, sort: int, *, layout: ShardLayout, seen: RunsSeen, now_us: int) -> Check:
    """Return the check of a tenant's row of one of the `SORTS`."""
    is_signal = sort == SIGNAL
    match elements_of(key[:-STAMP_BYTES] if is_signal else key):
        case (_, _, str(app), str(user), int(found), bytes(run), *rest) if found == sort and "\0" not in app + user:
            held = partial(
                check_held, layout=layout, tenant=Tenant(app, user), run=run, key=key, now_us=now_us
            )  # fmt: skip
            is_seen = seen.has(key, run)
            match sort, *rest:
                case int(_), int(number) if sort == STEP_LOG and number == _HEAD:
                    return partial(_check_head, key=key, held=None if is_seen else held)
                case int(_), int(number), str(_), str(_) if sort == STEP_LOG and number == _PARTICIPANT:
                    return partial(check_value, readable=lambda value: decode_participant(value) is not None, key=key)
                case int(_), int(number), int(_), str(_), int(_) if sort == STEP_LOG and number == _ENTRY:
                    return partial(check_value, readable=lambda value: decode_entry(value) is not None, key=key)
                case (int(_),) if sort == FENCE:
                    return partial(check_value, readable=lambda value: len(value) == FENCE_BYTES, key=key)
                case int(_), str(_), int(_) if is_signal:
                    return held if not is_seen else partial(check_value, readable=lambda value: True, key=key)
                case int(_), str(_), int(_) if sort == CHILD_RESULT:
                    return partial(_check_child_result, key=key, held=None if is_seen else held)
    return partial(check_damaged_key, key=key)


def _check_head(tr: Transaction, *, key: bytes, held: Check | None) -> Operation[list[Problem]]:
    found = yield from check_value(tr, lambda value: decode_head(value) is not None, key)
    return found or ([] if held is None else (yield from held(tr)))


def _check_child_result(tr: Transaction, *, key: bytes, held: Check | None) -> Operation[list[Problem]]:
    found = yield from check_value(tr, lambda value: decode_child_result(value) is not None, key)
    return found or ([] if held is None else (yield from held(tr)))


def check_held(
    tr: Transaction, *, layout: ShardLayout, tenant: Tenant, run: bytes, key: bytes, now_us: int
) -> Operation[list[Problem]]:
    """Check that an item, or a dead letter, of a tenant has a run. A repair ends the run, as the end of its item would.

    Snapshot reads: a run that is over does not come back.
    """
    present = tr.get(key)
    yield
    location = layout.location(tenant, DEFAULT_ZONE)
    if present.value is None or any(_has_run(tr, zone, run) for zone in _zones(tr, layout, tenant)):
        return []
    is_head = key == head_key(location.keys.tenant, run)

    def mend(tr: Transaction) -> None:
        if is_head:
            run_one(end_run_op(tr, location, run, now_us=now_us))
        else:
            tr.clear(key)

    return [Problem(ORPHAN_LOG if is_head else ORPHAN_MESSAGE, key, location, mend=mend)]


def _zones(tr: Reader, layout: ShardLayout, tenant: Tenant) -> Iterator[ZoneLocation]:
    """Yield the zones of a tenant that hold anything. One key is read of each."""
    zones = TenantKeys(*tenant).zones
    begin = range_begin(zones)
    while (row := next(iter(tr.snapshot.get_range(begin, range_end(zones), limit=1)), None)) is not None:
        named = unpack_names(row.key, len(zones), 1)
        if named is None:
            return
        location = layout.location(tenant, named[0][0])
        yield location
        begin = range_end(location.keys.prefix)


def _has_run(tr: Reader, location: ZoneLocation, run: bytes) -> bool:
    """Say whether a zone has an item or a dead letter of a run, or one that cannot be read, or too many to tell."""
    keys = location.keys
    prefix = keys.dead_letter_prefix()
    for is_item, (begin, end) in ((True, keys.item_range()), (False, (range_begin(prefix), range_end(prefix)))):
        rows = list(tr.snapshot.get_range(begin, end, limit=SEARCHED_MAX, streaming_mode=WANT_ALL))
        if len(rows) == SEARCHED_MAX:
            return True
        for row in rows:
            record = _record_of(row.value, is_item=is_item)
            if record is None or (record.run or _id_of(row.key)) == run:
                return True
    return False


def _record_of(value: bytes, *, is_item: bool) -> ItemRecord | None:
    if is_item:
        return decode(ItemRecord, value)
    dead_letter = decode(DeadLetterRecord, value)
    return None if dead_letter is None else dead_letter.item


def _id_of(key: bytes) -> bytes | None:
    rest = elements_of(key)[-1:]
    return rest[0] if _is_id(rest) else None


def _is_id(rest: Sequence[object]) -> bool:
    return len(rest) == 1 and isinstance(rest[0], bytes) and len(rest[0]) == ID_BYTES
