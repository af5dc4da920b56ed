"""What names a tenant outside of its own rows: each kind of key has a line in `fairlead.zones.moving`, and a test."""

from __future__ import annotations

import ast
import inspect
import re
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead.zones import keyspace, local_index, moving, tuples
from fairlead.zones.engines import KeyValue, transact
from fairlead.zones.external.arrivals import note_arrival
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Arrival, Queue
from fairlead.zones.keyspace import ROOT, TenantKeys, pack_int, range_begin, range_end
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, local_tenant
from fairlead.zones.maintenance import quarantine
from fairlead.zones.moving import destination
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.ownership import check_home
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy import policies
from fairlead.zones.policy.policies import change_kind_policy, change_tenant_policy, tenants_with_policies
from fairlead.zones.queue import dead_letters, id_retention, results
from fairlead.zones.queue.items import EnqueueStatus, NewItem, new_item
from fairlead.zones.queue.lease_check import check_leases_op
from fairlead.zones.records import AuditEntry, ItemRecord, MoveState, PointerRecord, decode
from fairlead.zones.reporting import audit_log, completion_log
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.taking import take
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.top_level.depth import depth
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import locks, participants, signals
from fairlead.zones.workflow.run_records import ParticipantState
from tests.zones.faults import Fault
from tests.zones.moving.town import Killed, Town
from tests.zones.moving.users import Users

KEPT_US = 10_000_000
RUN_ID = b"r" * 16


