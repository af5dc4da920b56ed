"""The integrity check: each violation is found, alone, and repaired; a healthy store is not changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fairlead.zones import local_index, tuples
from fairlead.zones.engines import Database
from fairlead.zones.keyspace import HANDLER, LOCAL_INDEX, POLICY, ROOT, pack_int, pack_text
from fairlead.zones.layout import Tenant, ZoneLocation, local_tenant
from fairlead.zones.maintenance.integrity import (
    Finding,
    Report,
    check_integrity,
    claims,
    counts,
    dead_letters,
    indexed,
    items,
    pointers,
    walk,
)
from fairlead.zones.maintenance.integrity.records import DAMAGED_KEY, DAMAGED_RECORD
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy import policies
from fairlead.zones.policy.limits import take_slots
from fairlead.zones.queue import item_keys
from fairlead.zones.queue.claims import claim_op, release_ended
from fairlead.zones.queue.dead_letters import dead_letter_index_key, move_to_dead_letters
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.id_retention import retention_key
from fairlead.zones.queue.items import LeasedItem, new_item
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.queue.stored_item import change_count, insert
from fairlead.zones.records import FORMAT, RESTRICTED_FORMAT, OwnerRecord, TenantPolicy, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.pointers import delete, move
from tests.clocks import ManualClock
from tests.zones.faults import Fault, FaultyDatabase
from tests.zones.world import ALICE, ANY, BOB, LEASE_US, MS, SECOND, World

NEWER = bytes([FORMAT + 1]) + b"what it means only they know"
DAMAGED = bytes([FORMAT]) + b"\xc1"
SESSION_ID = b"a worker session"
ORDER_7 = tuples.pack(("item", "order", 7))


def check(world: World, **how: Any) -> Report:
    return check_integrity(world.shard, **how)


def populate(world: World) -> None:
    """Some of everything, in several zones: waiting, delayed, leased, long, failed, a dead letter, and retained."""
    for zone in (world.zone_of(ALICE), world.zone_of(BOB, "other"), world.zone_of(local_tenant("index"))):
        world.enqueue("mail", zone=zone, priority=3)
        world.enqueue("index", zone=zone, delay=60, keys={"order": 7, "city": "Ulm"})
        world.enqueue("fax", zone=zone, item_id="a", unique_for=60)
    fail(world, world.enqueue("mail", bytes(200_000)))
    for kind, payload in (("mail", None), ("index", bytes(100_000))):
        make_dead_letter(world, world.enqueue(kind, payload, keys={"order": 7}))
    done = world.enqueue("mail", item_id="done", unique_for=60, keys={"order": 7})
    world.complete(done)
    world.dequeue(2)
    claimed_item(world)
    world.run(lambda tr: local_index.add(tr, world.zone.location.keys.tenant, ORDER_7, b"member"))
    set_own(world, ALICE, 1)


def fail(world: World, item_id: bytes) -> None:
    """Let an attempt fail that is to be made again, a minute later."""
    lease_id, error = world.lease(item_id), "ValueError: no"
    world.run(
        lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=60 * SECOND, now_us=world.now_us, error_count=1,
                                      error=error, traceback=f"line 3, in send\n{error}")
    )  # fmt: skip


def set_own(world: World, tenant: Tenant, number: int) -> None:
    """Write a key of a tenant's own data."""
    world.shard.transact(lambda attempt: TenantTransaction(world.shard, tenant, attempt).set(("own", number), b"data"))


def release_claims(world: World) -> None:
    """End all worker sessions, as consumers do for silent ones, and release their claims."""

    def body(tr: Any) -> None:
        seen = run_one(worker_sessions.look_op(tr))
        for session_id in seen.beats:
            run_one(worker_sessions.end_session_op(tr, session_id))
        for session_id in {*seen.beats, *seen.over}:
            release_ended(tr, world.layout, session_id, claims_max=10, now_us=world.now_us)

    world.run(body)


