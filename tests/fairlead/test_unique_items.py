"""Items that are unique in the whole application, whichever tenant, queue and shard they are in."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from fairlead import App, BadArgument, Job, Retry
from fairlead.records.accesses import run_op
from fairlead.records.errors import Interrupted, RecordUnreadable, ReservationEnded, Taken
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.unique_items import ItemLocations, ItemTransaction, item_key, pack_unique_key
from fairlead.records.protocol import Protocol
from fairlead.simulation.unique_items.stock import make_dead_letter
from fairlead.testing import drain
from fairlead.unique_items import Reservation
from fairlead.zones.engines import Transaction, transact
from fairlead.zones.errors import NotADeadLetter
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.open_body import NestedTransaction
from fairlead.zones.queue.poison_candidates import POISON
from fairlead.zones.records import ItemRecord, decode, encode
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.fairlead.records_on_shards import SHARDS, on_three_shards
from tests.simulation.races.missing_guards import planted

REPORT = ("report", "2026-11")
TENANTS = [f"shop/{name}" for name in ("alice", "bob", "carol", "dave")]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:

        @made.handler("report", retry=Retry(attempts=1))
        def report(job: Job) -> None:
            if job.payload == "fails":
                raise ValueError("as asked")

        yield made


def test_tenants_live_on_several_shards(app: App) -> None:
    assert len({app.tenant(each).shard.name for each in TENANTS}) > 1


def test_a_key_is_held_by_one_item_of_all_tenants(app: App) -> None:
    handle = app.tenant("shop/alice").enqueue("report", unique_key=REPORT)
    for each in TENANTS:
        with pytest.raises(Taken) as taken:
            app.tenant(each).enqueue("report", unique_key=REPORT)
        assert taken.value.fields == {"field": "unique_key", "value": REPORT}
    assert [app.tenant(each).count() for each in TENANTS] == [{"report": 1}, {}, {}, {}]
    assert app.tenant("shop/alice").peek()[0].id == handle.item_id


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_the_end_of_the_item_frees_the_key_and_leaves_nothing(app: App, end: str) -> None:
    handle = app.tenant("shop/alice").enqueue("report", unique_key=REPORT)
    if end == "cancelled":
        handle.cancel()
    drain(app)
    assert index_rows(app) == {}
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_the_key_is_free_at_once_before_anything_is_cleaned_up(app: App) -> None:
    app.tenant("shop/alice").enqueue("report", unique_key=REPORT).cancel()
    assert index_rows(app) != {}
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    drain(app)
    assert index_rows(app) == {}


def test_a_dead_letter_holds_the_key_until_it_is_discarded(app: App) -> None:
    handle = app.tenant("shop/alice").enqueue("report", "fails", unique_key=REPORT)
    drain(app, raise_errors=False)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    app.tenant("shop/alice").retry_dead_letter(handle.item_id)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    drain(app, raise_errors=False)
    app.tenant("shop/alice").discard_dead_letter(handle.item_id)
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


@pytest.mark.parametrize("place", ["item", "dead letter"])
def test_what_cannot_be_read_may_have_the_key(app: App, place: str) -> None:
    alice = app.tenant("shop/alice")
    handle = alice.enqueue("report", "fails", unique_key=REPORT)
    keys = alice.shard.layout.location(alice.tenant, DEFAULT_ZONE).keys
    if place == "dead letter":
        drain(app, raise_errors=False)
    key = keys.item(handle.item_id) if place == "item" else keys.dead_letter(handle.item_id)
    transact(alice.shard.db, lambda tr: tr.set(key, b"\x7f"))
    with pytest.raises(RecordUnreadable):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_a_reservation_that_cannot_be_read_may_have_the_key(app: App) -> None:
    alice = app.tenant("shop/alice")
    app.reserve("shop/alice", REPORT).__enter__()
    (item,) = alice.peek()
    key = alice.shard.layout.location(alice.tenant, DEFAULT_ZONE).keys.item(item.id)
    transact(alice.shard.db, lambda tr: tr.set(key, b"\x7f"))
    with pytest.raises(RecordUnreadable):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_a_reservation_with_a_damaged_payload_is_ended_as_any_other(app: App) -> None:
    alice = app.tenant("shop/alice")
    reserved = app.reserve("shop/alice", REPORT).__enter__()
    (item,) = alice.peek()
    key = alice.shard.layout.location(alice.tenant, DEFAULT_ZONE).keys.item(item.id)

    def damage(tr: Transaction) -> None:
        record = decode(ItemRecord, tr.get(key).value or b"")
        assert record is not None
        record.payload = b"\xc1"
        tr.set(key, encode(record))

    transact(alice.shard.db, damage)
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    with pytest.raises(Interrupted):
        alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_a_key_stays_taken_for_its_time_after_completion(app: App) -> None:
    app.tenant("shop/alice").enqueue("report", unique_key=REPORT, unique_for=60)
    drain(app)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    app.clock.sleep_us(61_000_000)
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_a_late_cleanup_leaves_a_key_that_stays_taken(app: App) -> None:
    alice = app.tenant("shop/alice")
    item_id = alice.enqueue("report", unique_key=REPORT, unique_for=60).item_id
    drain(app)
    key = item_key(alice.tenant, DEFAULT_ZONE, item_id)
    late = Protocol(ends_at_once=True).clean_op(key, item_id, [pack_unique_key(REPORT)])
    run_op(late, ShardRecords(app.shards, ItemLocations(), None, transaction=ItemTransaction).perform)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_the_index_record_goes_when_the_time_is_over(app: App) -> None:
    app.tenant("shop/alice").enqueue("report", unique_key=REPORT, unique_for=60)
    drain(app)
    assert index_rows(app) != {}
    drain(app, within=120)
    assert index_rows(app) == {}


def test_a_handler_enqueues_its_own_kind_with_a_key(app: App) -> None:
    @app.handler("mail")
    def mail(job: Job) -> None: ...

    mail.enqueue("shop/alice", unique_key="once")
    with pytest.raises(Taken):
        mail.enqueue("shop/bob", unique_key="once")


def test_a_reserved_key_becomes_an_item_if_the_transaction_commits(app: App) -> None:
    alice = app.tenant("shop/alice")

    def work(tr: TenantTransaction) -> None:
        tr.set(("asked",), b"1")
        tr.enqueue("report", reserved=reserved)

    with app.reserve("shop/alice", REPORT) as reserved:
        alice.transact(work)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    assert drain(app, within=120).completed == {"report": 1} or alice.count() == {}
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_a_reservation_without_a_commit_ends_with_its_block(app: App) -> None:
    alice = app.tenant("shop/alice")

    def refuse(tr: TenantTransaction) -> None:
        tr.enqueue("report", reserved=reserved)
        raise ValueError("not today")

    with suppress(ValueError), app.reserve("shop/alice", REPORT) as reserved:
        alice.transact(refuse)
    assert alice.count().get("report") is None
    assert index_rows(app) == {}
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_a_coroutine_reserves_a_key_for_its_transaction(app: App) -> None:
    alice = app.tenant("shop/alice")

    async def story() -> None:
        async with app.reserve("shop/alice", REPORT) as reserved:
            await alice.atransact(lambda tr: tr.enqueue("report", reserved=reserved))
        with pytest.raises(Taken):
            async with app.reserve("shop/bob", REPORT):
                pass
        async with app.reserve("shop/bob", "other"):
            pass
        await app.tenant("shop/carol").aenqueue("report", unique_key="other")

    asyncio.run(story())
    assert (alice.count(), app.tenant("shop/carol").count()) == ({"report": 1}, {"report": 1})


def test_a_coroutine_takes_no_key_in_the_body_of_a_transaction(app: App) -> None:
    def body(_: TenantTransaction) -> None:
        asyncio.run(app.reserve("shop/alice", REPORT).__aenter__())

    with pytest.raises(NestedTransaction):
        app.tenant("shop/alice").transact(body)


def test_a_reservation_of_a_dead_process_ends_by_itself(app: App) -> None:
    app.reserve("shop/alice", REPORT).__enter__()
    drain(app, within=120)
    assert index_rows(app) == {}


def test_whoever_wants_a_reserved_key_ends_the_reservation(app: App) -> None:
    alice = app.tenant("shop/alice")
    with app.reserve("shop/alice", REPORT) as reserved:
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
        with pytest.raises(Interrupted):
            alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))
    with pytest.raises(Taken):
        app.tenant("shop/carol").enqueue("report", unique_key=REPORT)


def test_a_reservation_is_used_once_and_by_its_tenant(app: App) -> None:
    with app.reserve("shop/alice", REPORT) as reserved:
        with pytest.raises(BadArgument):
            app.tenant("shop/bob").transact(lambda tr: tr.enqueue("report", reserved=reserved))
        with pytest.raises(BadArgument):
            app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", reserved=reserved, item_id="mine"))
        app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", reserved=reserved))
        with pytest.raises(ReservationEnded, match="it was used already") as refused:
            app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", reserved=reserved))
    assert isinstance(refused.value, Interrupted)
    assert refused.value.fields == {"unique_key": REPORT}


def test_a_unique_key_is_not_given_to_a_transaction_but_reserved_before_it(app: App) -> None:
    options: dict[str, Any] = {"unique_key": REPORT}
    with pytest.raises(BadArgument, match=r"app\.reserve") as alone:
        app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", **options))
    with pytest.raises(BadArgument, match=r"app\.reserve") as across_shards:
        app.transact(lambda tx: tx.on("shop/alice").enqueue("report", **options))
    for refused in (alone, across_shards):
        assert refused.value.fields["argument"] == "unique_key"


def test_a_reservation_is_given_to_a_transaction_only(app: App) -> None:
    alice = app.tenant("shop/alice")
    with app.reserve("shop/alice", REPORT) as reserved:
        options: dict[str, Any] = {"reserved": reserved}
        with pytest.raises(BadArgument, match=r"tr\.enqueue.*unique_key") as refused:
            alice.enqueue("report", **options)
        with pytest.raises(BadArgument, match=r"tr\.enqueue.*unique_key"):
            asyncio.run(alice.aenqueue("report", **options))
    assert refused.value.fields["argument"] == "reserved"
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize("given", ["x", REPORT])
def test_what_is_no_reservation_is_refused_as_one(app: App, given: Any) -> None:
    with pytest.raises(BadArgument, match=r"with app\.reserve") as refused:
        app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", reserved=given))
    assert (refused.value.fields["argument"], refused.value.fields["value"]) == ("reserved", given)


def test_a_reservation_that_is_entered_again_takes_the_key_anew(app: App) -> None:
    alice = app.tenant("shop/alice")
    reserved = app.reserve("shop/alice", REPORT)
    with suppress(ValueError), reserved:
        raise ValueError("as asked")
    with reserved:
        alice.transact(lambda tr: tr.enqueue("report", delay=3_600, reserved=reserved))
    drain(app)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def retries_the_cleanup_of_a_reservation_that_was_ended(app: App) -> Reservation:
    """Let the worker of a reservation's cleanup item die with it, bob take the key, and an operator retry the item."""
    alice = app.tenant("shop/alice")
    reserved = app.reserve("shop/alice", REPORT).__enter__()
    (cleanup,) = alice.peek()
    zone = alice.shard.zone(alice.tenant)
    alice.shard.transact(lambda attempt: make_dead_letter(zone, attempt, cleanup.id, POISON))
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    with suppress(NotADeadLetter):
        alice.retry_dead_letter(cleanup.id)
    return reserved


