"""The page of Uniqorn's experiments: it has each figure that was measured, and the paper's numbers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.figures import Row, Run
from bench.paper.page import markdown
from bench.uniqorn import data, page
from bench.uniqorn.__main__ import FIGURES, main
from bench.uniqorn.measuring import GARBAGE_RATIOS
from bench.uniqorn.sections import SECTIONS
from bench.uniqorn.shards import ONE_SHARD, STORES, SYSTEMS, THREADS, THREE_SHARDS
from bench.uniqorn.workload import FOUR, Kind
from tests.bench.test_core import ROOT, run
from tests.foundationdb_server import FoundationServer, needs_server
from tests.postgresql_server import missing

PAGE = ROOT / "docs" / "paper" / "uniqorn.md"
LATENCIES: Row = {
    "p50_ms": 1.0,
    "p99_ms": 2.0,
    "p99_min_ms": 1.5,
    "p99_max_ms": 2.5,
    "done_p99_ms": 2.0,
    "requests": 200,
    "aborted": 50,
}


def row1(kind: Kind, ratio: float) -> Row:
    ratios = {f"{name}{end}": ratio for name in ("p99_ratio", "done_ratio") for end in ("", "_min", "_max")}
    return {"operation": kind.value, "monolithic": LATENCIES, "uniqorn": LATENCIES, "p50_ratio": 3.0, **ratios}


def row6(phase: int, away: int, scatters: bool, kind: Kind) -> Row:
    return {
        "phase": phase,
        "away": away,
        "scatters": scatters,
        "operation": kind.value,
        "answered": 0.875,
        "requests": 100,
    }


ROWS: dict[str, list[Row]] = {
    "table1": [row1(kind, 1.2) for kind in Kind],
    "shards": [
        {
            "operation": kind.value,
            "threads": threads,
            **{name: {**LATENCIES, "p99_ratio": 1.2, "p50_ratio": 1.1} for name in SYSTEMS},
        }
        for kind in Kind
        for threads in (1, 4)
    ],
    "figure4": [
        {"shards": shards, "operation": kind.value, **LATENCIES, "of_first": 1.0} for shards in (1, 8) for kind in Kind
    ],
    "figure5": [
        {"fields": 0, "operation": Kind.CREATE.value, **LATENCIES},
        {"fields": 6, "operation": Kind.CREATE.value, **LATENCIES, "of_first": 1.3, "done_of_first": 1.2},
        {"fields": 6, "operation": Kind.CREATE.value, "load": "few keys taken", **LATENCIES, "of_first": 1.1},
    ],
    "figure6": [
        row6(phase, away, scatters, kind)
        for scatters in (True, False)
        for phase, away in enumerate((0, 1, 0))
        for kind in FOUR
    ],
    "figure7": [
        {"ratio": ratio, "after": ratio, "operation": kind.value, **LATENCIES, "p99_ratio": 1.0, "p50_ratio": 1.0}
        for ratio in (0.0, 3.0)
        for kind in FOUR
    ],
    "build": [
        {
            "records": 50_000,
            "alone": {"per_s": 12_000, "bar": 10_000},
            "throttled": {"per_s": 9_990, "bar": 10_000},
            "users' p99": {"before_ms": 1.0, "beside_ms": 1.3, "ratio": 1.3, "min": 1.1, "max": 1.5, "bar": 1.1},
        }
    ],
}


def full(rows: list[Row]) -> Run:
    return Run(quick=False, machine={"cores": 2}, rows=rows)


def written(out: Path) -> str:
    page.write(out)
    return (out / "uniqorn.md").read_text(encoding="utf-8")


def test_every_figure_of_the_command_has_a_section() -> None:
    assert SECTIONS.keys() == FIGURES.keys() == ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_figure_with_data_has_a_plot_and_a_table(name: str, tmp_path: Path) -> None:
    data.SAVED.save(tmp_path, name, FIGURES[name].store, full(ROWS[name]))
    text = written(tmp_path)
    assert f"(uniqorn-{name}.png)" in text
    assert data.SAVED.plot_path(tmp_path, name).read_bytes().startswith(b"\x89PNG")
    assert markdown(SECTIONS[name].table(data.SAVED.load(tmp_path, name))) in text


@pytest.mark.parametrize("name", ROWS)
def test_every_line_of_a_table_has_as_many_cells_as_its_head(name: str) -> None:
    head, *body = SECTIONS[name].table({FIGURES[name].store: full(ROWS[name])})
    assert body
    assert {len(line) for line in body} == {len(head)}


def test_a_figure_that_was_not_measured_is_not_run_yet(tmp_path: Path) -> None:
    text = written(tmp_path)
    assert ".png" not in text
    for name in FIGURES:
        assert f"Not run yet: `python -m bench.uniqorn {name} --out docs/paper`." in text


def test_the_page_says_which_run_was_quick(tmp_path: Path) -> None:
    data.SAVED.save(tmp_path, "figure4", data.SIMULATED, Run(quick=True, machine={}, rows=ROWS["figure4"]))
    assert "quick run" in written(tmp_path)
    data.SAVED.save(tmp_path, "figure4", data.SIMULATED, full(ROWS["figure4"]))
    assert "quick run" not in written(tmp_path)


def test_a_run_on_another_kind_of_store_stands_beside(tmp_path: Path) -> None:
    for store in (data.POSTGRESQL, "embedded"):
        data.SAVED.save(tmp_path, "figure7", store, full(ROWS["figure7"]))
    assert data.SAVED.load(tmp_path, "figure7").keys() == {data.POSTGRESQL, "embedded"}


def test_records_on_both_kinds_of_shards_are_told_apart() -> None:
    runs = {store: full(ROWS["shards"]) for store in (data.EMBEDDED, data.FOUNDATIONDB)}
    _, *body = SECTIONS["shards"].table(runs)
    assert [line[0] for line in body] == ["embedded"] * (len(body) // 2) + ["FoundationDB"] * (len(body) // 2)
    assert len(SECTIONS["shards"].draw(runs).axes) == 2 * len(THREADS)


@pytest.mark.parametrize(("figure", "told"), [("table1", "not at all"), ("shards", "5 times, not 1 times")])
def test_a_figure_says_of_how_many_clusters_it_can_be_measured(
    figure: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_file = tmp_path / "fdb.cluster"
    cluster_file.touch()
    monkeypatch.setattr("sys.argv", ["bench.uniqorn", figure, "--store", f"fdb:{cluster_file}"])
    with pytest.raises(SystemExit):
        main()
    assert f"{figure} takes --store {told}" in capsys.readouterr().err


def test_table_1_shows_the_numbers_of_the_papers_text_and_whether_the_bars_are_reached() -> None:
    lines = {line[0]: line for line in SECTIONS["table1"].table({"here": full(ROWS["table1"])})}
    assert lines["create with AKs"][-4:] == ["25, 75", "3.00", "3.3", "yes"]
    assert lines["create with no AKs"][-4:] == ["16, 16", "1.00", "1.05", "**no**"]
    assert lines["read by AK"][-4:] == ["12, 16", "1.33", "1.33", "yes"]
    assert lines["delete by AK"][-4:] == ["22, 27", "1.23", "", ""]


def test_a_build_says_which_of_its_bars_are_reached() -> None:
    _, alone, throttled, users, ratio = SECTIONS["build"].table({data.EMBEDDED: full(ROWS["build"])})
    assert alone[-3:] == ["12,000", "at least 10,000", "yes"]
    assert throttled[-3:] == ["9,990", "", ""]
    assert users[-3:] == ["1 ms, 1.3 ms", "", ""]
    assert ratio[-3:] == ["1.3 (1.1 to 1.5)", "at most 1.1", "**no**"]


def test_the_documented_page_is_written_from_its_data_and_none_of_them_is_quick(tmp_path: Path) -> None:
    for name in FIGURES:
        for store, found in data.SAVED.load(PAGE.parent, name).items():
            assert not found.quick, name
            data.SAVED.save(tmp_path, name, store, found)
    assert written(tmp_path) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["table1", pytest.param("figure7", marks=pytest.mark.long)])
def test_the_quick_figures_in_real_time_print_their_rows(name: str) -> None:
    if reason := missing():
        pytest.skip(reason)
    rows = run("bench.uniqorn", name, "--quick", "--json")["rows"]
    assert {row["operation"] for row in rows} == {kind.value for kind in (Kind if name == "table1" else FOUR)}
    assert all(row["p99_ratio"] > 0 for row in rows)


def test_the_quick_figure_7_on_embedded_shards_prints_its_rows() -> None:
    rows = run("bench.uniqorn", "figure7", "--on", "embedded", "--quick", "--json")["rows"]
    assert {(row["operation"], row["ratio"]) for row in rows} == {
        (kind.value, ratio) for kind in FOUR for ratio in GARBAGE_RATIOS
    }


def test_figure_7_on_both_kinds_of_stores_is_told_apart() -> None:
    runs = {store: full(ROWS["figure7"]) for store in (data.POSTGRESQL, data.EMBEDDED)}
    _, *body = SECTIONS["figure7"].table(runs)
    assert [line[0] for line in body] == ["PostgreSQL"] * (len(body) // 2) + ["embedded"] * (len(body) // 2)
    assert len(SECTIONS["figure7"].draw(runs).axes) == 4


def test_a_figure_is_refused_on_a_kind_of_store_that_it_does_not_run_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.uniqorn", "table1", "--on", "embedded"])
    with pytest.raises(SystemExit):
        main()
    assert "table1 does not run on embedded; it runs on: postgresql" in capsys.readouterr().err


def test_clusters_and_another_kind_of_store_are_refused_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster_file = tmp_path / "fdb.cluster"
    cluster_file.touch()
    stores = ["--store", f"fdb:{cluster_file}"] * STORES
    monkeypatch.setattr("sys.argv", ["bench.uniqorn", "shards", "--on", "embedded", *stores])
    with pytest.raises(SystemExit):
        main()
    assert "give one of them" in capsys.readouterr().err


def test_the_quick_records_on_embedded_shards_print_their_rows() -> None:
    rows = run("bench.uniqorn", "shards", "--quick", "--json")["rows"]
    assert {(row["operation"], row["threads"]) for row in rows} == {(kind.value, n) for kind in Kind for n in (1, 4)}
    assert all(row[ONE_SHARD]["requests"] > 0 for row in rows)


@needs_server
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quick_records_on_foundationdb_print_their_rows(tmp_path: Path) -> None:
    with ExitStack() as running:
        servers = [running.enter_context(FoundationServer(tmp_path / str(number))) for number in range(STORES)]
        named = [argument for server in servers for argument in ("--store", server.url)]
        rows = run("bench.uniqorn", "shards", "--quick", "--json", *named)["rows"]
    assert all(row[THREE_SHARDS]["requests"] > 0 for row in rows)


def test_a_simulated_figure_is_saved_with_its_plot_and_page(tmp_path: Path) -> None:
    printed = run("bench.uniqorn", "figure6", "--quick", "--json", "--out", str(tmp_path))
    assert data.SAVED.load(tmp_path, "figure6")[data.SIMULATED].rows == printed["rows"]
    assert {path.name for path in tmp_path.iterdir()} == {"uniqorn-figure6.json", "uniqorn-figure6.png", "uniqorn.md"}