def claimed_item(world: World) -> bytes:
    """Enqueue, lease and claim an item."""
    item_id = world.enqueue()
    held = [(item_id, world.lease(item_id))]

    def body(tr: Any) -> None:
        run_one(claim_op(tr, world.zone.location, held, session_id=SESSION_ID, now_us=world.now_us))
        worker_sessions.begin(tr, SESSION_ID, worker_sessions.WorkerSession(b"worker", world.now_us), beat=b"1")

    world.run(body)
    return item_id


def make_dead_letter(world: World, item_id: bytes) -> None:
    record = world.record(item_id)
    assert record is not None
    world.run(
        lambda tr: move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us
        )
    )


def some_item(world: World, kind: str = "mail", **how: Any) -> tuple[ZoneLocation, bytes, Any]:
    """Enqueue one item, let its pointer settle, and return its place, id and record."""
    item_id = world.enqueue(kind, **how)
    return world.zone.location, item_id, world.record(item_id)


# --- Healthy stores ---


def test_an_empty_shard_is_healthy(world: World) -> None:
    assert check(world) == Report()


def test_a_shard_with_some_of_everything_is_healthy_and_the_report_says_how_much_there_is(world: World) -> None:
    populate(world)
    report = check(world)
    assert report == Report(zones=3, items=11, dead_letters=2, pointers=3)
    assert report.healthy


def test_a_check_writes_nothing_and_neither_does_a_repair_of_a_healthy_store(world: World) -> None:
    populate(world)
    before = world.everything()
    assert check(world, repair=True) == check(world)
    assert world.everything() == before


def test_the_walk_reports_its_progress(world: World) -> None:
    populate(world)
    seen: list[int] = []
    check(world, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] > 40


