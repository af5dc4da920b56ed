"""Groups of bars side by side, with confidence intervals."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from bench.paper.plots import explain

GROUP_WIDTH = 0.8  # Of the distance between two groups.
MARGIN = 1.15  # Above the highest value, for its number.
LOG_MARGIN = 3.0  # The same, and below the lowest value, so that its bar is visible.


class Value(NamedTuple):
    """A value, and how far its confidence interval reaches on either side; 0 if it has none."""

    value: float
    within: float = 0.0


def groups_of_bars(
    ax: Axes, groups: Sequence[str], series: Mapping[str, Sequence[Value | None]], *, unit: str, log: bool = False
) -> None:
    """Draw the bars of each series, one for each group or none. A series has the same colour in every panel."""
    width = GROUP_WIDTH / len(series)
    for number, (name, values) in enumerate(series.items()):
        drawn = [(place, value) for place, value in enumerate(values) if value is not None]
        if drawn:
            left = [place + (number + 0.5) * width - GROUP_WIDTH / 2 for place, _ in drawn]
            heights, errors = [each.value for _, each in drawn], [each.within for _, each in drawn]
            yerr = errors if any(errors) else None
            found = ax.bar(left, heights, width, yerr=yerr, label=name, color=f"C{number}", ecolor="#444444", capsize=2)
            ax.bar_label(found, [f"{height:.3g}" for height in heights], fontsize=7, padding=2)
    shown = [each for values in series.values() for each in values if each is not None]
    highest = max(each.value + each.within for each in shown)
    if log:
        ax.set_yscale("log")
        ax.set_ylim(min(each.value for each in shown) / LOG_MARGIN, highest * LOG_MARGIN)
    else:
        ax.set_ylim(0, highest * MARGIN)
    ax.set_xticks(range(len(groups)), groups)
    ax.set_ylabel(unit)
    ax.set_axisbelow(True)
    explain(ax)


def limit(ax: Axes, value: float, name: str) -> None:
    """Draw a bar of the design as a dashed line over the whole panel."""
    ax.axhline(value, color="#444444", linestyle="--", linewidth=1, label=name)
    ax.set_ylim(0, max(ax.get_ylim()[1], value * MARGIN))
    explain(ax)
