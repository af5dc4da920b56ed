"""Backups: a shard in a file, and back into any engine, running."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.zones import local_index, tuples
from fairlead.zones.engines import Database, transact
from fairlead.zones.errors import BackupRefused, ShardRefused
from fairlead.zones.external import arrivals
from fairlead.zones.keyspace import HANDLER, META_KEY, PERIODIC, ROOT, ROOT_RANGE, pack_int, pack_text
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.maintenance.backup import backup, restore, restoring, taking
from fairlead.zones.maintenance.backup.backup_file import (
    DAMAGED,
    MAGIC,
    NEWER,
    NOT_A_BACKUP,
    Header,
    read_pairs,
)
from fairlead.zones.maintenance.backup.restoring import FLOOR_KEY, NOT_EMPTY, TOO_LARGE_KEY, TOO_LARGE_VALUE
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.claims import claim_op
from fairlead.zones.queue.dead_letters import listing
from fairlead.zones.queue.items import EnqueueStatus, new_item, unpack_payload
from fairlead.zones.queue.stored_item import read_payload
from fairlead.zones.records import FORMAT, HandlerRecord, PeriodicRecord, encode
from fairlead.zones.shard import RESTORING, open_shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import WorkerSession
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import participants
from tests.clocks import ManualClock
from tests.zones.conftest import ENGINES, open_empty
from tests.zones.faults import Fault, FaultyDatabase
from tests.zones.test_integrity import make_dead_letter, populate
from tests.zones.workflow.runs import move_to_dead_letters, the_dead_letter, the_record
from tests.zones.world import ALICE, BOB, LEASE_US, SECOND, World


@pytest.fixture(params=ENGINES)
def target(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each engine, other than the one that is backed up."""
    opened = open_empty(request.param, clock, tmp_path / "target")
    yield opened
    opened.close()


@pytest.fixture
def memory(clock: ManualClock, tmp_path: Path) -> Database:
    """An empty database, where the engine does not matter."""
    return open_empty("memory", clock, tmp_path)


def taken(world: World) -> bytes:
    """Return a backup of the world's shard."""
    file = io.BytesIO()
    backup(world.shard, file)
    return file.getvalue()


def restored(world: World, target: Database, packed: bytes) -> World:
    """Restore a backup and open the shard."""
    restore(target, io.BytesIO(packed), clock=world.clock, random=world.random)
    return World(target, world.clock)


# --- There and back ---


def test_a_restored_shard_holds_what_was_backed_up_and_is_healthy(world: World, target: Database) -> None:
    populate(world)
    copy = restored(world, target, taken(world))
    assert copy.layout.shard_id == world.layout.shard_id
    assert copy.layout.part_count == 2
    report, original = check_integrity(copy.shard), check_integrity(world.shard)
    assert report.findings == []
    assert (report.zones, report.items, report.dead_letters) == (original.zones, original.items, original.dead_letters)
    for zone in (world.zone_of(ALICE), world.zone_of(BOB, "other"), world.zone_of(local_tenant("index"))):
        assert copy.count(zone) == world.count(zone)
    own = copy.shard.transact(lambda attempt: TenantTransaction(copy.shard, ALICE, attempt).get(("own", 1)))
    assert own == b"data"


def test_the_local_index_is_derived_from_what_lies_beside_the_rows(world: World, target: Database) -> None:
    keys, index = world.zone.location.keys.tenant, tuples.pack(("item", "order", 7))
    world.run(lambda tr: local_index.add(tr, keys, index, b"member"))
    world.run(local_index.count_move)
    copy = restored(world, target, taken(world))
    found = transact(target, lambda tr: run_one(local_index.find_op(tr, index, entries_max=9)))
    assert found.entries == [local_index.Entry(ALICE, index, b"member")]
    assert transact(target, lambda tr: run_one(local_index.move_count_op(tr))) == 1
    assert check_integrity(copy.shard).findings == []


