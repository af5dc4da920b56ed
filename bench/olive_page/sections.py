"""A section of the page."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from bench.olive_page.data import BETWEEN, EMBEDDED, FOUNDATIONDB, Runs

ENGINE_NAMES = {EMBEDDED: "embedded", BETWEEN: "embedded to FoundationDB", FOUNDATIONDB: "FoundationDB"}


@dataclass(frozen=True, slots=True)
class Section:
    """A figure of the page.

    `what`: what is measured, before the table; `differences`: from the paper, after it; both are Markdown.
    `draw`, `table`: of the runs, one at least; the table has its head first.
    """

    title: str
    what: str
    differences: str
    draw: Callable[[Runs], Figure]
    table: Callable[[Runs], list[list[str]]]
    command: str


def ms(value: float, within: float) -> str:
    """Return a mean with its confidence interval, in milliseconds."""
    return f"{value:.3f} ± {within:.3f}"


def reached(is_reached: bool) -> str:
    """Say whether a bar is reached."""
    return "yes" if is_reached else "**no**"
