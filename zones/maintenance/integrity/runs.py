"""Checks of workflows: what is stored of a run can be read, and belongs to an item, or to a dead letter.

No key leads from a run to its item. But the zones of a tenant come before its step logs, so the walk has seen the runs
of its items by then. A run that it has not seen is searched for among the records of the tenant, in one transaction.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fairlead.zones.engines import KeyValue, Reader, Transaction
from fairlead.zones.keyspace import (
    CHILD_RESULT,
    DEAD_LETTER,
    FENCE,
    ITEM,
    LOCK,
    SIGNAL,
    STEP_LOG,
    TenantKeys,
    range_begin,
    range_end,
    tenant_prefix,
    unpack_names,
)
from fairlead.zones.layout import DEFAULT_ZONE, ID_BYTES, ShardLayout, Tenant, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import KeptRun, Problem, Report
from fairlead.zones.maintenance.integrity.parsed_keys import ZoneKey
from fairlead.zones.maintenance.integrity.records import DAMAGED_RECORD, check_damaged_key, check_value
from fairlead.zones.maintenance.integrity.residents import lives_here
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.items import is_payload
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow.children import decode_child_result
from fairlead.zones.workflow.participants import has_tombstone, is_floor, list_tombstone, mend_floor, parse_tombstone
from fairlead.zones.workflow.run_end import cleanup_id, end_run_op, enqueue_cleanup_op
from fairlead.zones.workflow.run_records import (
    END,
    FENCE_BYTES,
    StepState,
    decode_entry,
    decode_head,
    decode_participant,
    encode,
    entries_prefix,
    head_key,
    participants_prefix,
)
from fairlead.zones.workflow.signals import STAMP_BYTES

ORPHAN_LOG = "a step log belongs to no item"
ORPHAN_MESSAGE = "a signal, or the result of a child, belongs to no item"
NO_HEAD = "the head of a workflow's run is missing"
NOT_SAID = "the head of a run does not say that it has participants"
NO_CLEANUP = "a run has ended, and nothing will clear what its participants keep"
OLD_SEGMENT = "steps from before the last checkpoint are left"
LATER_SEGMENT = "steps are of a later checkpoint than the head of their run"
BEHIND_END = "a participant keeps steps of a run that has ended"
NOT_LISTED = "a tombstone would never be cleared"
NO_TOMBSTONE = "the tombstone of a run is missing"

REMEDY_OF_DAMAGE = (
    "first see what its workflow has done with `fairlead steps`, and cancel it with --force: a step whose entry is set"
    " aside counts as one that was never done"
)
REMEDY_OF_NO_HEAD = (
    "no step of it is done again: see what it has done with `fairlead steps`, then cancel it with --force, and enqueue"
    " anew what is still to be done"
)

SORTS = (STEP_LOG, FENCE, SIGNAL, CHILD_RESULT)
HOMES_MAX = 100_000  # Runs of a shard whose homes are looked for; others are counted as unverified.
SEARCHED_MAX = 5_000  # Records of a zone in which a run is searched for; among more it is taken to be there.
TOMBSTONE_VALUE = END.to_bytes(FENCE_BYTES, "big")
_HEAD, _PARTICIPANT, _ENTRY = 1, 2, 3
_LOCKS_OF_RUN = 2


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


class KeptRuns:
    """The runs of which tenants keep steps or a fence, without being their home, as the walk comes by."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._known = b""  # The prefix of the step log of a run that is at home there, or is noted.

    def note(self, row: KeyValue, sort: int | None) -> None:
        """Note the run of a row of a tenant, if it may be that of a participant. `sort`: its subspace."""
        if sort == LOCK:
            match elements_of(row.key):
                case (_, _, str(app), str(user), int(_), int(part), bytes(run), bytes(_)) if "\0" not in app + user:
                    if part == _LOCKS_OF_RUN:
                        self._add(KeptRun(Tenant(app, user), run))
        if sort not in (STEP_LOG, FENCE):
            return
        if (self._known and row.key.startswith(self._known)) or row.value == TOMBSTONE_VALUE:
            return
        match elements_of(row.key):
            case (_, _, str(app), str(user), int(_), bytes(run), *rest) if "\0" not in app + user:
                if sort == STEP_LOG:
                    self._known = TenantKeys(app, user).step_log(run)
                if rest[:1] != [_HEAD] and rest[:1] != [_PARTICIPANT]:
                    self._add(KeptRun(Tenant(app, user), run))

    def _add(self, run: KeptRun) -> None:
        kept = self._report.kept
        if len(kept) < HOMES_MAX:
            kept.add(run)
        elif run not in kept:
            self._report.unverified += 1


def run_checks(
    key: bytes, sort: int, *, layout: ShardLayout, seen: RunsSeen, looked: set[bytes], now_us: int
) -> Iterator[Check]:
    """Yield the checks of a tenant's row of one of the `SORTS`: of its value, and of its place in its run.

    `looked`: prefixes whose rows have one place, which are checked already.
    """
    is_signal = sort == SIGNAL
    match elements_of(key[:-STAMP_BYTES] if is_signal else key):
        case (_, _, str(app), str(user), int(found), bytes(run), *rest) if found == sort and "\0" not in app + user:
            row = RunRow(layout.location(Tenant(app, user), DEFAULT_ZONE), run, key)
            shaped = list(_shaped_checks(row, sort, rest, is_seen=seen.has(key, run), looked=looked, now_us=now_us))
            if shaped:
                yield from (partial(_of_run, row=row, check=check) for check in shaped if check is not None)
                return
    yield partial(check_damaged_key, key=key)


