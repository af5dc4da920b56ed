"""The first steps of a user: transactions that enqueue, handlers, many items at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

import fairlead
from fairlead import (
    App,
    BadArgument,
    Config,
    DuplicateHandler,
    EnqueueStatus,
    ItemGone,
    Job,
    NoShards,
    NotADeadLetter,
    NotTransactional,
    PayloadNotData,
    PayloadTooLarge,
    PermanentError,
    State,
    TenantDatabase,
    TenantTransaction,
    UnknownShard,
    new_item,
)
from fairlead.argument_checks import UnknownKind
from fairlead.bulk_enqueue import BATCH_BYTES, BATCH_ITEMS
from fairlead.testing import ManualClock, drain

YEAR_S = 365 * 24 * 3600


# --- Transactions ---


def test_an_order_and_its_receipt_are_there_both_or_neither(alice: TenantDatabase) -> None:
    def order(tr: TenantTransaction) -> None:
        tr.set(("order", 7), b"paid")
        tr.enqueue("receipt", {"order": 7})

    def failing_order(tr: TenantTransaction) -> None:
        order(tr)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        alice.transact(failing_order)
    assert (alice.transact(lambda tr: tr.get(("order", 7))), alice.count()) == (None, {})
    alice.transact(order)
    assert (alice.transact(lambda tr: tr.get(("order", 7))), alice.count()) == (b"paid", {"receipt": 1})


def test_what_a_body_enqueues_is_there_once_however_often_it_runs(app: App, alice: TenantDatabase) -> None:
    runs = []

    def order(tr: TenantTransaction) -> None:
        runs.append(1)
        tr.get(("order", 7))
        tr.enqueue("receipt")
        if len(runs) == 1:
            alice.transact(lambda other: other.set(("order", 7), b"by another"))
        tr.set(("order", 8), b"paid")

    alice.transact(order)
    assert len(runs) == 2
    assert alice.count() == {"receipt": 1}


def test_tenants_do_not_see_each_other(app: App, alice: TenantDatabase) -> None:
    bob = app.tenant("shop", "bob")
    alice.transact(lambda tr: tr.set(("k",), b"alice"))
    alice.enqueue("mail")
    assert bob.transact(lambda tr: list(tr.get_range())) == []
    assert (bob.count(), bob.peek()) == ({}, [])


# --- Items ---


def test_an_item_comes_back_as_it_was_enqueued(app: App, alice: TenantDatabase) -> None:
    made = alice.enqueue("mail", {"to": "x"}, item_id="order 7", priority=7, delay=5)
    (item,) = alice.peek()
    assert (item.id, item.given_id, item.kind, item.payload) == (made.item_id, "order 7", "mail", {"to": "x"})
    assert (item.priority, item.state, item.vesting_us - item.enqueued_us) == (7, State.DELAYED, 5_000_000)
    assert (item.shard, item.tenant, item.zone) == ("main", ("shop", "alice"), "queue")
    assert alice.peek(vested_only=True) == []


def test_a_second_enqueue_of_an_id_changes_nothing_and_says_so(alice: TenantDatabase) -> None:
    first = alice.enqueue("mail", 1, item_id="order 7")
    again = alice.enqueue("mail", 2, item_id="order 7")
    assert (first.status, again.status) == (EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT)
    assert [item.payload for item in alice.peek()] == [1]


def test_the_id_of_an_item_that_completed_long_ago_is_free_again(app: App, alice: TenantDatabase) -> None:
    app.handler("mail")(lambda job: None)
    for _ in range(2):
        assert alice.enqueue("mail", item_id="order 7", unique_for=60).status is EnqueueStatus.ENQUEUED
        drain(app)
        assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.COMPLETED
        assert isinstance(app.clock, ManualClock)
        app.clock.advance(61)


def test_a_zone_of_another_name_is_a_queue_of_its_own(alice: TenantDatabase) -> None:
    alice.enqueue("mail", zone="slow")
    assert (alice.count(), alice.count(zone="slow")) == ({}, {"mail": 1})


def test_a_cancelled_item_is_gone_and_cannot_be_cancelled_again(alice: TenantDatabase) -> None:
    made = alice.enqueue("mail")
    alice.enqueue("mail", item_id="order 7")
    alice.cancel(made.item_id)
    alice.cancel("order 7")
    assert alice.count() == {}
    with pytest.raises(ItemGone):
        alice.cancel("order 7")


def test_a_dead_letter_is_read_retried_and_discarded(app: App, alice: TenantDatabase) -> None:
    fail = [True]

    @app.handler("mail")
    def send(job: Job) -> None:
        if fail[0]:
            raise PermanentError("no such address")

    alice.enqueue("mail", "x" * 20_000, item_id="order 7")
    drain(app, raise_errors=False)
    (found,) = alice.dead_letters()
    assert (found.given_id, found.reason, found.error) == ("order 7", "error", "PermanentError: no such address")
    assert found.payload == "x" * 20_000
    assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.DEAD_LETTER
    alice.retry_dead_letter("order 7")
    assert (alice.dead_letters(), alice.count()) == ([], {"mail": 1})
    drain(app, raise_errors=False)
    fail[0] = False
    alice.retry_dead_letter(found.id)
    assert drain(app).completed == {"mail": 1}
    for operation in (alice.retry_dead_letter, alice.discard_dead_letter):
        with pytest.raises(NotADeadLetter):
            operation("order 7")


def test_a_discarded_item_leaves_nothing_behind(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail")
    def send(job: Job) -> None:
        raise PermanentError

    alice.enqueue("mail", "x" * 20_000, item_id="order 7")
    drain(app, raise_errors=False)
    alice.discard_dead_letter("order 7")
    assert alice.dead_letters() == []
    assert alice.enqueue("mail", item_id="order 7").status is EnqueueStatus.ENQUEUED


# --- Many items ---


def test_many_items_of_many_tenants_are_answered_in_order(app: App) -> None:
    made = app.enqueue_many(
        (app.tenant("shop", f"user {number % 5}"), new_item("mail", number, item_id=f"order {number // 2}"))
        for number in range(20)
    )
    assert [each.status for each in made[:2]] == [EnqueueStatus.ENQUEUED, EnqueueStatus.ENQUEUED]
    assert len({each.item_id for each in made}) == 10
    assert sum(sum(app.tenant("shop", f"user {number}").count().values()) for number in range(5)) == 20


def test_an_id_that_comes_twice_in_a_batch_is_present_the_second_time(app: App, alice: TenantDatabase) -> None:
    made = alice.enqueue_many([new_item("mail", number, item_id="order 7") for number in range(3)])
    assert [each.status.value for each in made] == ["enqueued", "present", "present"]
    assert ([item.payload for item in alice.peek()], alice.count()) == ([0], {"mail": 1})


def test_a_large_number_of_items_goes_in_batches(app: App, alice: TenantDatabase) -> None:
    count = 2 * BATCH_ITEMS + 7
    made = alice.enqueue_many(new_item("mail", number) for number in range(count))
    assert len({each.item_id for each in made}) == count
    assert alice.count() == {"mail": count}


def test_large_payloads_go_in_smaller_batches(alice: TenantDatabase) -> None:
    """A transaction has a size limit; eleven megabytes do not fit one."""
    alice.enqueue_many(new_item("mail", bytes(BATCH_BYTES - 1_000)) for _ in range(11))
    assert alice.count() == {"mail": 11}


def test_each_shard_gets_its_tenants_in_one_call() -> None:
    app = App({"eu": "memory:", "us": "memory:"}, clock=ManualClock(), random=Random(1))
    tenants = [app.tenant("shop", f"user {number}") for number in range(30)]
    made = app.enqueue_many((tenant, new_item("mail", number)) for number, tenant in enumerate(tenants))
    assert [tenant.peek()[0].id for tenant in tenants] == [each.item_id for each in made]
    assert {tenant.peek()[0].shard for tenant in tenants} == {"eu", "us"}


# --- Local items ---


def test_local_items_of_a_kind_wait_together_without_a_tenant(app: App) -> None:
    seen = []
    app.handler("sweep")(lambda job: seen.append((job.tenant, job.payload)))
    app.enqueue_local("sweep", 1)
    assert app.local("sweep").count() == {"sweep": 1}
    drain(app)
    assert seen == [(("", "sweep"), 1)]


def test_a_local_item_can_be_put_on_one_shard_or_on_all() -> None:
    app = App({"eu": "memory:", "us": "memory:"}, clock=ManualClock())
    app.enqueue_local("sweep", shard="us")
    assert (app.local("sweep", shard="eu").count(), app.local("sweep", shard="us").count()) == ({}, {"sweep": 1})
    assert set(app.enqueue_everywhere("sweep", item_id="today")) == {"eu", "us"}
    assert app.enqueue_everywhere("sweep", item_id="today")["eu"].status is EnqueueStatus.PRESENT
    assert (app.local("sweep", shard="eu").count(), app.local("sweep", shard="us").count()) == (
        {"sweep": 1},
        {"sweep": 2},
    )
    with pytest.raises(UnknownShard) as caught:
        app.enqueue_local("sweep", shard="asia")
    assert caught.value.fields["known"] == ["eu", "us"]


# --- Handlers ---


def test_a_kind_takes_one_handler(app: App) -> None:
    app.handler("mail")(print)
    with pytest.raises(DuplicateHandler, match="mail"):
        app.handler("mail")(repr)
    with pytest.raises(DuplicateHandler):
        app.every(60, kind="mail")(repr)


def test_type_checkers_refuse_handlers_and_hooks_that_take_something_else(app: App) -> None:
    """Each `type: ignore` is an expectation: mypy reports one that is unused."""

    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(BadArgument):
        app.handler("two numbers")(add)  # type: ignore[arg-type]

    @app.every(60)  # type: ignore[arg-type]
    def tick(number: int) -> None: ...

    @app.on_failure  # type: ignore[type-var]
    def report(job: Job) -> None: ...

    @app.handler("transactional", transactional=True)
    def charge(job: Job, tr: TenantTransaction) -> None: ...

    assert [each.kind for each in app.registry] == ["tick", "transactional"]


async def _async(job: Job) -> None: ...


def test_only_a_plain_function_can_be_transactional(app: App) -> None:
    with pytest.raises(NotTransactional):
        app.handler("mail", transactional=True)(_async)
    assert list(app.registry) == []


@pytest.mark.parametrize("at", ["24:00", "3:60", "noon", "", "12", "-1:00"])
def test_a_time_of_day_that_is_none_is_refused(app: App, at: str) -> None:
    with pytest.raises(BadArgument, match="HH:MM"):
        app.daily(at)


def test_a_daily_item_comes_at_its_time_in_utc(app: App) -> None:
    seen = []

    @app.daily("03:30")
    def report(job: Job) -> None:
        seen.append(datetime.fromtimestamp(job.payload["tick_us"] / 1e6, UTC))

    drain(app)
    drain(app, within=timedelta(hours=48))
    assert [(time.hour, time.minute) for time in seen] == [(3, 30), (3, 30)]


def test_an_outage_makes_one_tick_of_many(app: App) -> None:
    seen = []
    app.every(3600, kind="sweep")(lambda job: seen.append(job.payload["collapsed"]))
    drain(app)
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(timedelta(hours=10))
    drain(app)
    assert seen == [9]


def test_a_periodic_item_is_one_item_on_however_many_shards() -> None:
    app = App(dict.fromkeys(("eu", "us", "asia"), "memory:"), clock=ManualClock())
    seen = []
    app.every(60, kind="sweep")(lambda job: seen.append(job.shard_name))
    drain(app)
    drain(app, within=120)
    assert len(seen) == 2


# --- Bad input changes nothing ---


@pytest.mark.parametrize(
    "names",
    [("", "alice"), ("shop", ""), ("x" * 97, "alice"), ("shop", 7), ("shop", b"a"), ("a\0b", "c")],
)
def test_a_tenant_has_two_names_of_text(app: App, names: tuple[Any, Any]) -> None:
    with pytest.raises(BadArgument, match="1 to 96 bytes"):
        app.tenant(*names)


@pytest.mark.parametrize(
    "enqueue, error",
    [
        (lambda tenant: tenant.enqueue("mail", object()), PayloadNotData),
        (lambda tenant: tenant.enqueue("mail", {"when": {1, 2}}), PayloadNotData),
        (lambda tenant: tenant.enqueue("mail", 2**70), PayloadNotData),
        (lambda tenant: tenant.enqueue("mail", bytes(1_000_001)), PayloadTooLarge),
        (lambda tenant: tenant.enqueue("mail", delay=-1), BadArgument),
        (lambda tenant: tenant.enqueue("mail", delay=10 * YEAR_S + 1), BadArgument),
        (lambda tenant: tenant.enqueue("mail", delay="1"), BadArgument),
        (lambda tenant: tenant.enqueue("mail", priority=256), BadArgument),
        (lambda tenant: tenant.enqueue(""), BadArgument),
        (lambda tenant: tenant.enqueue("mail", item_id=""), BadArgument),
        (lambda tenant: tenant.enqueue("mail", zone=""), BadArgument),
        (lambda tenant: tenant.transact(lambda tr: tr.set("key", b"v")), BadArgument),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    alice: TenantDatabase, enqueue: Callable[[TenantDatabase], object], error: type[Exception]
) -> None:
    alice.enqueue("mail", "before")
    with pytest.raises(error):
        enqueue(alice)
    assert [item.payload for item in alice.peek()] == ["before"]


@pytest.mark.usefixtures("empty_directory")
def test_an_application_without_a_store_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    with pytest.raises(NoShards):
        App().tenant("shop", "alice")


def test_every_public_name_exists_and_is_listed_once() -> None:
    assert len(fairlead.__all__) == len(set(fairlead.__all__))
    assert all(hasattr(fairlead, name) for name in fairlead.__all__)


def test_every_public_error_says_what_to_do() -> None:
    errors = [getattr(fairlead, name) for name in fairlead.__all__]
    classes = [each for each in errors if isinstance(each, type) and issubclass(each, fairlead.QueueError)]
    silent = [each.__name__ for each in classes if each is not fairlead.QueueError and "Do: " not in str(each.__doc__)]
    assert len(classes) > 15
    assert silent == []


def test_a_tenant_from_before_the_application_was_configured_lives_where_the_application_does() -> None:
    """A module may keep one, and the command line configures the application after the module was imported."""
    app = App("memory:")
    alice = app.tenant("shop", "alice")
    alice.enqueue("mail")
    app.configure(Config(shards={"other": "memory:"}))
    assert alice.shard is app.shards["other"]
    assert alice.count() == {}
    app.close()


@pytest.mark.parametrize("way", ["enqueue", "many", "transact", "local"])
def test_an_application_may_take_known_kinds_only(way: str) -> None:
    app = App("memory:", known_kinds_only=True, clock=ManualClock(), random=Random(3))
    app.handler("receipt")(lambda job: None)
    alice = app.tenant("shop", "alice")
    ways: dict[str, Callable[[], object]] = {
        "enqueue": lambda: alice.enqueue("recipt"),
        "many": lambda: app.enqueue_many([(alice, new_item("receipt")), (alice, new_item("recipt"))]),
        "transact": lambda: alice.transact(lambda tr: tr.enqueue("recipt")),
        "local": lambda: app.enqueue_local("recipt"),
    }
    with pytest.raises(UnknownKind) as refused:
        ways[way]()
    assert refused.value.fields == {"kind": "recipt", "nearest": "receipt"}
    assert alice.count() == {}
    app.handler("later")(lambda job: None)
    alice.enqueue("later")
    assert alice.count() == {"later": 1}