def test_a_reservation_that_was_ended_does_not_come_back_with_its_cleanup_item(app: App) -> None:
    reserved = retries_the_cleanup_of_a_reservation_that_was_ended(app)
    with pytest.raises(Interrupted):
        app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_without_the_look_at_its_dead_letter_two_items_have_one_key(app: App) -> None:
    with planted("a reservation whose cleanup item is a dead letter counts as ended"):
        reserved = retries_the_cleanup_of_a_reservation_that_was_ended(app)
        app.tenant("shop/alice").transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_an_item_keeps_its_key_although_a_restore_brings_its_reservation_back(app: App) -> None:
    alice = app.tenant("shop/alice")
    with app.reserve("shop/alice", REPORT) as reserved:
        snapshot = alice.snapshot()
        alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))
    alice.restore(snapshot)
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_a_reservation_that_a_restore_brings_back_is_not_used(app: App) -> None:
    alice = app.tenant("shop/alice")
    with app.reserve("shop/alice", REPORT) as reserved:
        snapshot = alice.snapshot()
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
        alice.restore(snapshot)
        with pytest.raises(Interrupted):
            alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_a_reservation_that_two_restores_take_away_and_bring_back_is_not_used_after_another_had_the_key(
    app: App,
) -> None:
    alice = app.tenant("shop/alice")
    before = alice.snapshot()
    with app.reserve("shop/alice", REPORT) as reserved:
        during = alice.snapshot()
        alice.restore(before)
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
        alice.restore(during)
        with pytest.raises(Interrupted):
            alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_a_reservation_whose_cleanup_was_not_acknowledged_is_not_used_after_a_restore(app: App) -> None:
    """The worker of the cleanup item died before it could complete the item."""
    alice = app.tenant("shop/alice")
    with app.reserve("shop/alice", REPORT) as reserved:
        during = alice.snapshot()
        reserved.__exit__(None, None, None)  # The cleanup item does the same.
        alice.restore(during)
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
        with pytest.raises(Interrupted):
            alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_a_restore_takes_no_reservation_away(app: App) -> None:
    alice = app.tenant("shop/alice")
    before = alice.snapshot()
    with app.reserve("shop/alice", REPORT) as reserved:
        alice.restore(before)
        alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def uses_a_reservation_again_once_its_item_has_ended(app: App) -> None:
    alice = app.tenant("shop/alice")
    with app.reserve("shop/alice", REPORT) as reserved:
        alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))
        drain(app)
        alice.transact(lambda tr: tr.enqueue("report", reserved=reserved))


