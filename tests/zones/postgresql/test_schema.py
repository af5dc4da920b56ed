"""The schema of queues in a database: it is made once, upgraded, checked, and lent to roles."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from fairlead import new_item
from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import ItemToPut
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import EnqueueStatus
from tests.zones.postgresql.database import Database


@contextmanager
def role(connection: Any, name: str) -> Iterator[str]:
    """Make a role, and drop it afterwards: roles belong to the whole server."""
    connection.execute(f"CREATE ROLE {name}")
    try:
        yield name
    finally:
        connection.execute(f"RESET ROLE; DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_second_init_changes_nothing(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema

    with empty_database.connect() as connection:
        first = schema.prepare(connection)
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        assert schema.prepare(connection) == first == schema.check(connection)
        assert connection.execute("SELECT count(*) FROM fairlead.items").fetchone() == (1,)


def test_two_inits_at_once_make_one_store(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema

    def init(_: int) -> Any:
        with empty_database.connect() as connection:
            return schema.prepare(connection)

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(init, range(4)))) == 1


def test_a_database_without_a_schema_is_refused_with_the_command_that_makes_it(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import SchemaMissing

    with empty_database.connect() as connection, pytest.raises(SchemaMissing) as raised:
        schema.check(connection)
    assert "fairlead postgres init" in str(raised.value.__doc__)


@pytest.mark.parametrize(("version", "refusal"), [(0, "SchemaOutdated"), (99, "SchemaNewer")])
def test_a_schema_of_another_version_is_refused(empty_database: Database, version: int, refusal: str) -> None:
    from fairlead.zones.postgresql import errors, schema

    empty_database.prepare()
    with empty_database.connect() as connection:
        connection.execute("UPDATE fairlead.store SET version = %s", [version])
        with pytest.raises(getattr(errors, refusal)):
            schema.check(connection)


def test_a_newer_schema_is_not_changed_by_an_upgrade(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import SchemaNewer

    empty_database.prepare()
    with empty_database.connect() as connection:
        connection.execute("UPDATE fairlead.store SET version = 99")
        with pytest.raises(SchemaNewer):
            schema.prepare(connection)


def test_a_database_in_another_encoding_is_refused(empty_database: Database) -> None:
    import psycopg

    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    with empty_database.connect() as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    dsn = f"{empty_database.dsn.rpartition('/')[0]}/latin"
    with psycopg.connect(dsn, autocommit=True) as connection, pytest.raises(PostgresRefused, match="LATIN1"):
        schema.prepare(connection)


def test_a_role_that_may_not_create_schemas_is_told_so(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    with empty_database.connect() as connection, role(connection, "nobody_here"):
        connection.execute("SET ROLE nobody_here")
        with pytest.raises(PostgresRefused, match="permission denied"):
            schema.prepare(connection)


def test_a_schema_of_that_name_which_is_somebody_elses_is_left_alone(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    with empty_database.connect() as connection:
        connection.execute("CREATE SCHEMA fairlead")
        with pytest.raises(PostgresRefused, match="rename the schema"):
            schema.prepare(connection)


def test_a_role_that_does_not_own_the_schema_cannot_upgrade_it(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    empty_database.prepare()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "migration", lambda _: "ALTER TABLE fairlead.items ADD COLUMN later int;")
    with empty_database.connect() as connection, role(connection, "not_owner"):
        schema.grant(connection, consumers=("not_owner",))
        connection.execute("SET ROLE not_owner")
        with pytest.raises(PostgresRefused, match="as the one that owns the schema"):
            schema.prepare(connection)


def test_nothing_is_left_to_public_and_names_are_found_in_no_path_of_the_caller(database: Database) -> None:
    """`now_us` was bound when it was made; `ring` names schemas in full, and has the path of who calls it."""
    with database.connect() as connection:
        unpinned = connection.execute("""
            SELECT proname FROM pg_proc WHERE pronamespace = 'fairlead'::regnamespace
              AND NOT coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}' ORDER BY 1
        """).fetchall()
        of_the_owner = connection.execute("""
            SELECT proname FROM pg_proc WHERE pronamespace = 'fairlead'::regnamespace AND prosecdef ORDER BY 1
        """).fetchall()
        public = connection.execute("""
            SELECT proname::text FROM pg_proc
            WHERE pronamespace = 'fairlead'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')
            UNION ALL SELECT relname FROM pg_class
            WHERE relnamespace = 'fairlead'::regnamespace AND relkind = 'r'
              AND has_table_privilege('public', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
            UNION ALL SELECT 'the schema' WHERE has_schema_privilege('public', 'fairlead', 'USAGE, CREATE')
        """).fetchall()
    assert [name for (name,) in unpinned] == ["now_us", "ring"]
    assert [name for (name,) in of_the_owner] == ["cancel", "cancel_item", "enqueue", "put", "put_one", "store_id"]
    assert public == []


def test_a_producer_can_enqueue_and_read_nothing(database: Database) -> None:
    import psycopg

    from fairlead.zones.postgresql import schema

    with database.connect() as connection, role(connection, "web"):
        connection.execute("SET ROLE web")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        connection.execute("RESET ROLE")
        schema.grant(connection, producers=("web",))
        connection.execute("SET ROLE web")
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        for forbidden in ("SELECT * FROM fairlead.items", "SELECT fairlead.arrivals('1:1:')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden)


def test_a_role_that_may_cancel_reads_and_writes_no_table_itself(database: Database) -> None:
    import psycopg

    with database.connect() as connection, role(connection, "clerk"):
        connection.execute("GRANT USAGE ON SCHEMA fairlead TO clerk")
        connection.execute("GRANT EXECUTE ON FUNCTION fairlead.cancel, fairlead.cancel_item TO clerk")
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail', item_id => 'order 7')")
        connection.execute("SET ROLE clerk")
        assert connection.execute("SELECT fairlead.cancel('shop', 'alice', 'order 7')").fetchone() == (True,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM fairlead.cancelled")


def test_a_consumer_needs_no_rights_of_the_owner(database: Database) -> None:
    from fairlead.zones.postgresql import schema

    with database.connect() as connection, role(connection, "fleet"):
        schema.grant(connection, consumers=("fleet",))
        connection.execute("SET ROLE fleet")
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        leased = (
            "SELECT id FROM fairlead.dequeue('{shop}', '{alice}', '{queue}', '{5}', '{}', '{}', '{}', '{}', "
            "'{mail}', '{9}', gen_random_uuid(), 1000000) WHERE id IS NOT NULL"
        )
        assert len(connection.execute(leased).fetchall()) == 1


def test_an_upgrade_keeps_what_was_granted(database: Database) -> None:
    from fairlead.zones.postgresql import schema

    with database.connect() as connection, role(connection, "web"):
        schema.grant(connection, producers=("web",))
        connection.execute(schema.functions())
        connection.execute("SET ROLE web")
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")


def test_producers_of_version_4_enqueue_one_item_after_an_upgrade(database: Database) -> None:
    """Version 5 has a function for one item, which was not there to be granted."""
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.queue_operations import put_op
    from fairlead.zones.postgresql.statements import run_op

    item = ItemToPut(Queue(Tenant("shop", "alice"), "queue"), bytes(16), new_item("mail"))
    with database.connect() as connection, role(connection, "web"):
        schema.grant(connection, producers=("web",))
        connection.execute("DROP FUNCTION fairlead.put_one")
        connection.execute(schema.functions())
        connection.execute("SET ROLE web")
        assert run_op(connection, put_op([item])) == [EnqueueStatus.ENQUEUED]
        assert run_op(connection, put_op([item])) == [EnqueueStatus.PRESENT]


VERSION_2 = """
CREATE FUNCTION fairlead.dequeue(apps text[], tenants text[], zones text[], ns int[], place_ords int[], kinds text[],
  priorities smallint[], froms_us bigint[], room_kinds text[], rooms int[], lease uuid, lease_us bigint,
  OUT id uuid, OUT passed bigint) RETURNS SETOF record LANGUAGE sql RETURN (NULL::uuid, 0::bigint);
CREATE FUNCTION fairlead.extend(ids uuid[], lease_ids uuid[], lease_us bigint, OUT ord int, OUT outcome smallint)
  RETURNS SETOF record LANGUAGE sql RETURN (1, 1::smallint);
CREATE FUNCTION fairlead.requeue(ids uuid[], lease_ids uuid[], delays_us bigint[], records bytea[], OUT ord int,
  OUT outcome smallint) RETURNS SETOF record LANGUAGE sql RETURN (1, 1::smallint);
CREATE FUNCTION fairlead.complete(ids uuid[], lease_ids uuid[], keeps_us bigint[], results bytea[], OUT ord int,
  OUT outcome smallint) RETURNS SETOF record LANGUAGE sql RETURN (1, 1::smallint);
INSERT INTO fairlead.store (version) VALUES (2);
"""


def test_consumers_of_version_2_go_on_after_an_upgrade_which_makes_their_functions_anew(
    empty_database: Database,
) -> None:
    """Those have other answers since, so what was granted on them is granted again."""
    from fairlead.zones.postgresql import schema

    with empty_database.connect() as connection, role(connection, "fleet"):
        connection.execute(schema.migration(1) + schema.migration(2) + VERSION_2)
        connection.execute("INSERT INTO fairlead.items (id, app, tenant, zone, kind, priority, vesting_us, enqueued_us)"
                           " VALUES (gen_random_uuid(), 'shop', 'alice', 'queue', 'mail', 100, 0, 0)")  # fmt: skip
        schema.grant(connection, consumers=("fleet",))
        schema.prepare(connection)
        connection.execute("SET ROLE fleet")
        lease_id = "00000000-0000-0000-0000-000000000001"
        ((item_id,),) = connection.execute(
            "SELECT id FROM fairlead.dequeue('{shop}', '{alice}', '{queue}', '{5}', '{}', '{}', '{}', '{}', "
            "'{mail}', '{9}', %s, 1000000) WHERE id IS NOT NULL", [lease_id]
        ).fetchall()  # fmt: skip
        for call in ("extend({}, 1000000)", "requeue({}, '{{1}}', '{{NULL}}')"):
            held = f"ARRAY['{item_id}'::uuid], ARRAY['{lease_id}'::uuid]"
            assert connection.execute(f"SELECT outcome FROM fairlead.{call.format(held)}").fetchall() == [(0,)]
        connection.execute("SELECT * FROM fairlead.beat(gen_random_uuid())")
        assert connection.execute("SELECT fairlead.cancel('shop', 'alice', id => %s)", [item_id]).fetchone() == (True,)
        assert len(connection.execute("SELECT * FROM fairlead.cancelled_items(%s)", [[item_id]]).fetchall()) == 1


def test_the_printed_script_does_what_init_does(empty_database: Database) -> None:
    from fairlead.zones.postgresql import schema

    with empty_database.connect() as connection:
        connection.execute(schema.script(1))
        assert schema.check(connection).version == schema.VERSION


def test_a_long_transaction_on_the_items_does_not_hold_up_enqueues_behind_an_upgrade(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    empty_database.prepare()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(schema, "migration", lambda _: "ALTER TABLE fairlead.items ADD COLUMN later int;")
    with empty_database.connect(autocommit=False) as user, empty_database.connect() as connection:
        user.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        with pytest.raises(PostgresRefused, match="in use"):
            schema.prepare(connection)
        user.commit()
        assert schema.prepare(connection).version == schema.VERSION
