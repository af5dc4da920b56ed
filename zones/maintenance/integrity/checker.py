"""The integrity check: all checks over a whole shard, in an order in which no repair undoes another."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.errors import TenantBusy
from fairlead.zones.external import arrivals
from fairlead.zones.keyspace import (
    AUDIT_LOG,
    CHANGE_COUNTER,
    COMPLETION_LOG,
    COUNT,
    DB,
    DEAD_LETTER,
    DEAD_LETTER_INDEX,
    DECISION,
    DEPTH,
    EXTERNAL_READER,
    FENCE,
    FLOOR,
    HANDLER,
    ITEM,
    LIMIT,
    LOCAL_INDEX,
    META,
    MOVE,
    MOVE_COUNT,
    OWNER,
    PAUSED_POINTER,
    PERIODIC,
    PLACEMENT,
    POINTER,
    POLICY,
    PREPARED,
    PREPARED_WRITES,
    QUARANTINE,
    RECEIPT,
    RECORD_TYPE,
    RETENTION,
    ROLLUP,
    ROOT,
    SESSION,
    SIGNAL,
    SNAP,
    SNAPSHOT_WORK,
    TIME,
    TOMBSTONE,
    TOP,
    VEST,
    WORKER_SESSION,
    WORKER_STATUS,
    IndexEntry,
    PartKeys,
    TenantKeys,
    pack_int,
    range_begin,
    range_end,
    tenant_prefix,
    unpack_name,
)
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.maintenance.integrity import (
    claims,
    dead_letters,
    indexed,
    moves,
    pointers,
    record_types,
    snapshots,
    zone_rows,
)
from fairlead.zones.maintenance.integrity.counts import (
    add_items,
    differences,
    recount_of_shard,
    recount_of_zone,
    verify_counts,
)
from fairlead.zones.maintenance.integrity.findings import Finding, Problem, Report
from fairlead.zones.maintenance.integrity.parsed_keys import skip_data, tenant_range
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_record, check_soft_record
from fairlead.zones.maintenance.integrity.residents import Residents, lives_here
from fairlead.zones.maintenance.integrity.runs import KeptRuns, RunsSeen, check_floor, check_tombstone
from fairlead.zones.maintenance.integrity.walk import Check, confirm, walk
from fairlead.zones.maintenance.integrity.zone_rows import ZoneRows
from fairlead.zones.pipelining import Operation
from fairlead.zones.policy.policies import record_type
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.records import (
    RESTRICTED_FORMAT,
    AuditEntry,
    DecisionRecord,
    HandlerRecord,
    OwnerRecord,
    PeriodicRecord,
    PlacementRecord,
    PreparedRecord,
    TenantPolicy,
    decode,
    is_newer,
)
from fairlead.zones.reporting import worker_status
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.transaction_keys import DECISION_PREFIX, PREPARED_PREFIX, transaction_of
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow.participants import FLOOR_BYTES

ProgressCallback = Callable[[int], None]

LOCKED = "its tenant stayed locked by a transaction or a move: check again later"
ROUNDS_MAX = 4  # Setting a record aside can leave other damage behind, such as a payload without one of its pieces.

_KNOWN = [
    META,
    DB,
    RECEIPT,
    TOP,
    DEPTH,
    DEAD_LETTER_INDEX,
    RETENTION,
    TIME,
    HANDLER,
    PERIODIC,
    SESSION,
    PLACEMENT,
    POLICY,
    PAUSED_POINTER,
    LIMIT,
    COMPLETION_LOG,
    LOCAL_INDEX,
    WORKER_STATUS,
    QUARANTINE,
    AUDIT_LOG,
    ROLLUP,
    CHANGE_COUNTER,
    TOMBSTONE,
    FLOOR,
    WORKER_SESSION,
    PREPARED,
    PREPARED_WRITES,
    DECISION,
    MOVE,
    SNAPSHOT_WORK,
    MOVE_COUNT,
    RECORD_TYPE,
    EXTERNAL_READER,
]
# The ranges between the subspaces that this version has names for.
_UNKNOWN = list(
    zip(
        [range_begin(ROOT), *(range_end(ROOT + pack_int(number)) for number in _KNOWN)],
        [*(ROOT + pack_int(number) for number in _KNOWN), range_end(ROOT)],
        strict=True,
    )
)


def check_integrity(
    shard: Shard,
    *,
    repair: bool = False,
    quarantine: bool = False,
    rest_ms: int | None = None,
    progress: ProgressCallback | None = None,
) -> Report:
    """Check every invariant of a shard; with `repair`, repair what can be repaired without losing an item.

    With `quarantine` it also sets damaged records aside (see `fairlead.zones.maintenance.quarantine`), and then checks
    everything again, to repair what they leave behind. The report is of the last round, and includes the repairs of
    earlier rounds.

    Runs beside producers and consumers: its transactions take some 50 ms, conflict with nothing unless they repair, and
    report only what was true in one version of the store. Tenants' own data is skipped.

    Args:
      rest_ms: how long consumers defer a pointer whose work is throttled or paused, at most; pointers of zones with
        vested items may be this late. Unknown: `max_sleep_ms`.
      progress: called now and then with the number of keys checked so far.
    """
    rest_us = (shard.layout.settings.max_sleep_ms if rest_ms is None else rest_ms) * 1000
    done: list[Finding] = []
    for _ in range(ROUNDS_MAX):
        checker = _Checker(
            shard, repair=repair or quarantine, quarantine=quarantine, rest_us=rest_us, progress=progress
        )
        checker.check_floor()
        checker.check_tenants()
        checker.check_pointers()
        checker.check_lists()
        checker.check_depths()
        report = checker.report
        if not any(finding.set_aside for finding in report.findings):
            break
        done += [finding for finding in report.findings if finding.resolved]
        report.findings = [finding for finding in report.findings if not finding.resolved]
    report.findings[:0] = done
    return report


class _Checker:
    """One integrity check in progress."""

    def __init__(
        self, shard: Shard, *, repair: bool, quarantine: bool, rest_us: int, progress: ProgressCallback | None
    ) -> None:
        self.report = Report()
        self.corrections: Counter[bytes] = Counter()  # what unrepaired wrong counts mean for the depths
        self._shard = shard
        self._layout = shard.layout
        self._repair = repair
        self._quarantine = quarantine
        self._rest_us = rest_us
        self._progress = progress
        self._keys = 0
        self._busy: set[bytes] = set()  # The prefixes of tenants that stay locked.

    def check_floor(self) -> None:
        """Check FLOOR. Before the tenants: repairing a tombstone needs it."""
        self._check_rows(FLOOR, lambda row: _floor_check(row, self._shard.clock.now_us()))

    def check_tenants(self) -> None:
        """Check all rows of tenants' zones, and each zone's counts once its last row was read."""
        seen, kept, residents = RunsSeen(), KeptRuns(self.report), Residents(self._layout)
        unfinished: ZoneLocation | None = None  # the zone of the last row so far

        def checks_of(rows: list[KeyValue]) -> list[Check]:
            now_us = self._shard.clock.now_us()
            return list(
                zone_rows.checks_of(
                    self._layout,
                    residents.rows(rows),
                    continued=unfinished,
                    seen=seen,
                    now_us=now_us,
                    rest_us=self._rest_us,
                )
            )

        for walked, failing_checks, last in walk(self._shard.db, *tenant_range(), checks_of, skip=skip_data):
            rows = residents.rows(walked)
            residents.go_on_after(walked)
            zones = zone_rows.by_zone(self._layout, rows)
            for number, zone in enumerate(zones):
                over = last or number < len(zones) - 1
                continued = _is_same(zone.location, unfinished)
                if unfinished is not None and not continued:
                    self._verify_counts(unfinished)
                self._note(zone, kept, continued=continued)
                unfinished = zone.location
                if over and zone.location is not None:
                    if continued or not _counts_are_right(zone):
                        self._verify_counts(zone.location)
                    unfinished = None
            if last and unfinished is not None:
                self._verify_counts(unfinished)
            if rows:
                seen.forget_before(rows[-1].key)
            writes = self._repair or self._quarantine
            of_residents = [
                partial(_check_of_resident, check=each, layout=self._layout, writes=writes, busy=self._busy)
                for each in failing_checks
            ]
            self._look_again(rows, of_residents)

    def check_pointers(self) -> None:
        """Check the top-level queue. After the tenants: repairing a pointer may leave an old entry there."""
        self._check_rows(TOP, self._pointer_entry_check)

    def check_lists(self) -> None:
        """Check what lies beside the tenants: lists ordered by time, and single records."""
        self._check_rows(
            DEAD_LETTER_INDEX,
            lambda row: partial(dead_letters.check_dead_letter_entry, layout=self._layout, key=row.key),
        )
        self._check_rows(
            RETENTION, lambda row: partial(dead_letters.check_retention_entry, layout=self._layout, key=row.key)
        )
        self._check_rows(PLACEMENT, _placement_check, self._note_record)
        self._check_rows(HANDLER, _handler_check, self._note_record)
        self._check_rows(PERIODIC, _period_check, self._note_record)
        self._check_rows(POLICY, _policy_check, self._note_policy)
        self._check_rows(AUDIT_LOG, _audit_entry_check, self._note_record)
        for number, readable in (
            (SESSION, sessions.is_readable),
            (WORKER_STATUS, worker_status.is_readable),
            (EXTERNAL_READER, arrivals.is_readable),
        ):
            self._check_rows(number, lambda row: partial(check_soft_record, readable=readable, key=row.key))  # noqa: B023
        self._check_rows(WORKER_SESSION, claims.session_key_check(self._layout))
        self._check_rows(TOMBSTONE, lambda row: partial(check_tombstone, layout=self._layout, key=row.key))
        self._check_rows(PREPARED, partial(_spanning_check, PREPARED_PREFIX, PreparedRecord), self._note_record)
        self._check_rows(DECISION, partial(_spanning_check, DECISION_PREFIX, DecisionRecord), self._note_record)
        self._check_rows(MOVE, self._move_check, self._note_record)
        self._check_rows(SNAPSHOT_WORK, snapshots.work_check)
        self._check_rows(LOCAL_INDEX, indexed.entry_check)
        self._check_rows(RECORD_TYPE, record_types.row_check, self._note_record)
        for begin, end in _UNKNOWN:
            self._check_range(begin, end, _unknown_check, self._note_unknown)

    def check_depths(self) -> None:
        """Check the depths of the shard's parts."""
        recount = recount_of_shard(self._layout, self.corrections)
        verify_counts(self._shard, recount, self.report, repair=self._repair)

    def _check_rows(
        self,
        number: int,
        check_of: Callable[[KeyValue], Check | None],
        note: Callable[[KeyValue], None] | None = None,
    ) -> None:
        """Check the rows of a subspace one by one, and `note` each."""
        begin = ROOT + pack_int(number)
        self._check_range(begin, range_end(begin), check_of, note)

    def _check_range(
        self,
        begin: bytes,
        end: bytes,
        check_of: Callable[[KeyValue], Check | None],
        note: Callable[[KeyValue], None] | None,
    ) -> None:
        def checks_of(rows: list[KeyValue]) -> list[Check]:
            return [check for row in rows if (check := check_of(row)) is not None]

        for rows, failing_checks, _ in walk(self._shard.db, begin, end, checks_of):
            if note is not None:
                for row in rows:
                    note(row)
            self._look_again(rows, failing_checks)

    def _pointer_entry_check(self, row: KeyValue) -> Check | None:
        match elements_of(row.key):
            case (_, _, int(part), int(number), int(priority), int(vesting_us), *_) if number == VEST and part >= 0:
                if IndexEntry(priority, vesting_us, b"").is_possible and part < self._layout.part_count:
                    entry = PartKeys(part).entry(row.key)
                    if entry is not None:
                        ref = PointerRef(part, entry.id, vesting_us, priority)
                        return partial(pointers.check_pointer_entry, layout=self._layout, key=row.key, ref=ref)
            case (_, _, int(_), int(number), *_) if number != VEST:
                return None
        return partial(check_damaged_key, key=row.key, derived=True)

    def _move_check(self, row: KeyValue) -> Check:
        match elements_of(row.key):
            case (_, _, str(_), str(_)):
                return partial(moves.check_move, layout=self._layout, key=row.key, now_us=self._shard.clock.now_us())
        return partial(check_damaged_key, key=row.key)

    def _verify_counts(self, location: ZoneLocation) -> None:
        recount, repair = recount_of_zone(location), self._repair and location.keys.tenant.prefix not in self._busy
        try:
            wrong = verify_counts(self._shard, recount, self.report, repair=repair)
        except TenantBusy as error:
            self._note_busy(error)
            repair = False
            wrong = verify_counts(self._shard, recount, self.report, repair=repair)
        if not repair:
            for key, missing in wrong.items():
                kind = unpack_name(key, len(location.keys.count_prefix()))
                if kind is not None:
                    self.corrections[location.part.depth(kind)] += missing

    def _note(self, zone: ZoneRows, kept: KeptRuns, *, continued: bool) -> None:
        report = self.report
        report.zones += zone.location is not None and not continued
        report.items += len(zone.of(ITEM))
        report.dead_letters += len(zone.of(DEAD_LETTER))
        report.pointers += len(zone.of(POINTER))
        for row in zone.of(ITEM) + zone.of(DEAD_LETTER) + zone.of(POINTER):
            self._note_record(row)
        for row, key in zone.rows:
            if not zone_rows.is_known(row, key):
                report.unknown += 1
            elif zone.location is None:
                sort = zone_rows.sort_of(row.key)
                kept.note(row, sort)
                if sort == SNAP:
                    continue  # A value of a user.
                if sort == OWNER:
                    report.newer += is_newer(row.value, newest=RESTRICTED_FORMAT)
                elif sort not in (FENCE, SIGNAL):  # Those have no format.
                    self._note_record(row)
                owner = decode(OwnerRecord, row.value)
                report.foreign += owner is not None and owner.shard_id != self._layout.shard_id

    def _note_policy(self, row: KeyValue) -> None:
        if record_type(row.key) is not None:
            self._note_record(row)

    def _note_unknown(self, row: KeyValue) -> None:
        self.report.unknown += _unknown_check(row) is None

    def _note_record(self, row: KeyValue) -> None:
        self.report.newer += is_newer(row.value)

    def _confirm(self, check: Check) -> None:
        confirm(self._shard, check, self.report, repair=self._repair, quarantine=self._quarantine)

    def _note_busy(self, error: TenantBusy) -> None:
        """Note a tenant that stayed locked: what is wrong with it is reported, and nobody waits for it again."""
        self._busy.add(TenantKeys(str(error.fields["app"]), str(error.fields["user"])).prefix)
        self.report.unverified += 1

    def _look_again(self, rows: list[KeyValue], failing_checks: Sequence[Check]) -> None:
        for check in failing_checks:
            try:
                self._confirm(check)
            except TenantBusy as error:
                self._note_busy(error)
                self._confirm(check)
        self._keys += len(rows)
        if self._progress is not None:
            self._progress(self._keys)