class RunRow(NamedTuple):
    """A row of a run. `location`: any zone of its tenant."""

    location: ZoneLocation
    run: bytes
    key: bytes

    @property
    def keys(self) -> TenantKeys:
        """The keys of its tenant."""
        return self.location.keys.tenant


def _of_run(tr: Transaction, *, row: RunRow, check: Check) -> Operation[list[Problem]]:
    """Run a check, and say of which run its problems are."""
    problems = yield from check(tr)
    return [
        problem._replace(
            location=row.location,
            run=row.run,
            remedy=REMEDY_OF_DAMAGE if problem.what == DAMAGED_RECORD else problem.remedy,
        )
        for problem in problems
    ]


def _shaped_checks(
    row: RunRow, sort: int, rest: Sequence[object], *, is_seen: bool, looked: set[bytes], now_us: int
) -> Iterator[Check | None]:
    """Yield the checks of a row; None in place of one that is not needed; nothing if there can be no such row."""
    held = None if is_seen else partial(_check_held, row=row, now_us=now_us)
    value = partial(check_value, key=row.key)
    match sort, *rest:
        case int(_), int(number) if sort == STEP_LOG and number == _HEAD:
            yield partial(_check_value_then, readable=_is_head, row=row, then=held)
        case int(_), int(number), str(_), str(_) if sort == STEP_LOG and number == _PARTICIPANT:
            yield partial(value, readable=lambda value: decode_participant(value) is not None)
            yield _once(participants_prefix(row.keys, row.run), looked, partial(_check_participants, row, now_us))
        case int(_), int(number), int(segment), str(_), int(_) if sort == STEP_LOG and number == _ENTRY:
            yield partial(value, readable=_is_entry)
            prefix = entries_prefix(row.keys, row.run, segment)
            yield _once(prefix, looked, partial(_check_segment, row, segment, is_seen))
        case (int(_),) if sort == FENCE:
            yield partial(_check_fence, row=row)
        case int(_), str(_), int(_) if sort == SIGNAL:
            yield partial(_check_value_then, readable=is_payload, row=row, then=held, has_format=False)
        case int(_), str(_), int(_) if sort == CHILD_RESULT:
            yield partial(_check_value_then, readable=_is_child_result, row=row, then=held)


def _once(prefix: bytes, looked: set[bytes], check: Check) -> Check | None:
    if prefix in looked:
        return None
    looked.add(prefix)
    return check


def _is_head(value: bytes) -> bool:
    head = decode_head(value)
    return head is not None and (not head.checkpoint or is_payload(head.checkpoint))


def _is_entry(value: bytes) -> bool:
    entry = decode_entry(value)
    if entry is None or (entry.state is StepState.DONE and not is_payload(entry.result)):
        return False
    return entry.error is None or entry.error.arguments is None or is_payload(entry.error.arguments)


def _is_child_result(value: bytes) -> bool:
    child = decode_child_result(value)
    return child is not None and (not child.result or is_payload(child.result))


def _check_value_then(
    tr: Transaction, *, readable: Callable[[bytes], bool], row: RunRow, then: Check | None, has_format: bool = True
) -> Operation[list[Problem]]:
    found = yield from check_value(tr, readable, row.key, has_format=has_format)
    return found or ([] if then is None else (yield from then(tr)))


def _check_participants(row: RunRow, now_us: int, tr: Transaction) -> Operation[list[Problem]]:
    """Check that a run with participants has a head, which says so; or that it has ended, and a cleanup is to come.

    Snapshot reads of the items. A repair enqueues the cleanup anew, or corrects the head.
    """
    location, keys, run = row.location, row.keys, row.run
    stored, present = tr.get(head_key(keys, run)), tr.get(row.key)
    yield
    if present.value is None:
        return []
    if stored.value is not None:
        head = decode_head(stored.value)
        if head is None or head.has_participants:
            return []
        head.has_participants = True
        corrected = encode(head)
        return [Problem(NOT_SAID, row.key, mend=lambda tr: tr.set(head_key(keys, run), corrected))]
    zones = list(_zones(tr, location.layout, location.tenant))
    if any(_has_cleanup(tr, zone, run) for zone in zones):
        return []
    if any(_has_run(tr, zone, run) for zone in zones):
        return [Problem(NO_HEAD, head_key(keys, run), remedy=REMEDY_OF_NO_HEAD)]

    def enqueue_again(tr: Transaction) -> None:
        run_one(enqueue_cleanup_op(tr, location, run, now_us=now_us))

    return [Problem(NO_CLEANUP, row.key, mend=enqueue_again)]


