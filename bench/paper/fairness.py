"""Figures 5 and 6: how long pointers and items wait with one consumer, uniform and skewed load (section 8, "Fairness").

150,000 tenants enqueue an item a minute each, on average. The handler takes 50 ms, so one consumer's 128 slots are
nearly full. `dequeue_max` is 1: a dequeue takes one item of each queue.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from bench.load.load_spec import PARETO, UNIFORM, Load
from bench.paper.forms import REAL, SIMULATED
from bench.paper.plots import explain, panels
from bench.paper.points import Point, Row
from bench.paper.published import FIGURE_6
from bench.paper.setup import AS_IN_THE_PAPER, OURS, Shape, setup

SKEW_OF = {"figure5": UNIFORM, "figure6": PARETO}
TITLE_OF = {
    "figure5": "Figure 5: latency, uniform load, one consumer",
    "figure6": "Figure 6: latency, skewed load, one consumer",
}
PAPER = ("pointer, the paper's text", "item, the paper's text")
PERCENTS = {"p10_ms": "10", "p50_ms": "50", "p90_ms": "90", "p99_ms": "99", "p99_9_ms": "99.9", "max_ms": "max"}


def points(figure: str, form: str, *, quick: bool) -> list[Point]:
    """Return the points of one of the two figures."""
    skew = SKEW_OF[figure]
    if form == REAL:
        seconds = 5 if quick else 30
        load = Load(tenants=6_000, enqueues_per_s=100, skew=skew, warm_s=2 if quick else 5, seconds=seconds)
        return [_point("100/s, our consumer", load, OURS)]
    if quick:
        load = Load(tenants=15_000, enqueues_per_s=250, skew=skew, warm_s=0.5, seconds=2)
        return [_point("250/s, our consumer", load, {**OURS, "slots": 16})]
    full = Load(tenants=150_000, enqueues_per_s=2_500, skew=skew, warm_s=5, seconds=10)
    half = Load(tenants=150_000, enqueues_per_s=1_250, skew=skew, warm_s=5, seconds=10)
    return [
        _point("2,500/s, the paper's consumer", full, AS_IN_THE_PAPER),
        _point("2,500/s, our consumer", full, OURS),
        _point("1,250/s, our consumer", half, OURS),
    ]


def _point(series: str, load: Load, shape: Shape) -> Point:
    return Point(series, {"enqueues_per_s": load.enqueues_per_s}, setup(1, shape, dequeue_max=1), load)


def draw(figure: str, rows: Sequence[Row]) -> Figure:
    """Draw waits against percentiles, a panel per form."""
    forms = [form for form in (SIMULATED, REAL) if any(row["form"] == form for row in rows)]
    drawn, axes = panels(TITLE_OF[figure], len(forms))
    for form, ax in zip(forms, axes, strict=True):
        for number, row in enumerate(row for row in rows if row["form"] == form):
            for what, style in (("pointer", "--"), ("item", "-")):
                waits_s = [row[what][name] / 1000 for name in PERCENTS]
                label = f"{what}, {row['series']}"
                ax.plot(list(PERCENTS.values()), waits_s, style, color=f"C{number}", marker="o", label=label)
        if figure == "figure6":
            stated = FIGURE_6
            ax.plot(
                ["50", "99.9"], [stated.pointer_p50_ms / 1000, stated.pointer_p99_9_ms / 1000], "k^", label=PAPER[0]
            )
            ax.plot(["50", "max"], [stated.item_p50_ms / 1000, stated.item_tail_ms / 1000], "k*", label=PAPER[1])
        ax.set(title=form, xlabel="percentile", ylabel="seconds", yscale="log")
        explain(ax)
    return drawn


def table(figure: str, rows: Sequence[Row]) -> list[list[str]]:
    """Return a head, the paper's numbers, and two lines per row."""
    head = ["form", "what", "consumer", "median", "99 %", "99.9 %", "largest", "counted"]
    stated = []
    if figure == "figure6":
        ms = FIGURE_6
        stated = [
            [
                "**paper**",
                "pointer",
                "the paper's",
                f"{ms.pointer_p50_ms:g} ms",
                "",
                f"{ms.pointer_p99_9_ms:g} ms",
                "",
                "",
            ],
            ["**paper**", "item", "the paper's", f"{ms.item_p50_ms:g} ms", "", "", f"tail {ms.item_tail_ms:,g} ms", ""],
        ]
    body = [
        [row["form"], what, row["series"], _ms(row[what]["p50_ms"]), _ms(row[what]["p99_ms"]),
         _ms(row[what]["p99_9_ms"]), _ms(row[what]["max_ms"]), f"{row[what]['count']:,}"]
        for row in rows
        for what in ("pointer", "item")
    ]  # fmt: skip
    return [head, *stated, *body]


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"
