"""What `status`, `check`, the dashboard and the metrics say of an external store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import App, external_checks
from fairlead.actors.telemetry import metrics
from fairlead.queries.external_stores import ExternalStatus, read_externals
from fairlead.queries.kinds import kinds_of
from fairlead.queries.summary import summarize
from fairlead.telemetry.fleet_metrics import FleetMetrics
from fairlead.zones.external.depth import Depth
from fairlead.zones.external.names import Queue, pointer_zone
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.postgresql.inspection import InspectedItemStore
from fairlead.zones.records import PointerRecord, decode
from fairlead.zones.top_level import pointers
from fairlead.zones.transaction_runner import Attempt
from tests.fairlead.dashboard.asking import open_site, read
from tests.fairlead.live_consumers import Gate, consumer, eventually
from tests.fairlead.shell import Answer, run
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def shop(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "status")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def database(shop: Database) -> Database:
    """The same, without items."""
    shop.empty()
    return shop


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    """An application whose queues are there."""
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn})
    assert list(made.shards.values())
    (tmp_path / "fairlead.toml").write_text(
        f'shards.main = "embedded:{tmp_path}/data"\nexternal.pg = "{database.dsn}"\n', encoding="utf-8"
    )
    yield made
    made.close()


def enqueue(database: Database, count: int = 1, kind: str = "receipt", **options: Any) -> None:
    """Enqueue items of as many tenants."""
    with database.connect() as connection:
        for number in range(count):
            named = ", ".join(f"{name} => {value}" for name, value in options.items())
            rest = f", {named}" if named else ""
            connection.execute(f"SELECT fairlead.enqueue('shop', 't{number}', '{kind}'{rest})")


def status_of(app: App) -> ExternalStatus:
    """Return what the application says of its store."""
    (found,) = read_externals(app.shards, app.externals)
    return found


def command(tmp_path: Path, *typed: str) -> Answer:
    """Type a command of an operator who has the same configuration."""
    return run(*typed, "--config", str(tmp_path / "fairlead.toml"))


def test_an_empty_store_that_nobody_reads_is_empty(app: App) -> None:
    found = status_of(app)
    assert found.totals is not None
    assert (found.totals.items, found.totals.waits_us, found.totals.unseen_items) == (0, None, 0)
    assert not found.reader.is_live
    assert summarize(app).concerns == []


def test_items_are_counted_by_kind_and_the_oldest_has_an_age(app: App, database: Database) -> None:
    enqueue(database, 3)
    enqueue(database, 2, kind="invoice", delay_s=60)
    with database.connect() as connection:
        connection.execute("UPDATE fairlead.items SET vesting_us = vesting_us - 100000000 WHERE tenant = 't1'")
    found = status_of(app).totals
    assert found is not None
    assert (found.items, found.is_exact, found.kinds) == (5, True, {"invoice": 2, "receipt": 3})
    assert found.waits_us is not None
    assert 100_000_000 <= found.waits_us < 130_000_000
    summary = summarize(app)
    assert summary.waiting == 5
    assert summary.oldest_us is not None
    assert summary.oldest_us >= 100_000_000
    assert [each.waiting for each in kinds_of([], [], 0, summary.externals)] == [2, 3]
    queues = [Queue(fairlead.Tenant("shop", user), "queue") for user in ("t1", "nobody")]
    (of_t1, of_nobody) = app.externals["pg"].depth_of(queues)
    assert (of_t1.kinds, of_t1.whole, of_nobody) == ({"invoice": 1, "receipt": 1}, True, Depth({}, None, True))
    assert of_t1.waits_us is not None
    assert of_t1.waits_us >= 100_000_000


def test_items_that_nobody_reads_are_an_alarm(app: App, database: Database) -> None:
    enqueue(database, 3)
    (concern,) = summarize(app).concerns
    assert concern.message == "3 items are in external store pg, and no consumer reads it"


def test_a_reader_that_has_seen_all_is_not_behind(app: App, database: Database) -> None:
    app.handler("mail")(Gate())
    with consumer(app):
        enqueue(database, 3)
        eventually(lambda: (status_of(app).totals or fail()).unseen_items == 0 and status_of(app).reader.is_live)
    enqueue(database, 2)
    found = status_of(app).totals
    assert found is not None
    assert (found.unseen_items, found.unseen_queues) == (2, 2)
    assert found.unseen_us is not None
    assert found.unseen_us < 30_000_000


def fail() -> Any:
    """Fail: the store cannot be read."""
    raise AssertionError


def test_dead_letters_are_counted(app: App, database: Database) -> None:
    @app.handler("receipt", permanent=(ValueError,))
    def receipt(job: fairlead.Job) -> None:
        raise ValueError

    with consumer(app):
        enqueue(database, 2)
        eventually(lambda: (status_of(app).totals or fail()).dead_letters == 2)
    assert "2 dead letters in external store pg" in [each.message for each in summarize(app).concerns]


def test_the_command_shows_a_store_beside_the_shards(app: App, database: Database, tmp_path: Path) -> None:
    enqueue(database, 2)
    app.close()
    answer = command(tmp_path, "status")
    assert answer.code == 0, answer.err
    assert "no consumer reads it, 2 items unseen" in answer.out
    (found,) = command(tmp_path, "status", "--json").json["external_stores"]
    assert (found["store"], found["items"], found["depth"]) == ("pg", 2, {"receipt": 2})
    assert found["reader"]["unseen_queues"] == 2


def test_a_store_that_is_away_hides_no_shard(tmp_path: Path) -> None:
    app = App(f"embedded:{tmp_path / 'data'}", external={"pg": "postgresql://127.0.0.1:1/none"})
    assert list(app.shards.values())
    (tmp_path / "fairlead.toml").write_text(
        f'shards.main = "embedded:{tmp_path}/data"\nexternal.pg = "postgresql://127.0.0.1:1/none"\n', encoding="utf-8"
    )
    (concern,) = summarize(app).concerns
    numbers = FleetMetrics(app).read_stores().numbers
    page = read(open_site(app), "/", {}).text
    app.close()
    assert concern.message.startswith("External store pg cannot be read")
    assert numbers[metrics.EXTERNAL_UP.name, ("pg",)] == 0
    assert "cannot be read" in page
    answer = command(tmp_path, "status")
    assert answer.code == 3
    assert "pg: store unavailable: no PostgreSQL that takes writes answers" in answer.out
    assert "#active zones".removeprefix("#") in answer.out


def test_the_metrics_of_a_store(app: App, database: Database) -> None:
    enqueue(database, 3)
    numbers = FleetMetrics(app).read_stores().numbers
    named = (metrics.EXTERNAL_UP, metrics.EXTERNAL_DEPTH, metrics.EXTERNAL_UNSEEN, metrics.EXTERNAL_DEAD_LETTERS)
    assert [numbers[each.name, ("pg",)] for each in named] == [1, 3, 3, 0]
    assert numbers[metrics.EXTERNAL_READER_LAG.name, ("pg",)] > 0


def test_a_role_that_may_not_read_the_store_is_told_what_to_do(app: App, database: Database, tmp_path: Path) -> None:
    with database.connect() as connection:
        connection.execute("CREATE ROLE status_reader LOGIN")
    other = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn.replace("postgres@", "status_reader@")})
    found = status_of(other)
    other.close()
    assert "fairlead postgres grant --consumer" in found.remedy


# --- The check ---


def findings(tmp_path: Path, *typed: str) -> tuple[int, list[dict[str, Any]]]:
    """Check the stores; return the exit code, and what was found of the external one."""
    answer = command(tmp_path, "check", "--json", *typed)
    (found,) = answer.json["external_stores"]
    return answer.code, found["findings"]


def pointer_location(app: App, user: str) -> ZoneLocation:
    """Return where the pointer of a user's queue is."""
    return app.shards["main"].layout.location(fairlead.Tenant("shop", user), pointer_zone("pg", "queue"))


