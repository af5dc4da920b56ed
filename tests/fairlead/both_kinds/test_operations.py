"""What applications do with items: the same in a tenant's shard as in an external store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead import (
    App,
    BadArgument,
    EnqueueStatus,
    Handle,
    ItemFailed,
    ItemGone,
    Job,
    NoResult,
    NotADeadLetter,
    PayloadTooLarge,
    PermanentError,
    ResultPending,
    State,
    new_item,
)
from fairlead.zones.workflow.cancellation import CancelOutcome
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.live_consumers import Gate, consumer, eventually


def wait_until_leased(alice: Queues) -> None:
    """Wait until a worker has an item."""
    eventually(lambda: [each.state for each in alice.peek()] == [State.LEASED])


# --- Enqueue, look, cancel ---


def test_an_item_is_seen_as_it_was_enqueued(alice: Queues) -> None:
    made = alice.enqueue("mail", {"to": ["a", 1, None, b"\x00"]}, item_id="order 7", priority=7)
    (seen,) = alice.peek()
    assert (seen.id, seen.given_id, seen.tenant, seen.zone) == (made.item_id, "order 7", ("shop", "alice"), "queue")
    assert (seen.kind, seen.payload, seen.priority) == ("mail", {"to": ["a", 1, None, b"\x00"]}, 7)
    assert (seen.state, seen.error_count, seen.shard) == (State.VESTED, 0, "main")


def test_peek_shows_items_by_priority_and_time_and_all_or_those_that_have_vested(alice: Queues) -> None:
    alice.enqueue("mail", "later", delay=3600)
    alice.enqueue("mail", "first", priority=1)
    alice.enqueue("fax", "second")
    alice.enqueue("mail", "third")
    assert [each.payload for each in alice.peek()] == ["first", "second", "third", "later"]
    assert [each.payload for each in alice.peek(vested_only=True)] == ["first", "second", "third"]
    assert [each.payload for each in alice.peek(2)] == ["first", "second"]
    assert [each.state for each in alice.peek()][-1] is State.DELAYED


def test_items_are_counted_by_kind_in_their_own_zone(alice: Queues) -> None:
    for priority in (1, 2):
        alice.enqueue("mail", priority=priority)
    alice.enqueue("fax", delay=60)
    alice.enqueue("fax", zone="slow")
    assert (alice.count(), alice.count(zone="slow"), alice.count(zone="none")) == (
        {"mail": 2, "fax": 1},
        {"fax": 1},
        {},
    )


def test_a_second_enqueue_of_an_id_changes_nothing(alice: Queues) -> None:
    first = alice.enqueue("mail", 1, item_id="order 7")
    second = alice.enqueue("mail", 2, item_id="order 7")
    assert (first.status, second.status) == (EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT)
    assert first.item_id == second.item_id
    assert [each.payload for each in alice.peek()] == [1]


def test_many_items_are_answered_in_order_and_stay_in_order(alice: Queues) -> None:
    made = alice.enqueue_many(new_item("mail", number, item_id=f"order {number % 600}") for number in range(700))
    assert [each.status for each in made] == [EnqueueStatus.ENQUEUED] * 600 + [EnqueueStatus.PRESENT] * 100
    assert made[0].item_id == made[600].item_id
    unnamed = alice.enqueue_many((new_item("mail", number) for number in range(100)), zone="other")
    assert len({each.item_id for each in unnamed}) == 100
    assert [each.payload for each in alice.peek(100, zone="other")] == list(range(100))


@pytest.mark.parametrize("item_id", ["order 7", b"order 7", b"sixteen bytes id"])
def test_an_item_is_cancelled_by_the_id_that_it_was_given(alice: Queues, item_id: str | bytes) -> None:
    alice.enqueue("mail", item_id=item_id)
    assert alice.cancel(item_id) is CancelOutcome.DELETED
    assert alice.count() == {}
    with pytest.raises(ItemGone) as raised:
        alice.cancel(item_id)
    assert raised.value.fields["zone"] == "queue"
    assert alice.enqueue("mail", item_id=item_id).status is EnqueueStatus.ENQUEUED


def test_an_item_is_cancelled_by_its_id_and_by_its_handle(alice: Queues) -> None:
    handles = [alice.enqueue("mail", item_id="order 7", unique_for=60), alice.enqueue("mail")]
    alice.cancel(handles[0].item_id)
    handles[1].cancel()
    assert alice.count() == {}
    assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.ENQUEUED


def test_an_item_of_another_tenant_or_zone_is_not_cancelled(alice: Queues, bob: Queues) -> None:
    made = alice.enqueue("mail", item_id="order 7")
    for cancel in (
        lambda: bob.cancel(made.item_id),
        lambda: bob.cancel("order 7"),
        lambda: alice.cancel(made.item_id, zone="other"),
    ):
        with pytest.raises(ItemGone):
            cancel()
    assert alice.count() == {"mail": 1}


@pytest.mark.parametrize("item_id", [None, 7, "\ud800", ["order 7"]])
def test_what_is_no_id_is_refused(alice: Queues, item_id: Any) -> None:
    for refuses in (alice.cancel, alice.retry_dead_letter, alice.discard_dead_letter, alice.item):
        with pytest.raises(BadArgument, match="item_id"):
            refuses(item_id)


@pytest.mark.parametrize("items_max", [0, -1, 100_001])
def test_a_peek_of_none_or_too_many_items_is_refused(alice: Queues, items_max: int) -> None:
    with pytest.raises(BadArgument, match="items_max"):
        alice.peek(items_max)


def test_a_payload_that_is_too_large_is_refused(alice: Queues) -> None:
    with pytest.raises(PayloadTooLarge):
        alice.enqueue("mail", "x" * 1_000_001)
    assert alice.count() == {}


def test_a_large_payload_comes_back(app: App, alice: Queues) -> None:
    app.handler("mail", keep_result=60)(lambda job: len(job.payload))
    handle = alice.enqueue("mail", "x" * 900_000)
    assert [len(each.payload) for each in alice.peek()] == [900_000]
    with consumer(app):
        assert handle.result(30) == 900_000


# --- Results ---


def test_a_result_is_read_by_the_handle_of_the_enqueue_and_by_others(app: App, alice: Queues) -> None:
    @app.handler("square", keep_result=60)
    def square(job: Job) -> int:
        return int(job.payload) ** 2

    handle = alice.enqueue("square", 7, item_id="seven")
    with pytest.raises(ResultPending):
        handle.result(0)
    with consumer(app):
        results = [each.result(30) for each in (handle, alice.item("seven"), alice.item(handle.item_id))]
    assert results == [49, 49, 49]


def test_a_coroutine_awaits_a_result(app: App, alice: Queues) -> None:
    app.handler("mail", keep_result=60)(lambda job: "sent")

    async def mail() -> Any:
        handle: Handle[Any] = await alice.aenqueue("mail")
        with pytest.raises(ResultPending):
            await handle.aresult(0.01)
        with consumer(app):
            return await handle.aresult(30)

    assert asyncio.run(mail()) == "sent"


def test_an_item_without_a_result_has_none(app: App, alice: Queues) -> None:
    app.handler("mail")(lambda job: "sent")
    handle = alice.enqueue("mail")
    with consumer(app):
        eventually(lambda: alice.count() == {})
        with pytest.raises(NoResult):
            handle.result(1)


def test_a_kept_result_takes_no_id(app: App, alice: Queues) -> None:
    """The id of an item is free once the item has ended, also while its result is kept; the next item clears that."""
    app.handler("mail", keep_result=60)(lambda job: job.payload)
    with consumer(app):
        assert alice.enqueue("mail", 1, item_id="order 7").result(30) == 1
    again = alice.enqueue("mail", 2, item_id="order 7")
    assert again.status is EnqueueStatus.ENQUEUED
    with pytest.raises(ResultPending):
        again.result(0)
    with consumer(app):
        assert again.result(30) == 2


def test_an_id_stays_taken_for_as_long_as_was_asked(app: App, alice: Queues) -> None:
    app.handler("mail", keep_result=1)(lambda job: "sent")
    with consumer(app):
        assert alice.enqueue("mail", item_id="order 7", unique_for=60).result(30) == "sent"
    assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.COMPLETED


# --- Cancelled while it runs ---


def test_a_handler_learns_that_its_item_was_cancelled(app: App, alice: Queues) -> None:
    ended: list[bool] = []

    @app.handler("long")
    def long(job: Job) -> None:
        Gate()(job)
        ended.append(job.cancelled)

    handle = alice.enqueue("long")
    with consumer(app):
        wait_until_leased(alice)
        handle.cancel()
        eventually(lambda: ended == [True])
    assert (alice.count(), alice.dead_letters()) == ({}, [])


# --- Dead letters ---


def dead_letter_of(app: App, alice: Queues, **options: Any) -> Handle[Any]:
    """Enqueue an item whose handler fails for good; return its handle once it is a dead letter."""
    if "mail" not in app.registry.handlers:

        @app.handler("mail")
        def mail(job: Job) -> None:
            raise PermanentError("no such address")

    handle = alice.enqueue("mail", "x" * 20_000, **options)
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) > 0)
    return handle


def test_a_dead_letter_is_shown_with_its_error(app: App, alice: Queues) -> None:
    handle = dead_letter_of(app, alice, item_id="order 7")
    (found,) = alice.dead_letters()
    assert (found.id, found.given_id, found.reason) == (handle.item_id, "order 7", "error")
    assert (found.error, found.error_count, found.payload) == ("PermanentError: no such address", 1, "x" * 20_000)
    assert "raise PermanentError" in found.traceback
    assert found.enqueued_us <= found.dead_lettered_us
    assert alice.count() == {}
    with pytest.raises(ItemFailed) as raised:
        handle.result(0)
    assert raised.value.fields["dead_letter"] is True
    assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.DEAD_LETTER


def test_a_dead_letter_is_retried_with_all_its_attempts(app: App, alice: Queues) -> None:
    handle = dead_letter_of(app, alice, item_id="order 7")
    alice.retry_dead_letter("order 7")
    assert alice.dead_letters() == []
    (again,) = alice.peek()
    assert (again.id, again.state, again.error_count, again.payload) == (handle.item_id, State.VESTED, 0, "x" * 20_000)
    with pytest.raises(NotADeadLetter):
        alice.retry_dead_letter("order 7")
    with consumer(app):
        eventually(lambda: len(alice.dead_letters()) == 1)


def test_a_dead_letter_is_discarded_for_good(app: App, alice: Queues) -> None:
    handle = dead_letter_of(app, alice, item_id="order 7")
    alice.discard_dead_letter(handle.item_id)
    assert (alice.dead_letters(), alice.count()) == ([], {})
    for refuses in (alice.retry_dead_letter, alice.discard_dead_letter):
        with pytest.raises(NotADeadLetter):
            refuses("order 7")
    assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.ENQUEUED


def test_a_dead_letter_is_cancelled_by_force_alone(app: App, alice: Queues) -> None:
    dead_letter_of(app, alice, item_id="order 7")
    with pytest.raises(ItemGone):
        alice.cancel("order 7")
    assert alice.cancel("order 7", force=True) is CancelOutcome.DELETED
    assert alice.dead_letters() == []


def test_operators_are_named_in_the_audit_log(app: App, alice: Queues) -> None:
    dead_letter_of(app, alice, item_id="order 7")
    by = app.operator
    alice.retry_dead_letter("order 7", by=by)
    alice.cancel("order 7", by=by)
    entries = [each.audit_entry.what for each in audit_entries(app)]
    assert sorted(entries) == ["cancel", "retry"]


def audit_entries(app: App) -> Any:
    """Return the entries of the audit log."""
    from fairlead.zones.reporting import audit_log

    return app.shards["main"].transact(lambda attempt: audit_log.latest(attempt.tr, entries_max=10))
