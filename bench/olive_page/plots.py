"""Groups of bars side by side, with confidence intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from bench.paper.plots import explain

GROUP_WIDTH = 0.8  # Of the distance between two groups.
TOP = 1.15  # Of the axis, of the highest bar: space for its number.


class Value(NamedTuple):
    """A value, and how far its confidence interval reaches on either side."""

    value: float
    within: float = 0.0


def groups_of_bars(ax: Axes, groups: Sequence[str], series: Mapping[str, Sequence[Value | None]], *, unit: str) -> None:
    """Draw the bars of each series, one for each group or none. A series has the same colour in every group."""
    width = GROUP_WIDTH / len(series)
    highest = 0.0
    for number, (name, values) in enumerate(series.items()):
        drawn = [(place, value) for place, value in enumerate(values) if value is not None]
        left = [place + (number + 0.5) * width - GROUP_WIDTH / 2 for place, _ in drawn]
        heights, errors = [each.value for _, each in drawn], [each.within for _, each in drawn]
        found = ax.bar(left, heights, width, yerr=errors, label=name, color=f"C{number}", ecolor="#444444", capsize=2)
        ax.bar_label(found, [f"{height:.3g}" for height in heights], fontsize=7, padding=2)
        highest = max([highest, *(each.value + each.within for _, each in drawn)])
    ax.set_xticks(range(len(groups)), groups)
    ax.set_ylim(0, highest * TOP or 1)
    ax.set_ylabel(unit)
    explain(ax)


def limit(ax: Axes, value: float, name: str) -> None:
    """Draw a bar of the design as a dashed line over the whole panel."""
    ax.axhline(value, color="#444444", linestyle="--", linewidth=1, label=name)
    ax.set_ylim(0, max(ax.get_ylim()[1], value * TOP))
    explain(ax)
