"""Items in PostgreSQL: what each operation does, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.errors import PayloadDamaged
from fairlead.zones.external.store import Queue, Stop, Want
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import EnqueueStatus, Outcome, new_item, unpack_payload
from tests.zones.postgresql.database import ALICE, LEASE_US, NOW_US, Database, held

BOB = Tenant("shop", "bob")


def test_an_item_comes_out_as_it_went_in(database: Database) -> None:
    item_id = database.enqueue("mail", {"to": ["a", 1, None, b"\x00"]}, priority=7, item_id="order 7", unique_for=5)
    (leased,) = database.lease()
    assert (leased.queue, leased.id) == ((ALICE, "queue"), item_id)
    record = leased.record
    assert unpack_payload(record.payload) == {"to": ["a", 1, None, b"\x00"]}
    assert (record.kind, record.priority, record.given_id, record.unique_us) == ("mail", 7, "order 7", 5_000_000)
    assert (record.attempt, record.lease_number, record.vesting_us) == (1, 1, NOW_US + LEASE_US)
    assert NOW_US - 60_000_000 < record.enqueued_us <= NOW_US


def test_what_sql_enqueues_comes_out_with_its_arguments_as_payload(database: Database, connection: Any) -> None:
    sent = """SELECT status FROM fairlead.enqueue('shop', 'alice', 'mail', '{"order": 7, "lines": [1.5, "ä"]}')"""
    assert connection.execute(sent).fetchone() == ("enqueued",)
    (leased,) = database.lease()
    assert unpack_payload(leased.record.payload) == {"order": 7, "lines": [1.5, "ä"]}


def test_a_given_id_has_the_same_id_in_sql_and_in_python(database: Database, connection: Any) -> None:
    sent = "SELECT id, status FROM fairlead.enqueue('shop', 'alice', 'mail', item_id => 'Order ä')"
    item_id, _ = connection.execute(sent).fetchone()
    again = database.put(new_item("mail", item_id="Order ä"))
    assert again == [(item_id.bytes, EnqueueStatus.PRESENT)]


def test_an_id_is_taken_while_its_item_waits_and_for_a_while_after_its_end(database: Database) -> None:
    once = new_item("mail", item_id="a", unique_for=50)
    ((_, first),) = database.put(once)
    ((_, second),) = database.put(once)
    (leased,) = database.lease()
    assert database.complete(leased, keeps_us=[leased.record.unique_us]) == [Outcome.DONE]
    ((_, third),) = database.put(once)
    assert [first, second, third] == [EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT, EnqueueStatus.COMPLETED]
    database.let_pass("taken_until_us")
    assert database.put(once)[0][1] is EnqueueStatus.ENQUEUED
    (again,) = database.lease()
    assert (again.record.attempt, again.record.lease_number) == (1, 1)


def test_a_rolled_back_transaction_enqueues_nothing(database: Database) -> None:
    with database.connect(autocommit=False) as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        connection.rollback()
    assert database.lease() == []


def test_items_are_leased_by_priority_and_then_by_time(database: Database) -> None:
    names = [("late", 100), ("first", 1), ("later", 100)]
    ids = {name: database.enqueue(item_id=name, priority=priority) for name, priority in names}
    assert [each.id for each in database.lease(items_max=2)] == [ids["first"], ids["late"]]
    assert [each.id for each in database.lease()] == [ids["later"]]


def test_a_kind_without_room_holds_up_no_other(database: Database) -> None:
    for _ in range(20):
        database.enqueue("unknown", priority=0)
    database.enqueue("full", priority=0)
    wanted = database.enqueue("mail", priority=200)
    assert [each.id for each in database.lease(rooms={"mail": 5, "full": 0})] == [wanted]


def test_the_room_of_a_kind_is_divided_among_tenants(database: Database) -> None:
    for _ in range(10):
        database.put(new_item("mail"), tenant=ALICE)
    for _ in range(2):
        database.put(new_item("mail"), tenant=BOB)
    leased = database.lease(ALICE, BOB, items_max=10, rooms={"mail": 4})
    assert sorted(each.queue.tenant.user for each in leased) == ["alice", "alice", "bob", "bob"]


def test_a_leased_item_is_leased_again_only_when_its_lease_has_expired(database: Database) -> None:
    database.enqueue()
    (first,) = database.lease()
    assert database.lease() == []
    database.let_pass("leased_until_us")
    (second,) = database.lease()
    assert (second.record.attempt, second.record.expired_count, second.had_expired) == (2, 1, True)
    assert database.complete(first) == [Outcome.LEASE_LOST]
    assert database.complete(second) == [Outcome.DONE]
    assert database.complete(second) == [Outcome.GONE]


def test_an_item_that_failed_comes_back_with_its_history(database: Database) -> None:
    database.enqueue()
    (leased,) = database.lease()
    leased.record.error_count, leased.record.last_error = 1, "boom"
    assert database.store.requeue([held(leased)], [0], [leased.record]) == [Outcome.DONE]
    (again,) = database.lease()
    record = again.record
    assert (record.attempt, record.last_error, record.expiry_count, again.had_expired) == (2, "boom", 0, False)


def traceback_of(database: Database) -> str:
    """Return the traceback of the only item there."""
    from fairlead.zones.postgresql.inspection import InspectedItemStore

    with database.connections.call() as call:
        ((item_id,),) = call.execute("SELECT id FROM fairlead.items").fetchall()
    store = InspectedItemStore(database.connections, database.connections)
    (found,) = store.inspect([item_id.bytes], seen=None, now_us=NOW_US)
    return found.traceback


def test_the_traceback_of_an_attempt_lasts_until_the_next_one_has_ended(database: Database) -> None:
    database.enqueue(item_id="order 7", unique_for=60)
    seen = []
    for tracebacks in (["File café"], [], [""], ["again"]):
        (leased,) = database.lease()
        database.store.requeue([held(leased)], [0], [leased.record], tracebacks=tracebacks)
        seen.append(traceback_of(database))
    assert seen == ["File café", "File café", "", "again"]
    database.complete(*database.lease(), keeps_us=[60_000_000])
    assert traceback_of(database) == ""


def test_an_item_that_is_returned_keeps_its_place(database: Database) -> None:
    first, _ = database.enqueue(), database.enqueue()
    (leased,) = database.lease(items_max=1)
    assert database.store.requeue([held(leased)], [None], [leased.record]) == [Outcome.DONE]
    (again,) = database.lease(items_max=1)
    assert (leased.id, again.id, again.record.attempt) == (first, first, 1)


def test_an_extended_lease_lasts_longer(database: Database) -> None:
    database.enqueue()
    (leased,) = database.lease(lease_us=1_000_000)
    assert database.store.extend([held(leased)], lease_us=LEASE_US) == [Outcome.DONE]
    ((mail,),) = database.store.outlook([Queue(ALICE, "queue")])
    assert mail.next_us > LEASE_US // 2


def test_a_lease_that_has_expired_is_not_extended(database: Database) -> None:
    """It does not count for the limit of its tenant any more, so another item may have been leased in its place."""
    database.enqueue()
    (leased,) = database.lease()
    database.let_pass("leased_until_us")
    assert database.store.extend([held(leased)], lease_us=LEASE_US) == [Outcome.LEASE_LOST]
    assert len(database.lease()) == 1


def test_the_store_says_which_items_may_be_running(database: Database) -> None:
    for _ in range(5):
        database.enqueue()
    expired, locked = database.lease(items_max=2, lease_us=LEASE_US // 3)
    leased, ended, returned = database.lease()
    database.let_pass("leased_until_us", f"leased_until_us - {LEASE_US // 2}")
    database.complete(ended)
    database.store.requeue([held(returned)], [None], [None])
    with database.connect(autocommit=False) as handler:
        handler.execute("SELECT 1 FROM fairlead.items WHERE id = %s FOR UPDATE", [locked.id.hex()])
        states = database.store.running([each.id for each in (leased, locked, expired, returned, ended)])
    assert [state.name for state in states] == ["RUNS", "RUNS", "EXPIRED", "ENDED", "ENDED"]


def test_a_batch_leaves_out_what_another_transaction_has_locked(database: Database) -> None:
    database.enqueue(), database.enqueue()
    leased = database.lease()
    with database.connect(autocommit=False) as user:
        user.execute("SELECT 1 FROM fairlead.items WHERE id = %s FOR UPDATE", [leased[0].id.hex()])
        assert database.complete(*leased) == [None, Outcome.DONE]
    assert database.complete(leased[0]) == [Outcome.DONE]


def test_the_outlook_says_what_waits_and_when_something_can_be_leased(database: Database) -> None:
    database.enqueue("mail"), database.enqueue("mail", delay=50), database.enqueue("other", priority=3)
    alice, empty = Queue(ALICE, "queue"), Queue(BOB, "queue")
    before, nothing = database.store.outlook([alice, empty])
    assert nothing == []
    assert [(each.kind, each.priority, each.waits) for each in before] == [("mail", 100, True), ("other", 3, True)]
    assert 40_000_000 < before[0].next_us < 50_000_000
    database.lease(lease_us=10_000_000)
    ((mail, _),) = database.store.outlook([alice])
    assert not mail.waits
    assert 5_000_000 < mail.next_us < 10_000_000


def looked(database: Database, *stops: Stop, items_max: int = 1) -> Any:
    """Lease items of alice from stops on."""
    wants = [Want(Queue(BOB, "queue"), 1), Want(Queue(ALICE, "queue"), items_max, stops)]
    options = {"lease_id": database.random.randbytes(16), "lease_us": LEASE_US, "now_us": NOW_US}
    return database.store.dequeue(wants, {"call": 9, "mail": 9, "post": 9}, **options)


def test_a_look_goes_on_at_a_place(database: Database) -> None:
    ids = [database.enqueue() for _ in range(3)]
    database.let_pass("vesting_us", "vesting_us - 5000000")  # Otherwise they might have been committed late.
    (first,) = looked(database).rows
    (third,) = looked(database, Stop("mail", 100, first.at_us + 1)).rows
    assert [first.id, third.id] == [ids[0], ids[1]]
    (again,) = looked(database, Stop("mail", 100, third.at_us)).rows
    assert again.id == ids[2]
    assert looked(database, Stop("mail", 100, again.at_us + 1)).rows == []


def test_a_look_from_a_place_finds_what_another_kind_or_priority_has(database: Database) -> None:
    wanted = {(kind, priority): database.enqueue(kind, priority=priority)
              for kind in ("call", "mail", "post") for priority in (0, 100, 255)}  # fmt: skip
    known = [Stop("call", 100, 1 << 60), Stop("mail", 100, 1 << 60), Stop("post", 255, 1 << 60)]
    database.let_pass("vesting_us")
    found = looked(database, *known, items_max=20).rows
    assert {each.id for each in found} == {
        wanted[pair] for pair in wanted if pair not in {(place.kind, place.priority) for place in known}
    }
    assert database.store.outlook([Queue(ALICE, "queue")], [known]) != [[]]


def test_what_vested_within_the_last_second_is_found_before_a_place_too(database: Database) -> None:
    item_id = database.enqueue()
    assert [each.id for each in looked(database, Stop("mail", 100, 1 << 60)).rows] == [item_id]


def test_entries_of_ended_items_count_as_passed_while_an_older_transaction_is_open(database: Database) -> None:
    with database.connect(autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM fairlead.items")
        for _ in range(30):
            database.enqueue()
        database.let_pass("vesting_us", "vesting_us - 5000000")
        leased = database.lease(items_max=30)
        database.complete(*leased)
        last = database.enqueue()
        place = Stop("mail", 100, max(each.at_us for each in leased))
        assert looked(database, place, items_max=0).passed < 5
        from_front = looked(database)
        assert [each.id for each in from_front.rows] == [last]
        assert from_front.passed >= 30


def test_the_outlook_from_a_place_does_not_say_what_lies_before_it(database: Database) -> None:
    database.enqueue()
    database.let_pass("vesting_us")
    alice = Queue(ALICE, "queue")
    assert database.store.outlook([alice], [[Stop("mail", 100, 2)]]) == [[]]
    ((mail,),) = database.store.outlook([alice], [[Stop("mail", 100, 1)]])
    assert mail.waits


def test_the_reader_sees_each_commit_once_and_a_late_one_too(database: Database) -> None:
    store = database.store
    seen = store.arrivals("1:1:", store.history()).seen
    with database.connect(autocommit=False) as late:
        late.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        database.put(new_item("mail", delay=100), tenant=BOB)
        _, seen, found, _ = store.arrivals(seen, store.history())
        assert [each.queue.tenant for each in found] == [BOB]
        assert 90_000_000 < found[0].in_us <= 100_000_000
        late.commit()
    _, seen, found, _ = store.arrivals(seen, store.history())
    assert [each.queue.tenant for each in found] == [ALICE]
    assert store.arrivals(seen, store.history()).arrivals == []


def test_the_reader_sees_whether_the_doorbell_is_on(database: Database) -> None:
    store = database.store
    for rings in (True, False):
        store.set_doorbell(rings)
        assert store.arrivals("1:1:", store.history()).rings is rings


def test_of_another_history_the_reader_sees_nothing_and_is_told_which_it_is(database: Database) -> None:
    database.enqueue()
    look = database.store.arrivals("1:1:", "another")
    assert (look.history, look.arrivals) == (database.store.history(), [])


def test_whole_numbers_of_more_than_64_bits_come_out_as_floats_and_hold_up_no_other_item(
    database: Database, connection: Any
) -> None:
    sent = f'{{"big": 1{"0" * 30}, "bigger": [-1{"0" * 400}], "most": {(1 << 64) - 1}}}'
    connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail', %s)", [sent])
    database.enqueue("mail", "beside")
    found = [unpack_payload(each.record.payload) for each in database.lease()]
    assert found == [{"big": 1e30, "bigger": [float("-inf")], "most": (1 << 64) - 1}, "beside"]


@pytest.mark.parametrize(
    ("args", "payload"),
    [
        ("1.5e400", float("inf")),
        (f"[{', '.join(['0.5'] * 190_000)}]", [0.5] * 190_000),  # Longer as msgpack than Python would take.
        ("9" * 5_000, None),
        ("[" * 3_000 + "]" * 3_000, None),
    ],
    ids=["beyond all floats", "long", "too many digits", "too deep"],
)
def test_json_that_is_no_payload_fails_its_own_item_only(
    database: Database, connection: Any, args: str, payload: object
) -> None:
    connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail', %s)", [args])
    database.enqueue("mail", "beside")
    strange, beside = database.lease()
    assert unpack_payload(beside.record.payload) == "beside"
    if payload is None:
        with pytest.raises(PayloadDamaged):
            unpack_payload(strange.record.payload)
    else:
        assert unpack_payload(strange.record.payload) == payload


@pytest.mark.parametrize("how", ["requeue", "shorten"])
def test_the_reader_sees_what_vests_earlier_than_before(database: Database, how: str) -> None:
    store = database.store
    database.enqueue()
    (leased,) = database.lease()
    seen = store.arrivals(store.snapshot(), store.history()).seen
    if how == "requeue":
        store.requeue([held(leased)], [0], [leased.record])
    else:
        store.extend([held(leased)], lease_us=1_000)
    assert [each.queue.tenant for each in store.arrivals(seen, store.history()).arrivals] == [ALICE]


def test_a_full_look_names_every_queue_with_items_slice_by_slice(database: Database) -> None:
    for user in "abc":
        for _ in range(3):
            database.put(new_item("mail"), tenant=Tenant("shop", user))
    first = database.store.queues_behind(None, 2)
    rest = database.store.queues_behind(first[-1], 2)
    assert [[each.tenant.user for each in some] for some in (first, rest)] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("'', 'alice', 'mail'", "app is '', and must be text of 1 to 96 bytes"),
        ("'shop', NULL, 'mail'", "tenant is NULL, and must be text of 1 to 96 bytes"),
        ("'shop', 'alice', repeat('k', 97)", "must be text of 1 to 96 bytes"),
        (
            "'shop', 'alice', 'mail', zone => repeat('z', 79)",
            "must be text of 1 to 78 bytes, without control characters",
        ),
        (r"'shop', 'alice', 'mail', zone => E'a\x01b'", "must be text of 1 to 78 bytes, without control characters"),
        ("'shop', 'alice', 'mail', priority => 256", "priority is 256, and must be 0 to 255"),
        ("'shop', 'alice', 'mail', delay_s => -1", "delay_s is -1"),
        ("'shop', 'alice', 'mail', delay_s => 'NaN'", "delay_s is NaN"),
        ("'shop', 'alice', 'mail', unique_for_s => 3", "unique_for_s without an item_id"),
        ("'shop', 'alice', 'mail', '1', '\\x01'", "args and payload are given; give one of them"),
        ("'shop', 'alice', 'mail', item_id => ''", "item_id has 0 bytes, and must have 1 to 1,024"),
        ("'shop', 'alice', 'mail', to_jsonb(repeat('x', 1000000))", "the payload has 1000002 bytes"),
    ],
)
def test_a_wrong_argument_is_named(connection: Any, call: str, says: str) -> None:
    import psycopg

    with pytest.raises(psycopg.Error) as raised:
        connection.execute(f"SELECT fairlead.enqueue({call})")
    assert says in str(raised.value)
