"""The paper's experiments: the model is deterministic and saturates as documented; data, plots and page agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.load.histograms import histogram, waits
from bench.load.load_spec import Load
from bench.load.outcome import Leases, Outcome
from bench.paper import contention, data, page
from bench.paper.experiments import EXPERIMENTS
from bench.paper.forms import REAL, SIMULATED, Backlog, BacklogRanOut
from bench.paper.machine import fill
from bench.paper.model import Model
from bench.paper.points import Row, row
from bench.paper.setup import AS_IN_THE_PAPER, OURS, setup
from bench.report import plain
from fairlead import App, Config
from fairlead.actors.settings import SELECTIONS
from fairlead.clock import SystemClock
from tests.bench.test_core import run

SMALL = {**OURS, "slots": 8}
LOAD = Load(tenants=500, enqueues_per_s=60, warm_s=0.5, seconds=1.5)


def outcome(items_per_s: float = 100.0) -> Outcome:
    found = waits(histogram(range(1_000, 90_000, 1_000)))
    return Outcome(items_per_s, found, found, Leases(90, 8, 2, 1), scans=5)


def rows_of(name: str, form: str, items_per_s: float = 100.0) -> list[Row]:
    points = EXPERIMENTS[name].points(form, quick=True)
    kinds = ["load" if isinstance(point.what, Load) else "saturation" for point in points]
    return [row(form, kind, point, outcome(items_per_s)) for kind, point in zip(kinds, points, strict=True)]


# --- The model ---


def test_a_simulated_load_has_the_same_outcome_again_and_every_item_starts() -> None:
    first, again = (Model().under_load(LOAD, setup(2, SMALL, selection="random")) for _ in range(2))
    assert plain(first) == plain(again)
    assert first.item.count == pytest.approx(90, abs=30)
    least_ms = 9  # A read version, a read and a commit, without which no pointer is leased.
    assert least_ms < first.pointer.p50_ms < 100
    assert least_ms < first.item.p50_ms < 100


def test_consumers_saturate_at_the_rate_of_their_slots() -> None:
    """Eight slots of 50 ms are 160 items a second, for one consumer and for each of three."""
    backlog = Backlog(2_000, warm_s=0.3, seconds=1)
    one, three = (Model().at_saturation(backlog, setup(count, SMALL)) for count in (1, 3))
    assert one.items_per_s == pytest.approx(160, rel=0.05)
    assert three.items_per_s == pytest.approx(480, rel=0.05)


def test_a_backlog_that_ends_before_the_measurement_does_is_refused() -> None:
    """Otherwise the figure would be the backlog divided by the time, and not the limit of the consumers."""
    with pytest.raises(BacklogRanOut):
        Model().at_saturation(Backlog(100, warm_s=0.3, seconds=1), setup(2, SMALL))


def test_several_consumers_with_random_choice_conflict_and_a_single_one_does_not() -> None:
    backlog = Backlog(3_000, warm_s=0.2, seconds=0.5)
    chosen = {"selection": "random", "selection_frac": 0.5, "dequeue_max": 1}
    shape = {**AS_IN_THE_PAPER, "managers": 4, "workers": 4}
    collided, alone = (Model().at_saturation(backlog, setup(count, shape, **chosen)) for count in (4, 1))
    assert collided.leases.failed_percent > 5
    assert alone.leases.failed_percent == 0


def test_a_single_consumer_takes_the_oldest_pointers_first_unless_its_choice_is_random() -> None:
    """With random choice of a fiftieth per scan, some pointers wait for many scans."""
    load = Load(tenants=500, enqueues_per_s=120, work_ms=1, warm_s=0.5, seconds=2)
    in_order, at_random = (
        Model().under_load(load, setup(1, SMALL, selection=way, selection_frac=0.001)) for way in ("in_order", "random")
    )
    assert at_random.item.p99_ms > 1.5 * in_order.item.p99_ms


# --- The machine ---


def test_a_backlog_vests_at_one_instant_once_all_of_it_is_stored(tmp_path: Path) -> None:
    config = Config(shards={"main": f"embedded:{tmp_path / 'store'}"})
    vesting_us = SystemClock().now_us() + 60_000_000
    fill(config, Backlog(30, items=2, work_ms=5), vesting_us)
    app = App()
    app.configure(config)
    views = app.tenant("bench", "tenant-00007").peek()
    app.close()
    assert len(views) == 2
    assert all(abs(view.vesting_us - vesting_us) < 5_000_000 for view in views)


# --- Data, plots, page ---


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("form", [REAL, SIMULATED])
def test_a_figure_in_full_has_the_lines_of_a_quick_one_and_more_points(name: str, form: str) -> None:
    full, quick = (EXPERIMENTS[name].points(form, quick=quick) for quick in (False, True))
    assert len(full) >= len(quick) > 0
    ways = [{point.setup.settings.selection for point in points} for points in (quick, full)]
    assert ways[0] <= ways[1]


def test_measuring_one_form_again_keeps_the_rows_of_the_other(tmp_path: Path) -> None:
    for form, per_s in [(REAL, 1), (SIMULATED, 2), (REAL, 3)]:
        data.save(tmp_path, "figure4", form, rows_of("figure4", form, per_s), {"cores": per_s})
    saved = data.load(tmp_path, "figure4")
    assert {(each["form"], each["items_per_s"]) for each in saved["rows"]} == {(SIMULATED, 2), (REAL, 3)}
    assert saved["machine"] == {REAL: {"cores": 3}, SIMULATED: {"cores": 2}}


def test_the_page_has_every_figure_with_data_and_the_papers_numbers(tmp_path: Path) -> None:
    for name in ("figure4", "figure6", "figure7"):
        data.save(tmp_path, name, SIMULATED, rows_of(name, SIMULATED), {})
    page.write(tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    for name in ("figure4", "figure6", "figure7"):
        assert f"({name}.png)" in text
        assert data.plot_path(tmp_path, name).read_bytes().startswith(b"\x89PNG")
    assert "figure5.png" not in text
    assert "| pointer | the paper's | 105 ms |  | 305 ms |" in text
    assert "| 64 % |" in text


def test_every_line_of_a_table_has_as_many_cells_as_its_head() -> None:
    for name, experiment in EXPERIMENTS.items():
        head, *body = experiment.table([*rows_of(name, REAL), *rows_of(name, SIMULATED)])
        assert body
        assert {len(line) for line in body} == {len(head)}


def test_every_way_to_choose_pointers_is_a_line_of_figure_7() -> None:
    ways = {point.setup.settings.selection for point in contention.points(SIMULATED, quick=False)}
    assert ways == set(SELECTIONS)


@pytest.mark.timeout(240)  # Ten seconds on two quiet cores.
def test_a_quick_figure_is_written_with_its_data_plot_and_page(tmp_path: Path) -> None:
    printed = run("bench.paper", "figure6", "--quick", "--json", "--form", "simulated", "--out", str(tmp_path))
    assert printed["rows"] == json.loads((tmp_path / "figure6.json").read_text())["rows"]
    assert {path.name for path in tmp_path.iterdir()} == {"figure6.json", "figure6.png", "README.md"}
    (found,) = printed["rows"]
    assert found["item"]["count"] > 300