def top_level_names() -> set[str]:
    """Return the names of all first numbers of a key: all numbers that `keyspace` names before those of a tenant."""
    names: set[str] = set()
    for statement in ast.parse(inspect.getsource(keyspace)).body:
        if isinstance(statement, ast.Assign):
            found = {each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            if "DATA" in found:
                return names
            names |= {name for name in found if isinstance(getattr(keyspace, name), int)}
    raise AssertionError("keyspace does not name the keys of a tenant after those of a shard")


def lines_of_the_table() -> list[str]:
    """Return the names of the keys in the first column, line by line."""
    assert moving.__doc__ is not None
    return re.findall(r"^\| ([A-Z_]+(?:, [A-Z_]+)*) \|", moving.__doc__, re.MULTILINE)


def test_each_kind_of_key_has_a_line() -> None:
    mentioned = [name for line in lines_of_the_table() for name in line.split(", ")]
    assert sorted(mentioned) == sorted(top_level_names())


# --- A town in which something names Alice ---


@pytest.fixture
def town() -> Town:
    return Town()


def naming(town: Town, name: str, number: int, tenant: Tenant | None = None) -> list[KeyValue]:
    """Return the pairs of a shard whose keys begin with a number and name a tenant."""
    prefix, packed = ROOT + pack_int(number), TenantKeys(*(tenant or town.alice)).packed
    rows = transact(town.shards[name].db, lambda tr: list(tr.get_range(range_begin(prefix), range_end(prefix))))
    return [row for row in rows if packed in row.key or packed.replace(b"\x00", b"\x00\xff") in row.key]


def shards_naming(town: Town, number: int) -> list[str]:
    return [name for name in town.shards if naming(town, name, number)]


def below(town: Town, name: str, number: int) -> list[bytes]:
    """Return the keys below the tenant, on a shard, that begin with a number."""
    prefix = TenantKeys(*town.alice).prefix + pack_int(number)
    rows = transact(town.shards[name].db, lambda tr: list(tr.get_range(range_begin(prefix), range_end(prefix))))
    return [row.key for row in rows]


def move_counts(town: Town) -> dict[str, int]:
    return {
        name: transact(each.db, lambda tr: run_one(local_index.move_count_op(tr))) for name, each in town.shards.items()
    }


def leave_a_dead_letter(town: Town) -> bytes:
    item_id = town.enqueue()

    def body(tr: Any, queue: Any, now_us: int) -> None:
        (record,) = run_one(check_leases_op(tr, queue.location, [(item_id, None)]))
        assert isinstance(record, ItemRecord)
        dead_letters.move_to_dead_letters(
            tr, queue.location, item_id, record, reason="failed", error="", traceback="", now_us=now_us
        )

    town.in_queue(body)
    return item_id


def named_item() -> NewItem:
    return new_item("mail", item_id="first", unique_for=KEPT_US // 1_000_000)


def complete_one(town: Town) -> bytes:
    """Complete an item whose id stays taken, and whose result is kept, for ten seconds; return the id."""
    lease_id = b"l" * 16
    item_id = town.on(lambda tr: tr.enqueue_item(named_item())).item_id

    def body(tr: Any, queue: Any, now_us: int) -> None:
        queue.obtain_lease(tr, item_id, lease_id=lease_id, lease_us=1_000, now_us=now_us)
        queue.complete(tr, item_id, lease_id=lease_id, now_us=now_us)
        results.keep_result(tr, queue.location, item_id, results.pack_result(1), now_us=now_us, kept_us=KEPT_US)

    town.in_queue(body, DEFAULT_ZONE)
    return item_id


def keep_a_result_anew(town: Town, item_id: bytes) -> None:
    def body(tr: Any, queue: Any, now_us: int) -> None:
        check_home(tr, queue.location)
        results.keep_result(tr, queue.location, item_id, results.pack_result(2), now_us=now_us, kept_us=KEPT_US)

    town.in_queue(body, DEFAULT_ZONE)


def expire_all(town: Town, name: str) -> None:
    shard = town.shards[name]
    for part in range(shard.layout.part_count):
        now_us = town.clock.now_us()
        transact(shard.db, partial(id_retention.expire, part=part, now_us=now_us, keys_max=9))


def end_a_run(town: Town) -> None:
    keys = TenantKeys(*town.alice)

    def call(shard: Shard) -> None:
        def body(attempt: Attempt) -> None:
            run_one(participants.clean_up_op(attempt.tr, shard.layout, town.alice, keys, RUN_ID, now_us=attempt.now_us))

        shard.transact(body)

    town.at_home(call)


def asked_place(town: Town) -> ParticipantState:
    keys = TenantKeys(*town.alice)
    return town.at_home(
        lambda shard: shard.transact(lambda attempt: run_one(participants.ask_op(attempt.tr, shard.layout, keys)))
    )


def send_signal(town: Town, item_id: bytes) -> None:
    town.in_queue(
        lambda tr, queue, now_us: run_one(
            signals.send_op(tr, queue.location, item_id, "paid", b"1", number=0, now_us=now_us)
        )
    )


def take_lock(town: Town, item_id: bytes) -> None:
    lock = locks.pack_lock(("account", 7))
    request = locks.LockRequest(*town.alice, "queue", item_id, item_id, "mail", False, "", 1)
    town.in_queue(lambda tr, queue, _: run_one(locks.take_op(tr, queue.location, lock, request)))


# --- What goes along ---


@pytest.mark.parametrize("pointers_max", [0, 500])
def test_pointers_are_made_anew_and_deleted(town: Town, monkeypatch: pytest.MonkeyPatch, pointers_max: int) -> None:
    """Of the first zones with the decision, of all others on arrival."""
    monkeypatch.setattr(destination, "POINTERS_MAX", pointers_max)
    town.enqueue(zone="queue")
    town.enqueue(zone="other")
    town.move("north")
    assert shards_naming(town, keyspace.TOP) == ["north"]
    assert len(naming(town, "north", keyspace.TOP)) == 2


def test_the_pointer_of_a_queue_in_an_external_store_moves_along(town: Town) -> None:
    """Nothing else on its shard says that the queue has items."""
    queue = Queue(town.alice, "queue")
    in_us = 60_000_000

    def note(attempt: Attempt) -> None:
        note_arrival(attempt.tr, town.shards["east"].layout, "pg", Arrival(queue, in_us), now_us=attempt.now_us)

    town.shards["east"].transact(note)
    town.move("north")
    assert shards_naming(town, keyspace.TOP) == ["north"]
    location = town.shards["north"].layout.location(town.alice, pointer_zone("pg", "queue"))
    value = transact(town.shards["north"].db, lambda tr: tr.get(location.keys.pointer).value)
    assert value is not None
    pointer = decode(PointerRecord, value)
    assert pointer is not None
    assert pointer.vesting_us <= town.clock.now_us()


def test_depths_are_added_and_subtracted(town: Town) -> None:
    town.enqueue("mail")
    town.enqueue("index", zone="other")
    town.move("north")
    found = {name: transact(each.db, partial(depth, layout=each.layout)).kinds for name, each in town.shards.items()}
    assert found == {"east": {MOVE_KIND: 1}, "north": {"index": 1, "mail": 1}, "west": {}}


def test_dead_letters_are_listed_where_the_tenant_lives(town: Town) -> None:
    item_id = leave_a_dead_letter(town)
    town.move("north")
    assert shards_naming(town, keyspace.DEAD_LETTER_INDEX) == ["north"]
    north = town.shards["north"]
    (listed,) = transact(north.db, lambda tr: list(dead_letters.listing(tr, north.layout, items_max=9)))
    assert listed.id == item_id


def test_what_expires_is_cleared_where_the_tenant_lives(town: Town) -> None:
    item_id = complete_one(town)
    town.move("north")
    assert set(shards_naming(town, keyspace.RETENTION)) == {"east", "north"}
    assert town.on(lambda tr: tr.enqueue_item(named_item())).status is EnqueueStatus.COMPLETED
    town.clock.advance_us(KEPT_US + 1)
    for name in town.shards:
        expire_all(town, name)
    assert shards_naming(town, keyspace.RETENTION) == []
    assert not any(row[0] == keyspace.ZONE for row in town.rows("north"))
    assert town.on(lambda tr: tr.enqueue_item(named_item())) == (item_id, EnqueueStatus.ENQUEUED)


def test_an_old_entry_of_what_expires_does_not_touch_a_tenant_that_has_returned(town: Town) -> None:
    item_id = complete_one(town)
    town.move("north")
    town.clock.advance_us(KEPT_US // 2)
    keep_a_result_anew(town, item_id)
    town.move("east")
    town.clock.advance_us(KEPT_US // 2 + 1)
    expire_all(town, "east")
    assert [row[2] for row in town.rows("east") if row[0] == keyspace.ZONE] == [keyspace.RESULT]


def test_what_is_found_by_a_key_is_found_where_the_tenant_lives(town: Town) -> None:
    index = tuples.pack(("item", "order", 7))
    town.on_rows(lambda tr, keys: local_index.add(tr, keys, index, b"member"))
    before_it = move_counts(town)
    town.move("north")
    assert shards_naming(town, keyspace.LOCAL_INDEX) == ["north"]
    page = transact(town.shards["north"].db, lambda tr: run_one(local_index.find_op(tr, index, entries_max=9)))
    assert page.entries == [local_index.Entry(town.alice, index, b"member")]
    counted = {name: count - before_it[name] for name, count in move_counts(town).items()}
    assert counted == {"east": 1, "north": 1, "west": 0}
    assert town.findings() == {}


def test_an_entry_that_is_added_or_removed_while_the_tenant_moves_goes_along(town: Town) -> None:
    first, second = (tuples.pack(("item", "order", number)) for number in (7, 8))
    town.on_rows(lambda tr, keys: local_index.add(tr, keys, first, b"member"))

    def change() -> None:
        town.on_rows(lambda tr, keys: local_index.remove(tr, keys, first, b"member"))
        town.on_rows(lambda tr, keys: local_index.add(tr, keys, second, b"member"))

    town.mover_that("north", _copy_changes=change).run()
    assert [row[1:] for row in town.rows("north") if row[0] == keyspace.INDEXED] == [(("item", "order", 8), b"member")]
    assert town.findings() == {}


def test_a_policy_is_listed_where_the_tenant_lives(town: Town) -> None:
    town.at_home(
        lambda shard: shard.transact(
            lambda attempt: change_tenant_policy(
                attempt.tr, shard.layout, town.alice, now_us=attempt.now_us, paused=True
            )
        )
    )
    town.move("north")
    found = {
        name: transact(each.db, lambda tr: tenants_with_policies(tr, tenants_max=9))
        for name, each in town.shards.items()
    }
    assert {name: [tenant for tenant, _ in listed] for name, listed in found.items()} == {
        "east": [],
        "north": [town.alice],
        "west": [],
    }
    owner = town.owner("north")
    assert owner is not None
    assert owner.policy.paused


def test_what_is_due_about_snapshots_is_listed_where_the_tenant_lives(town: Town) -> None:
    keys = TenantKeys(*town.alice)
    east = town.shards["east"]
    east.transact(lambda attempt: take(attempt.tr, east.layout, keys, now_us=attempt.now_us, kept_us=KEPT_US))
    assert shards_naming(town, keyspace.SNAPSHOT_WORK) == ["east"]
    town.move("north")
    assert shards_naming(town, keyspace.SNAPSHOT_WORK) == ["north"]


def test_a_pointer_that_sleeps_because_its_kind_is_paused_is_forgotten(town: Town) -> None:
    east = town.shards["east"]
    town.enqueue("mail")
    east.transact(lambda attempt: change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, paused=True))
    location = east.layout.location(town.alice, "queue")
    transact(east.db, lambda tr: policies.index_paused_pointer(tr, location, ["mail"]))
    assert shards_naming(town, keyspace.PAUSED_POINTER) == ["east"]
    town.move("north")
    assert shards_naming(town, keyspace.PAUSED_POINTER) == []
    assert town.findings() == {}


def test_tombstones_are_listed_where_the_tenant_lives(town: Town) -> None:
    """The list is that of the destination's FLOOR, and its next raising clears the tombstone."""
    end_a_run(town)
    assert shards_naming(town, keyspace.TOMBSTONE) == ["east"]
    town.move("north")
    assert shards_naming(town, keyspace.TOMBSTONE) == ["north"]
    north = town.shards["north"]
    transact(north.db, lambda tr: participants.raise_floor(tr, tombstones_max=9))
    assert not any(row[0] == keyspace.FENCE for row in town.rows("north"))


def test_a_run_that_acts_on_the_tenant_must_ask_again(town: Town) -> None:
    """FLOOR of the new shard may be that of the old one, and yet its tombstones were others: the epoch differs."""
    before_it = asked_place(town)
    town.move("north")
    assert asked_place(town) != before_it


def test_locks_and_signals_go_along(town: Town) -> None:
    """They lie below the tenant; the key of a signal has the stamp of the old shard."""
    item_id = town.enqueue()
    send_signal(town, item_id)
    take_lock(town, item_id)
    rows = {number: below(town, "east", number) for number in (keyspace.LOCK, keyspace.SIGNAL)}
    assert all(rows.values())
    town.move("north")
    assert {number: below(town, "north", number) for number in rows} == rows
    assert town.findings() == {}


def test_a_signal_that_is_sent_while_the_tenant_moves_goes_along(town: Town) -> None:
    """Its key has a stamp that the writer does not know, so the mark is a range."""
    item_id = town.enqueue()
    town.mover_that("north", _copy_changes=lambda: send_signal(town, item_id)).run()
    assert len(below(town, "north", keyspace.SIGNAL)) == 1


# --- What stays ---


def test_what_ended_lately_is_told_by_the_old_shard(town: Town) -> None:
    item_id = complete_one(town)
    town.move("north")
    found = {name: transact(each.db, lambda tr: completion_log.find(tr, item_id)) for name, each in town.shards.items()}
    assert {name: len(ended) for name, ended in found.items()} == {"east": 1, "north": 0, "west": 0}
    assert found["east"][0].tenant == town.alice


def test_what_operators_did_and_set_aside_stays(town: Town) -> None:
    east, keys = town.shards["east"], TenantKeys(*town.alice)
    damaged = keys.zones + b"\x02bad\x00\x15\x01\x01id\x00"
    entry = AuditEntry(b"e" * 16, "root@db1", "command line", "pause", {"user": town.alice.user}, 1, 0, True)

    def body(attempt: Any) -> None:
        attempt.tr.set(damaged, b"damaged")
        audit_log.write(attempt.tr, entry)

    east.transact(body)
    transact(east.db, lambda tr: quarantine.set_aside(tr, damaged, damaged + b"\x00", why="damaged", now_us=1))
    town.move("north")
    for name, shard in town.shards.items():
        aside = transact(shard.db, lambda tr: quarantine.listing(tr, pairs_max=9))
        written = transact(shard.db, lambda tr: audit_log.latest(tr, entries_max=9))
        assert [each.key for each in aside] == ([damaged] if name == "east" else [])
        assert [each.audit_entry for each in written] == ([entry] if name == "east" else [])


def test_a_receipt_is_found_where_it_was_tried(town: Town) -> None:
    town.stores["east"].faults.append(Fault(applied=True, then=lambda: town.move("north")))
    town.on(lambda tr: tr.add(("counter",), 1))
    assert town.data() == {("counter",): (1).to_bytes(8, "little")}


def test_the_move_is_listed_where_it_began(town: Town) -> None:
    town.move("north")
    assert shards_naming(town, keyspace.MOVE) == ["east"]
    record = town.record("east")
    assert record is not None
    assert record.state is MoveState.MOVED


def test_a_move_waits_for_what_is_prepared(town: Town) -> None:
    """The tenant is locked by a transaction across shards, whose writes lie outside of the tenant's rows."""
    users = Users(town, lambda: None)

    def body(tx: SpanningTransaction) -> None:
        for tenant in (users.bob, town.alice):
            tx.on(tenant).set(("key",), b"1")

    def die_once_prepared(name: str, _: int, after: bool) -> None:
        if name == "east" and after:
            raise Killed

    town.hook = die_once_prepared
    with suppress(Killed):
        run_across_shards(users, body, wait_us=WAIT_US, clock=town.clock, random=town.random)
    town.hook = None
    mover = town.mover_that("north")
    copy_round, rounds = mover._copy_round, list[bool]()

    def look_and_copy() -> int:
        owner = town.owner("east")
        rounds.append(owner is not None and bool(owner.locks))
        if len(rounds) == 4:
            town.on(lambda tr: tr.get(("key",)))  # Waits for a second, and settles the transaction.
        return copy_round()

    mover._copy_round = look_and_copy  # type: ignore[method-assign]
    assert mover.run() is MoveState.MOVED
    assert rounds == [True] * 4
    owner = town.owner("north")
    assert owner is not None
    assert owner.locks == ()


def test_a_periodic_item_stays(town: Town) -> None:
    """A local item is no tenant's: it lies below a tenant without an app."""
    local = local_tenant(MOVE_KIND)
    town.move("north")
    assert naming(town, "east", keyspace.DB, local)
    assert not naming(town, "north", keyspace.DB, local)
