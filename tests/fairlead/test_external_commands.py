"""Commands for items, over queues in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead import App, DeadLetterFilter
from fairlead.audit_log import read_log
from fairlead.cli.errors import NOT_THERE
from fairlead.external_stores import UnknownStore
from fairlead.zones.external.queue_operations import COUNTED_MAX
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letter_search import BULK_ITEMS_MAX
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import DeadLetterRecord
from tests.fairlead.shell import Answer, run
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import ALICE, LEASE_US, Database, held

BOB = Tenant("shop", "bob")
Typed = Callable[..., Answer]


@pytest.fixture(scope="module")
def prepared(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "item_commands")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def database(prepared: Database) -> Database:
    """The same, without items."""
    prepared.empty()
    return prepared


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    """An application whose data is there, with a store that exists."""
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn})
    made.shards.on_store_created = lambda sentence: None
    assert len(made.shards["main"].name) > 0
    yield made
    made.close()


@pytest.fixture
def typed(app: App, database: Database, tmp_path: Path) -> Typed:
    """Runs a command with the application's stores."""
    config = tmp_path / "fairlead.toml"
    config.write_text(f'[external]\npg = "{database.dsn}"\n', encoding="utf-8")
    return lambda *words: run(*words, "--store", f"embedded:{tmp_path / 'data'}", "--config", config)


def make_dead_letters(database: Database, count: int, kind: str = "mail", tenant: Tenant = ALICE) -> None:
    """Let items fail for good."""
    if not count:
        return
    database.put(*[new_item(kind, number, item_id=f"{kind} {number}") for number in range(count)], tenant=tenant)
    leased = database.lease(tenant, items_max=count, rooms={kind: count}, lease_us=LEASE_US, now_us=0)
    records = [DeadLetterRecord(each.record, "error", f"no {kind} today", "", 1) for each in leased]
    database.store.dead_letter([held(each) for each in leased], records)


def test_an_item_is_enqueued_shown_and_cancelled(typed: Typed) -> None:
    alice = ("--tenant", "shop/alice", "--external", "pg")
    made = typed("enqueue", "mail", '{"order": 7}', "--id", "order 7", *alice, "--json")
    assert made.json == {"item": made.json["item"], "status": "enqueued", "store": "pg"}
    shown = typed("peek", *alice, "--json").json
    assert [(each["item"], each["payload"], each["store"]) for each in shown["items"]] == [
        (made.json["item"], {"order": 7}, "pg")
    ]
    assert "1 of 1 items" in typed("peek", *alice).out
    assert typed("result", "order 7", *alice).code == 1
    assert typed("cancel", "order 7", *alice).out == "cancelled order 7\n"
    assert typed("cancel", made.json["item"], *alice).code == NOT_THERE
    assert typed("enqueue", "mail", *alice).out.endswith(" in external store pg\n")


def test_what_does_not_go_with_an_external_store_is_refused(typed: Typed) -> None:
    for words in (
        ("enqueue", "mail", "--local", "--external", "pg"),
        ("enqueue", "mail", "--tenant", "shop/alice", "--external", "pg", "--unique-key", "a"),
        ("enqueue", "mail", "--tenant", "shop/alice", "--external", "pg", "--key", "order=7"),
        ("peek", "--local", "mail", "--external", "pg"),
    ):
        answer = typed(*words)
        assert (answer.code, "--external goes with --tenant" in answer.err) == (2, True), words
    assert "no external store of this name" in typed("peek", "--tenant", "shop/alice", "--external", "mysql").err


def test_dead_letters_are_listed_retried_and_discarded_one_by_one(typed: Typed, database: Database) -> None:
    make_dead_letters(database, 2)
    found = typed("dead-letters", "list", "--json").json["dead_letters"]
    assert [(each["given_id"], each["store"], each["error"]) for each in found] == [
        ("mail 0", "pg", "no mail today"),
        ("mail 1", "pg", "no mail today"),
    ]
    assert "shop/alice in pg" in typed("dead-letters", "list").out
    alice = ("--tenant", "shop/alice", "--external", "pg")
    assert typed("dead-letters", "retry", "mail 0", *alice).out == "retried mail 0\n"
    assert typed("dead-letters", "discard", found[1]["item"], *alice).code == 0
    assert typed("dead-letters", "discard", "mail 0", *alice).code == NOT_THERE
    assert typed("dead-letters", "list", "--json").json["dead_letters"] == []
    assert typed("peek", *alice, "--json").json["count"] == {"mail": 1}


def test_dead_letters_are_retried_by_a_filter(typed: Typed, database: Database, app: App) -> None:
    make_dead_letters(database, 3)
    make_dead_letters(database, 2, "index")
    make_dead_letters(database, 1, "mail", BOB)
    would = typed("dead-letters", "retry", "--kind", "mail", "--dry-run", "--json").json
    assert (would["found"], would["retried"]) == (4, 0)
    assert typed("dead-letters", "retry", "--tenant", "shop/alice", "--external", "pg", "--kind", "mail").code == 0
    assert app.tenant("shop/alice").external("pg").count() == {"mail": 3}
    assert app.tenant("shop/bob").external("pg").count() == {}
    assert typed("dead-letters", "discard", "--error", "today", "--json").json["discarded"] == 3
    log = [each.audit_entry for each in read_log(app.shards, entries_max=10)]
    assert [(each.what, each.count, each.ended) for each in log] == [("discard", 3, True), ("retry", 3, True)]
    assert log[1].to == {"kind": "mail", "tenant": ["shop", "alice"], "store": "pg"}


def test_more_dead_letters_than_one_statement_changes(app: App, database: Database) -> None:
    count = 2 * BULK_ITEMS_MAX + 7
    make_dead_letters(database, count)
    assert app.retry_dead_letters(DeadLetterFilter(store="pg")).count == count
    assert app.tenant("shop/alice").external("pg").count() == {"mail": count}


def test_a_filter_names_a_shard_or_a_store(app: App, database: Database) -> None:
    make_dead_letters(database, 1)
    assert app.retry_dead_letters(DeadLetterFilter(shard="main"), dry_run=True).count == 0
    assert app.retry_dead_letters(DeadLetterFilter(store="pg"), dry_run=True).count == 1
    with pytest.raises(UnknownStore):
        app.discard_dead_letters(DeadLetterFilter(store="mysql"))


def test_a_count_of_many_items_stops(app: App, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            "INSERT INTO fairlead.items (id, app, tenant, zone, kind, priority, vesting_us, enqueued_us)"
            " SELECT gen_random_uuid(), 'shop', 'alice', 'queue', 'mail', 100, 0, 0 FROM generate_series(1, %s)",
            [COUNTED_MAX + 5],
        )
    assert app.tenant("shop/alice").external("pg").count() == {"mail": COUNTED_MAX}
