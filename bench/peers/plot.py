"""The figures as a picture: one panel each, one bar per system, with the spread of the repetitions."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import NullFormatter

from bench.peers.measures import FIGURES
from bench.peers.page import number
from bench.peers.results import Results

PANELS = (
    "enqueue_one",
    "enqueue_four",
    "drain",
    "at_100_p50",
    "at_100_p99",
    "quiet_p99",
    "heavy_done",
    "rerun_process",
    "rerun",
    "idle",
)
COLUMNS = 3
MARGIN = 3.0  # Space left of the shortest bar, so that it is visible, and right of the longest, for its number.
OURS, DURABLE, NOT_DURABLE = "#c2410c", "#3b6ea5", "#b8c4d0"


def draw(results: Results, path: Path) -> None:
    """Write the picture as a PNG. Fairlead, durable peers, and other peers differ in colour."""
    panels = [key for key in PANELS if any(row.figure == key and row.median is not None for row in results.rows)]
    if not panels:
        return
    lines = -(-len(panels) // COLUMNS)
    drawing = Drawing(figsize=(5.2 * COLUMNS, 3.2 * lines), layout="constrained")
    for key, axes in zip(panels, drawing.subplots(lines, COLUMNS, squeeze=False).flat, strict=False):
        _panel(axes, results, key)
    for axes in drawing.axes[len(panels) :]:
        axes.set_axis_off()
    drawing.suptitle("Fairlead (orange), durable peers (blue), peers that lose acknowledged jobs in a power cut (grey)")
    drawing.savefig(path, dpi=110)


def _panel(axes: Axes, results: Results, key: str) -> None:
    rows = [row for row in results.rows if row.figure == key and row.median is not None][::-1]
    medians = [row.median or 0.0 for row in rows]
    below = [max(0.0, median - (row.low or 0.0)) for median, row in zip(medians, rows, strict=True)]
    above = [max(0.0, (row.high or 0.0) - median) for median, row in zip(medians, rows, strict=True)]
    colours = [OURS if row.system.startswith("fairlead") else DURABLE if row.durable else NOT_DURABLE for row in rows]
    bars = axes.barh([row.title for row in rows], medians, xerr=[below, above], color=colours, ecolor="#444444")
    axes.bar_label(bars, [number(median) for median in medians], fontsize=7, padding=3)
    figure = FIGURES[key]
    better = "more" if figure.more_is_better else "less"
    axes.set_title(f"{figure.title}, {figure.unit} ({better} is better)", fontsize=9)
    axes.set_xscale("log")
    least = min((median for median in medians if median), default=1.0)
    axes.set_xlim(least / MARGIN, max(least, *medians) * MARGIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=7)
    axes.grid(axis="x", alpha=0.3)