def test_a_reservation_is_not_used_again_once_its_item_has_ended(app: App) -> None:
    with pytest.raises(Interrupted):
        uses_a_reservation_again_once_its_item_has_ended(app)


def test_without_the_end_of_the_reservation_it_is_used_again(app: App) -> None:
    with planted("a reservation stays when it is used"):
        uses_a_reservation_again_once_its_item_has_ended(app)


def dies_as_it_gives_a_key_up(app: App) -> None:
    """Reserve a key, and die between the end of the reservation and that of its index record."""
    app.reserve("shop/alice", REPORT).__enter__()
    (reservation,) = app.tenant("shop/alice").peek()
    payload = reservation.payload
    clean = Protocol(ends_at_once=True).clean_op(payload["key"], payload["generation"], payload["keys"])
    records = ShardRecords(app.shards, ItemLocations(), None, transaction=ItemTransaction)
    read = records.perform(next(clean))
    assert records.perform(clean.send(read)) == [True]
    drain(app, within=120)


def test_a_process_that_dies_as_it_gives_a_key_up_leaves_nothing(app: App) -> None:
    dies_as_it_gives_a_key_up(app)
    assert index_rows(app) == {}


def test_without_the_item_that_deletes_it_the_index_record_stays(app: App) -> None:
    with planted("the end of a reservation leaves its index record to nobody"):
        dies_as_it_gives_a_key_up(app)
    assert index_rows(app) != {}