def delete_pointer(attempt: Attempt, *, location: ZoneLocation) -> None:
    """Delete a pointer, as nothing of ours would while the queue holds items."""
    value = attempt.tr.get(location.keys.pointer).value
    assert value is not None
    record = decode(PointerRecord, value)
    assert record is not None
    pointers.delete(attempt.tr, location, record)


def test_a_store_in_order_is_well(app: App, database: Database, tmp_path: Path) -> None:
    app.close()
    with database.connect() as connection:
        connection.execute("UPDATE fairlead.doorbell SET rings = false")
    answer = command(tmp_path, "check")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].split() == ["pg", "0", "0", "well"]


def test_a_pointer_that_is_missing_is_found_and_made(app: App, database: Database, tmp_path: Path) -> None:
    app.handler("mail")(Gate())
    with consumer(app):
        enqueue(database, 3)
        eventually(lambda: (status_of(app).totals or fail()).unseen_items == 0)
    app.shards["main"].transact(partial(delete_pointer, location=pointer_location(app, "t1")))
    enqueue(database, kind="unseen")
    app.close()
    code, found = findings(tmp_path)
    assert code == 1
    assert [(each["what"], each["tenant"]) for each in found if each["fault"]] == [
        ("a queue holds items, and has no pointer", ["shop", "t1"])
    ]
    assert findings(tmp_path, "--repair")[0] == 0
    assert [each for each in findings(tmp_path)[1] if each["fault"]] == []


