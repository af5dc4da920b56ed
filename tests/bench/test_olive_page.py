"""The page of Olive's experiments: it has each figure that was measured, the paper's numbers, and the bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.figures import Row, Run
from bench.olive import FIGURES
from bench.olive_load import RATES
from bench.olive_locks import BARS_S
from bench.olive_owner import ONE_READ, THE_READ
from bench.olive_page import bars, data, page
from bench.olive_page.data import BETWEEN, EMBEDDED, FOUNDATIONDB
from bench.paper.page import markdown
from tests.bench.test_core import ROOT, run

PAGE = ROOT / "docs" / "paper" / "olive.md"


def row9(operation: str, what: str) -> Row:
    return {"operation": operation, "what": what, "mean_ms": 1.0, "within_ms": 0.1, "of_bare": 1.0}


def row10(operations: int) -> Row:
    names = ("bare_ms", "step_ms", "of_a_workflow", "of_all", "of_cpu")
    return {"operations": operations, "bar": 1.1, **dict.fromkeys(names, 2.0)}


def row11(operation: str, of_plain: float, bar: float | None = None, workload: str | None = None) -> Row:
    names = ("plain_ms", "plain_within_ms", "copied_ms", "copied_within_ms")
    which = {"workload": workload, "operation": operation}
    return {**which, "of_plain": of_plain, "bar": bar, **dict.fromkeys(names, 1.0)}


def row12(workload: str, operation: str, how: str, mean_ms: float) -> Row:
    names = {"workload": workload, "operation": operation, "how": how}
    return {**names, "mean_ms": mean_ms, "within_ms": 0.1, "of_rest": mean_ms}


def row_of_move(what: str, to: str, longest_wait_ms: float, *, mb_per_s: float = RATES[0], ratio: float = 1.0) -> Row:
    names = ("seconds", "frozen_ms", "others_p99_ms", "others_p99_at_rest_ms", "load_1m")
    others = {"others_longest_ms": 1.0, "longest_wait_at_rest_ms": 1.0, "others_failed": 0, "longest_flush_ms": 1.0}
    waits = {"longest_wait_ms": longest_wait_ms, "wait_ms_max": 50.0, "failed": 0, **others}
    which = {"what": what, "to": to, "mb_per_s": mb_per_s, "moves": 1}
    return {**which, **waits, "others_ratio": ratio, **dict.fromkeys(names, 1.0)}


def row_of_lock(killed: str, longest_ms: float) -> Row:
    bar_ms = BARS_S[killed] * 1000
    return {"killed": killed, "times": 5, "median_ms": 1.0, "longest_ms": longest_ms, "bar_ms": bar_ms}


def row_of_cost(what: str, beside: str, ratio: float, bar: float) -> Row:
    names = ("low", "high", "cpu_ratio", "load_1m")
    took = {"before_us": 1_000.0, "now_us": 1_000.0 * ratio, "more_us": 1_000.0 * (ratio - 1)}
    return {"what": what, "beside": beside, **took, "ratio": ratio, "bar": bar, **dict.fromkeys(names, 1.0)}


def one_read(took_us: float) -> Row:
    return {**dict.fromkeys(row_of_cost("", "", 1.0, 1.0)), "what": ONE_READ, "now_us": took_us}


ROWS: dict[str, list[Row]] = {
    "figure9": [row9(each, what) for each in ("read", "update") for what in ("bare", "in an intent", "intent")],
    "figure10": [row10(operations) for operations in (1, 4, 16)],
    "figure11": [
        row11("first update", 1.25, 1.3),
        row11("later update", 1.15, 1.1),
        *(row11(each, 1.0) for each in ("read", "create", "read at it", "take")),
        *(row11(each, 3.25, workload="a") for each in ("read", "update")),
    ],
    "figure12": [
        row12(workload, operation, how, mean_ms)
        for workload, operation in (("a", "read"), ("a", "update"), ("d", "create"))
        for how, mean_ms in (("at rest", 1.0), ("moving", 2.0), ("by transactions", 14.0))
    ],
    "storage": [
        {"when": when, "bytes": size, "of_data": size / 1e6}
        for when, size in (("before", 1_030_000), ("during, at most", 2_070_000), ("after", 1_040_000))
    ],
    "moves": [
        row_of_move("1 MB", to, wait_ms, mb_per_s=rate, ratio=ratio)
        for rate, ratio in zip(RATES, (1.2, 1.05), strict=True)
        for to, wait_ms in (("b", 40.0), ("a", 60.0))
    ],
    "locks": [row_of_lock("worker", 250.0), row_of_lock("undecided", 1_011.0)],
    "owner": [
        row_of_cost("reads", THE_READ, 1.04, 1.05),
        row_of_cost("writes", THE_READ, 1.2, 1.05),
        one_read(250.0),
        row_of_cost("drain", "0676dd1f", 1.04, 1.03),
    ],
    "spanning": [
        {"what": "commits of one", "bare": 1, "across": 3, "ratio": "", "bar": 3},
        {"what": "ms to the answer, alone", "bare": 1.0, "across": 2.0, "ratio": 2.0, "bar": 2.3},
        {"what": "a second, 16 at once", "bare": 1_000, "across": 300, "ratio": 0.3, "bar": 0.4},
    ],
}


def full(rows: list[Row]) -> Run:
    return Run(quick=False, machine={"cores": 2}, rows=rows)


def written(out: Path) -> str:
    page.write(out)
    return (out / "olive.md").read_text(encoding="utf-8")


def bars_of(**runs: dict[str, Run]) -> dict[str, list[str]]:
    """Return the lines of the table of bars, by measure."""
    none: dict[str, Any] = {name: {} for name in FIGURES}
    return {measure: rest for measure, *rest in bars.table({**none, **runs})}


# --- The page ---


def test_every_figure_of_the_command_has_a_section() -> None:
    assert page.SECTIONS.keys() == FIGURES.keys() == ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_figure_with_data_has_a_plot_and_a_table(name: str, tmp_path: Path) -> None:
    data.SAVED.save(tmp_path, name, EMBEDDED, full(ROWS[name]))
    text = written(tmp_path)
    assert f"(olive-{name}.png)" in text
    assert data.SAVED.plot_path(tmp_path, name).read_bytes().startswith(b"\x89PNG")
    assert markdown(page.SECTIONS[name].table(data.SAVED.load(tmp_path, name))) in text


@pytest.mark.parametrize("name", ROWS)
def test_every_line_of_a_table_has_as_many_cells_as_its_head(name: str) -> None:
    head, *body = page.SECTIONS[name].table({EMBEDDED: full(ROWS[name])})
    assert body
    assert {len(line) for line in body} == {len(head)}


def test_a_figure_that_was_not_measured_is_not_run_yet(tmp_path: Path) -> None:
    text = written(tmp_path)
    assert ".png" not in text
    for name in FIGURES:
        assert f"Not run yet: `python -m bench.olive {name} --out docs/paper`." in text


def test_the_page_says_which_run_was_quick(tmp_path: Path) -> None:
    data.SAVED.save(tmp_path, "figure10", EMBEDDED, Run(quick=True, machine={}, rows=ROWS["figure10"]))
    assert "quick run" in written(tmp_path)
    data.SAVED.save(tmp_path, "figure10", EMBEDDED, full(ROWS["figure10"]))
    assert "quick run" not in written(tmp_path)


def test_measuring_one_engine_keeps_the_run_of_the_other(tmp_path: Path) -> None:
    for engine in (EMBEDDED, FOUNDATIONDB):
        data.SAVED.save(tmp_path, "figure11", engine, full(ROWS["figure11"]))
    data.SAVED.save(tmp_path, "figure11", EMBEDDED, full(ROWS["figure11"][::-1]))
    runs = data.SAVED.load(tmp_path, "figure11")
    assert runs[FOUNDATIONDB].rows == ROWS["figure11"]
    assert runs[EMBEDDED].rows == ROWS["figure11"][::-1]
    assert "FoundationDB | alone | first update" in written(tmp_path)


# --- The paper's numbers ---


def test_tables_show_the_numbers_of_the_papers_text() -> None:
    tables = {name: page.SECTIONS[name].table({EMBEDDED: full(rows)}) for name, rows in ROWS.items()}
    assert tables["figure11"][1][-1] == "5 (Azure SQL 2)"
    update = next(line for line in tables["figure12"] if line[1] == "update")
    assert update[-2:] == ["7.0", "roughly 6"]
    stated = [line[-1] for line in tables["storage"][1:]]
    assert [text.split(",")[0] for text in stated[:2]] == ["2.6 MB", "5.5 MB"]
    assert stated[2].startswith("less than 8 %")


# --- The bars ---


def test_a_bar_without_data_is_not_run_yet_and_neither_reached_nor_missed() -> None:
    for measure, (_, measured, reached, command) in bars_of().items():
        if command.startswith("`python -m bench.olive"):
            assert (measured, reached) == ("not run yet", ""), measure


def test_a_move_of_another_size_does_not_stand_for_those_of_the_design() -> None:
    found = bars_of(moves={EMBEDDED: full([row_of_move("5 MB", "b", 40.0)])})
    assert found["move of 5 MB, embedded: longest wait"][1:3] == ["40 (the disk's 1)", "yes"]
    for what in ("1 MB", "1,000 MB", "1,000,000 items"):
        assert found[f"move of {what}, embedded"][1:3] == ["not run yet", ""]


def test_moves_between_engines_have_the_bar_of_a_cluster() -> None:
    found = bars_of(moves={BETWEEN: full([row_of_move("1 MB", "b", 90.0)])})
    assert found["move of 1 MB, embedded to FoundationDB: longest wait"] == [
        "under 100 ms",
        "90 (the disk's 1)",
        "yes",
        "`python -m bench.olive moves`",
    ]


def test_a_transaction_on_foundationdb_may_cost_one_read_more() -> None:
    assert reached_on_cluster(ROWS["owner"]) == "yes"
    slower = [row_of_cost("writes", THE_READ, 1.3, 1.05), one_read(250.0)]
    assert reached_on_cluster(slower) == "**no**"


def test_a_transaction_on_foundationdb_may_not_cost_more_than_one_read_even_if_that_is_little_of_it() -> None:
    """Before, the page showed the bar of one read, and also took what is within that of the embedded store."""
    assert reached_on_cluster([row_of_cost("writes", THE_READ, 1.04, 1.05), one_read(30.0)]) == "**no**"


def reached_on_cluster(rows: list[Row]) -> str:
    """Return whether a transaction that only writes reaches its bar on FoundationDB."""
    found = {measure: line[2] for measure, line in bars_of(owner={FOUNDATIONDB: full(rows)}).items()}
    return found[f"a transaction that only writes, beside one {THE_READ}, FoundationDB"]


def test_bars_say_whether_they_are_reached() -> None:
    runs = {name: {EMBEDDED: full(ROWS[name])} for name in ("spanning", "figure11", "moves", "locks", "owner")}
    found = {measure: (measured, reached) for measure, (_, measured, reached, _) in bars_of(**runs).items()}
    assert found["transaction over two shards: commits"] == ("3", "yes")
    assert found["its time to the answer, of that of one commit"] == ("2", "yes")
    assert found["its throughput, of that of two bare commits"] == ("0.3", "**no**")
    assert found["first update of a key after a snapshot, of a plain one, embedded"] == ("1.25", "yes")
    assert found["later updates, embedded"] == ("1.15", "**no**")
    assert found["move of 1 MB, embedded: longest wait"] == (
        "40 (the disk's 1) and 60 (the disk's 1)",
        "**no**",
    )
    assert found["move of 1 MB, embedded: failed transactions"] == ("0 and 0", "yes")
    assert found["move of 1 MB, embedded: others' p99, of at rest, fast"] == ("1.2 and 1.2", "**no**")
    assert found["move of 1 MB, embedded: others' p99, of at rest, 16 MB/s"] == ("1.05 and 1.05", "yes")
    assert found["lock of a handler; its worker was killed, with Ray, embedded"][1] == "yes"
    assert found["lock of an undecided transaction across shards; its coordinator was killed, embedded"][1] == "**no**"
    assert found[f"a transaction that only reads, beside one {THE_READ}, embedded"] == ("1.04; of cpu 1", "yes")
    assert found["drain, beside 0676dd1f, embedded"][1] == "**no**"


# --- The documented page ---


def test_the_documented_page_is_written_from_its_data_and_none_of_them_is_quick(tmp_path: Path) -> None:
    for name in FIGURES:
        for engine, found in data.SAVED.load(PAGE.parent, name).items():
            assert not found.quick, name
            data.SAVED.save(tmp_path, name, engine, found)
    assert written(tmp_path) == PAGE.read_text(encoding="utf-8")


@pytest.mark.timeout(240)
def test_a_figure_is_saved_with_its_plot_and_page(tmp_path: Path) -> None:
    printed = run("bench.olive", "storage", "--quick", "--json", "--out", str(tmp_path))
    assert data.SAVED.load(tmp_path, "storage")[EMBEDDED].rows == printed["rows"]
    assert {path.name for path in tmp_path.iterdir()} == {"olive-storage.json", "olive-storage.png", "olive.md"}
