"""The audit: all checks over all of a shard, in an order in which one repair does not undo another."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from fairlead.zones.engines import KeyValue
from fairlead.zones.keyspace import (
    BURIED,
    CHANGED,
    COUNT,
    DB,
    DEED,
    DEPTH,
    FORGET,
    GRAVE,
    HANDLER,
    HISTORY,
    ITEM,
    LIMIT,
    META,
    PARKED,
    PERIODIC,
    POINTER,
    QUARANTINE,
    RECEIPT,
    ROOT,
    RULE,
    SERIES,
    SESSION,
    SHEET,
    TIME,
    TOP,
    VEST,
    IndexEntry,
    PartKeys,
    pack_int,
    range_begin,
    range_end,
    unpack_name,
)
from fairlead.zones.layout import Place
from fairlead.zones.maintenance.integrity import dead_letters, pointers, zone_rows
from fairlead.zones.maintenance.integrity.counts import add_items, differences, settle, tally_of_shard, tally_of_zone
from fairlead.zones.maintenance.integrity.findings import Finding, Report
from fairlead.zones.maintenance.integrity.parsed_keys import skip_data, tenant_range
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_record, check_soft_record
from fairlead.zones.maintenance.integrity.walk import Check, confirm, walk
from fairlead.zones.maintenance.integrity.zone_rows import ZoneRows
from fairlead.zones.policy.policies import record_type
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.records import DeedRecord, HandlerRecord, OwnerRecord, PeriodicRecord, TenantRule, decode, is_newer
from fairlead.zones.reporting import worker_status
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.tuples import elements_of

Progress = Callable[[int], None]

ROUNDS_MAX = 4  # What was set aside can leave something damaged behind, as a payload without one of its pieces.

_KNOWN = [META, DB, RECEIPT, TOP, DEPTH, GRAVE, FORGET, TIME, HANDLER, PERIODIC, SESSION, RULE, PARKED, LIMIT, HISTORY,
          SHEET, QUARANTINE, DEED, SERIES, CHANGED]  # fmt: skip
# What lies between the subspaces that this version has names for.
_UNKNOWN = list(
    zip(
        [range_begin(ROOT), *(range_end(ROOT + pack_int(number)) for number in _KNOWN)],
        [*(ROOT + pack_int(number) for number in _KNOWN), range_end(ROOT)],
        strict=True,
    )
)


def audit(
    shard: Shard,
    *,
    repair: bool = False,
    quarantine: bool = False,
    rest_ms: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check every invariant of a shard, and with `repair` mend what can be mended without losing an item.

    With `quarantine` it also sets aside what is damaged (see `fairlead.zones.maintenance.quarantine`), and then goes
    through all once more, to repair what that has left behind. The report is of the last time, and of what was done
    before.

    Runs beside producers and consumers: it takes transactions of some 50 ms, conflicts with nobody unless it repairs,
    and reports nothing that was not so in one version of the store. Tenants' own data is passed over.

    Args:
      rest_ms: for how long consumers let a pointer rest whose work is throttled or paused, at most; the pointers of
        zones with vested items may be that late. Unknown: `max_sleep_ms`.
      progress: called now and then with the number of keys looked at so far.
    """
    rest_us = (shard.layout.settings.max_sleep_ms if rest_ms is None else rest_ms) * 1000
    done: list[Finding] = []
    for _ in range(ROUNDS_MAX):
        auditor = _Auditor(
            shard, repair=repair or quarantine, quarantine=quarantine, rest_us=rest_us, progress=progress
        )
        auditor.check_tenants()
        auditor.check_pointers()
        auditor.check_lists()
        auditor.check_depths()
        report = auditor.report
        if not any(finding.set_aside for finding in report.findings):
            break
        done += [finding for finding in report.findings if finding.over]
        report.findings = [finding for finding in report.findings if not finding.over]
    report.findings[:0] = done
    return report


