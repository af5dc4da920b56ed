"""Axes that all figures share: panels beside each other, and a line per series."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.paper.points import Row

PANEL_INCHES = (4.6, 4.4)
DOTS_PER_INCH = 120


def panels(title: str, count: int, *, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure of `rows` times `count` panels, in reading order."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * count, height * rows), dpi=DOTS_PER_INCH, layout="constrained")
    figure.suptitle(title)
    return figure, list(figure.subplots(rows, count, squeeze=False).flat)


def lines(
    ax: Axes, rows: Sequence[Row], *, x: str, y: Callable[[Row], float], style: str = "-", labelled: bool = True
) -> None:
    """Draw a line per series, in the order of the rows. A series has the same colour in every panel."""
    for number, series in enumerate(dict.fromkeys(row["series"] for row in rows)):
        line = sorted((row for row in rows if row["series"] == series), key=lambda row: row[x])
        label = series if labelled else None
        ax.plot([row[x] for row in line], [y(row) for row in line], style, color=f"C{number}", marker="o", label=label)
    explain(ax)


def explain(ax: Axes) -> None:
    """Draw a grid, and a legend below the panel, where the legend hides no data."""
    ax.grid(alpha=0.3)
    ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.22))