def test_a_shard_without_leases_is_restored_byte_for_byte_but_for_lease_numbers(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "RESTORE_STEP", 0)
    for zone in (world.zone_of(ALICE), world.zone_of(BOB, "other"), world.zone_of(local_tenant("index"))):
        world.enqueue(zone=zone, delay=0.5)
        world.enqueue(zone=zone, item_id="a", unique_for=1)
    dead_letter, done = world.enqueue("fax", bytes(100_000)), world.enqueue(item_id="b", unique_for=1)
    make_dead_letter(world, dead_letter)
    world.complete(done)
    copy = restored(world, memory, taken(world))
    watched = {part.change_counter for part in world.layout.parts}  # Soft state: they wake scanners.
    assert [pair for pair in copy.everything() if pair[0] not in (META_KEY, FLOOR_KEY)] == [
        pair for pair in world.everything() if pair[0] not in {META_KEY, *watched} and pair[1] != bytes(8)
    ], "but for depths of zero"


def test_every_item_of_a_restored_shard_runs(world: World, memory: Database) -> None:
    waiting = world.enqueue(payload={"order": 7})
    delayed = world.enqueue(delay=5)
    copy = restored(world, memory, taken(world))
    (result,) = copy.process()
    assert [item.id for item in result.items] == [waiting]
    assert unpack_payload(result.items[0].record.payload) == {"order": 7}
    assert copy.pointer_delay_us() == 5 * SECOND
    copy.pass_us(5 * SECOND)
    (result,) = copy.process()
    assert [item.id for item in result.items] == [delayed]


def test_leases_are_released_and_do_not_count_as_expired(world: World, memory: Database) -> None:
    """Their holders are gone: nothing should wait for their expiry, and no item fail because of it."""
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    held_alone = [(item_id, lease_id)]
    world.run(
        lambda tr: run_one(
            world.zone.extend_op(tr, held_alone, lease_us=LEASE_US, now_us=world.now_us, ran_isolated=True)
        )
    )
    copy = restored(world, memory, taken(world))
    (result,) = copy.process()
    (held,) = result.items
    assert (held.id, held.record.expiry_count, held.record.ran_isolated) == (item_id, 0, False)
    assert held.record.lease_id != lease_id


def test_claims_are_released_and_their_sessions_are_not_copied(world: World, memory: Database) -> None:
    item_id = world.enqueue()
    held, session_id = [(item_id, world.lease(item_id))], b"a worker session"

    def claim(tr: Any) -> None:
        run_one(claim_op(tr, world.zone.location, held, session_id=session_id, now_us=world.now_us))
        worker_sessions.begin(tr, session_id, WorkerSession(b"worker", world.now_us), beat=b"1")

    world.run(claim)
    copy = restored(world, memory, taken(world))
    record = copy.record(item_id)
    assert record is not None
    assert (record.claim, record.lease_id) == (b"", b"")
    assert check_integrity(copy.shard).findings == []
    assert copy.run(lambda tr: run_one(worker_sessions.look_op(tr))).beats == {}


def test_the_reader_of_an_external_store_looks_at_all_queues_after_a_restore(world: World, memory: Database) -> None:
    """Pointers of its queues are not restored: nothing in the shard says which there are."""
    world.run(lambda tr: arrivals.take_reader(tr, "pg", b"a reader", lease_us=LEASE_US, now_us=world.now_us))
    world.run(lambda tr: arrivals.save_seen(tr, "pg", b"a reader", arrivals.ReaderRecord(b"a reader", 0, "7:9:", "h")))
    copy = restored(world, memory, taken(world))
    assert copy.run(lambda tr: arrivals.read_reader(tr, "pg")) == arrivals.ReaderRecord()


