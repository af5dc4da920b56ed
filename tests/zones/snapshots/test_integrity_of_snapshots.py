"""The integrity check knows snapshots: copies that nobody reads, and tenants that housekeeping would forget."""

from __future__ import annotations

from io import BytesIO
from random import Random

import pytest

from fairlead.zones import engines
from fairlead.zones.keyspace import ROOT_RANGE, pack_int
from fairlead.zones.maintenance.backup import backup, restore
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.maintenance.integrity.records import DAMAGED_KEY, DAMAGED_RECORD
from fairlead.zones.maintenance.integrity.snapshots import ORPHAN_COPIES, UNLISTED, WRONG_ENTRY
from fairlead.zones.snapshots.snapshot_keys import copies_prefix, work_key
from tests.zones.snapshots.user import User


def findings(alice: User, *, repair: bool = False) -> list[str]:
    report = check_integrity(alice.world.shard, repair=repair)
    assert (report.unknown, report.newer) == (0, 0)
    return [each.what for each in report.findings]


def with_copies(alice: User) -> int:
    """Return a snapshot with copies, of values that begin as newer records do."""
    alice.set(a=b"\x03newer?", b=b"\x01\x92\x00\xc4\x00", c=b"")
    taken = alice.take(kept_us=5_000_000)
    alice.transact(lambda tr: tr.clear_prefix())
    return taken


def test_a_tenant_with_snapshots_is_whole(alice: User) -> None:
    with_copies(alice)
    alice.drop(alice.take())
    assert findings(alice) == []


def test_copies_of_a_snapshot_that_is_not_listed_are_cleared(alice: User) -> None:
    taken = with_copies(alice)
    orphan = copies_prefix(alice.keys, 99) + b"\x02a\x00"
    alice.world.set(orphan, b"")
    assert findings(alice, repair=True) == [ORPHAN_COPIES]
    assert orphan not in alice.copies()
    assert len(alice.then(taken)) == 3
    assert findings(alice) == []


def test_copies_of_a_tenant_without_a_record_are_cleared(alice: User) -> None:
    alice.world.set(copies_prefix(alice.keys, 1) + b"\x02a\x00", b"")
    assert findings(alice, repair=True) == [ORPHAN_COPIES]
    assert alice.copies() == []


def test_a_tenant_that_housekeeping_would_forget_is_listed_again(alice: User) -> None:
    with_copies(alice)
    (entry,) = alice.work()
    alice.world.run(lambda tr: tr.clear(entry))
    assert findings(alice, repair=True) == [UNLISTED]
    assert alice.work() == [entry]


def test_an_entry_for_housekeeping_that_fits_no_snapshot_is_cleared(alice: User) -> None:
    alice.world.set(work_key(5, alice.keys), b"")
    assert findings(alice, repair=True) == [WRONG_ENTRY]
    assert alice.work() == []


def test_a_damaged_last_number_is_cleared_and_no_number_is_given_twice(alice: User) -> None:
    taken = with_copies(alice)
    alice.world.set(alice.keys.snapshots, b"?")
    assert findings(alice, repair=True) == [DAMAGED_RECORD]
    assert alice.take() == taken + 1


@pytest.mark.parametrize("rest", [pack_int(1), b"\x02x\x00", b"\xff"])
def test_a_damaged_key_of_a_copy_is_found(alice: User, rest: bytes) -> None:
    with_copies(alice)
    alice.world.set(alice.keys.snapshots + rest, b"")
    assert findings(alice) == [DAMAGED_KEY]


def test_a_damaged_entry_for_housekeeping_is_cleared(alice: User) -> None:
    alice.world.set(work_key(5, alice.keys) + b"?", b"")
    assert findings(alice, repair=True) == [DAMAGED_KEY]
    assert alice.work() == []


def test_a_backup_restores_snapshots(alice: User) -> None:
    taken = with_copies(alice)
    file = BytesIO()
    backup(alice.world.shard, file)
    db = engines.open("memory:", clock=alice.world.clock, random=Random(1))
    restore(db, file, clock=alice.world.clock, random=Random(2))
    other = User(db, alice.world.clock)
    assert other.then(taken) == alice.then(taken)
    assert findings(other) == []
    assert other.world.stored(*ROOT_RANGE)
    assert other.upkeep() == 1
    assert other.listed() == ()
