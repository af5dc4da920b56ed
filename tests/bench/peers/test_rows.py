"""Rows have the figures of the rounds; tables show them with the facts that a comparison needs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.peers import bars
from bench.peers.measures import FIGURES
from bench.peers.page import page, tables
from bench.peers.record import Record, read
from bench.peers.results import Conditions, Results, RoundResult, results, significant
from bench.peers.round import About, Outcome
from bench.peers.systems import SYSTEMS

OURS = About("Fairlead, Ray", True, "LMDB, fsync of every commit", "defaults", {"fairlead": "0.1"})
THEIRS = About("Celery", False, "Redis, appendfsync everysec", "acks_late", {"celery": "5.7.0", "Redis": "7.0.15"})
QUIET = Conditions(cores=2, load_1m=0.1, fsync_ms=0.17, python="3.11.7", size="full")


def round_result(
    system: str, measure: str, about: About | None, reason: str = "", **figures: float | None
) -> RoundResult:
    return RoundResult(system, measure, Outcome(about, figures, reason))


def absent(system: str, measure: str, reason: str) -> RoundResult:
    return RoundResult(system, measure, Outcome(reason=reason, missing=True))


def run(*round_results: RoundResult) -> Results:
    return results(round_results)


def test_a_row_is_the_median_of_the_repetitions_with_the_smallest_and_the_largest() -> None:
    found = run(*(round_result("fairlead-ray", "drain", OURS, drain=per_s) for per_s in (900.0, 100.0, 200.0)))
    (row,) = found.rows
    assert (row.median, row.low, row.high, row.values) == (200.0, 100.0, 900.0, [900.0, 100.0, 200.0])
    assert row.unit == "jobs/s"


def test_every_row_states_durability_settings_and_versions() -> None:
    round_results = [
        round_result("fairlead-ray", "drain", OURS, drain=9.0),
        round_result("celery-everysec", "idle", THEIRS, idle=0.1),
    ]
    rows: list[dict[str, Any]] = json.loads(json.dumps(Record(round_results).as_json()))["rows"]
    assert [(row["system"], row["figure"]) for row in rows] == [("fairlead-ray", "drain"), ("celery-everysec", "idle")]
    assert [row["durable"] for row in rows] == [True, False]
    assert all(row["durability"] and row["settings"] and row["versions"] for row in rows)


def test_a_measure_that_is_taken_again_replaces_only_its_own_rounds(tmp_path: Path) -> None:
    drained, idle = (
        round_result("fairlead-ray", "drain", OURS, drain=9.0),
        round_result("celery-everysec", "idle", THEIRS, idle=0.1),
    )
    Record().with_measure("drain", QUIET, [drained]).with_measure("idle", QUIET, [drained, idle]).write(tmp_path)
    again = round_result("fairlead-ray", "drain", OURS, drain=7.0)
    busy = replace(QUIET, load_1m=8.0, fsync_ms=0.3)
    read(tmp_path).with_measure("drain", busy, [again]).write(tmp_path)
    assert read(tmp_path) == Record([idle, again], {"drain": busy, "idle": QUIET})
    written = (tmp_path / "README.md").read_text()
    assert "Do not compare these figures: drain." in written
    assert "0.17 to 0.3 ms for an fsync of one page" in written


def test_nothing_has_been_measured_in_a_directory_that_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path) == Record()


def test_a_figure_that_a_system_does_not_have_is_a_row_without_a_value() -> None:
    found = run(round_result("celery-everysec", "enqueue", THEIRS, enqueue_one=1300.0, enqueue_bulk=None))
    bulk = found.row("celery-everysec", "enqueue_bulk")
    assert bulk is not None
    assert (bulk.median, bulk.note) == (None, "1 of 1 without a value")
    assert "| 1,300 | - |" in tables(found)[0]


def test_a_job_that_never_ran_again_is_shown_as_never_seen() -> None:
    found = run(
        round_result("celery-everysec", "rerun", THEIRS, rerun=None),
        round_result("fairlead-ray", "rerun", OURS, rerun=7.0),
    )
    (only,) = tables(found)
    assert "| Celery | no: Redis, appendfsync everysec | never seen |" in only
    assert "| Fairlead, Ray | yes: LMDB, fsync of every commit | 7 |" in only


def test_a_row_shows_how_many_repetitions_have_no_value() -> None:
    found = run(*(round_result("celery-everysec", "rerun", THEIRS, rerun=seconds) for seconds in (60.0, None)))
    (row,) = found.rows
    assert (row.values, row.note) == ([60.0], "1 of 2 without a value")


def test_a_system_that_is_not_installed_is_named_with_the_reason_and_the_others_have_rows() -> None:
    found = run(
        absent("celery-everysec", "drain", "redis-server is not installed"),
        round_result("fairlead-ray", "drain", OURS, drain=9.0),
    )
    assert found.systems() == ["fairlead-ray"]
    assert "`celery-everysec` did not take part: redis-server is not installed" in page(found, {"drain": QUIET})


def test_a_round_that_failed_is_named_and_the_other_rounds_count() -> None:
    found = run(
        round_result("fairlead-ray", "drain", OURS, drain=9.0),
        round_result("fairlead-ray", "drain", OURS, "a worker ended with 1"),
    )
    assert found.failed == ["fairlead-ray, drain: a worker ended with 1"]
    assert [row.values for row in found.rows] == [[9.0]]
    assert "a worker ended with 1" in page(found, {"drain": QUIET})


def test_a_round_that_broke_off_without_an_outcome_is_failed_and_not_missing() -> None:
    found = run(
        round_result("dbos", "drain", OURS, drain=9.0),
        round_result("dbos", "drain", None, "the round broke off: Traceback"),
    )
    assert (found.missing, found.failed) == ({}, ["dbos, drain: the round broke off: Traceback"])


def test_the_page_shows_the_machine_and_the_settings_of_each_system() -> None:
    written = page(run(round_result("celery-everysec", "drain", THEIRS, drain=718.0)), {"drain": QUIET})
    assert "2 cores, 0.17 ms for an fsync of one page, Python 3.11.7" in written
    assert "**" not in written.split("Each repetition")[0]
    assert "| Celery | Redis, appendfsync everysec | acks_late | celery 5.7.0, Redis 7.0.15 |" in written


@pytest.mark.parametrize(
    ("conditions", "warning"),
    [(replace(QUIET, load_1m=8.0), "The machine was not quiet"), (replace(QUIET, size="quick"), "A quick run")],
)
def test_the_page_warns_of_figures_that_should_not_be_compared(conditions: Conditions, warning: str) -> None:
    assert f"**{warning}**" in page(run(round_result("fairlead-ray", "drain", OURS, drain=9.0)), {"drain": conditions})


@pytest.mark.parametrize(("value", "kept"), [(12345.6, 12346.0), (0.123456, 0.123), (17.27, 17.3), (0.0, 0.0)])
def test_three_digits_are_kept_since_the_rest_is_noise(value: float, kept: float) -> None:
    assert significant(value) == kept


@pytest.mark.parametrize(("ours", "cell"), [(8000.0, "8, reached"), (7000.0, "7, **not reached**")])
def test_a_bar_is_beside_what_each_runtime_reached(ours: float, cell: str) -> None:
    found = run(
        round_result("fairlead-postgres-threads", "drain", OURS, drain=ours),
        round_result("procrastinate", "drain", THEIRS, drain=1000.0),
    )
    assert bars.rows(found) == [["drain / Procrastinate", "at least 8", "-", cell]]


def test_a_duration_is_compared_the_other_way_round() -> None:
    found = run(
        round_result("fairlead-postgres-ray", "flood", OURS, heavy_done=4.0, quiet_p99=61.0),
        round_result("dbos-partitions", "flood", THEIRS, heavy_done=100.0),
    )
    assert bars.rows(found) == [
        ["quiet tenants under a flood, p99, ms", "under 60", "61, **not reached**", "-"],
        ["heavy tenant done, times sooner / DBOS, partitions", "at least 20", "25, reached", "-"],
    ]


def test_every_bar_names_figures_and_systems_that_there_are() -> None:
    for bar in bars.BARS:
        assert {bar.figure, bar.than or bar.figure} <= set(FIGURES)
        assert bar.other in {None, "embedded", *SYSTEMS}