def test_long_payloads_dead_letters_and_retained_ids_are_restored(world: World, memory: Database) -> None:
    long = world.enqueue(payload=bytes(300_000))
    make_dead_letter(world, world.enqueue("fax"))
    done = world.enqueue(item_id="done", unique_for=60)
    world.complete(done)
    copy = restored(world, memory, taken(world))
    record = copy.record(long)
    assert record is not None
    packed = copy.run(lambda tr: read_payload(tr, copy.zone.location, long, record))
    assert unpack_payload(packed) == bytes(300_000)
    assert len(copy.run(lambda tr: list(listing(tr, copy.layout, items_max=10)))) == 1
    assert copy.try_enqueue(item_id="done").status is EnqueueStatus.COMPLETED


def test_handlers_and_periods_and_what_this_version_does_not_know_are_copied(world: World, memory: Database) -> None:
    pairs = {
        ROOT + pack_int(HANDLER) + pack_text("mail") + pack_int(1): encode(HandlerRecord("mail", 1, b"code", b"", 7)),
        ROOT + pack_int(PERIODIC) + pack_text("tick"): encode(PeriodicRecord(1_000_000, 7)),
        ROOT + pack_int(77) + pack_text("later"): b"what it means only they know",
    }
    for key, value in pairs.items():
        world.set(key, value)
    copy = restored(world, memory, taken(world))
    assert {key: value for key, value in copy.everything() if key in pairs} == pairs


def test_an_empty_shard_is_restored_empty(world: World, memory: Database) -> None:
    copy = restored(world, memory, taken(world))
    assert [key for key, _ in copy.everything()] == [META_KEY, FLOOR_KEY]


def test_lease_numbers_and_the_floor_continue_above_all_that_the_shard_may_have_had(
    world: World, memory: Database
) -> None:
    item_id, dead = world.enqueue(), world.enqueue()
    world.lease(item_id)
    world.lease(dead)
    move_to_dead_letters(world, dead)
    packed = taken(world)
    copy = restored(world, memory, packed)
    assert the_record(copy, item_id).lease_number == 2**32 + 1
    assert the_dead_letter(copy, dead).item.lease_number == 2**32 + 1
    keys = copy.zone.location.keys.tenant
    assert copy.run(lambda tr: run_one(participants.ask_op(tr, copy.layout, keys))).floor == 2**32


def test_tombstones_are_restored_and_cleared_when_the_floor_is_raised(world: World, memory: Database) -> None:
    keys, run = world.zone_of(BOB).location.keys.tenant, b"r" * 16
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)))
    copy = restored(world, memory, taken(world))
    assert copy.get(keys.fence(run)) is not None
    assert not copy.run(lambda tr: participants.raise_floor(tr, tombstones_max=10))
    assert copy.get(keys.fence(run)) is None
    assert copy.layout.shard_id == world.layout.shard_id


def test_a_backup_says_what_it_holds_and_so_does_its_restore(world: World, memory: Database) -> None:
    world.enqueue()
    world.enqueue(payload=bytes(20_000))
    file = io.BytesIO()
    began_us = world.now_us
    seen: list[int] = []
    info = backup(world.shard, file, progress=seen.append)
    assert info == (world.layout.shard_id, 2, 3, 0, True, began_us, began_us)
    assert seen == [3]
    seen.clear()
    assert restore(memory, file, clock=world.clock, random=world.random, progress=seen.append) == info
    assert seen == [3]


def test_a_backup_writes_nothing_to_the_store(world: World) -> None:
    populate(world)
    before = world.everything()
    taken(world)
    assert world.everything() == before


# --- As of when ---


def read_in_pieces(monkeypatch: pytest.MonkeyPatch, *, enough: int, too_much: int) -> None:
    monkeypatch.setattr(taking, "ENOUGH_BYTES", enough)
    monkeypatch.setattr(taking, "TOO_MUCH_BYTES", too_much)


def set_own(world: World, tenant: Tenant, key: int, value: bytes) -> None:
    world.shard.transact(lambda attempt: TenantTransaction(world.shard, tenant, attempt).set((key,), value))


