"""The command runs as documented, and prints rows with the shapes that other programs need."""

from __future__ import annotations

import pytest

from tests.bench.test_core import run


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
    assert [(row["operation"], row["bar"]) for row in rows] == [
        ("first update", 1.3),
        ("later update", 1.1),
        ("read", None),
        ("create", None),
        ("read at it", None),
        ("take", None),
    ]
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
    assert [row["to"] for row in rows] == ["b", "a"] * 3
    assert {row["failed"] for row in rows} == {0}
