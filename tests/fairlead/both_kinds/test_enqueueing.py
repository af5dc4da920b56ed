"""Every way to enqueue, and every option of an item; and what is refused of an item in PostgreSQL, with the reason."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from fairlead import App, BadArgument, EnqueueStatus, Job, PayloadNotData, TenantDatabase, UnknownKind, new_item
from fairlead.external_queues import ExternalQueues, NoWorkflow
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.live_consumers import consumer, eventually
from tests.zones.postgresql.database import Database


@contextmanager
def transaction(store: str | None, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Yield the options of an enqueue where the items lie: `within` an open transaction of the database."""
    if store is None:
        yield {}
        return
    database: Database = request.getfixturevalue("database")
    with database.connect() as connection, connection.transaction():
        yield {"within": connection}


def test_a_handler_enqueues_its_own_items(
    app: App, alice: Queues, store: str | None, request: pytest.FixtureRequest
) -> None:
    @app.handler("mail", keep_result=60)
    def mail(job: Job) -> str:
        return f"sent to {job.payload}"

    with transaction(store, request) as where:
        handle = mail.enqueue("shop/alice", "bob", item_id="order 7", **where)
    assert (handle.status, alice.count()) == (EnqueueStatus.ENQUEUED, {"mail": 1})
    with consumer(app):
        assert handle.result(30) == "sent to bob"


def test_items_of_many_tenants_are_enqueued_in_one_call(
    app: App, alice: Queues, bob: Queues, store: str | None, request: pytest.FixtureRequest
) -> None:
    item = new_item("mail", item_id="order 7")
    with transaction(store, request) as where:
        made = app.enqueue_many([("shop/alice", item), ("shop/bob", item), ("shop/alice", item)], **where)
    assert [each.status.value for each in made] == ["enqueued", "enqueued", "present"]
    assert (alice.count(), bob.count()) == ({"mail": 1}, {"mail": 1})


def test_coroutines_enqueue_one_item_and_many_and_cancel_one(alice: Queues) -> None:
    """Before, the coroutines `aenqueue_many` and `acancel` were those of an external store only."""

    async def enqueue_and_cancel() -> list[Any]:
        one = await alice.aenqueue("mail", zone="slow")
        many = await alice.aenqueue_many([new_item("mail")] * 2, zone="slow")
        await alice.acancel(one.item_id, zone="slow")
        return [one.status, *(each.status for each in many)]

    assert asyncio.run(enqueue_and_cancel()) == [EnqueueStatus.ENQUEUED] * 3
    assert (alice.count(zone="slow"), alice.count()) == ({"mail": 2}, {})


def test_queues_in_a_store_have_the_methods_of_those_in_a_shard_with_the_same_arguments() -> None:
    def arguments(of: type, name: str) -> set[str]:
        return set(inspect.signature(getattr(of, name)).parameters) - {"within", "unique_key"}

    methods = [name for name, _ in inspect.getmembers(ExternalQueues, inspect.isfunction) if not name.startswith("_")]
    methods.remove("enqueued")  # What an enqueue here and one by `TenantDatabase` have in common.
    differ = [name for name in methods if arguments(ExternalQueues, name) != arguments(TenantDatabase, name)]
    assert (differ, "dead_letters" in methods) == ([], True)


def test_items_run_by_priority_and_then_in_the_order_in_which_they_came(app: App, alice: Queues) -> None:
    ran: list[Any] = []
    app.handler("mail", max_running=1)(lambda job: ran.append(job.payload))
    for payload, priority in (("third", 100), ("fourth", 100), ("last", 255), ("first", 0), ("second", 1)):
        alice.enqueue("mail", payload, priority=priority)
    with consumer(app):
        eventually(lambda: len(ran) == 5)
    assert ran == ["first", "second", "third", "fourth", "last"]


def test_a_delayed_item_runs_once_its_delay_is_over_and_holds_up_no_other(app: App, alice: Queues) -> None:
    ran: list[tuple[Any, int]] = []
    app.handler("mail")(lambda job: ran.append((job.payload, app.clock.now_us())))
    begun_us = app.clock.now_us()
    alice.enqueue("mail", "later", delay=timedelta(seconds=1.5))
    alice.enqueue("mail", "now")
    with consumer(app):
        eventually(lambda: len(ran) == 2)
    assert [payload for payload, _ in ran] == ["now", "later"]
    assert ran[1][1] - begun_us >= 1_400_000  # The clocks of two machines are compared.


def test_the_queues_of_a_tenant_are_apart(app: App, alice: Queues) -> None:
    app.handler("mail", keep_result=60)(lambda job: job.zone)
    handles = [alice.enqueue("mail", item_id="order 7", zone=zone) for zone in ("queue", "slow")]
    assert alice.count() == alice.count(zone="slow") == {"mail": 1}
    with consumer(app):
        assert [each.result(30) for each in handles] == ["queue", "slow"]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"priority": 256}, "priority"),
        ({"delay": -1}, "delay"),
        ({"unique_for": 60}, "unique_for"),
        ({"item_id": ""}, "item_id"),
        ({"zone": ""}, "zone"),
    ],
)
def test_an_option_that_is_out_of_range_is_refused(alice: Queues, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(BadArgument) as refused:
        alice.enqueue("mail", **options)
    assert refused.value.fields["argument"] == argument
    assert alice.count() == {}


def test_a_payload_that_is_no_data_is_refused(alice: Queues) -> None:
    with pytest.raises(PayloadNotData):
        alice.enqueue("mail", {1, 2})


def test_a_kind_without_a_handler_is_refused_where_that_is_asked_for(app: App, store: str | None) -> None:
    strict = App(config=app.config, known_kinds_only=True)
    strict.handler("mail")(lambda job: None)
    tenant: Any = strict.tenant("shop", "alice")
    queues: Queues = tenant if store is None else tenant.external(store)
    assert queues.enqueue("mail").status is EnqueueStatus.ENQUEUED
    with pytest.raises(UnknownKind):
        queues.enqueue("fax")
    strict.close()


# --- What only items in shards have ---


@pytest.mark.parametrize("store", ["pg"])
@pytest.mark.parametrize("option", ["keys", "unique_key"])
def test_keys_are_refused_in_postgresql_with_the_reason(
    alice: Queues, database: Database, app: App, option: str
) -> None:
    value = {"order": 7} if option == "keys" else "order 7"
    refused = pytest.raises(BadArgument, match=r"its index lies in the shards\. An item_id is unique in its queue")
    with database.connect() as connection, connection.transaction(), refused:
        app.tenant("shop", "alice").enqueue("mail", within=connection, **{option: value})  # type: ignore[arg-type]
    assert alice.count() == {}


@pytest.mark.parametrize("store", ["pg"])
def test_what_only_workflows_have_is_refused_in_postgresql(alice: Queues) -> None:
    handle = alice.enqueue("mail")
    for refused in (lambda: handle.signal("go"), handle.steps):
        with pytest.raises(NoWorkflow, match="an item in an external store is no workflow"):
            refused()


@pytest.mark.parametrize("store", ["pg"])
def test_local_and_periodic_items_lie_in_shards(app: App, database: Database) -> None:
    refused = pytest.raises(BadArgument, match="no local items in an external store")
    with database.connect() as connection, connection.transaction(), refused:
        app.enqueue_local("mail", within=connection)  # type: ignore[call-arg]
    with pytest.raises(BadArgument, match="a tick lies in a shard"):
        app.every(60, store="pg", transactional=True)(lambda job, connection: None)