def test_a_large_shard_is_read_tenant_by_tenant_and_restored_whole(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        tenant = Tenant("shop", f"user{number}")
        world.enqueue_all([new_item("mail", number)] * (number + 1), zone=world.zone_of(tenant))
        set_own(world, tenant, number, bytes(number))
    whole = taken(world)
    read_in_pieces(monkeypatch, enough=500, too_much=100_000)
    pieces = io.BytesIO()
    numbers: list[int] = []
    info = backup(world.shard, pieces, progress=numbers.append)
    assert len(numbers) > 5
    assert (info.torn, list(read_pairs(pieces))[:-1]) == (0, list(read_pairs(io.BytesIO(whole)))[:-1])
    copy = restored(world, memory, pieces.getvalue())
    assert check_integrity(copy.shard).findings == []


@pytest.mark.parametrize("too_much", [1, 300, 1_000])
def test_a_tenant_too_large_to_be_read_at_once_is_torn_and_the_backup_says_so(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch, too_much: int
) -> None:
    world.enqueue(zone=world.zone_of(BOB))
    for number in range(50):
        set_own(world, ALICE, number, bytes(100))
    whole = list(read_pairs(io.BytesIO(taken(world))))[:-1]
    read_in_pieces(monkeypatch, enough=1, too_much=too_much)
    file = io.BytesIO()
    info = backup(world.shard, file)
    assert info.torn == (2 if too_much == 1 else 1)
    assert list(read_pairs(file))[:-1] == whole


def test_a_tenant_that_would_be_torn_behind_others_is_left_to_the_next_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_own(world, ALICE, 1, bytes(300))
    for number in range(4):
        set_own(world, BOB, number, bytes(300))
    read_in_pieces(monkeypatch, enough=1_000, too_much=1_300)
    file = io.BytesIO()
    numbers: list[int] = []
    assert backup(world.shard, file, progress=numbers.append).torn == 0
    assert numbers == [1, 5]


def test_a_transaction_of_a_backup_ends_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        set_own(world, Tenant("shop", f"user{number}"), 1, b"")

    class SlowClock(ManualClock):
        def now_us(self) -> int:
            self.advance_us(400_000)
            return super().now_us()

    world.shard.clock = SlowClock(world.now_us)
    numbers: list[int] = []
    backup(world.shard, io.BytesIO(), progress=numbers.append)
    assert numbers == [4, 8, 10], "two seconds are enough"


def test_several_transactions_are_one_version_if_nothing_was_committed_between_them(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in (ALICE, BOB):
        set_own(world, tenant, 1, b"")
    read_in_pieces(monkeypatch, enough=1, too_much=10**6)
    quiet = backup(world.shard, io.BytesIO())
    busy = backup(world.shard, io.BytesIO(), progress=lambda pairs: set_own(world, ALICE, 2, b""))
    assert (quiet.one_version, busy.one_version) == (world.db.commit_sequence() is not None, False)


def test_a_transaction_of_a_tenant_is_in_a_backup_whole_or_not_at_all(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users keep data and work in step; a backup that runs meanwhile must too."""
    read_in_pieces(monkeypatch, enough=1, too_much=10**9)
    tenants = [Tenant("shop", f"user{number}") for number in range(5)]
    stop = threading.Event()

    def orders(tenant: Tenant) -> None:
        number = 0
        while not stop.is_set():
            place_order(world, tenant, number)
            number += 1

    threads = [threading.Thread(target=orders, args=(tenant,)) for tenant in tenants[:2]]
    for tenant in tenants:
        set_own(world, tenant, 0, b"")
    for thread in threads:
        thread.start()
    try:
        packed = [taken(world) for _ in range(4)][-1]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    copy = restored(world, memory, packed)
    assert check_integrity(copy.shard).findings == []
    for tenant in tenants[:2]:
        placed = orders_of(copy, tenant)
        assert copy.count(copy.zone_of(tenant)) == ({"mail": placed} if placed else {})


def test_what_a_tenant_gets_before_its_first_key_while_the_one_before_it_is_read_is_not_missed(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it was read from the key on that had been its first: the order was left out, and its work was not."""
    read_in_pieces(monkeypatch, enough=1, too_much=10**9)
    for tenant in (ALICE, BOB):
        set_own(world, tenant, 0, b"")
    numbers = iter(range(100))
    packed = io.BytesIO()
    backup(world.shard, packed, progress=lambda pairs: place_order(world, BOB, next(numbers)))
    copy = restored(world, memory, packed.getvalue())
    assert copy.count(copy.zone_of(BOB)) == {"mail": orders_of(copy, BOB)}


def place_order(world: World, tenant: Tenant, number: int) -> None:
    """What an application does: data and work in one transaction."""

    def body(attempt: Attempt) -> None:
        tr = TenantTransaction(world.shard, tenant, attempt)
        tr.set(("order", number), b"paid")
        tr.enqueue("mail", number)

    world.shard.transact(body)


def orders_of(world: World, tenant: Tenant) -> int:
    """Return how many orders a tenant has."""

    def body(attempt: Attempt) -> int:
        return sum(1 for _ in TenantTransaction(world.shard, tenant, attempt).get_range(("order",)))

    return world.shard.transact(body)


def test_a_shard_with_records_of_a_newer_version_is_not_backed_up(world: World) -> None:
    """Nobody here could say which index entries to derive from them."""
    item_id = world.enqueue()
    world.set(world.zone.location.keys.item(item_id), bytes([FORMAT + 1]))
    with pytest.raises(ShardRefused):
        taken(world)


# --- What is refused, before anything is written ---


def refused(target: Database, packed: bytes, world: World) -> str:
    """Return why a file is refused, and check that nothing was written."""
    before = transact(target, _all_pairs)
    with pytest.raises(BackupRefused) as raised:
        restore(target, io.BytesIO(packed), clock=world.clock, random=world.random)
    assert transact(target, _all_pairs) == before
    return str(raised.value.fields["reason"])


def _all_pairs(tr: Any) -> list[tuple[bytes, bytes]]:
    return [(pair.key, pair.value) for pair in tr.get_range(*ROOT_RANGE)]


def test_a_file_cut_off_anywhere_is_refused(world: World, memory: Database) -> None:
    world.enqueue()
    packed = taken(world)
    for length in [0, 1, len(MAGIC), len(MAGIC) + 2, *range(20, len(packed), 7), len(packed) - 1]:
        assert refused(memory, packed[:length], world) == DAMAGED


def test_a_file_with_any_byte_changed_is_refused(world: World, memory: Database) -> None:
    world.enqueue()
    packed = taken(world)
    for location in range(len(packed)):
        damaged = packed[:location] + bytes([packed[location] ^ 1]) + packed[location + 1 :]
        assert refused(memory, damaged, world) in (DAMAGED, NOT_A_BACKUP, NEWER)


def test_a_file_with_something_behind_its_end_is_refused(world: World, memory: Database) -> None:
    assert refused(memory, taken(world) + b"x", world) == DAMAGED


def test_another_file_is_refused(world: World, memory: Database) -> None:
    assert refused(memory, b"PK\x03\x04" + bytes(1_000), world) == NOT_A_BACKUP


@pytest.mark.parametrize("change", [{"file_format": 2}, {"record_format": FORMAT + 1}])
def test_a_file_of_a_newer_version_is_refused(world: World, memory: Database, change: dict[str, int]) -> None:
    packed = taken(world)
    length = int.from_bytes(packed[16:20], "big")
    header = msgspec.structs.replace(msgspec.msgpack.decode(packed[20 : 20 + length], type=Header), **change)
    changed = msgspec.msgpack.encode(header)
    assert (
        refused(memory, packed[:16] + len(changed).to_bytes(4, "big") + changed + packed[20 + length :], world) == NEWER
    )


def test_a_store_that_is_not_empty_is_refused(world: World, target: Database) -> None:
    packed = taken(world)
    other = World(target, world.clock)
    other.enqueue()
    assert refused(target, packed, world) == NOT_EMPTY


def test_a_store_that_only_was_opened_as_a_shard_is_not_empty(world: World, memory: Database) -> None:
    """Its id may be known to others already."""
    packed = taken(world)
    open_shard("other", memory, clock=world.clock, random=Random(3))
    assert refused(memory, packed, world) == NOT_EMPTY


def test_what_the_engine_of_the_target_does_not_take_is_refused_before_anything_is_written(
    world: World, clock: ManualClock, tmp_path: Path
) -> None:
    embedded = open_empty("embedded", clock, tmp_path / "target")
    if world.db.limits.key_bytes_max > embedded.limits.key_bytes_max:
        world.set(world.zone.location.keys.tenant.data + pack_text("x" * 600), b"")
        assert refused(embedded, taken(world), world) == TOO_LARGE_KEY
    embedded.close()


def test_a_value_beyond_the_limit_is_refused(world: World, memory: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    set_own(world, ALICE, 1, bytes(200))
    limits = memory.limits
    monkeypatch.setattr(memory, "limits", type(limits)(limits.key_bytes_max, 100, limits.transaction_bytes_max))
    assert refused(memory, taken(world), world) == TOO_LARGE_VALUE


# --- Commits of unknown result ---


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
@pytest.mark.parametrize("commits_before", range(3), ids=["the claim", "a batch", "the end"])
def test_a_restore_survives_a_commit_of_unknown_result(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch, commits_before: int, applied: bool
) -> None:
    """Before, a restore found its own claim after its first commit, and reported that the store is not empty."""
    populate(world)
    packed = taken(world)
    monkeypatch.setattr("fairlead.zones.maintenance.backup.restoring.BATCH_PAIRS", 50)
    faulty = FaultyDatabase(memory)
    faulty.faults += [*[None] * commits_before, Fault(applied=applied)]
    copy = restored(world, faulty, packed)
    assert not faulty.faults
    assert check_integrity(copy.shard).findings == []
    assert copy.count() == world.count()


def test_a_claim_of_unknown_result_is_not_taken_for_that_of_another_restore(world: World, memory: Database) -> None:
    packed = taken(world)
    faulty = FaultyDatabase(memory)
    faulty.faults.append(Fault(applied=False, then=lambda: restored(world, memory, packed)))
    with pytest.raises(BackupRefused) as raised:
        restored(world, faulty, packed)
    assert raised.value.fields["reason"] == NOT_EMPTY


# --- Broken off ---


def test_an_interrupted_restore_leaves_a_store_that_cannot_be_opened(
    world: World, memory: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(world)
    packed = taken(world)
    monkeypatch.setattr("fairlead.zones.maintenance.backup.restoring.BATCH_PAIRS", 5)

    def stop(pairs: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(memory, io.BytesIO(packed), clock=world.clock, random=world.random, progress=stop)
    with pytest.raises(ShardRefused) as raised:
        open_shard("target", memory, clock=world.clock, random=Random(3))
    assert "restored" in str(raised.value.fields["remedy"])
    assert refused(memory, packed, world) == NOT_EMPTY


def test_a_shard_cannot_be_opened_while_it_is_being_restored(world: World, memory: Database) -> None:
    world.enqueue()
    seen: list[Any] = []

    def look(pairs: int) -> None:
        try:
            open_shard("target", memory, clock=world.clock, random=Random(3))
        except ShardRefused as error:
            seen.append(error)

    restore(memory, io.BytesIO(taken(world)), clock=world.clock, random=world.random, progress=look)
    assert len(seen) == 1
    assert open_shard("target", memory, clock=world.clock, random=Random(3)).layout.part_count == 2
    assert not World(memory, world.clock).stored(META_KEY, META_KEY + b"\x00")[0][1].startswith(RESTORING)
