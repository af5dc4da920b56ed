"""The plans of statements in PostgreSQL: each access has one index, whatever the statistics say.

A statement that was planned while the table was empty, and joined two tables, took three seconds later.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import DeadLetterRecord
from tests.zones.postgresql.database import ALICE, Database, held

BOB = Tenant("shop", "bob")
COUNT = 150
QUEUE = "'shop', 'alice', 'queue'"
ID = "'00000000-0000-0000-0000-000000000000'"
IN_QUEUES = "'{shop}', '{alice}', '{queue}'"
FROM_THE_FRONT = "'{}', '{}', '{}', '{}'"
HELD = "IDS, LEASES"  # Of two items that are leased.
INDEXES = ("pkey", "vest", "new", "kept", "dead", "claimed")


def fill(database: Database, statistics: str) -> None:
    """Let two tenants have items and dead letters, and the server have statistics of before or after that."""
    with database.connect() as connection:
        if statistics == "of an empty table":
            connection.execute("VACUUM ANALYZE fairlead.items")
        for tenant in (ALICE, BOB):
            database.put(*[new_item("mail", number) for number in range(2 * COUNT)], tenant=tenant)
            leased = database.lease(tenant, items_max=COUNT, rooms={"mail": COUNT})
            records = [DeadLetterRecord(each.record, "error", "boom", "", 1) for each in leased]
            database.store.dead_letter([held(each) for each in leased], records)
        if statistics == "of many rows":
            connection.execute("VACUUM ANALYZE fairlead.items")


def plans_of(connection: Any, call: str) -> str:
    """Return the plans of the statements that a call of a function executes."""
    plans: list[str] = []
    connection.add_notice_handler(lambda notice: plans.append(notice.message_primary))
    connection.execute("LOAD 'auto_explain'")
    connection.execute("SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on")
    connection.execute("SET client_min_messages = log")
    connection.execute(f"SELECT {call}")
    return "\n".join(plans)


def all_but(*names: str) -> str:
    """Return the other indexes of the table of items."""
    return "|".join(f"items_{name}" for name in INDEXES if name not in names)


@pytest.mark.parametrize("statistics", ["of an empty table", "of many rows"])
@pytest.mark.parametrize(
    ("call", "index", "others"),
    [
        (f"fairlead.first_ids({QUEUE}, 10, true)", "items_vest", "items_pkey|items_dead|items_kept|items_new"),
        (f"fairlead.count_items({QUEUE}, 10)", "items_vest", "items_pkey|items_dead|items_kept|items_new"),
        (f"fairlead.dead_ids({QUEUE}, -1, {ID}, 10)", "items_dead", "items_kept|items_vest|items_pkey"),
        (f"fairlead.dead_ids(NULL, NULL, NULL, -1, {ID}, 10)", "items_kept", "items_dead|items_vest|items_pkey"),
        (
            f"fairlead.cancel_item({QUEUE}, ARRAY[{ID}]::uuid[], false)",
            "items_pkey",
            "items_dead|items_kept|items_vest",
        ),
        (f"fairlead.cancelled_items(ARRAY[{ID}]::uuid[])", "cancelled_ids", "cancelled_times"),
        ("fairlead.expire(10)", "cancelled_times", "cancelled_ids|items_dead|items_vest"),
        (f"fairlead.read_items(ARRAY[{ID}]::uuid[], true)", "items_pkey", "items_dead|items_kept|items_vest"),
        (f"fairlead.discard_dead_letters(ARRAY[{ID}]::uuid[], ARRAY[1])", "items_pkey", "items_dead|items_kept"),
        (
            f"fairlead.retry_dead_letters(ARRAY[{ID}]::uuid[], ARRAY[1], ARRAY[NULL]::bytea[])",
            "items_pkey",
            "items_dead",
        ),
        (f"fairlead.outlook({IN_QUEUES}, {FROM_THE_FRONT})", "items_vest", all_but("vest")),
        ("fairlead.arrivals('1:1:')", "items_new", all_but("new")),
        ("fairlead.queues('', '', '', 10)", "items_vest", all_but("vest")),
        ("fairlead.depth(10)", "items_vest", all_but("vest")),
        (f"fairlead.depth_of({IN_QUEUES}, 10)", "items_vest", all_but("vest")),
        (f"fairlead.delayed_ids({IN_QUEUES}, 10, 10)", "items_vest", all_but("vest")),
        (f"fairlead.seen_of({IN_QUEUES}, '9:9:')", "items_vest", all_but("vest")),
        (f"fairlead.running(ARRAY[{ID}]::uuid[])", "items_pkey", all_but("pkey")),
        ("fairlead.release_ended(10)", "items_claimed", all_but("claimed")),
        (f"fairlead.beat({ID})", "items_claimed", all_but("claimed")),
    ],
)
def test_each_statement_has_one_index_whatever_the_statistics_say(
    database: Database, connection: Any, call: str, index: str, others: str, statistics: str
) -> None:
    fill(database, statistics)
    plans = plans_of(connection, call)
    assert f"on {index}" in plans or f"using {index}" in plans, plans
    for other in others.split("|"):
        assert other not in plans, plans
    assert "Seq Scan on items" not in plans, plans
    assert "Seq Scan on cancelled" not in plans, plans


@pytest.mark.parametrize("statistics", ["of an empty table", "of many rows"])
@pytest.mark.parametrize(
    ("call", "used"),
    [
        (f"fairlead.dequeue({IN_QUEUES}, '{{5}}', {FROM_THE_FRONT}, '{{mail}}', '{{9}}', {ID}, 1)", "vest pkey"),
        (f"fairlead.read_held({HELD})", "pkey"),
        (f"fairlead.complete({HELD}, '{{0,9}}', '{{NULL,NULL}}')", "pkey"),
        (f"fairlead.extend({HELD}, 1000000)", "pkey"),
        (f"fairlead.requeue({HELD}, '{{0,0}}', '{{NULL,NULL}}')", "pkey"),
        (f"fairlead.dead_letter({HELD}, '{{x,x}}')", "pkey"),
        (f"fairlead.claim({ID}, 'worker', true, {HELD}, 1000000)", "pkey"),
        (f"fairlead.release({ID}, {HELD})", "pkey"),
        ("fairlead.inspect(IDS, '9:9:', 10)", "pkey vest"),
    ],
)
def test_each_statement_on_held_items_has_one_index_too(
    database: Database, connection: Any, call: str, used: str, statistics: str
) -> None:
    fill(database, statistics)
    leased = database.lease(items_max=2)
    ids = f"'{{{','.join(each.id.hex() for each in leased)}}}'::uuid[]"
    leases = f"'{{{','.join(each.record.lease_id.hex() for each in leased)}}}'::uuid[]"
    plans = plans_of(connection, call.replace("IDS", ids).replace("LEASES", leases))
    for name in used.split():
        assert f"on items_{name}" in plans or f"using items_{name}" in plans, plans
    for other in all_but(*used.split()).split("|"):
        assert other not in plans, plans
    assert "Seq Scan on items" not in plans, plans