@pytest.mark.parametrize("chunk_keys", [1, 2, 7])
def test_however_small_the_chunks_a_healthy_store_is_healthy(
    world: World, chunk_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zones, payloads and tenants' own data cross the border of a chunk at every possible place."""
    populate(world)
    for number in range(20):
        set_own(world, BOB, number)
    monkeypatch.setattr(walk.read_chunk, "__kwdefaults__", {"keys_max": chunk_keys, "bytes_max": 10**6})
    assert check(world) == Report(zones=3, items=11, dead_letters=2, pointers=3)


def test_counts_too_large_for_one_transaction_are_added_up_over_several(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(world)
    world.enqueue_all([new_item("mail")] * 100)
    monkeypatch.setattr(counts, "EXACT_KEYS_MAX", 30)
    assert check(world) == Report(zones=3, items=111, dead_letters=2, pointers=3)
    world.run(lambda tr: tr.add(world.zone.location.keys.count("mail"), (5).to_bytes(8, "little")))
    assert [finding.what for finding in check(world, repair=True).findings] == [counts.WRONG_COUNT]
    assert check(world).healthy


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("exact_keys_max", [30, 20_000], ids=["over several transactions", "in one"])
def test_a_count_that_is_repaired_with_unknown_result_is_repaired_once_and_reported(
    db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, exact_keys_max: int, applied: bool
) -> None:
    """Before, the difference was added again, or not reported."""
    faulty = FaultyDatabase(db)
    world = World(faulty, clock)
    world.enqueue_all([new_item("mail")] * 100)
    world.run(lambda tr: tr.add(world.zone.location.keys.count("mail"), (5).to_bytes(8, "little")))
    monkeypatch.setattr(counts, "EXACT_KEYS_MAX", exact_keys_max)
    faulty.faults.append(Fault(applied=applied))
    assert [(each.what, each.repaired) for each in check(world, repair=True).findings] == [(counts.WRONG_COUNT, True)]
    assert not faulty.faults
    assert world.count() == {"mail": 100}


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_repair_with_unknown_result_is_reported(db: Database, clock: ManualClock, applied: bool) -> None:
    """Before, the repeated transaction found it repaired, and reported nothing."""
    faulty = FaultyDatabase(db)
    world = World(faulty, clock)
    world.enqueue()
    lose_an_index_entry(world)
    faulty.faults.append(Fault(applied=applied))
    (found,) = check(world, repair=True).findings
    assert found.repaired
    assert check(world).findings == []


# --- One invariant broken at a time ---

Break = Callable[[World], "bytes | None"]
BREAKS: dict[str, list[Break]] = {}


def breaks(what: str) -> Callable[[Break], Break]:
    """Register a way to break an invariant; it may return the id of the item that the finding must name."""

    def register(break_it: Break) -> Break:
        BREAKS.setdefault(what, []).append(break_it)
        return break_it

    return register


@breaks(items.NO_ENTRY)
def lose_an_index_entry(world: World) -> bytes:
    location, item_id, record = some_item(world)
    world.clear(location.keys.vest(100, record.vesting_us, item_id))
    return item_id


@breaks(items.NO_ENTRY)
def lose_the_index_entry_of_a_delayed_item(world: World) -> bytes:
    location, item_id, record = some_item(world, delay=9)
    world.clear(location.keys.vest(100, record.vesting_us, item_id))
    return item_id


@breaks(items.WRONG_KIND)
def change_the_kind_in_an_index_entry(world: World) -> bytes:
    location, item_id, record = some_item(world)
    world.set(location.keys.vest(100, record.vesting_us, item_id), b"fax")
    return item_id


@breaks(items.DANGLING_ENTRY)
def leave_an_index_entry_behind(world: World) -> bytes:
    some_item(world)
    gone = world.new_id()
    world.set(world.zone.location.keys.vest(7, world.now_us + 5, gone), b"mail")
    return gone


@breaks(items.DANGLING_ENTRY)
def give_an_item_a_second_index_entry(world: World) -> bytes:
    location, item_id, record = some_item(world)
    world.set(location.keys.vest(0, record.vesting_us - 5, item_id), b"mail")
    return item_id


@breaks(items.LONG_LEASE)
def lease_by_a_clock_that_is_a_year_ahead(world: World) -> bytes:
    item_id = world.enqueue()
    year_us = 365 * 24 * 3_600 * SECOND
    world.run(
        lambda tr: world.zone.dequeue(
            tr, capacity=Capacity(1, ANY), lease_id=b"l" * 16, lease_us=LEASE_US, now_us=world.now_us + year_us
        )
    )
    return item_id


@breaks(items.ORPHAN_PAYLOAD)
def leave_the_pieces_of_a_payload_behind(world: World) -> bytes:
    gone = world.new_id()
    for number in range(3):
        world.set(world.zone.location.keys.piece(gone, number), bytes(1_000))
    return gone


@breaks(items.ORPHAN_PAYLOAD)
def give_pieces_to_an_item_with_a_short_payload(world: World) -> bytes:
    location, item_id, _ = some_item(world)
    world.set(location.keys.piece(item_id, 0), bytes(1_000))
    return item_id


@breaks(items.ORPHAN_TRACEBACK)
def leave_a_traceback_behind(world: World) -> bytes:
    gone = world.new_id()
    world.set(world.zone.location.keys.traceback(gone), b"line 3, in send")
    return gone


@breaks(indexed.NOT_IN_INDEX)
def lose_an_entry_of_the_local_index(world: World) -> None:
    world.run(lambda tr: local_index.add(tr, world.zone.location.keys.tenant, ORDER_7, b"member"))
    world.clear(local_index.local_key(world.zone.location.keys.tenant, ORDER_7, b"member"))


@breaks(indexed.DANGLING_ENTRY)
def leave_an_entry_of_the_local_index_behind(world: World) -> None:
    world.set(local_index.local_key(world.zone.location.keys.tenant, ORDER_7, b"member"), b"")


@breaks(items.NOT_FOUND_BY_KEY)
def lose_an_entry_of_an_item(world: World) -> bytes:
    item_id = world.enqueue(keys={"order": 7, "city": "Ulm"})
    for key in item_keys.entry_keys(world.zone.location, item_id, item_keys.pack_key("city", "Ulm")):
        world.clear(key)
    return item_id


@breaks(items.NOT_FOUND_BY_KEY)
def lose_an_entry_of_a_dead_letter(world: World) -> bytes:
    item_id = world.enqueue(keys={"order": 7})
    make_dead_letter(world, item_id)
    for key in item_keys.entry_keys(world.zone.location, item_id, item_keys.pack_key("order", 7)):
        world.clear(key)
    return item_id


@breaks(indexed.NAMES_NO_ITEM)
def leave_the_entry_of_an_item_behind(world: World) -> bytes:
    gone = world.new_id()
    world.run(lambda tr: item_keys.add(tr, world.zone.location, gone, item_keys.pack_keys({"order": 7})))
    return gone


@breaks(indexed.NAMES_NO_ITEM)
def give_an_item_an_entry_of_a_key_that_it_does_not_have(world: World) -> bytes:
    item_id = world.enqueue(keys={"order": 7})
    world.run(lambda tr: item_keys.add(tr, world.zone.location, item_id, item_keys.pack_keys({"order": 8})))
    return item_id


@breaks(DAMAGED_KEY)
def damage_a_key_of_the_local_index(world: World) -> None:
    world.set(ROOT + pack_int(LOCAL_INDEX) + b"\x05" + ORDER_7, b"")


@breaks(DAMAGED_KEY)
def damage_the_key_of_an_entry_beside_the_rows(world: World) -> None:
    world.set(world.zone.location.keys.tenant.indexed + b"\x05" + ORDER_7, b"")


@breaks(claims.NO_KEY)
def lose_the_key_of_a_claim(world: World) -> bytes:
    item_id = claimed_item(world)
    world.clear(worker_sessions.claim_key(SESSION_ID, world.zone.location, item_id))
    return item_id


@breaks(claims.NO_SESSION)
def lose_the_session_of_a_claim(world: World) -> bytes:
    item_id = claimed_item(world)
    world.clear(worker_sessions.alive_key(SESSION_ID))
    world.clear(worker_sessions.beat_key(SESSION_ID))
    return item_id


@breaks(claims.ORPHAN_KEY)
def leave_the_key_of_a_claim_behind(world: World) -> bytes:
    location, item_id, _ = some_item(world)
    world.set(worker_sessions.claim_key(SESSION_ID, location, item_id), b"")
    return item_id


@breaks(claims.ORPHAN_SESSION_KEY)
def leave_a_beat_behind(world: World) -> None:
    world.set(worker_sessions.beat_key(SESSION_ID), b"beat")


@breaks(claims.ORPHAN_SESSION_KEY)
def leave_a_notice_behind(world: World) -> bytes:
    location, item_id, _ = some_item(world)
    world.set(worker_sessions.notice_key(SESSION_ID, location, item_id), b"lease")
    return item_id


@breaks(DAMAGED_RECORD)
def damage_whose_session_it_is(world: World) -> None:
    claimed_item(world)
    world.set(worker_sessions.alive_key(SESSION_ID), DAMAGED)


@breaks(counts.WRONG_COUNT)
def count_one_too_many(world: World) -> None:
    location, _, _ = some_item(world)
    world.run(lambda tr: tr.add(location.keys.count("mail"), (1).to_bytes(8, "little")))


@breaks(counts.WRONG_COUNT)
def lose_a_count(world: World) -> None:
    location, _, _ = some_item(world)
    world.clear(location.keys.count("mail"))


@breaks(counts.WRONG_COUNT)
def leave_a_count_of_zero(world: World) -> None:
    location, _, _ = some_item(world)
    world.set(location.keys.count("fax"), bytes(8))


@breaks(counts.WRONG_DEPTH)
def lose_a_depth(world: World) -> None:
    location, _, _ = some_item(world)
    world.clear(location.part.depth("mail"))


@breaks(counts.WRONG_DEPTH)
def count_a_depth_too_low(world: World) -> None:
    location, _, _ = some_item(world)
    world.run(lambda tr: tr.add(location.part.depth("fax"), (-3).to_bytes(8, "little", signed=True)))


@breaks(dead_letters.NOT_LISTED)
def take_a_dead_letter_off_the_list(world: World) -> bytes:
    location, item_id, _ = some_item(world)
    make_dead_letter(world, item_id)
    world.clear(dead_letter_index_key(location, item_id, world.now_us))
    return item_id


@breaks(dead_letters.DANGLING_DEAD_LETTER_ENTRY)
def list_an_item_that_is_not_a_dead_letter(world: World) -> bytes:
    location, item_id, _ = some_item(world)
    world.set(dead_letter_index_key(location, item_id, world.now_us), b"mail")
    return item_id


@breaks(dead_letters.DANGLING_DEAD_LETTER_ENTRY)
def list_a_dead_letter_twice(world: World) -> bytes:
    location, item_id, _ = some_item(world)
    make_dead_letter(world, item_id)
    world.set(dead_letter_index_key(location, item_id, world.now_us + 7), b"mail")
    return item_id


@breaks(dead_letters.NEVER_EXPIRES)
def lose_a_retention_entry(world: World) -> bytes:
    location, item_id, _ = some_item(world, item_id="a", unique_for=1)
    world.complete(item_id)
    world.clear(retention_key(location, location.keys.retained_id(item_id), world.now_us + SECOND))
    return item_id


@breaks(dead_letters.DAMAGED_RETAINED_ID)
def damage_the_expiry_of_a_retained_id(world: World) -> bytes:
    item_id = world.new_id()
    world.set(world.zone.location.keys.retained_id(item_id), b"damaged")
    return item_id


@breaks(dead_letters.DANGLING_RETENTION_ENTRY)
def put_an_impossible_retention_entry(world: World) -> None:
    location, item_id, _ = some_item(world)
    world.set(retention_key(location, location.keys.item(item_id), world.now_us), b"")


@breaks(pointers.NO_POINTER)
def lose_a_pointer(world: World) -> None:
    location, _, _ = some_item(world)
    pointer = world.pointer()
    assert pointer is not None
    world.run(lambda tr: delete(tr, location, pointer))


@breaks(pointers.LATE_POINTER)
def put_a_pointer_to_sleep_for_a_year(world: World) -> None:
    location, _, _ = some_item(world)
    pointer = world.pointer()
    assert pointer is not None
    world.run(lambda tr: move(tr, location, pointer, world.now_us + 10**13, now_us=world.now_us))


@breaks(pointers.LATE_POINTER)
def lease_a_pointer_by_a_clock_that_is_far_ahead(world: World) -> None:
    location, _, _ = some_item(world)
    pointer = world.pointer()
    assert pointer is not None
    pointer.lease_id, pointer.lease_us = b"l" * 16, SECOND
    world.run(lambda tr: move(tr, location, pointer, world.now_us + 10**13, now_us=world.now_us))


@breaks(pointers.DAMAGED_POINTER)
def damage_a_pointer(world: World) -> None:
    location, _, _ = some_item(world)
    world.set(location.keys.pointer, DAMAGED)


@breaks(pointers.NO_ENTRY)
def lose_the_entry_of_a_pointer(world: World) -> None:
    location, _, record = some_item(world)
    world.clear(location.part.vest(100, record.vesting_us, location.pointer_id))


@breaks(pointers.DANGLING_ENTRY)
def leave_an_entry_of_the_top_level_queue_behind(world: World) -> None:
    location = world.zone.location
    world.set(location.part.vest(100, world.now_us, location.pointer_id), b"")


@breaks(pointers.DANGLING_ENTRY)
def put_an_entry_that_names_no_zone_into_the_top_level_queue(world: World) -> None:
    world.set(world.layout.parts[0].vest(100, world.now_us, pack_text("p")), b"")


@breaks(pointers.DANGLING_ENTRY)
def put_the_entry_of_a_pointer_into_another_part(world: World) -> None:
    location, _, record = some_item(world)
    (other,) = [part for part in world.layout.parts if part is not location.part]
    world.set(other.vest(100, record.vesting_us, location.pointer_id), b"")


@breaks(pointers.DANGLING_ENTRY)
def give_a_pointer_a_second_entry(world: World) -> None:
    location, _, record = some_item(world)
    world.set(location.part.vest(100, record.vesting_us + 5, location.pointer_id), b"")


REPAIRABLE = [(what, break_it) for what, all_of in BREAKS.items() for break_it in all_of]
EVERY_BREAK = pytest.mark.parametrize("what, break_it", REPAIRABLE, ids=[b.__name__ for _, b in REPAIRABLE])


@EVERY_BREAK
def test_a_violation_is_the_only_finding_and_is_repaired_for_good(world: World, what: str, break_it: Break) -> None:
    world.enqueue(zone=world.zone_of(BOB))
    item_id = break_it(world)
    before = world.everything()
    (found,) = check(world).findings
    assert (found.what, found.repairable, found.repaired) == (what, True, False)
    assert item_id is None or found.item_id == item_id
    assert found.tenant is None or found.tenant == ALICE
    assert world.everything() == before
    repaired = check(world, repair=True)
    assert any(finding.what == what and finding.repaired for finding in repaired.findings)
    assert repaired.healthy
    assert check(world) == check(world, repair=True)
    assert check(world).findings == []


@EVERY_BREAK
def test_after_a_repair_every_item_runs_once(world: World, what: str, break_it: Break) -> None:
    break_it(world)
    stored = {key for key, _ in world.stored(*world.zone.location.keys.item_range())}
    check(world, repair=True)
    release_claims(world)
    world.pass_us(9 * SECOND)
    ran = [item.id for result in world.process() for item in result.items]
    assert {world.zone.location.keys.item(item_id) for item_id in ran} == stored
    assert len(set(ran)) == len(ran)


def test_a_hundred_violations_at_once_are_all_repaired(world: World) -> None:
    for number in range(40):
        populate_one = world.zone_of(ALICE, f"zone {number}")
        world.enqueue(zone=populate_one)
    for _, break_it in REPAIRABLE:
        break_it(world)
    for _ in range(2):
        check(world, repair=True)
    assert check(world).findings == []


# --- What only a person can decide about ---


def find_one(world: World) -> Finding:
    (finding,) = check(world, repair=True).findings
    assert not finding.repairable
    assert not finding.repaired
    assert check(world).findings == [finding], "it was left as it is"
    return finding


def test_a_damaged_item_is_reported_and_not_changed(world: World) -> None:
    location, item_id, _ = some_item(world)
    world.set(location.keys.item(item_id), DAMAGED)
    found = find_one(world)
    assert (found.what, found.tenant, found.zone, found.item_id) == (items.DAMAGED_ITEM, ALICE, "queue", item_id)
    assert check(world).unverified == 1, "nobody can say what it counts for"


def test_a_damaged_dead_letter_is_reported_and_not_changed(world: World) -> None:
    location, item_id, _ = some_item(world)
    make_dead_letter(world, item_id)
    world.set(location.keys.dead_letter(item_id), DAMAGED)
    assert find_one(world).what == dead_letters.DAMAGED_DEAD_LETTER


def test_an_incomplete_payload_is_reported(world: World) -> None:
    location, item_id, _ = some_item(world, payload=bytes(200_000))
    world.clear(location.keys.piece(item_id, 1))
    assert find_one(world) == Finding(
        items.INCOMPLETE_PAYLOAD,
        location.keys.payload_prefix(item_id),
        ALICE,
        "queue",
        item_id,
        False,
        False,
        damaged=True,
    )


def test_a_payload_that_is_gone_is_reported(world: World) -> None:
    location, item_id, _ = some_item(world, payload=bytes(10_000))
    world.clear(location.keys.piece(item_id, 0))
    assert find_one(world).what == items.INCOMPLETE_PAYLOAD


def test_an_id_that_is_both_present_and_a_dead_letter_is_reported(world: World) -> None:
    location, item_id, record = some_item(world)
    make_dead_letter(world, item_id)
    world.run(lambda tr: insert(tr, location, item_id, record))
    world.run(lambda tr: change_count(tr, location, "mail", 1))
    assert find_one(world).what == dead_letters.QUEUED_AND_DEAD_LETTER


def test_a_damaged_ownership_record_or_handler_is_reported(world: World) -> None:
    world.set(world.zone.location.keys.tenant.owner, DAMAGED)
    assert find_one(world).what == DAMAGED_RECORD
    world.clear(world.zone.location.keys.tenant.owner)
    world.set(ROOT + pack_int(HANDLER) + pack_text("mail") + pack_int(1), DAMAGED)
    assert find_one(world).what == DAMAGED_RECORD


# --- What a newer version wrote ---


def test_newer_records_are_counted_and_not_changed(world: World) -> None:
    location, item_id, _ = some_item(world)
    other = world.enqueue()
    make_dead_letter(world, other)
    keys = [
        location.keys.item(item_id),
        location.keys.dead_letter(other),
        location.keys.tenant.owner,
        location.keys.pointer,
        ROOT + pack_int(HANDLER) + pack_text("mail") + pack_int(1),
    ]
    for key in keys:
        world.set(key, NEWER)
    world.set(location.keys.tenant.owner, bytes([RESTRICTED_FORMAT + 1]) + NEWER[1:])
    before = world.everything()
    report = check(world, repair=True)
    assert (report.findings, report.newer) == ([], 5)
    assert report.healthy
    assert world.everything() == before


def test_subspaces_of_a_newer_version_are_counted_and_not_changed(world: World) -> None:
    some_item(world)
    keys = [ROOT + pack_int(77) + pack_text("x"), world.zone.location.keys.prefix + pack_int(77) + pack_text("x")]
    keys.append(world.zone.location.keys.tenant.prefix + pack_int(99))
    for key in keys:
        world.set(key, NEWER)
    report = check(world, repair=True)
    assert (report.findings, report.unknown) == ([], 3)


def test_tenants_of_another_shard_are_counted(world: World) -> None:
    some_item(world)
    world.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(2, b"another shard's.")))
    assert check(world).foreign == 1


