"""The integrity check knows what is stored of workflows: it sets damage aside, and clears what belongs to no item."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.keyspace import FLOOR, ROOT, TOMBSTONE, pack_int, range_begin, range_end
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.maintenance.integrity.records import DAMAGED_KEY, DAMAGED_RECORD
from fairlead.zones.maintenance.integrity.runs import ORPHAN_LOG, ORPHAN_MESSAGE
from fairlead.zones.pipelining import run_one
from fairlead.zones.records import FORMAT, Parent
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.children import child_result_key
from fairlead.zones.workflow.floor import raise_daily
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.run_records import ParticipantState, entry_key, head_key, participant_key
from fairlead.zones.workflow.step_log import HeldRun
from tests.zones.workflow.runs import RESERVE, begin_run, keys_of_run, move_to_dead_letters, send_signal
from tests.zones.world import ALICE, BOB, World

NEW = ParticipantState(0, 0)  # A tenant that has never moved, on a shard whose FLOOR was never raised.
DAMAGED = bytes([FORMAT]) + b"\xc1"


def populate(world: World) -> HeldRun:
    """Some of everything that is stored of workflows; return a run with participants, a signal and a child's result."""
    held = begin_run(world, world.enqueue(item_id="checkout-7", run=b"\0" * 16), participates=True)
    send_signal(world, held.item_id, "approved")
    world.complete(world.enqueue("index", parent=Parent(*ALICE, "queue", held.item_id, held.run, "index", 0)))
    failed = begin_run(world, world.enqueue())
    move_to_dead_letters(world, failed.item_id)
    send_signal(world, world.enqueue(zone=world.zone), "approved")
    keys = world.zone_of(BOB).location.keys.tenant
    for run, ends in ((held.run, False), (b"e" * 16, True)):
        world.run(lambda tr, run=run: run_one(participants.raise_fence_op(tr, world.layout, keys, run, 1, NEW)))  # type: ignore[misc]
        world.run(lambda tr, run=run: tr.set(entry_key(keys, run, 0, *RESERVE), world_entry(world, held)))  # type: ignore[misc]
        if ends:
            world.run(
                lambda tr, run=run: run_one(  # type: ignore[misc]
                    participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)
                )
            )
    world.run(lambda tr: raise_daily(tr, now_us=world.now_us, tombstones_max=10))
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, b"f" * 16, now_us=world.now_us)))
    return held


def world_entry(world: World, held: HeldRun) -> bytes:
    value = world.get(entry_key(held.location.keys.tenant, held.run, 0, *RESERVE))
    assert value is not None
    return value


def findings(world: World, **how: Any) -> list[str]:
    return sorted(finding.what for finding in check_integrity(world.shard, **how).findings)


def test_a_shard_with_workflows_is_healthy_and_all_of_it_is_known(world: World) -> None:
    populate(world)
    stored = world.everything()
    report = check_integrity(world.shard, repair=True, quarantine=True)
    assert (report.findings, report.unknown, report.newer) == ([], 0, 0)
    assert world.everything() == stored


def test_what_is_stored_of_a_run_without_an_item_is_found_and_cleared(world: World) -> None:
    held = populate(world)
    world.clear(held.location.keys.item(held.item_id))
    found = findings(world)
    assert found.count(ORPHAN_LOG) == 1
    assert found.count(ORPHAN_MESSAGE) == 2
    check_integrity(world.shard, repair=True)
    assert findings(world) == []
    assert keys_of_run(world, held.run) == [participant_key(held.location.keys.tenant, held.run, BOB)]
    assert world.count()[CLEANUP_KIND] == 1


def test_a_run_is_kept_whose_item_cannot_be_read(world: World) -> None:
    held = begin_run(world, world.enqueue())
    stored = keys_of_run(world, held.run)
    world.set(held.location.keys.item(held.item_id), DAMAGED)
    assert ORPHAN_LOG not in findings(world, repair=True)
    assert keys_of_run(world, held.run) == stored


def test_a_run_is_kept_whose_item_is_in_another_zone(world: World) -> None:
    zone = world.zone_of(ALICE, "orders")
    item_id = world.enqueue(zone=zone)
    keys = zone.location.keys.tenant
    held = begin_run(world, world.enqueue())
    value = world.get(head_key(keys, held.run))
    assert value is not None
    world.set(head_key(keys, item_id), value)
    assert findings(world) == []


@pytest.mark.parametrize("what", ["head", "entry", "participant", "child", "fence", "floor"])
def test_a_damaged_value_is_found_and_set_aside(world: World, what: str) -> None:
    held = populate(world)
    keys, theirs = held.location.keys.tenant, world.zone_of(BOB).location.keys.tenant
    key = {
        "head": head_key(keys, held.run),
        "entry": entry_key(keys, held.run, 0, *RESERVE),
        "participant": participant_key(keys, held.run, BOB),
        "child": child_result_key(keys, held.run, "index", 0),
        "fence": theirs.fence(held.run),
        "floor": ROOT + pack_int(FLOOR),
    }[what]
    world.set(key, DAMAGED)
    assert findings(world) == [DAMAGED_RECORD]
    check_integrity(world.shard, quarantine=True)
    assert world.get(key) is None
    assert findings(world) == []


def test_damaged_keys_are_found(world: World) -> None:
    held = populate(world)
    keys = held.location.keys.tenant
    damaged = [
        keys.step_log(held.run) + b"\xfe",
        keys.signals(held.run) + b"\x02",
        keys.child_results(held.run) + pack_int(7),
        ROOT + pack_int(TOMBSTONE) + pack_int(0),
    ]
    for key in damaged:
        world.set(key, b"")
    assert findings(world) == [DAMAGED_KEY] * len(damaged)
    check_integrity(world.shard, quarantine=True)
    assert findings(world) == []
    tombstones = ROOT + pack_int(TOMBSTONE)
    assert len(world.stored(range_begin(tombstones), range_end(tombstones))) == 1