def test_an_old_snapshot_and_a_doorbell_that_nobody_hears_are_named(
    app: App, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_checks, "SNAPSHOT_US_MAX", 0)
    app.close()
    with database.connect(autocommit=False, application_name="report") as old, database.connect() as connection:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        connection.execute("UPDATE fairlead.doorbell SET rings = true")
        code, found = findings(tmp_path)
        connection.execute("UPDATE fairlead.doorbell SET rings = false")
    assert code == 0
    told = " ".join(each["what"] for each in found)
    assert "a transaction has been open for" in told
    assert "of postgres, report" in told
    assert "the doorbell is on" in told


def test_a_transaction_that_has_written_and_then_waits_is_named_though_it_has_no_snapshot(
    app: App, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a user who enqueues and then goes home. It holds VACUUM up all the same."""
    monkeypatch.setattr(external_checks, "SNAPSHOT_US_MAX", 0)
    app.close()
    with database.connect(autocommit=False, application_name="gone home") as user:
        user.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        _, found = findings(tmp_path)
        user.rollback()
    (finding,) = [each for each in found if "has been open for" in each["what"]]
    assert finding["what"].endswith("of postgres, gone home")


def test_a_transaction_that_stays_prepared_is_named(
    app: App, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_checks, "PREPARED_US_MAX", 0)
    app.close()
    with database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'receipt')")
        connection.execute("PREPARE TRANSACTION 'forgotten'")
        code, found = findings(tmp_path)
        connection.execute("ROLLBACK PREPARED 'forgotten'")
    assert code == 0
    (finding,) = [each for each in found if "prepared" in each["what"]]
    assert finding["what"].startswith("a transaction has been prepared for ")
    assert "ROLLBACK PREPARED" in finding["do"]


def test_a_queue_of_notifications_that_fills_dead_rows_and_no_autovacuum_are_named(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes what the server answered: half of its queue of notifications is four gigabytes."""
    health, totals = InspectedItemStore.health, InspectedItemStore.totals
    monkeypatch.setattr(
        InspectedItemStore, "health", lambda self: health(self)._replace(notify_share=0.75, autovacuum=False)
    )
    monkeypatch.setattr(
        InspectedItemStore, "totals", lambda self, seen: totals(self, seen)._replace(dead_rows=1_000_001)
    )
    app.close()
    code, found = findings(tmp_path)
    assert code == 0
    assert [each["what"] for each in found if "has been open" not in each["what"]] == [
        "the server's queue of notifications is 75% full; once it is full, commits fail",
        "autovacuum is off",
        "1,000,001 rows are dead and not removed",
    ]


def test_a_role_without_privileges_and_a_published_schema_are_faults(
    app: App, database: Database, tmp_path: Path
) -> None:
    app.close()
    with database.connect() as connection:
        connection.execute("CREATE ROLE status_fleet LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA fairlead TO status_fleet")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA fairlead TO status_fleet")
        connection.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fairlead TO status_fleet")
        connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    as_fleet = database.dsn.replace("postgres@", "status_fleet@")
    settings = tmp_path / "fairlead.toml"
    settings.write_text(settings.read_text(encoding="utf-8").replace(database.dsn, as_fleet), encoding="utf-8")
    code, found = findings(tmp_path)
    with database.connect() as connection:
        connection.execute("DROP PUBLICATION everything")
    assert code == 1
    first, *rest = found
    assert first["what"].startswith("this role may not use table fairlead.cancelled, ")
    assert "fairlead postgres grant --consumer" in first["do"]
    assert "the schema is published by everything" in [each["what"] for each in rest]


def test_a_database_without_a_schema_is_a_fault_with_a_remedy(
    app: App, postgresql: TestedPostgres, tmp_path: Path
) -> None:
    app.close()
    settings = tmp_path / "fairlead.toml"
    empty = Database(postgresql, "status_empty").dsn
    settings.write_text(f'shards.main = "embedded:{tmp_path}/data"\nexternal.pg = "{empty}"\n', encoding="utf-8")
    code, (finding,) = findings(tmp_path)
    assert code == 1
    assert "fairlead postgres init" in finding["do"]