# --- No false alarms ---


def test_a_pointer_that_rests_because_its_work_is_paused_is_not_late(world: World) -> None:
    world.enqueue("fax")
    world.process()
    assert world.pointer_delay_us() == 5 * SECOND
    assert check(world).findings == []
    assert check(world, rest_ms=5_000).findings == []


def test_a_pointer_that_sleeps_because_of_a_policy_is_late_only_after_the_policy_is_removed(world: World) -> None:
    world.enqueue("mail")
    world.enqueue("mail", zone=world.zone_of(BOB))
    world.run(
        lambda tr: policies.set_tenant_policy(tr, world.layout, BOB, TenantPolicy(paused=True), now_us=world.now_us)
    )
    world.run(lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, paused=True))
    world.process()
    world.pass_us(SECOND)
    report = check(world, rest_ms=1_000)
    assert (report.findings, report.unknown, report.newer) == ([], 0, 0)
    world.run(lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, paused=False))
    assert [finding.what for finding in check(world, rest_ms=1_000).findings] == [pointers.LATE_POINTER], (
        "not woken yet"
    )


def test_the_keys_of_limits_are_known(world: World) -> None:
    world.enqueue("mail")
    limit: dict[str, Any] = {"max_running": 3, "per_s": 5.0, "burst": 5}
    world.run(lambda tr: policies.change_kind_policy(tr, "fax", now_us=world.now_us, **limit))
    world.run(
        lambda tr: take_slots(
            tr, "fax", 3, holder=b"h", held=0, wanted=1, lease_us=SECOND, clocks_apart_us=SECOND, now_us=world.now_us
        )
    )
    world.run(lambda tr: policies.change_tenant_policy(tr, world.layout, ALICE, now_us=world.now_us, **limit))
    world.process()
    report = check(world)
    assert (report.findings, report.unknown, report.newer, report.foreign) == ([], 0, 0, 0)


