"""The command runs as documented, and prints rows with the shapes that other programs need."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from bench.olive_owner import WithoutOwnerRead
from fairlead import App, tenant_database
from tests.bench.test_core import ROOT, run


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_quick_figure_9_prints_an_operation_bare_and_in_an_intent() -> None:
    rows = run("bench.olive", "figure9", "--quick", "--json")["rows"]
    assert [(row["operation"], row["what"]) for row in rows] == [
        (operation, what) for operation in ("read", "update") for what in ("bare", "in an intent", "intent")
    ]
    assert all(row["mean_ms"] > 0 for row in rows)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_quick_figure_10_prints_steps_beside_bare_operations_with_their_bars() -> None:
    rows = run("bench.olive", "figure10", "--quick", "--json")["rows"]
    assert [(row["operations"], row["bar"]) for row in rows] == [(1, 1.6), (4, 1.2), (16, 1.1)]
    ratios = ("of_a_workflow", "of_all", "returning", "of_cpu", "bare_cpu_percent", "step_cpu_percent")
    assert all(row[name] > 0 for row in rows for name in ratios)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_quick_figure_11_prints_operations_with_a_snapshot_beside_plain_ones() -> None:
    rows = run("bench.olive", "figure11", "--quick", "--json")["rows"]
    assert [(row["operation"], row["bar"]) for row in rows if row["workload"] is None] == [
        ("first update", 1.3),
        ("later update", 1.1),
        ("read", None),
        ("create", None),
        ("read at it", None),
        ("take", None),
    ]
    mixed = {(row["workload"], row["operation"]) for row in rows if row["workload"] is not None}
    assert {("a", "read"), ("a", "update"), ("b", "read"), ("c", "read"), ("d", "read")} <= mixed
    assert all(row["of_plain"] > 0 for row in rows)


def test_a_transaction_over_two_shards_is_three_commits() -> None:
    rows = {row["what"]: row for row in run("bench.olive", "spanning", "--quick", "--json")["rows"]}
    assert rows["commits of one"]["across"] == 3
    assert rows["ms to the answer, alone"]["ratio"] > 1
    assert rows["a second, 16 at once"]["ratio"] > 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_figure_12_prints_operations_at_rest_moving_and_by_transactions() -> None:
    rows = run("bench.olive", "figure12", "--quick", "--json")["rows"]
    assert {row["workload"] for row in rows} == {"a", "b", "c", "d"}
    assert {row["how"] for row in rows} == {"at rest", "moving", "by transactions"}
    assert all(row["mean_ms"] > 0 for row in rows)


def test_the_quick_storage_prints_bytes_before_during_and_after_a_move() -> None:
    before, during, after = run("bench.olive", "storage", "--quick", "--json")["rows"]
    assert during["bytes"] > before["bytes"]
    assert after["bytes"] < 1.1 * before["bytes"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_moves_print_waits_and_no_failed_transaction() -> None:
    rows = run("bench.olive", "moves", "--quick", "--json")["rows"]
    assert [row["to"] for row in rows] == ["b", "a"] * 6
    assert [row["mb_per_s"] for row in rows] == [1_000.0, 1_000.0, 16.0, 16.0] * 3
    assert {row["failed"] for row in rows} == {0}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_locks_print_how_soon_each_is_free() -> None:
    rows = {row["killed"]: row for row in run("bench.olive", "locks", "--quick", "--json")["rows"]}
    assert list(rows) == ["worker", "machine", "process", "decided", "undecided", "frozen"]
    assert rows["decided"]["median_ms"] < 1_000 <= rows["undecided"]["median_ms"] < 2_000


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_owner_prints_ratios_beside_a_checkout() -> None:
    rows = run("bench.olive", "owner", "--quick", "--json", "--against", str(ROOT))["rows"]
    bodies = ["reads", "writes", "reads and then writes"]
    assert [row["what"] for row in rows] == [*bodies, "one read", *bodies, "enqueue", "drain"]
    assert all(row["ratio"] > 0 for row in rows if row["what"] != "one read")


def test_a_transaction_without_the_read_of_the_ownership_record_writes_and_reads(tmp_path: Path) -> None:
    """What the cost of the record is measured beside does the same otherwise."""
    app = App(f"embedded:{tmp_path / 'store'}")
    with mock.patch.object(tenant_database, "ApplicationTransaction", WithoutOwnerRead):
        app.tenant("shop", "alice").transact(lambda tr: tr.set(("a",), b"1"))
        assert app.tenant("shop", "alice").transact(lambda tr: tr.get(("a",))) == b"1"
    app.close()