class _Auditor:
    """One audit on its way."""

    def __init__(
        self, shard: Shard, *, repair: bool, quarantine: bool, rest_us: int, progress: Progress | None
    ) -> None:
        self.report = Report()
        self.corrections: Counter[bytes] = Counter()  # what counts that are wrong, and stay so, mean for the depths
        self._shard = shard
        self._layout = shard.layout
        self._repair = repair
        self._quarantine = quarantine
        self._rest_us = rest_us
        self._progress = progress
        self._keys = 0

    def check_tenants(self) -> None:
        """Check all that lies in tenants' zones, and each zone's counts once its last row was seen."""
        unfinished: Place | None = None  # the zone of the last row so far

        def checks_of(rows: list[KeyValue]) -> list[Check]:
            now_us = self._shard.clock.now_us()
            return list(
                zone_rows.checks_of(self._layout, rows, continued=unfinished, now_us=now_us, rest_us=self._rest_us)
            )

        for rows, suspects, last in walk(self._shard.db, *tenant_range(), checks_of, skip=skip_data):
            zones = zone_rows.by_zone(self._layout, rows)
            for number, zone in enumerate(zones):
                over = last or number < len(zones) - 1
                continued = _is_same(zone.place, unfinished)
                if unfinished is not None and not continued:
                    self._settle_counts(unfinished)
                self._note(zone, continued=continued)
                unfinished = zone.place
                if over and zone.place is not None:
                    if continued or not _counts_are_right(zone):
                        self._settle_counts(zone.place)
                    unfinished = None
            if last and unfinished is not None:
                self._settle_counts(unfinished)
            self._look_again(rows, suspects)

    def check_pointers(self) -> None:
        """Check the top-level queue. After the tenants: mending a pointer may leave an old entry there."""
        self._check_rows(TOP, self._top_check)

    def check_lists(self) -> None:
        """Check what lies beside the tenants: lists that are ordered by time, and single records."""
        self._check_rows(GRAVE, lambda row: partial(dead_letters.check_grave, layout=self._layout, key=row.key))
        self._check_rows(FORGET, lambda row: partial(dead_letters.check_forget, layout=self._layout, key=row.key))
        self._check_rows(HANDLER, _handler_check, self._note_record)
        self._check_rows(PERIODIC, _period_check, self._note_record)
        self._check_rows(RULE, _rule_check, self._note_rule)
        self._check_rows(DEED, _deed_check, self._note_record)
        for number, readable in ((SESSION, sessions.is_readable), (SHEET, worker_status.is_readable)):
            self._check_rows(number, lambda row: partial(check_soft_record, readable=readable, key=row.key))  # noqa: B023
        for begin, end in _UNKNOWN:
            self._check_range(begin, end, _unknown_check, self._note_unknown)

    def check_depths(self) -> None:
        """Check the depths of the shard's parts."""
        settle(self._shard, tally_of_shard(self._layout, self.corrections), self.report, repair=self._repair)

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

        for rows, suspects, _ in walk(self._shard.db, begin, end, checks_of):
            if note is not None:
                for row in rows:
                    note(row)
            self._look_again(rows, suspects)

    def _top_check(self, row: KeyValue) -> Check | None:
        match elements_of(row.key):
            case (_, _, int(part), int(number), int(priority), int(vesting_us), *_) if number == VEST and part >= 0:
                if IndexEntry(priority, vesting_us, b"").is_possible and part < self._layout.part_count:
                    entry = PartKeys(part).entry(row.key)
                    if entry is not None:
                        ref = PointerRef(part, entry.id, vesting_us, priority)
                        return partial(pointers.check_top_entry, layout=self._layout, key=row.key, ref=ref)
            case (_, _, int(_), int(number), *_) if number != VEST:
                return None
        return partial(check_damaged_key, key=row.key, derived=True)

    def _settle_counts(self, place: Place) -> None:
        wrong = settle(self._shard, tally_of_zone(place), self.report, repair=self._repair)
        if not self._repair:
            for key, missing in wrong.items():
                kind = unpack_name(key, len(place.keys.count_prefix()))
                if kind is not None:
                    self.corrections[place.part.depth(kind)] += missing

    def _note(self, zone: ZoneRows, *, continued: bool) -> None:
        report = self.report
        report.zones += zone.place is not None and not continued
        report.items += len(zone.of(ITEM))
        report.buried += len(zone.of(BURIED))
        report.pointers += len(zone.of(POINTER))
        for row in zone.of(ITEM) + zone.of(BURIED) + zone.of(POINTER):
            self._note_record(row)
        for row, key in zone.rows:
            if not zone_rows.is_known(row, key):
                report.unknown += 1
            elif zone.place is None:
                self._note_record(row)
                owner = decode(OwnerRecord, row.value)
                report.foreign += owner is not None and owner.shard_id != self._layout.shard_id

    def _note_rule(self, row: KeyValue) -> None:
        if record_type(row.key) is not None:
            self._note_record(row)

    def _note_unknown(self, row: KeyValue) -> None:
        self.report.unknown += _unknown_check(row) is None

    def _note_record(self, row: KeyValue) -> None:
        self.report.newer += is_newer(row.value)

    def _look_again(self, rows: list[KeyValue], suspects: list[Check]) -> None:
        for check in suspects:
            confirm(
                self._shard,
                check,
                self.report,
                repair=self._repair,
                quarantine=self._quarantine,
            )
        self._keys += len(rows)
        if self._progress is not None:
            self._progress(self._keys)


def _rule_check(row: KeyValue) -> Check | None:
    struct = record_type(row.key)
    if struct is None:
        return None
    names = [type(element) for element in elements_of(row.key)[3:]]
    if names != ([str, str] if struct is TenantRule else [str]):
        return partial(check_damaged_key, key=row.key)
    return partial(check_record, struct=struct, key=row.key)


def _handler_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _, str(_), int(_)):
            return partial(check_record, struct=HandlerRecord, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _period_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _, str(_)):
            return partial(check_record, struct=PeriodicRecord, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _deed_check(row: KeyValue) -> Check:
    match elements_of(row.key):
        case (_, _, int(_)):
            return partial(check_record, struct=DeedRecord, key=row.key)
    return partial(check_damaged_key, key=row.key)


def _unknown_check(row: KeyValue) -> Check | None:
    """Return the check of a key that belongs to no subspace; None: a newer version may have such keys."""
    match elements_of(row.key):
        case (_, int(number), *_) if number not in _KNOWN:
            return None
    return partial(check_damaged_key, key=row.key)


def _is_same(one: Place | None, other: Place | None) -> bool:
    return one is not None and other is not None and one.keys.prefix == other.keys.prefix


def _counts_are_right(zone: ZoneRows) -> bool:
    """Say whether the counts of a zone, all of whose rows were read in one transaction, equal its items."""
    assert zone.place is not None
    sums: Counter[bytes] = Counter()
    stored = {row.key: number_of(row.value) for row in zone.of(COUNT)}
    return add_items(zone.place, zone.of(ITEM), sums) and not differences(tally_of_zone(zone.place), sums, stored)
