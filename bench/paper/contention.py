"""Figure 7: `selection_frac` against latency, failed leases and throughput, four consumers (section 8, "Contention").

Latency and failed leases are measured under the uniform load of 2,500 items a second. Throughput, and failed leases
again, are measured at saturation, with 20,000 vested pointers. Every line is a way to choose pointers; for another way,
add a `Line`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from bench.load.load_spec import Load
from bench.paper.forms import REAL, SIMULATED, Backlog
from bench.paper.plots import explain, lines, panels
from bench.paper.points import Point, Row
from bench.paper.published import FAILED_PERCENT, at_commit_percent
from bench.paper.setup import AS_IN_THE_PAPER, OURS, Shape, setup

TITLE = "Figure 7: the fraction of peeked pointers that is chosen, four consumers"
CONSUMERS = 4
FRACTIONS = (0.001, 0.005, 0.02, 0.1, 0.2, 0.5)
FEW_FRACTIONS = (0.001, 0.02, 0.2, 0.5)


class Line(NamedTuple):
    """One line of the figure: consumers of a shape, with one way of `fairlead.actors.scanning` to choose pointers."""

    name: str
    shape: Shape
    selection: str


LINES = (
    Line("the paper's consumer, all at random", AS_IN_THE_PAPER, "random"),
    Line("ours, all at random", OURS, "random"),
    Line("ours, one in order", OURS, "in_order"),
    Line("ours, own parts", OURS, "partitioned"),
)


def points(form: str, *, quick: bool) -> list[Point]:
    """Return the points: each line at each fraction, under load and at saturation."""
    if form == REAL:
        drawn = LINES[3:] if quick else LINES[1:]
        fractions: Sequence[float] = (0.02,) if quick else FEW_FRACTIONS
        load = Load(tenants=6_000, enqueues_per_s=100, warm_s=2 if quick else 5, seconds=3 if quick else 15)
        backlog = Backlog(20_000, warm_s=1, seconds=2) if quick else Backlog(100_000, warm_s=2, seconds=6)
        return _points(drawn, fractions, load, backlog, consumers=2 if quick else CONSUMERS)
    if quick:
        load = Load(tenants=15_000, enqueues_per_s=250, warm_s=0.5, seconds=1)
        return _points(LINES, (0.5,), load, Backlog(12_000, warm_s=0.2, seconds=0.3), consumers=2)
    load = Load(tenants=150_000, enqueues_per_s=2_500, warm_s=3, seconds=2)
    return _points(LINES, FRACTIONS, load, Backlog(60_000, warm_s=0.3, seconds=1), consumers=CONSUMERS)


def _points(
    drawn: Sequence[Line], fractions: Sequence[float], load: Load, backlog: Backlog, *, consumers: int
) -> list[Point]:
    return [
        Point(
            line.name,
            {"selection_frac": fraction},
            setup(consumers, line.shape, selection=line.selection, dequeue_max=1, selection_frac=fraction),
            what,
        )
        for line in drawn
        for fraction in fractions
        for what in (load, backlog)
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Draw latency, failed leases and throughput, a row of panels per form."""
    forms = [form for form in (SIMULATED, REAL) if any(row["form"] == form for row in rows)]
    figure, axes = panels(TITLE, 3, rows=len(forms))
    for number, form in enumerate(forms):
        latency, failed, throughput = axes[3 * number : 3 * number + 3]
        loaded = [row for row in rows if row["form"] == form and row["kind"] == "load"]
        full = [row for row in rows if row["form"] == form and row["kind"] == "saturation"]
        lines(latency, loaded, x="selection_frac", y=lambda row: row["item"]["p50_ms"])
        lines(latency, loaded, x="selection_frac", y=lambda row: row["item"]["p99_ms"], style=":", labelled=False)
        latency.set(ylabel="item latency, ms (99 % dotted)", yscale="log", title=form)
        lines(failed, loaded, x="selection_frac", y=lambda row: row["failed_percent"])
        lines(failed, full, x="selection_frac", y=lambda row: row["failed_percent"], style=":", labelled=False)
        if form == SIMULATED:
            failed.plot(list(FAILED_PERCENT), list(FAILED_PERCENT.values()), "k*", label="the paper's text")
            explain(failed)
        failed.set(ylabel="failed leases, % (full: dotted)", title=form)
        lines(throughput, full, x="selection_frac", y=lambda row: row["items_per_s"])
        throughput.set(
            ylabel="items per second", title="at saturation", ylim=(0, 1.2 * max(each["items_per_s"] for each in full))
        )
        for ax in (latency, failed, throughput):
            ax.set(xlabel="selection_frac", xscale="log")
    return figure


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return a head and a row per form, line and fraction, with the paper's numbers."""
    head = ["form", "line", "selection_frac", "item median / 99 %", "pointer median / 99 %", "failed leases", "paper",
            "of these at commit", "paper", "conflicts per 1,000 attempts", "failed when full", "items/s"]  # fmt: skip
    full = {_key(row): row for row in rows if row["kind"] == "saturation"}
    body = []
    for row in sorted((row for row in rows if row["kind"] == "load"), key=_place):
        fraction, leases, saturated = row["selection_frac"], row["leases"], full[_key(row)]
        attempts = leases["leased"] + leases["missed_at_read"] + leases["missed_at_commit"]
        as_there = LINES[_place(row)[1]].selection == "random"  # The paper's figure has no other line.
        stated = FAILED_PERCENT.get(fraction) if as_there else None
        body.append([
            row["form"], row["series"], f"{fraction:g}", _pair(row["item"]), _pair(row["pointer"]),
            f"{row['failed_percent']:g} %", "" if stated is None else f"{stated:g} %",
            f"{row['at_commit_percent']:g} %", f"{at_commit_percent(fraction)} %" if as_there else "",
            f"{1_000 * leases['conflicts'] / max(1, attempts):.0f}",
            f"{saturated['failed_percent']:g} %", f"{saturated['items_per_s']:,.0f}",
        ])  # fmt: skip
    return [head, *body]


def _place(row: Row) -> tuple[str, int, float]:
    """Return the sort key of a row: the order of its line, then its fraction."""
    return row["form"], [line.name for line in LINES].index(row["series"]), row["selection_frac"]


def _key(row: Row) -> tuple[str, str, float]:
    return row["form"], row["series"], row["selection_frac"]


def _pair(waits: Mapping[str, float]) -> str:
    return f"{waits['p50_ms']:,.0f} / {waits['p99_ms']:,.0f} ms"
