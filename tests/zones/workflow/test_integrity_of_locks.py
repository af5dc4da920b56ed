"""The integrity check knows the locks of workflows: it sets damage aside, and leaves no lock without a holder."""

from __future__ import annotations

import pytest

from fairlead.zones.keyspace import LOCK, pack_bytes, pack_int, range_begin, range_end
from fairlead.zones.maintenance.integrity import Finding, check_homes, check_integrity
from fairlead.zones.maintenance.integrity.homes import NO_HOME
from fairlead.zones.maintenance.integrity.locks import LEADS_NOWHERE, NOBODY_HOLDS, ORPHAN_REQUEST, UNLISTED
from fairlead.zones.maintenance.integrity.records import DAMAGED_KEY, DAMAGED_RECORD
from fairlead.zones.pipelining import run_one
from fairlead.zones.records import FORMAT
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.locks import LockRequest, all_requests, of_run_key, pack_lock, request_key
from fairlead.zones.workflow.step_log import HeldRun
from tests.zones.workflow.runs import begin_run
from tests.zones.world import ALICE, BOB, World

KEY = pack_lock(("account", 7))


def take(world: World, held: HeldRun, *, at_bobs: bool = False, key: bytes = KEY) -> None:
    """Let a run of Alice's ask for a lock."""
    location = world.zone_of(BOB).location if at_bobs else held.location
    request = LockRequest(*ALICE, "queue", held.item_id, held.run, "w", False, f"lock {held.run.hex()}", world.now_us)
    world.run(lambda tr: run_one(locks.take_op(tr, location, key, request)))


def two_runs(world: World) -> tuple[HeldRun, HeldRun]:
    """Return a run that holds the lock, and one that waits for it."""
    first, second = (begin_run(world, world.enqueue()) for _ in range(2))
    take(world, first)
    take(world, second)
    return first, second


def line(world: World) -> list[tuple[bytes | None, bool]]:
    """Return whose requests are in Alice's lines, and whether they hold the lock."""
    keys = world.zone.location.keys.tenant
    found = world.run(lambda tr: [each.request for each in all_requests(tr, keys, requests_max=10)])
    return [(None, False) if each is None else (each.run, each.held_us is not None) for each in found]


def findings(world: World, *, repair: bool = False) -> list[str]:
    report = check_integrity(world.shard, repair=repair)
    assert report.unknown == 0
    return [each.what for each in report.findings]


def test_locks_that_are_held_and_waited_for_are_whole(world: World) -> None:
    two_runs(world)
    assert findings(world) == []


def test_a_damaged_request_is_found_and_set_aside_and_the_lock_is_handed_over(world: World) -> None:
    first, second = two_runs(world)
    keys = world.zone.location.keys.tenant
    world.set(request_key(keys, KEY, 0), bytes([FORMAT]) + b"\xc1")
    assert findings(world) == [DAMAGED_RECORD]
    check_integrity(world.shard, quarantine=True)
    while findings(world, repair=True):
        pass
    assert line(world) == [(second.run, True)]
    assert world.get(of_run_key(keys, first.run, KEY)) is None


def test_a_request_that_its_run_does_not_lead_to_is_listed_again(world: World) -> None:
    first, _ = two_runs(world)
    key = of_run_key(world.zone.location.keys.tenant, first.run, KEY)
    world.run(lambda tr: tr.clear(key))
    assert findings(world, repair=True) == [UNLISTED]
    assert world.get(key) == bytes(8)
    assert findings(world) == []


def test_a_second_request_of_a_run_is_removed(world: World) -> None:
    first, second = two_runs(world)
    keys = world.zone.location.keys.tenant
    stored = world.get(request_key(keys, KEY, 0))
    assert stored is not None
    world.set(request_key(keys, KEY, 2), stored)
    assert findings(world, repair=True) == [UNLISTED]
    assert line(world) == [(first.run, True), (second.run, False)]


def test_a_key_that_leads_to_no_request_is_cleared(world: World) -> None:
    first, _ = two_runs(world)
    key = of_run_key(world.zone.location.keys.tenant, first.run, pack_lock(("other",)))
    world.set(key, bytes(8))
    assert findings(world, repair=True) == [LEADS_NOWHERE]
    assert world.get(key) is None


def test_a_lock_that_nobody_holds_is_handed_over(world: World) -> None:
    first, second = two_runs(world)
    keys = world.zone.location.keys.tenant
    for key in (request_key(keys, KEY, 0), of_run_key(keys, first.run, KEY)):
        world.run(lambda tr, key=key: tr.clear(key))  # type: ignore[misc]
    assert findings(world, repair=True) == [NOBODY_HOLDS]
    assert line(world) == [(second.run, True)]
    assert findings(world) == []


def test_the_request_of_a_run_that_has_ended_is_removed(world: World) -> None:
    first, second = two_runs(world)
    log = first.location.keys.tenant.step_log(first.run)
    world.run(lambda tr: (tr.clear(first.item_key), tr.clear_range(range_begin(log), range_end(log))))
    assert ORPHAN_REQUEST in findings(world, repair=True)
    assert line(world) == [(second.run, True)]


def test_a_request_at_a_tenant_whose_run_has_no_home_is_cleaned_up(world: World) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    take(world, held, at_bobs=True)
    shards = {"s0": world.shard}

    def homeless() -> list[Finding]:
        report = check_integrity(world.shard)
        before = len(report.findings)
        check_homes(shards, {"s0": report}, all_shards=True, repair=True)
        return report.findings[before:]

    assert homeless() == []
    keys = held.location.keys.tenant
    log = keys.step_log(held.run)
    world.run(lambda tr: (tr.clear(held.item_key), tr.clear_range(range_begin(log), range_end(log))))
    assert [each.what for each in homeless()] == [NO_HOME]
    theirs = world.zone_of(BOB).location.keys.tenant
    assert world.run(lambda tr: list(all_requests(tr, theirs, requests_max=10))) == []


@pytest.mark.parametrize(
    "rest", [b"", pack_int(3), pack_int(1) + pack_bytes(b"x"), pack_int(2) + pack_int(1), pack_int(1) + pack_int(1)]
)
def test_damaged_keys_are_found(world: World, rest: bytes) -> None:
    prefix = world.zone.location.keys.tenant.prefix + pack_int(LOCK)
    world.set(prefix + rest, b"")
    assert findings(world) == [DAMAGED_KEY]