def test_an_item_keeps_its_key_while_its_tenant_moves(app: App) -> None:
    alice = app.tenant("shop/alice")
    alice.enqueue("report", unique_key=REPORT, delay=60)
    to = next(name for name in SHARDS if name != alice.find().name)
    app.move("shop/alice", to=to)
    drain(app)
    assert alice.find().name == to
    with pytest.raises(Taken):
        app.tenant("shop/bob").enqueue("report", unique_key=REPORT)
    drain(app, within=200)
    app.tenant("shop/bob").enqueue("report", unique_key=REPORT)


def test_of_many_threads_one_gets_the_key(app: App) -> None:
    def enqueue(number: int) -> bool:
        while True:
            try:
                app.tenant(TENANTS[number % len(TENANTS)]).enqueue("report", unique_key=REPORT)
            except Taken:
                return False
            except Interrupted:
                continue
            return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(enqueue, range(32))) == 1


@pytest.mark.parametrize("key", ["", b"", (), 1.5, True, ("a", None), ["a"], "x" * 20_000, ("\ud800",)])
def test_what_is_no_key_is_refused(app: App, key: Any) -> None:
    with pytest.raises(BadArgument):
        app.tenant("shop/alice").enqueue("report", unique_key=key)
    with pytest.raises(BadArgument):
        app.reserve("shop/alice", key)


def test_a_named_item_and_a_local_one_have_no_unique_key(app: App) -> None:
    with pytest.raises(BadArgument):
        app.tenant("shop/alice").enqueue("report", unique_key=REPORT, item_id="mine")
    with pytest.raises(BadArgument):
        app.local("report").enqueue("report", unique_key=REPORT)


def test_a_key_is_not_claimed_in_the_body_of_a_transaction(app: App) -> None:
    alice = app.tenant("shop/alice")
    with pytest.raises(NestedTransaction):
        alice.transact(lambda _: alice.enqueue("report", unique_key=REPORT))


def index_rows(app: App) -> dict[Any, bytes]:
    """Return the index records in the slot of the key."""
    slot = ItemLocations().index_tenant(pack_unique_key(REPORT))
    return app.tenant(slot).transact(lambda tr: dict(tr.get_range()))
