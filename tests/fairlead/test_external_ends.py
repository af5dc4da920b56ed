"""How an item ended: explanations, results and pages say the same of items in a shard and in an external store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from fairlead import App, Cause, ItemFailed, NoResult, Retry
from fairlead.external_queues import ExternalQueues
from fairlead.queries.external_items import read_item_in_store
from fairlead.testing import ManualClock, drain
from fairlead.zones.external.names import Queue
from fairlead.zones.reporting.completion_log import KEPT_US
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import ALICE, Database


@pytest.fixture(scope="module")
def shop(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "ended")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def database(shop: Database) -> Database:
    """The same, without items."""
    shop.empty()
    with shop.connect() as connection:
        connection.execute("DELETE FROM fairlead.cancelled")
    return shop


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(database: Database, clock: ManualClock) -> Iterator[App]:
    """An application whose items lie in the database, or in a shard."""
    made = App({"main": "memory:", "us2": "memory:"}, clock=clock, external={"pg": database.dsn})
    made.handler("mail")(lambda job: None)
    made.handler("remembered", keep_result=60)(lambda job: 7)

    @made.handler("invoice", transactional=True, store="pg")
    def invoice(job: Any, conn: Any) -> None:
        conn.execute("SELECT 1")

    @made.handler("dropped", drop=True, retry=Retry(attempts=1))
    def dropped(job: Any) -> None:
        raise ValueError("no such address")

    made.tenant(ALICE).transact(lambda tr: tr.set(("order",), b"paid"))
    assert made.tenant(ALICE).shard.name == "main"
    yield made
    made.close()


@pytest.fixture
def alice(app: App) -> ExternalQueues:
    """The queues of one tenant in the database."""
    return app.tenant(ALICE).external("pg")


def run_all(app: App) -> None:
    drain(app, raise_errors=False)


@pytest.mark.parametrize(
    ("kind", "cause"), [("mail", Cause.COMPLETED), ("dropped", Cause.DROPPED), ("remembered", Cause.COMPLETED)]
)
def test_an_ended_item_is_explained_as_one_in_a_shard(app: App, alice: ExternalQueues, kind: str, cause: Cause) -> None:
    """Before, it was never seen."""
    there, here = alice.enqueue(kind), app.tenant(ALICE).enqueue(kind)
    run_all(app)
    said, of_shard = there.explain(), here.explain()
    assert said.cause is of_shard.cause is cause
    assert said.sentence.startswith(of_shard.sentence)
    assert said.details.keys() == of_shard.details.keys()
    assert (said.store, said.zone, said.kind, said.shard) == ("pg", "queue", kind, "main")


def cancel_by_sql(alice: ExternalQueues, database: Database) -> None:
    with database.connect() as connection:
        assert connection.execute("SELECT fairlead.cancel('shop', 'alice', 'order 7')").fetchone() == (True,)


def cancel_within(alice: ExternalQueues, database: Database) -> None:
    with database.connect() as connection, connection.transaction():
        alice.cancel("order 7", within=connection)


def cancel_at_once(alice: ExternalQueues, database: Database) -> None:
    alice.cancel("order 7")


@pytest.mark.parametrize("cancel", [cancel_by_sql, cancel_within, cancel_at_once])
def test_a_cancelled_item_is_known_to_be_however_it_was_cancelled(
    app: App, alice: ExternalQueues, database: Database, cancel: Callable[[ExternalQueues, Database], None]
) -> None:
    there, here = alice.enqueue("mail", item_id="order 7"), app.tenant(ALICE).enqueue("mail", item_id="order 8")
    cancel(alice, database)
    here.cancel()
    said, of_shard = alice.explain("order 7"), here.explain()
    assert said.cause is of_shard.cause is Cause.CANCELLED
    assert said.sentence.startswith("it was cancelled 0.")
    assert (said.store, said.shard, said.zone, said.kind) == ("pg", "main", "queue", "mail")
    assert app.explain(there.item_id) == replace(said, sentence=ANY, details=ANY)
    with pytest.raises(NoResult, match="ended='cancelled'"):
        there.result(timeout=0)
    details = read_item_in_store(
        app.shards, app.shards["main"], app.externals, "pg", Queue(ALICE, "queue"), there.item_id
    )
    assert [event.what for event in details.history] == ["cancelled"]


def test_a_cancellation_that_is_rolled_back_leaves_nothing(alice: ExternalQueues, database: Database) -> None:
    there = alice.enqueue("mail", item_id="order 7", delay=60)
    with database.connect(autocommit=False) as connection:
        alice.cancel("order 7", within=connection)
        connection.rollback()
    assert there.explain().cause is Cause.DELAYED
    assert database_cancelled(database) == 0


def test_the_last_end_of_a_name_counts(app: App, alice: ExternalQueues, database: Database, clock: ManualClock) -> None:
    """Ends by a consumer are in the shard, those by a cancellation in the store."""
    alice.enqueue("mail", item_id="order 7")
    run_all(app)
    clock.advance(60)
    alice.enqueue("mail", item_id="order 7")
    alice.cancel("order 7")
    assert alice.explain("order 7").cause is Cause.CANCELLED
    with database.connect() as connection:
        connection.execute("UPDATE fairlead.cancelled SET cancelled_us = cancelled_us - 60000000")
    alice.enqueue("mail", item_id="order 7")
    clock.advance(60)
    run_all(app)
    assert alice.explain("order 7").cause is Cause.COMPLETED


def test_a_cancellation_is_forgotten_after_an_hour(alice: ExternalQueues, database: Database) -> None:
    there = alice.enqueue("mail")
    there.cancel()
    upkeep = database.store.upkeep
    upkeep.expire(10)
    assert database_cancelled(database) == 1
    with database.connect() as connection:
        connection.execute("UPDATE fairlead.cancelled SET cancelled_us = cancelled_us - %s", [KEPT_US])
    assert upkeep.expire(10) == 1
    assert there.explain().cause is Cause.NEVER_SEEN


def database_cancelled(database: Database) -> int:
    """Return how many cancellations are known."""
    with database.connect() as connection:
        (count,) = connection.execute("SELECT count(*) FROM fairlead.cancelled").fetchone()
        return int(count)


def test_the_end_of_a_handlers_own_transaction_is_known(app: App, alice: ExternalQueues) -> None:
    there = alice.enqueue("invoice")
    run_all(app)
    assert there.explain().cause is Cause.COMPLETED


def test_an_ended_item_is_found_by_its_id_alone(app: App, alice: ExternalQueues) -> None:
    there = alice.enqueue("mail")
    run_all(app)
    said = app.explain(there.item_id)
    assert said == there.explain()


def test_an_item_that_was_enqueued_again_has_not_ended(app: App, alice: ExternalQueues) -> None:
    item_id = alice.enqueue("mail", item_id="order 7").item_id
    run_all(app)
    assert alice.explain("order 7").cause is Cause.COMPLETED
    alice.enqueue("mail", item_id="order 7", delay=60)
    assert alice.explain("order 7").cause is app.explain(item_id).cause is Cause.DELAYED


def test_an_item_of_another_zone_or_tenant_has_not_ended(app: App, alice: ExternalQueues) -> None:
    item_id = alice.enqueue("mail", zone="mails").item_id
    run_all(app)
    assert alice.explain(item_id, zone="mails").cause is Cause.COMPLETED
    assert alice.explain(item_id).cause is Cause.NEVER_SEEN
    assert app.tenant("shop/bob").explain(item_id).cause is Cause.NEVER_SEEN


def test_a_zone_whose_name_no_external_store_can_have_is_not_searched_there(app: App) -> None:
    assert app.tenant(ALICE).explain("order 7", zone="z" * 96).cause is Cause.NEVER_SEEN


def test_an_end_is_known_after_its_tenant_has_moved(app: App, alice: ExternalQueues) -> None:
    there = alice.enqueue("mail")
    run_all(app)
    app.move(ALICE, to="us2")
    run_all(app)
    said = there.explain()
    assert (said.cause, said.shard, said.details["ended_on"]) == (Cause.COMPLETED, "us2", "main")


def test_a_result_says_that_its_item_failed_or_ended_without_one(app: App, alice: ExternalQueues) -> None:
    """Before, none of them said how it ended."""
    done, failed, unknown = alice.enqueue("mail"), alice.enqueue("dropped"), alice.item(bytes(16))
    run_all(app)
    with pytest.raises(NoResult, match="ended='completed'"):
        done.result(timeout=0)
    with pytest.raises(ItemFailed):
        failed.result(timeout=0)
    with pytest.raises(NoResult, match="ended=None"):
        unknown.result(timeout=0)


def test_the_page_of_an_item_shows_its_end(app: App, alice: ExternalQueues) -> None:
    there = alice.enqueue("mail")
    run_all(app)
    shard = app.shards["main"]
    details = read_item_in_store(app.shards, shard, app.externals, "pg", Queue(ALICE, "queue"), there.item_id)
    assert [event.what for event in details.history] == ["completed"]


def test_an_end_is_forgotten_after_an_hour(app: App, alice: ExternalQueues, clock: ManualClock) -> None:
    """As that of an item in a shard: the log is cleared by age."""
    from fairlead.zones.reporting import completion_log

    there = alice.enqueue("mail")
    run_all(app)
    shard = app.shards["main"]
    clock.advance(KEPT_US / 1e6 + 60)
    for _ in range(2):  # It is packed first.
        shard.transact(
            lambda attempt: completion_log.compact(attempt.tr, range(shard.layout.part_count), now_us=attempt.now_us)
        )
    said = there.explain()
    assert said.cause is Cause.NEVER_SEEN
    assert said.sentence.endswith("; pg has none either")