def _has_cleanup(tr: Reader, zone: ZoneLocation, run: bytes) -> bool:
    """Say whether the cleanup of a run waits in a zone, or is a dead letter, or is there and cannot be read."""
    item_id = cleanup_id(run)
    return any(tr.snapshot.get(key(item_id)).value is not None for key in (zone.keys.item, zone.keys.dead_letter))


def _check_segment(row: RunRow, segment: int, is_seen: bool, tr: Transaction) -> Operation[list[Problem]]:
    """Check that the entries of a segment lie below a run with that segment, or at a participant of a run.

    A participant has no head, and keeps the entries of earlier segments until its next step.
    """
    keys, run = row.keys, row.run
    prefix, participants = entries_prefix(keys, run, segment), participants_prefix(keys, run)
    present = tr.get_range(range_begin(prefix), range_end(prefix), limit=1)
    participant = tr.get_range(range_begin(participants), range_end(participants), limit=1)
    stored, fence = tr.get(head_key(keys, run)), tr.get(keys.fence(run))
    yield
    if next(iter(present), None) is None:
        return []
    if stored.value is not None:
        head = decode_head(stored.value)
        if head is None or head.segment == segment:
            return []
        forget = partial(_clear_range, begin=range_begin(prefix), end=range_end(prefix))
        if segment < head.segment:
            return [Problem(OLD_SEGMENT, row.key, mend=forget)]
        return [Problem(LATER_SEGMENT, row.key, remedy=REMEDY_OF_NO_HEAD)]
    if fence.value == TOMBSTONE_VALUE:
        log = keys.step_log(run)
        return [Problem(BEHIND_END, row.key, mend=partial(_clear_range, begin=range_begin(log), end=range_end(log)))]
    if is_seen and next(iter(participant), None) is None:  # Else the check of the participants says so.
        return [Problem(NO_HEAD, head_key(keys, run), remedy=REMEDY_OF_NO_HEAD)]
    return []


def _clear_range(tr: Transaction, *, begin: bytes, end: bytes) -> None:
    tr.clear_range(begin, end)


def _check_fence(tr: Transaction, *, row: RunRow) -> Operation[list[Problem]]:
    """Check a fence: it can be read; a tombstone is listed, so that it will be cleared."""
    found = yield from check_value(tr, lambda value: len(value) == FENCE_BYTES, row.key, has_format=False)
    stored = tr.get(row.key)
    yield
    tenant, run = row.location.tenant, row.run
    if found or stored.value != TOMBSTONE_VALUE or has_tombstone(tr, tenant, run):
        return found
    return [Problem(NOT_LISTED, row.key, mend=lambda tr: list_tombstone(tr, tenant, run))]


def check_tombstone(tr: Transaction, layout: ShardLayout, key: bytes) -> Operation[list[Problem]]:
    """Check an entry among the tombstones: the fence that it will clear is one. A repair writes the tombstone again."""
    named = parse_tombstone(key)
    if named is None or len(elements_of(key)) != 6:
        return (yield from check_damaged_key(tr, key, derived=True))
    tenant, run = named
    location = layout.location(tenant, DEFAULT_ZONE)
    fence_key = location.keys.tenant.fence(run)
    present, fence = tr.get(key), tr.get(fence_key)
    yield
    if present.value is None or fence.value == TOMBSTONE_VALUE:
        return []
    if fence.value is not None and len(fence.value) != FENCE_BYTES:
        return []  # The check of the fence says so.
    if not lives_here(tr, layout, fence_key, writes=False):
        return []  # A move clears the fence first, and the entry last.

    def mend(tr: Transaction) -> None:
        lives_here(tr, layout, fence_key, writes=True)
        tr.set(fence_key, TOMBSTONE_VALUE)

    return [Problem(NO_TOMBSTONE, key, location, mend=mend, run=run)]


def check_floor(tr: Transaction, key: bytes, *, now_us: int) -> Operation[list[Problem]]:
    """Check FLOOR. A repair raises it, so that each run asks again: setting it aside would let late steps act."""
    stored = tr.get(key)
    yield
    if is_floor(stored.value):
        return []
    return [Problem(DAMAGED_RECORD, key, mend=partial(mend_floor, now_us=now_us))]


def _check_held(tr: Transaction, *, row: RunRow, now_us: int) -> Operation[list[Problem]]:
    """Check that an item, or a dead letter, of a tenant has a run. A repair ends the run, as the end of its item would.

    Snapshot reads: a run that is over does not come back.
    """
    location, run, key = row.location, row.run, row.key
    present = tr.get(key)
    yield
    if present.value is None or is_held(tr, location, run):
        return []
    is_head = key == head_key(row.keys, run)

    def mend(tr: Transaction) -> None:
        if is_head:
            run_one(end_run_op(tr, location, run, now_us=now_us))
        else:
            tr.clear(key)

    return [Problem(ORPHAN_LOG if is_head else ORPHAN_MESSAGE, key, mend=mend)]


def is_held(tr: Reader, location: ZoneLocation, run: bytes) -> bool:
    """Say whether an item, or a dead letter, of a tenant has a run, or may have it. Snapshot reads."""
    return any(_has_run(tr, zone, run) for zone in _zones(tr, location.layout, location.tenant))


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
