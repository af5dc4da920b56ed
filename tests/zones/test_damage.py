"""Damage to a live store: what is damaged waits for a person, and everything beside it goes on."""

from __future__ import annotations

import pytest

from tests.zones.world import BOB, World
from zones.dequeue import Fit
from zones.items import new_item
from zones.keyspace import ROOT
from zones.records import FORMAT
from zones.visit import Found

DAMAGED = bytes([FORMAT]) + b"\xc1"
NEWER = bytes([FORMAT + 1]) + b"what it means only they know"


def ran(world: World) -> int:
    """Visit all that has vested, and return how many items were leased."""
    return sum(len(visit.items) for visit in world.visit())


def test_a_damaged_item_holds_up_neither_its_own_tenant_nor_another(world: World) -> None:
    damaged = world.enqueue()
    world.enqueue_all([new_item("mail")] * 3)
    world.enqueue(zone=world.zone_of(BOB))
    world.set(world.zone.place.keys.item(damaged), DAMAGED)
    visits = world.visit()
    assert sorted(len(visit.items) for visit in visits) == [1, 3]
    assert sum(visit.unreadable for visit in visits) == 1


@pytest.mark.parametrize("kind", [b"\xff\xfe", b"index", b""])
def test_an_index_entry_of_another_kind_than_its_item_is_passed_over(world: World, kind: bytes) -> None:
    """One of the two is damaged, and nobody can say which: an item must not be given to another kind's handler."""
    item_id = world.enqueue("mail")
    record = world.record(item_id)
    assert record is not None
    world.set(world.zone.place.keys.vest(record.priority, record.vesting_us, item_id), kind)
    world.enqueue("mail")
    assert ran(world) == 1
    assert world.record(item_id) == record


def test_a_place_to_go_on_from_that_is_damaged_leads_into_no_other_queue(world: World) -> None:
    world.enqueue(zone=world.zone_of(BOB))
    world.enqueue_all([new_item("fax")] * 600)
    elsewhere = world.zone_of(BOB).place.keys.vest_priority(0)
    for resume in (elsewhere, ROOT, b"\xff", world.zone.place.keys.vest_prefix + b"\xff"):
        found = world.dequeued(kinds={"mail": 1}, resume=resume, passed=Fit.UNKNOWN)
        assert found.items == []


def test_a_damaged_pointer_is_made_anew_by_the_next_visit(world: World) -> None:
    world.enqueue()
    world.set(world.zone.place.keys.pointer, DAMAGED)
    assert ran(world) == 1
    assert world.pointer() is not None
    world.enqueue()
    assert ran(world) == 1


def test_a_damaged_pointer_is_made_anew_by_the_next_enqueue_too(world: World) -> None:
    """The entry that led to it may be damaged as well; then no visit comes to it."""
    world.enqueue()
    pointer = world.pointer()
    assert pointer is not None
    place = world.zone.place
    world.clear(place.part.vest(pointer.priority, pointer.vesting_us, place.pointer_id))
    world.set(place.keys.pointer, DAMAGED)
    world.enqueue()
    assert ran(world) == 2


def test_a_pointer_that_a_newer_version_wrote_is_left_alone(world: World) -> None:
    world.enqueue()
    world.set(world.zone.place.keys.pointer, NEWER)
    world.enqueue()
    (visit,) = world.visit()
    assert visit.found is Found.UNREADABLE
    assert dict(world.stored(world.zone.place.keys.pointer, world.zone.place.keys.pointer + b"\0")) == {
        world.zone.place.keys.pointer: NEWER
    }
