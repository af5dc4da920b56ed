"""The commands that prepare a PostgreSQL database, and what they say of wrong ones."""

from __future__ import annotations

import pytest

from fairlead import external_stores
from fairlead.zones.postgresql.schema import VERSION
from tests.fairlead.shell import run
from tests.foundationdb_server import free_port
from tests.postgresql_server import TestedPostgres, missing
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def dsn(postgresql: TestedPostgres) -> str:
    """A database without a schema."""
    return Database(postgresql, "commands").dsn


def test_a_database_is_checked_made_and_lent(postgresql: TestedPostgres, dsn: str) -> None:
    before = run("postgres", "check", "--dsn", dsn, "--json")
    assert before.code == 2
    assert "fairlead postgres init" in before.error["do"]
    made = run("postgres", "init", "--dsn", dsn, "--json")
    assert (made.code, made.json["version"]) == (0, VERSION)
    assert run("postgres", "upgrade", "--dsn", dsn, "--json").json == made.json
    assert run("postgres", "check", "--dsn", dsn, "--json").json == {**made.json, "notifications": True}
    with Database(postgresql, "roles").connect() as connection:
        connection.execute("CREATE ROLE shop_web LOGIN")
    as_web = dsn.replace("postgres@", "shop_web@")
    assert "permission denied" in run("postgres", "init", "--dsn", as_web.replace("commands", "roles")).err
    granted = run("postgres", "grant", "--producer", "shop_web", "--dsn", dsn)
    assert (granted.code, granted.out) == (0, "shop_web may enqueue\n")
    refused = run("postgres", "check", "--dsn", as_web)
    assert refused.code == 2
    assert "fairlead postgres grant --consumer" in refused.err


def test_an_upgrade_of_nothing_is_refused(postgresql: TestedPostgres) -> None:
    answer = run("postgres", "upgrade", "--dsn", Database(postgresql, "nothing").dsn)
    assert answer.code == 2
    assert "fairlead postgres init" in answer.err


def test_a_database_that_is_not_there_is_named(dsn: str) -> None:
    answer = run("postgres", "check", "--dsn", dsn.replace("/commands", "/nowhere"))
    assert answer.code == 3
    assert 'database "nowhere" does not exist' in answer.err


@pytest.mark.parametrize(
    "wrong",
    [
        "shop",
        "postgresql//web:hush@localhost/shop",
        "postgresql://web:hush%zz@localhost/shop",
        "postgresql://web:hush/zz@localhost/shop",
        "host=localhost password=hush zz",
        "host=localhost password=hush hots=localhost",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(wrong: str) -> None:
    """What libpq says of it may quote a part of the password."""
    if missing().startswith("psycopg"):
        pytest.skip(missing())
    answer = run("postgres", "check", "--dsn", wrong)
    assert answer.code == 3
    assert "the address of the database cannot be read" in answer.err
    assert "postgresql://USER@HOST:PORT/DATABASE" in answer.err
    assert not any(each in answer.err for each in ("hush", "zz"))


def test_who_may_not_grant_is_told_who_may(postgresql: TestedPostgres) -> None:
    """The server only warns of that, and grants nothing."""
    database = Database(postgresql, "granting")
    database.prepare()
    with database.connect() as connection:
        connection.execute("CREATE ROLE granting_fleet LOGIN; CREATE ROLE granting_web LOGIN")
    assert run("postgres", "grant", "--consumer", "granting_fleet", "--dsn", database.dsn).code == 0
    as_fleet = database.dsn.replace("postgres@", "granting_fleet@")
    for option in ("--producer", "--consumer"):
        refused = run("postgres", "grant", option, "granting_web", "--dsn", as_fleet)
        assert (refused.code, refused.out) == (2, "")
        assert "granting_web may not call " in refused.err
        assert "as the role that owns the schema" in refused.err
    unknown = run("postgres", "grant", "--producer", "nobody_at_all", "--dsn", database.dsn)
    assert (unknown.code, 'role "nobody_at_all" does not exist' in unknown.err) == (3, True)


def test_a_server_that_does_not_answer_is_named_without_the_password(postgresql: TestedPostgres) -> None:
    answer = run("postgres", "check", "--dsn", f"postgresql://web:secret@127.0.0.1:{free_port()}/shop")
    assert answer.code == 3
    assert "no PostgreSQL that takes writes answers" in answer.err
    assert "secret" not in answer.err


def test_the_sql_is_printed_for_somebody_else_to_run() -> None:
    if missing().startswith("psycopg"):
        pytest.skip(missing())
    answer = run("postgres", "init", "--sql")
    assert answer.code == 0
    assert answer.out.startswith("BEGIN;")
    assert "CREATE TABLE fairlead.items" in answer.out


def test_the_sql_of_an_upgrade_is_printed_and_does_what_the_upgrade_does(
    postgresql: TestedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.zones.postgresql import schema

    database = Database(postgresql, "printed")
    assert "fairlead postgres init" in run("postgres", "upgrade", "--sql", "--dsn", database.dsn).err
    database.prepare()
    assert run("postgres", "upgrade", "--sql", "--dsn", database.dsn).out == "-- Nothing is to be done.\n"
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    monkeypatch.setattr(schema, "migration", lambda number: f"ALTER TABLE fairlead.items ADD COLUMN in_{number} int;")
    printed = run("postgres", "upgrade", "--sql", "--dsn", database.dsn).out
    assert f"ADD COLUMN in_{VERSION + 1} int" in printed
    assert f"in_{VERSION} " not in printed
    with database.connect() as connection:
        assert connection.execute("SELECT version FROM fairlead.store").fetchone() == (VERSION,)
        connection.execute(printed)
        assert schema.check(connection).version == VERSION + 1


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_stores, "find_spec", lambda _: None)
    answer = run("postgres", "check", "--dsn", "postgresql://localhost/shop")
    assert answer.code == 2
    assert "pip install 'fairlead[postgresql]'" in answer.err