def test_a_damaged_policy_is_found(world: World) -> None:
    world.run(lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, paused=True))
    key = ROOT + pack_int(POLICY) + pack_int(2) + pack_text("mail")
    world.set(key, b"\x01rubbish")
    assert [(finding.what, finding.key) for finding in check(world).findings] == [(DAMAGED_RECORD, key)]


def test_the_caller_says_how_long_a_pointer_may_rest(world: World) -> None:
    settings = ZoneSettings()
    location, _, _ = some_item(world)
    pointer = world.pointer()
    assert pointer is not None
    allowed_us = (1_000 + settings.wake_slack_ms + settings.max_skew_ms) * MS
    world.run(lambda tr: move(tr, location, pointer, world.now_us + allowed_us, now_us=world.now_us))
    assert check(world, rest_ms=1_000).findings == []
    world.pass_us(-1)
    assert [finding.what for finding in check(world, rest_ms=1_000).findings] == [pointers.LATE_POINTER]


def test_a_healthy_store_under_load_has_no_findings(world: World) -> None:
    """Producers and consumers go on while the check runs, repairs included; its report must still be true."""
    errors: list[BaseException] = []
    looked_enough = threading.Event()

    def work(seed: int) -> None:
        random = Random(seed)
        try:
            while not looked_enough.is_set():
                produce_and_consume(world, world.zone_of(ALICE, f"zone {random.randrange(5)}"), random)
        except BaseException as error:  # noqa: BLE001 - the test tells
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    reports = [check(world)]
    while len(reports) < 3 or (reports[-1].items < 50 and not errors):
        reports.append(check(world, repair=len(reports) % 2 == 1))
    looked_enough.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [finding for report in reports for finding in report.findings] == []
    assert check(world).findings == []