def _check_of_resident(
    tr: Transaction, check: Check, layout: ShardLayout, *, writes: bool, busy: Collection[bytes]
) -> Operation[list[Problem]]:
    """Run a check of rows of a tenant, and leave out what it finds if the tenant has moved away meanwhile.

    `busy`: the prefixes of tenants that stay locked: what is wrong there is not repaired.
    """
    problems = yield from check(tr)
    found = []
    for each in problems:
        is_busy = tenant_prefix(each.key) in busy
        if lives_here(tr, layout, each.key, writes=writes and not is_busy):
            found.append(each._replace(mend=None, aside=(), remedy=LOCKED) if is_busy else each)
    return found


def _policy_check(row: KeyValue) -> Check | None:
    struct = record_type(row.key)
    if struct is None:
        return None
    names = [type(element) for element in elements_of(row.key)[3:]]
    if names != ([str, str] if struct is TenantPolicy else [str]):
        return partial(check_damaged_key, key=row.key)
    return partial(check_record, struct=struct, key=row.key)


def _handler_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _, str(_), int(_)):
            return partial(check_record, struct=HandlerRecord, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _placement_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _):
            return partial(check_record, struct=PlacementRecord, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _period_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _, str(_)):
            return partial(check_record, struct=PeriodicRecord, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _spanning_check(prefix: bytes, struct: type[PreparedRecord | DecisionRecord], row: KeyValue) -> Check:
    if transaction_of(row.key, prefix) is None:
        return partial(check_damaged_key, key=row.key)
    if struct is PreparedRecord:
        return partial(_check_prepared, key=row.key)
    return partial(check_record, struct=struct, key=row.key)


def _check_prepared(tr: Transaction, *, key: bytes) -> Operation[list[Problem]]:
    """Check that what a transaction has prepared can be read."""
    found = yield from check_record(tr, PreparedRecord, key)
    remedy = f"set aside, its tenants stay locked until `fairlead locks abort {transaction_of(key, PREPARED_PREFIX)}`"
    return [problem._replace(remedy=remedy) for problem in found]


def _audit_entry_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _, int(_)):
            return partial(check_record, struct=AuditEntry, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _floor_check(row: KeyValue, now_us: int) -> Check:
    match elements_of(row.key):
        case (_, _):
            return partial(check_floor, key=row.key, now_us=now_us)
        case (_, _, 1):
            return partial(check_soft_record, readable=lambda value: len(value) == FLOOR_BYTES, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _unknown_check(row: KeyValue) -> Check | None:
    """Return the check of a key that belongs to no subspace; None: a newer version may have such keys."""
    match elements_of(row.key):
        case (_, int(number), *_) if number not in _KNOWN:
            return None
    return partial(check_damaged_key, key=row.key)


def _is_same(one: ZoneLocation | None, other: ZoneLocation | None) -> bool:
    return one is not None and other is not None and one.keys.prefix == other.keys.prefix


def _counts_are_right(zone: ZoneRows) -> bool:
    """Say whether the counts of a zone equal its items; all of its rows were read in one transaction."""
    assert zone.location is not None
    sums: Counter[bytes] = Counter()
    stored = {row.key: number_of(row.value) for row in zone.of(COUNT)}
    return add_items(zone.location, zone.of(ITEM), sums) and not differences(
        recount_of_zone(zone.location), sums, stored
    )
