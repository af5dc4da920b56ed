"""Consumers that visit what a tenant has left on a shard, while the tenant comes in there again."""

from __future__ import annotations

from contextlib import suppress

import pytest

from fairlead.zones.engines import Reader, transact
from fairlead.zones.errors import TenantMoved
from fairlead.zones.external import arrivals
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Arrival, Queue
from fairlead.zones.records import PointerRecord, decode
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import drop_moved, lease
from tests.simulation.races.missing_guards import planted
from tests.zones.moving.test_guards import run_until
from tests.zones.moving.town import Killed, Town

ZONES = [f"queue {number}" for number in range(3)]
EXTERNAL = pointer_zone("pg", "queue")
LEASE, LEASE_US = b"l" * 16, 1_000_000


def comes_back_before_it_is_cleared(town: Town) -> None:
    """Let Alice move to the west. Before her first home is cleared, its mover dies, and she begins to come back."""
    first = town.begin("west")
    mover = town.mover(first, "west")
    note = mover._note

    def noted(**changes: object) -> None:
        if changes.get("stage") == "clearing the source":
            run_until(town, town.begin("east"), "east", "_copy", at="west")
            raise Killed
        note(**changes)

    mover._note = noted  # type: ignore[method-assign]
    with suppress(Killed):
        mover.run()


def pointer_of(town: Town, zone: str) -> PointerRecord | None:
    """Return the pointer of a zone at Alice's first home."""
    east = town.shards["east"]
    keys = east.layout.location(town.alice, zone).keys
    value = transact(east.db, lambda tr: tr.get(keys.pointer).value)
    return None if value is None else decode(PointerRecord, value)


def entries(town: Town, zones: list[str]) -> list[PointerRef]:
    """Return what a scan of Alice's first home finds of some zones."""
    east = town.shards["east"]
    ids = {east.layout.location(town.alice, zone).pointer_id for zone in zones}

    def read(tr: Reader) -> list[PointerRef]:
        found = []
        for part in east.layout.parts:
            for row in tr.snapshot.get_range(part.vest_priority(0), part.vest_end()):
                entry = part.entry(row.key)
                if entry is not None and entry.id in ids:
                    found.append(PointerRef(part.part, entry.id, entry.vesting_us, entry.priority))
        return found

    return transact(east.db, read)


def visit(town: Town, refs: list[PointerRef]) -> list[bool]:
    """Let a consumer visit pointers at Alice's first home."""
    east = town.shards["east"]
    return [east.transact(lambda attempt, ref=ref: drop_moved(attempt.tr, east.layout, ref)) for ref in refs]  # type: ignore[misc]


def test_what_a_tenant_has_left_is_visited_once_although_it_comes_in_again() -> None:
    """Before, each consumer looked at its pointers a hundred times a second: they were neither deleted nor deferred."""
    town = Town()
    for zone in ZONES:
        town.enqueue(zone=zone)
    comes_back_before_it_is_cleared(town)
    refs = entries(town, ZONES)
    assert len(refs) == len(ZONES)
    assert all(visit(town, refs))
    assert entries(town, ZONES) == []
    assert [pointer_of(town, zone) for zone in ZONES] == [None] * len(ZONES)


def test_without_a_look_whose_queue_it_is_the_pointers_are_found_again_and_again() -> None:
    town = Town()
    for zone in ZONES:
        town.enqueue(zone=zone)
    comes_back_before_it_is_cleared(town)
    with planted("a visit leaves all pointers of a tenant that comes in"):
        visit(town, entries(town, ZONES))
    assert [pointer_of(town, zone) for zone in ZONES] != [None] * len(ZONES)


def test_the_pointer_of_an_external_queue_stays_and_is_not_found_before_its_tenant_arrives() -> None:
    town = Town()
    notes_an_arrival(town)
    comes_back_before_it_is_cleared(town)
    refs = entries(town, [EXTERNAL])
    assert len(refs) == 1
    assert visit(town, refs) == [True]
    assert entries(town, [EXTERNAL]) == []
    assert pointer_of(town, EXTERNAL) is not None


def notes_an_arrival(town: Town) -> None:
    """Let work arrive in Alice's queue in an external store."""
    east = town.shards["east"]
    arrival = Arrival(Queue(town.alice, "queue"), 0)
    east.transact(lambda attempt: arrivals.note_arrival(attempt.tr, east.layout, "pg", arrival, now_us=attempt.now_us))


def test_an_entry_without_a_pointer_is_cleared_where_its_tenant_does_not_live() -> None:
    town = Town()
    town.enqueue(zone=ZONES[0])
    (ref,) = entries(town, ZONES)
    east = town.shards["east"]
    location = east.layout.location(town.alice, ZONES[0])
    town.move("west")
    transact(east.db, lambda tr: tr.set(location.part.vest(ref.priority, ref.vesting_us, ref.id), b""))
    assert visit(town, [ref]) == [True]
    assert entries(town, ZONES) == []


def leases_where_she_comes_in() -> PointerRecord:
    """Let a consumer lease, late, the copy of a pointer at the home to which Alice comes back; return the copy."""
    town = Town()
    notes_an_arrival(town)
    (ref,) = entries(town, [EXTERNAL])
    assert town.move("west") is not None
    run_until(town, town.begin("east"), "east", "_own", at="west")
    east = town.shards["east"]
    with suppress(TenantMoved):
        east.transact(
            lambda attempt: lease(
                attempt.tr, east.layout, ref, lease_id=LEASE, lease_us=LEASE_US, now_us=attempt.now_us
            )
        )
    pointer = pointer_of(town, EXTERNAL)
    assert pointer is not None
    return pointer


def test_a_copied_pointer_cannot_be_leased_before_its_tenant_arrives() -> None:
    assert leases_where_she_comes_in().lease_id == b""


def test_without_a_look_where_she_lives_a_lease_changes_the_copy() -> None:
    with planted("a lease of a pointer does not look where its tenant lives"):
        assert leases_where_she_comes_in().lease_id == LEASE


def test_a_lease_of_a_pointer_whose_tenant_has_moved_says_where() -> None:
    town = Town()
    town.enqueue(zone=ZONES[0])
    (ref,) = entries(town, ZONES)
    town.move("west")
    east = town.shards["east"]
    with pytest.raises(TenantMoved):
        east.transact(
            lambda attempt: lease(
                attempt.tr, east.layout, ref, lease_id=LEASE, lease_us=LEASE_US, now_us=attempt.now_us
            )
        )
