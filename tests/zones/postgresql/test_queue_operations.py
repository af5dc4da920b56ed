"""Operations of applications and operators on items in PostgreSQL: what the server does for each."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import DeadLetterRecord
from tests.zones.postgresql.database import ALICE, Database, held

BOB = Tenant("shop", "bob")
QUEUE = "'shop', 'alice', 'queue'"
ID = "'00000000-0000-0000-0000-000000000000'"


def fill(database: Database, count: int) -> None:
    """Let two tenants have so many items and dead records."""
    for tenant in (ALICE, BOB):
        database.put(*[new_item("mail", number) for number in range(2 * count)], tenant=tenant)
        leased = database.lease(tenant, items_max=count, rooms={"mail": count})
        records = [DeadLetterRecord(each.record, "error", "boom", "", 1) for each in leased]
        database.store.dead_letter([held(each) for each in leased], records)


def plans_of(connection: Any, call: str) -> str:
    """Return the plans of the statements that a call of a function executes."""
    plans: list[str] = []
    connection.add_notice_handler(lambda notice: plans.append(notice.message_primary))
    connection.execute("LOAD 'auto_explain'")
    connection.execute("SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on")
    connection.execute("SET client_min_messages = log")
    connection.execute(f"SELECT {call}")
    return "\n".join(plans)


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
    ],
)
def test_each_statement_has_one_index_whatever_the_statistics_say(
    database: Database, connection: Any, call: str, index: str, others: str, statistics: str
) -> None:
    if statistics == "of an empty table":
        connection.execute("VACUUM ANALYZE fairlead.items")
    fill(database, 150)
    if statistics == "of many rows":
        connection.execute("VACUUM ANALYZE fairlead.items")
    plans = plans_of(connection, call)
    assert f"on {index}" in plans or f"using {index}" in plans, plans
    for other in others.split("|"):
        assert other not in plans, plans
    assert "Seq Scan on items" not in plans, plans
    assert "Seq Scan on cancelled" not in plans, plans