def produce_and_consume(world: World, zone: QueueZone, random: Random) -> None:
    """Enqueue an item, process vested pointers, and complete or dead-letter up to three items."""
    item = new_item(random.choice(["mail", "fax"]), bytes(random.choice([1, 20_000])))
    item_id, lease_id = random.randbytes(16), random.randbytes(16)
    world.run(lambda tr: zone.enqueue(tr, item, item_id=item_id, now_us=world.now_us))

    def dequeue(tr: Any) -> list[LeasedItem]:
        capacity = Capacity(3, {"mail": 3, "fax": 1})
        return zone.dequeue(tr, capacity=capacity, lease_id=lease_id, lease_us=LEASE_US, now_us=world.now_us)

    world.process()
    held = world.run(dequeue)
    doomed = [leased for leased in held if random.random() < 0.1]

    def finish(tr: Any) -> None:
        for leased in held:
            if leased in doomed:
                tr.get(zone.location.keys.item(leased.id)).wait()
                move_to_dead_letters(
                    tr,
                    zone.location,
                    leased.id,
                    leased.record,
                    reason="error",
                    error="",
                    traceback="",
                    now_us=world.now_us,
                )
            else:
                zone.complete(tr, leased.id, lease_id=lease_id, now_us=world.now_us)

    world.run(finish)
