"""The integrity check knows what is stored of workflows: it sets damage aside, and clears what belongs to no item."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import FLOOR, ROOT, TOMBSTONE, pack_int, range_begin, range_end
from fairlead.zones.maintenance.integrity import Finding, check_homes, check_integrity, runs
from fairlead.zones.maintenance.integrity.homes import NO_HOME
from fairlead.zones.maintenance.integrity.records import DAMAGED_KEY, DAMAGED_RECORD
from fairlead.zones.maintenance.integrity.runs import (
    BEHIND_END,
    LATER_SEGMENT,
    NO_CLEANUP,
    NO_HEAD,
    NO_TOMBSTONE,
    NOT_LISTED,
    NOT_SAID,
    OLD_SEGMENT,
    ORPHAN_LOG,
    ORPHAN_MESSAGE,
)
from fairlead.zones.pipelining import run_one
from fairlead.zones.records import FORMAT, Parent
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.children import child_result_key
from fairlead.zones.workflow.floor import raise_daily
from fairlead.zones.workflow.run_end import CLEANUP_KIND, cleanup_id
from fairlead.zones.workflow.run_records import (
    END,
    ParticipantState,
    decode_head,
    encode,
    entry_key,
    head_key,
    participant_key,
)
from fairlead.zones.workflow.step_log import HeldRun
from tests.zones.workflow.runs import RESERVE, begin_run, keys_of_run, move_to_dead_letters, send_signal
from tests.zones.world import ALICE, BOB, World

NEW = ParticipantState(0, 0)  # A tenant that has never moved, on a shard whose FLOOR was never raised.
DAMAGED = bytes([FORMAT]) + b"\xc1"
DAY_US = 86_400_000_000


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


@pytest.mark.parametrize("what", ["head", "entry", "participant", "child", "fence"])
def test_a_damaged_value_is_found_and_set_aside(world: World, what: str) -> None:
    held = populate(world)
    keys, theirs = held.location.keys.tenant, world.zone_of(BOB).location.keys.tenant
    key = {
        "head": head_key(keys, held.run),
        "entry": entry_key(keys, held.run, 0, *RESERVE),
        "participant": participant_key(keys, held.run, BOB),
        "child": child_result_key(keys, held.run, "index", 0),
        "fence": theirs.fence(held.run),
    }[what]
    world.set(key, DAMAGED)
    assert findings(world) == [DAMAGED_RECORD]
    check_integrity(world.shard, quarantine=True)
    assert world.get(key) is None
    assert findings(world) == ([NO_HEAD] if what == "head" else [])


@pytest.mark.parametrize("value", [DAMAGED, b"", bytes(9), b"\xff" * 8, b"\xff" * 300])
def test_a_damaged_floor_is_repaired_and_nothing_acts_on_the_shard_before(world: World, value: bytes) -> None:
    """Set aside, it would be 0 again: a late step that has asked for it then could act behind the end of its run."""
    populate(world)
    keys = world.zone_of(BOB).location.keys.tenant
    world.set(ROOT + pack_int(FLOOR), value)
    for operation in (
        lambda tr: participants.ask_op(tr, world.layout, keys),
        lambda tr: participants.clean_up_op(tr, world.layout, BOB, keys, b"a" * 16, now_us=world.now_us),
        lambda tr: participants.raise_fence_op(tr, world.layout, keys, b"a" * 16, 1, NEW),
    ):
        with pytest.raises(StoreUnavailable, match="check --repair"):
            world.run(lambda tr, operation=operation: run_one(operation(tr)))  # type: ignore[misc]
    assert world.run(lambda tr: raise_daily(tr, now_us=world.now_us + DAY_US, tombstones_max=10)) is False
    assert findings(world) == [DAMAGED_RECORD]
    assert check_integrity(world.shard, repair=True).healthy
    assert findings(world) == []
    assert world.run(lambda tr: run_one(participants.ask_op(tr, world.layout, keys))).floor == world.now_us


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


# --- What the protocol forbids, one by one ---

ENDED = END.to_bytes(8, "big")
TOMBSTONES = ROOT + pack_int(TOMBSTONE)


def end(world: World, held: HeldRun) -> None:
    world.run(lambda tr: world.zone.complete(tr, held.item_id, now_us=world.now_us, lease_id=held.lease_id))


def find_one(world: World, what: str, key: bytes) -> Finding:
    """Return the only finding; what it repairs, it repairs, and nothing is found any more."""
    (finding,) = check_integrity(world.shard).findings
    assert (finding.what, finding.key) == (what, key)
    if finding.repairable:
        assert check_integrity(world.shard, repair=True).healthy
        assert findings(world) == []
    else:
        assert findings(world, repair=True) == [what]
    return finding


@pytest.mark.parametrize("participates", [False, True])
def test_a_run_without_its_head_is_found_and_left_to_a_person(world: World, participates: bool) -> None:
    held = begin_run(world, world.enqueue(item_id="checkout-7", run=b"7" * 16), participates=participates)
    world.clear(held.head_key)
    stored = keys_of_run(world, held.run)
    found = find_one(world, NO_HEAD, held.head_key)
    assert (found.tenant, found.run, found.repairable) == (ALICE, held.run, False)
    assert "fairlead steps" in found.remedy
    assert keys_of_run(world, held.run) == stored


def test_a_head_that_forgets_its_participants_is_corrected(world: World) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    head = decode_head(world.get(held.head_key) or b"")
    assert head is not None
    head.has_participants = False
    world.set(held.head_key, encode(head))
    find_one(world, NOT_SAID, participant_key(held.location.keys.tenant, held.run, BOB))
    end(world, held)
    assert world.count() == {CLEANUP_KIND: 1}


@pytest.mark.parametrize("zone", ["queue", "other"])
def test_the_lost_cleanup_of_a_run_is_enqueued_again(world: World, zone: str) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    end(world, held)
    assert findings(world) == []
    world.run(lambda tr: world.zone.complete(tr, cleanup_id(held.run), now_us=world.now_us))
    world.enqueue(zone=world.zone_of(ALICE, zone))
    found = find_one(world, NO_CLEANUP, participant_key(held.location.keys.tenant, held.run, BOB))
    assert (found.tenant, found.run) == (ALICE, held.run)
    assert world.record(cleanup_id(held.run)) is not None


def test_a_cleanup_that_is_a_dead_letter_is_not_lost(world: World) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    end(world, held)
    move_to_dead_letters(world, cleanup_id(held.run))
    assert findings(world) == []


def test_steps_from_before_the_last_checkpoint_are_found_and_cleared(world: World) -> None:
    held = begin_run(world, world.enqueue())
    keys = held.location.keys.tenant
    head = decode_head(world.get(held.head_key) or b"")
    assert head is not None
    head.segment = 2
    world.set(held.head_key, encode(head))
    find_one(world, OLD_SEGMENT, entry_key(keys, held.run, 0, *RESERVE))
    assert keys_of_run(world, held.run) == [held.head_key]


def test_steps_of_a_later_checkpoint_than_their_head_are_found(world: World) -> None:
    held = begin_run(world, world.enqueue())
    key = entry_key(held.location.keys.tenant, held.run, 3, *RESERVE)
    world.set(key, world_entry(world, held))
    assert find_one(world, LATER_SEGMENT, key).remedy


def test_steps_behind_a_tombstone_are_found_and_cleared(world: World) -> None:
    held = begin_run(world, world.enqueue())
    keys, run = world.zone_of(BOB).location.keys.tenant, b"e" * 16
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)))
    key = entry_key(keys, run, 4, *RESERVE)
    world.set(key, world_entry(world, held))
    assert find_one(world, BEHIND_END, key).tenant == BOB


def test_a_tombstone_that_is_not_listed_is_listed_again(world: World) -> None:
    keys, run = world.zone_of(BOB).location.keys.tenant, b"e" * 16
    world.set(keys.fence(run), ENDED)
    find_one(world, NOT_LISTED, keys.fence(run))
    world.run(lambda tr: participants.raise_floor(tr, tombstones_max=10))
    assert world.get(keys.fence(run)) is None


def test_a_tombstone_that_is_listed_and_lost_is_written_again(world: World) -> None:
    """Without it, a step that is late for the end of its run could still act."""
    keys, run = world.zone_of(BOB).location.keys.tenant, b"e" * 16
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)))
    world.clear(keys.fence(run))
    ((listed, _),) = world.stored(range_begin(TOMBSTONES), range_end(TOMBSTONES))
    find_one(world, NO_TOMBSTONE, listed)
    assert world.get(keys.fence(run)) == ENDED


def test_tombstones_from_before_and_after_a_floor_are_known(world: World) -> None:
    keys = world.zone_of(BOB).location.keys.tenant
    for number in range(6):
        run = bytes([number]) * 16
        world.run(
            lambda tr, run=run: run_one(  # type: ignore[misc]
                participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)
            )
        )
        world.run(lambda tr: participants.raise_floor(tr, tombstones_max=2) if number == 3 else None)  # noqa: B023
    assert findings(world) == []


@pytest.mark.parametrize("first", [b"\x02", b"\x05"])
def test_a_damaged_fence_is_no_record_of_a_newer_version(world: World, first: bytes) -> None:
    held = populate(world)
    key = world.zone_of(BOB).location.keys.tenant.fence(held.run)
    world.set(key, first)
    (finding,) = check_integrity(world.shard).findings
    assert (finding.what, finding.key, finding.tenant, finding.run) == (DAMAGED_RECORD, key, BOB, held.run)


def test_a_signal_is_no_record_of_a_newer_version(world: World) -> None:
    item_id = world.enqueue()
    send_signal(world, item_id, "approved", 5)
    report = check_integrity(world.shard)
    assert (report.findings, report.newer) == ([], 0)


def test_the_damaged_payload_of_a_signal_is_found(world: World) -> None:
    item_id = world.enqueue()
    send_signal(world, item_id, "approved", 5)
    (key,) = keys_of_run(world, item_id)
    world.set(key, b"\xc1")
    assert [(each.what, each.key) for each in check_integrity(world.shard).findings] == [(DAMAGED_RECORD, key)]


@pytest.mark.parametrize("what", ["head", "entry", "participant", "child"])
def test_what_a_newer_version_wrote_is_counted_and_not_changed(world: World, what: str) -> None:
    held = populate(world)
    keys = held.location.keys.tenant
    key = {
        "head": head_key(keys, held.run),
        "entry": entry_key(keys, held.run, 0, *RESERVE),
        "participant": participant_key(keys, held.run, BOB),
        "child": child_result_key(keys, held.run, "index", 0),
    }[what]
    world.set(key, bytes([FORMAT + 1]) + b"what it means only they know")
    before = world.everything()
    report = check_integrity(world.shard, repair=True, quarantine=True)
    assert (report.findings, report.newer) == ([], 1)
    assert world.everything() == before


# --- Homes ---


def lose_home(world: World) -> HeldRun:
    """Bob keeps an entry and a fence of a run of which no shard knows."""
    held = begin_run(world, world.enqueue())
    keys, run = world.zone_of(BOB).location.keys.tenant, b"e" * 16
    world.set(entry_key(keys, run, 0, *RESERVE), world_entry(world, held))
    world.run(lambda tr: run_one(participants.raise_fence_op(tr, world.layout, keys, run, 1, NEW)))
    return HeldRun(world.zone_of(BOB).location, b"", b"", run)


def check_all(world: World, *, all_shards: bool = True, repair: bool = False) -> Any:
    report = check_integrity(world.shard, repair=repair)
    check_homes({"main": world.shard}, {"main": report}, all_shards=all_shards, repair=repair)
    return report


def test_a_run_that_a_participant_keeps_and_no_shard_knows_is_found_and_cleaned_up(world: World) -> None:
    kept = lose_home(world)
    keys = kept.location.keys.tenant
    (finding,) = check_all(world).findings
    assert (finding.what, finding.tenant, finding.run) == (NO_HOME, BOB, kept.run)
    assert (finding.key, finding.repairable, "--repair" in finding.remedy) == (
        entry_key(keys, kept.run, 0, *RESERVE), True, True,
    )  # fmt: skip
    assert check_all(world, repair=True).healthy
    assert world.get(keys.fence(kept.run)) == ENDED
    assert check_all(world).findings == []


def test_if_there_may_be_other_shards_a_run_without_a_home_is_only_listed(world: World) -> None:
    kept = lose_home(world)
    before = world.everything()
    report = check_all(world, all_shards=False, repair=True)
    assert (report.findings, report.healthy) == ([], True)
    assert report.without_home == [(BOB, kept.run)]
    assert world.everything() == before


def test_runs_beyond_so_many_whose_homes_are_looked_for_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_home(world)
    monkeypatch.setattr(runs, "HOMES_MAX", 0)
    report = check_all(world)
    assert (report.findings, report.kept, report.unverified > 0) == ([], set(), True)


def test_a_home_that_has_recorded_its_participant_is_found(world: World) -> None:
    populate(world)
    report = check_all(world)
    assert (report.findings, len(report.kept), report.without_home) == ([], 1, [])


def test_what_is_kept_of_a_run_that_has_not_ended_is_left_alone_though_its_home_forgot_the_participant(
    world: World,
) -> None:
    held = populate(world)
    world.clear(participant_key(held.location.keys.tenant, held.run, BOB))
    assert check_all(world).findings == []
