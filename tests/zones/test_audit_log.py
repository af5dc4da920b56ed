"""The audit log has each action of an operator once, and is bounded."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fairlead.zones.keyspace import AUDIT_LOG, ROOT, pack_int
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.maintenance.integrity.records import DAMAGED_KEY, DAMAGED_RECORD
from fairlead.zones.records import FORMAT, AuditEntry
from fairlead.zones.reporting import audit_log
from tests.zones.colliding import collides
from tests.zones.world import World


def audit_entry(number: int, **how: Any) -> AuditEntry:
    fields: dict[str, Any] = {
        "by": "eve@db1",
        "through": "command line",
        "what": "pause",
        "to": {"kind": "mail"},
        "done_us": 7,
    } | how
    return AuditEntry(number.to_bytes(16, "big"), **fields)


def note(world: World, *noted: AuditEntry) -> None:
    for each in noted:
        world.run(partial(audit_log.write, audit_entry=each))


def numbers(world: World, entries_max: int = 100, before: int | None = None) -> list[int]:
    found = world.run(lambda tr: audit_log.latest(tr, entries_max=entries_max, before=before))
    return [int.from_bytes(each.audit_entry.id, "big") for each in found]


def test_entries_are_listed_the_latest_first_and_page_by_page(world: World) -> None:
    note(world, *(audit_entry(number) for number in range(5)))
    assert numbers(world) == [4, 3, 2, 1, 0]
    assert numbers(world, 2) == [4, 3]
    last = world.run(lambda tr: audit_log.latest(tr, entries_max=2))[-1].number
    assert numbers(world, 2, before=last) == [2, 1]


def test_an_entry_that_is_written_again_stays_one_and_has_the_latest_count(world: World) -> None:
    """After a commit of unknown result, or with each transaction of a bulk."""
    note(world, audit_entry(1, count=200, ended=False), audit_entry(2), audit_entry(1, count=350))
    found = world.run(lambda tr: audit_log.latest(tr, entries_max=9))
    assert [(each.audit_entry.id[-1], each.audit_entry.count, each.audit_entry.ended) for each in found] == [
        (2, 1, True),
        (1, 350, True),
    ]
    entry = world.run(lambda tr: audit_log.find(tr, audit_entry(1).id))
    assert entry is not None
    assert entry.count == 350
    assert world.run(lambda tr: audit_log.find(tr, bytes(16))) is None


def test_the_oldest_entries_are_cleared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "ENTRIES_MAX", 3)
    note(world, *(audit_entry(number) for number in range(8)))
    assert numbers(world) == [7, 6, 5]


def test_concurrent_entries_of_two_operators_are_both_written(world: World) -> None:
    assert collides(
        world.db, lambda tr: audit_log.write(tr, audit_entry(1)), lambda tr: audit_log.write(tr, audit_entry(2))
    )


def test_an_entry_of_a_newer_version_is_skipped_and_keeps_its_number(world: World) -> None:
    note(world, audit_entry(1))
    world.set(ROOT + pack_int(AUDIT_LOG) + pack_int(1), bytes([FORMAT + 1]))
    note(world, audit_entry(2))
    assert numbers(world) == [2, 1]


@pytest.mark.parametrize("rest", [b"", b"\x02text\x00", b"\x1c" + b"\xff" * 40])
def test_a_damaged_key_of_an_entry_is_skipped_and_found_by_the_integrity_check(world: World, rest: bytes) -> None:
    note(world, audit_entry(1))
    world.set(ROOT + pack_int(AUDIT_LOG) + rest + b"\x00", b"")
    note(world, audit_entry(2), audit_entry(2, count=9))
    assert numbers(world) == [2, 1]
    assert [finding.what for finding in check_integrity(world.shard).findings] == [DAMAGED_KEY]


def test_a_damaged_entry_is_found_by_the_integrity_check(world: World) -> None:
    note(world, audit_entry(1))
    assert check_integrity(world.shard).findings == []
    world.set(ROOT + pack_int(AUDIT_LOG) + pack_int(0), bytes([FORMAT]) + b"nonsense")
    assert [finding.what for finding in check_integrity(world.shard).findings] == [DAMAGED_RECORD]
