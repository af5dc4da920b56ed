"""What a dequeue takes, row by row: entries, capacity, quantum and cursor in, the plan out. No store is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.zones.keyspace import IndexEntry
from fairlead.zones.queue.dequeue_plan import (
    FRONT,
    Admission,
    Capacity,
    Cursor,
    DequeuePlan,
    Entries,
    Need,
    UnfinishedPlan,
    plan,
)
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import ItemRecord
from fairlead.zones.settings import ZoneSettings

PAUSED, UNKNOWN, FULL, RUNS = Admission
NOW_US, LEASED_UNTIL_US = 1_000, 5_000
PRIORITY = 100
STOPPED_AT = b"behind"
SETTINGS = ZoneSettings(expiries_before_isolation=3)


def record_of(mark: str, kind: str, vesting_us: int) -> ItemRecord | Outcome | None:
    """Return what is known of a record, by a mark behind the kind of its entry; None: nothing yet."""
    record = ItemRecord(kind=kind, payload=b"", priority=PRIORITY, vesting_us=vesting_us, enqueued_us=0)
    match mark:
        case "?":
            return None
        case "gone":
            return Outcome.GONE
        case "unreadable":
            return Outcome.UNREADABLE
        case "moved":
            record.vesting_us += 1
        case "relabelled":
            record.kind = "another"
        case "candidate":
            record.expiry_count = 3
        case "poison":
            record.lease_id, record.ran_isolated = b"l" * 16, True
        case "hopeless":
            record.expiry_count = 6
        case _:
            assert not mark
    return record


def entries_of(text: str, **how: Any) -> Entries:
    """Return the entries of `kind` or `kind:mark`, one after the other; `|` begins the second window."""
    vested: list[tuple[IndexEntry, str]] = []
    records: dict[bytes, ItemRecord | Outcome] = {}
    second_begin = None
    for word in text.split():
        if word == "|":
            second_begin = len(vested)
            continue
        kind, _, mark = word.partition(":")
        entry = IndexEntry(PRIORITY, len(vested), item_id(len(vested)))
        vested.append((entry, kind))
        record = record_of(mark, kind, entry.vesting_us)
        if record is not None:
            records[entry.id] = record
    return Entries(vested, second_begin=second_begin, records=records, **how)


def item_id(number: int) -> bytes:
    return bytes([number]) * 16


@dataclass(frozen=True)
class Row:
    """One call and what comes of it. Items are named by the numbers of their entries."""

    entries: str
    takes: list[int]
    remaining: Admission | None
    kinds: dict[str, int] = field(default_factory=lambda: {"mail": 9, "fax": 9})
    capacity: int = 9
    isolated: int = 1
    quantum: int = 9
    beyond: Admission = RUNS
    skipped_kinds: frozenset[str] = frozenset()
    candidates: int = 0
    dead_letters: tuple[int, ...] = ()
    dangling: tuple[int, ...] = ()
    unreadable: int = 0


MAIL_ONLY = {"mail": 9}
FAX = frozenset({"fax"})
MAIL = frozenset({"mail"})


@pytest.mark.parametrize(
    "row",
    [
        # Capacity and quantum.
        Row("", [], None),
        Row("mail", [0], None),
        Row("mail fax mail", [0, 1, 2], None),
        Row("mail mail mail", [0, 1], RUNS, quantum=2),
        Row("mail mail", [0, 1], None, quantum=2),
        Row("mail mail mail", [0, 1], RUNS, capacity=2),
        Row("mail mail mail", [], RUNS, capacity=0),
        Row("mail mail mail", [0, 1], FULL, kinds={"mail": 2}, skipped_kinds=MAIL),
        Row("mail mail fax", [0, 2], FULL, kinds={"mail": 1, "fax": 1}, skipped_kinds=MAIL),
        Row("fax fax", [], FULL, kinds={"fax": 0}, skipped_kinds=FAX),
        # A tenant's limits, a paused tenant.
        Row("mail mail", [0], FULL, quantum=1, beyond=FULL),
        Row("mail mail", [0], RUNS, quantum=2, beyond=FULL, capacity=1),
        Row("mail", [0], None, quantum=1, beyond=FULL),
        Row("mail", [], FULL, quantum=0, beyond=FULL),
        Row("mail", [], PAUSED, quantum=0, beyond=PAUSED),
        Row("", [], None, quantum=0, beyond=PAUSED),
        # Kinds that cannot run here never block those that can.
        Row("fax mail", [1], UNKNOWN, kinds=MAIL_ONLY, skipped_kinds=FAX),
        Row("fax mail index", [1], FULL, kinds={"mail": 9, "index": 0}, skipped_kinds=frozenset({"fax", "index"})),
        Row("fax fax mail mail", [2], RUNS, kinds=MAIL_ONLY, quantum=1, skipped_kinds=FAX),
        # Poison candidates run isolated, and use no capacity of the others.
        Row("mail:candidate mail", [0, 1], None),
        Row("mail:candidate mail", [0, 1], None, capacity=2),
        Row("mail:candidate mail", [0], RUNS, quantum=1),
        Row("mail:candidate mail:candidate mail", [0, 2], FULL, candidates=1, skipped_kinds=MAIL),
        Row("mail:candidate mail", [1], FULL, isolated=0, candidates=1, skipped_kinds=MAIL),
        Row("mail:candidate mail", [0], FULL, kinds={"mail": 1}, skipped_kinds=MAIL),
        Row("mail:candidate mail mail", [1], RUNS, isolated=0, quantum=1, candidates=1, skipped_kinds=MAIL),
        Row("mail:poison mail", [1], None, dead_letters=(0,)),
        Row("mail:poison", [], None, isolated=0, dead_letters=(0,)),
        Row("mail:hopeless mail:hopeless", [], None, isolated=0, dead_letters=(0, 1)),
        Row("mail:poison mail mail", [1], RUNS, quantum=1, dead_letters=(0,)),
        Row("fax:poison mail", [1], UNKNOWN, kinds=MAIL_ONLY, skipped_kinds=FAX),
        # Damage blocks nothing, and uses no capacity.
        Row("mail:unreadable mail", [1], UNKNOWN, unreadable=1),
        Row("mail:unreadable mail mail", [1], RUNS, quantum=1, capacity=1, unreadable=1),
        Row("mail:relabelled mail", [1], UNKNOWN, unreadable=1),
        Row("mail:gone mail", [1], None, dangling=(0,)),
        Row("mail:moved mail", [1], None, dangling=(0,)),
        Row("mail:gone mail mail", [1], RUNS, quantum=1, dangling=(0,)),
        Row("fax:gone mail", [1], UNKNOWN, kinds=MAIL_ONLY, skipped_kinds=FAX),
    ],
    ids=lambda row: f"{row.entries or 'nothing'}; {row.capacity} {row.kinds} {row.isolated}, {row.quantum}",
)
def test_a_plan_takes(row: Row) -> None:
    found = finished(
        entries_of(row.entries),
        Capacity(row.capacity, row.kinds, poison_candidates=row.isolated),
        row.quantum,
        beyond=row.beyond,
    )
    assert [each for each, _ in found.items] == [item_id(number) for number in row.takes]
    assert found.remaining == row.remaining
    assert found.skipped_kinds == row.skipped_kinds
    assert found.poison_candidates == row.candidates
    assert [each for each, _, _ in found.dead_letters] == [item_id(number) for number in row.dead_letters]
    assert [entry.id for entry in found.dangling] == [item_id(number) for number in row.dangling]
    assert found.unreadable == row.unreadable
    assert found.cursor == FRONT


def finished(entries: Entries, capacity: Capacity, quantum: int = 9, cursor: Cursor = FRONT, **how: Any) -> DequeuePlan:
    found = plan(entries, capacity, quantum, cursor, leased_until_us=LEASED_UNTIL_US, settings=SETTINGS, **how)
    assert isinstance(found, DequeuePlan)
    return found


def wanted(entries: Entries, quantum: int | None = 9, capacity: int = 9) -> UnfinishedPlan:
    found = plan(entries, Capacity(capacity, {"mail": 9, "fax": 0}), quantum, settings=SETTINGS)
    assert isinstance(found, UnfinishedPlan)
    return found


# --- The cursor, over two windows ---


@dataclass(frozen=True)
class CursorRow:
    """A search that goes on from `best_skipped` behind a cursor, and where the next one goes on."""

    entries: str
    stopped_at: bytes | None
    takes: list[int]
    remaining: Admission | None
    after: Cursor
    best_skipped: Admission = PAUSED
    has_gap: bool = False
    quantum: int = 9


CURSOR_KEY = b"cursor"


@pytest.mark.parametrize(
    "search",
    [
        # The end of the index in the first window: the next search begins at the front, whatever the cursor says.
        CursorRow("fax", None, [], UNKNOWN, FRONT),
        CursorRow("fax", None, [], UNKNOWN, FRONT, best_skipped=FULL),
        # Enough was found: the cursor stays.
        CursorRow("mail mail", None, [0], RUNS, Cursor(CURSOR_KEY, FULL), best_skipped=FULL, quantum=1),
        CursorRow("fax | mail mail", None, [1], RUNS, Cursor(CURSOR_KEY, FULL), FULL, has_gap=True, quantum=1),
        CursorRow("fax | mail mail", None, [1], RUNS, Cursor(CURSOR_KEY, PAUSED), FULL, quantum=1),
        CursorRow("fax | fax mail mail", None, [2], RUNS, Cursor(CURSOR_KEY, UNKNOWN), has_gap=True, quantum=1),
        # The end of the index in the second window: what was skipped between the two counts.
        CursorRow("fax | mail", None, [1], UNKNOWN, FRONT),
        CursorRow("fax | mail", None, [1], UNKNOWN, FRONT, best_skipped=FULL),
        CursorRow("fax | mail", None, [1], FULL, FRONT, best_skipped=FULL, has_gap=True),
        CursorRow("mail | mail", None, [0, 1], PAUSED, FRONT, has_gap=True),
        # Both windows are read, and there is more: the next search goes on behind them, soon.
        CursorRow("fax | fax", STOPPED_AT, [], FULL, Cursor(STOPPED_AT, UNKNOWN)),
        CursorRow("fax | mail", STOPPED_AT, [1], FULL, Cursor(STOPPED_AT, PAUSED)),
        CursorRow("fax | fax", STOPPED_AT, [], FULL, Cursor(STOPPED_AT, FULL), FULL, has_gap=True),
        CursorRow("fax | mail", STOPPED_AT, [1], RUNS, Cursor(CURSOR_KEY, PAUSED), quantum=1),
        # One window is read, and enough was found in it: nobody looks further.
        CursorRow("fax mail", STOPPED_AT, [1], RUNS, Cursor(CURSOR_KEY, PAUSED), quantum=1),
    ],
    ids=lambda search: f"{search.entries}; {search.stopped_at}, {search.best_skipped.name}, {search.has_gap}",
)
def test_a_search_goes_on_from_its_cursor(search: CursorRow) -> None:
    entries = entries_of(search.entries, stopped_at=search.stopped_at, has_gap=search.has_gap)
    cursor = Cursor(CURSOR_KEY, search.best_skipped)
    found = finished(entries, Capacity(9, MAIL_ONLY), search.quantum, cursor)
    assert [each for each, _ in found.items] == [item_id(number) for number in search.takes]
    assert (found.remaining, found.cursor) == (search.remaining, search.after)


# --- What must be read first ---


@pytest.mark.parametrize(
    ("text", "how", "quantum", "need", "records"),
    [
        ("mail:?", {}, 9, Need.RECORDS, [0]),
        ("fax:? mail:?", {}, 9, Need.RECORDS, [1]),
        ("mail:? mail:? mail:?", {}, 2, Need.RECORDS, [0, 1]),
        ("mail:gone mail:? mail:?", {}, 1, Need.RECORDS, [1]),
        ("mail:unreadable mail:?", {}, 1, Need.RECORDS, [1]),
        ("mail:?", {"stopped_at": STOPPED_AT, "window_read": False}, 9, Need.ENTRIES, []),
        ("mail:?", {"stopped_at": STOPPED_AT, "window_read": False}, 1, Need.ENTRIES, []),
        ("mail:? mail:?", {"stopped_at": STOPPED_AT, "window_read": False}, 1, Need.RECORDS, [0]),
        ("mail:?", {"stopped_at": STOPPED_AT}, 9, Need.ENTRIES, []),
        ("mail:?", {"stopped_at": STOPPED_AT}, 1, Need.RECORDS, [0]),
        ("", {"stopped_at": STOPPED_AT, "window_read": False}, 9, Need.ENTRIES, []),
        ("mail:?", {}, None, Need.LIMIT, []),
        ("fax", {}, None, Need.LIMIT, []),
    ],
)
def test_a_plan_wants(text: str, how: dict[str, Any], quantum: int | None, need: Need, records: list[int]) -> None:
    found = wanted(entries_of(text, **how), quantum)
    assert (found.need, found.item_ids) == (need, [item_id(number) for number in records])


def test_a_tenant_with_limits_and_nothing_vested_is_not_looked_up() -> None:
    found = plan(Entries(), Capacity(9, MAIL_ONLY), None)
    assert isinstance(found, DequeuePlan)
    assert found.remaining is None


def test_an_unfinished_plan_reserves_what_it_may_take() -> None:
    found = wanted(entries_of("mail:? fax mail:candidate mail:? mail:gone"))
    assert found.reserved == ({"mail": 3}, 1)


def test_a_plan_changes_none_of_its_arguments() -> None:
    capacity = Capacity(9, {"mail": 9})
    found = finished(entries_of("mail mail:candidate"), capacity)
    assert (capacity.items, capacity.kinds, capacity.poison_candidates) == (9, {"mail": 9}, 1)
    capacity.take(found.reserved)
    assert (capacity.items, capacity.kinds, capacity.poison_candidates) == (8, {"mail": 7}, 0)
    capacity.release(found.reserved)
    assert (capacity.items, capacity.kinds, capacity.poison_candidates) == (9, {"mail": 9}, 1)


# --- When the zone vests next ---


def test_the_first_of_every_priority_includes_the_leases_that_are_taken() -> None:
    later, latest = IndexEntry(PRIORITY, LEASED_UNTIL_US + 1, item_id(8)), IndexEntry(3, 9_000, item_id(9))
    found = finished(entries_of("mail", unvested=[later, latest]), Capacity(9, MAIL_ONLY))
    assert found.first == [latest, IndexEntry(PRIORITY, LEASED_UNTIL_US, item_id(0))]


def test_nothing_of_a_paused_tenant_vests() -> None:
    """Its pointer sleeps until the pause ends."""
    unvested = [IndexEntry(PRIORITY, 9_000, item_id(9))]
    found = finished(entries_of("mail", unvested=unvested), Capacity(9, MAIL_ONLY), 0, beyond=PAUSED)
    assert found.first == []
