"""The figures of a paper, repeated here: a saved run on each kind of store, and a section of a page for each figure.

rows of a bench  -->  olive-figure11.json  -->  olive-figure11.png and a section of olive.md
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.paper.page import markdown

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What a command measured. `quick`: with small sizes, so that its numbers mean little.

    `machine`: its properties and its load; empty if the time was simulated.
    """

    quick: bool
    machine: dict[str, Any]
    rows: list[Row]


Runs = Mapping[str, Run]  # By kind of store.


@dataclass(frozen=True, slots=True)
class Section:
    """A figure of a page.

    `what`: what is measured, before the table; `differences`: from the paper, after it; both are Markdown.
    `draw`, `table`: of the runs, one at least; the table has its head first.
    """

    title: str
    what: str
    differences: str
    draw: Callable[[Runs], Figure]
    table: Callable[[Runs], list[list[str]]]


@dataclass(frozen=True, slots=True)
class SavedFigures:
    """The saved figures of a paper, in one JSON file for each, beside its plot.

    Attributes:
      paper: the command `python -m bench.<paper>`, and the beginning of the files' names.
      store_names: the kinds of store, and their names on the page.
    """

    paper: str
    store_names: Mapping[str, str]

    def save(self, out: Path, name: str, store: str, run: Run) -> None:
        """Replace a figure's run on one kind of store, and keep those on others."""
        out.mkdir(parents=True, exist_ok=True)
        runs = {**self.load(out, name), store: run}
        written = {each: asdict(runs[each]) for each in sorted(runs)}
        self._data_path(out, name).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")

    def load(self, out: Path, name: str) -> dict[str, Run]:
        """Return the saved runs of a figure by kind of store; none if it was never measured."""
        path = self._data_path(out, name)
        if not path.exists():
            return {}
        return {store: Run(**found) for store, found in json.loads(path.read_text(encoding="utf-8")).items()}

    def plot_path(self, out: Path, name: str) -> Path:
        """Return the path of a figure's plot."""
        return out / f"{self.paper}-{name}.png"

    def section(self, out: Path, name: str, section: Section) -> list[str]:
        """Draw a figure from the data in `out`; return the parts of its section, as Markdown."""
        measured = self._measured(out, name, section, self.load(out, name))
        return [f"## {section.title}\n{section.what}", measured, section.differences.lstrip()]

    def _measured(self, out: Path, name: str, section: Section, runs: Runs) -> str:
        if not runs:
            return f"Not run yet: `python -m bench.{self.paper} {name} --out docs/paper`.\n"
        plot = self.plot_path(out, name)
        section.draw(runs).savefig(plot, bbox_inches="tight")
        machines = "\n".join(self._machine(store, run) for store, run in runs.items())
        return f"![{section.title}]({plot.name})\n\n{markdown(section.table(runs))}\n{machines}\n"

    def _machine(self, store: str, run: Run) -> str:
        warning = " **This was a quick run: its numbers mean little.**" if run.quick else ""
        if not run.machine:
            return f"In simulated time: the load of the machine does not matter.{warning}"
        properties = ", ".join(f"{name} {value}" for name, value in run.machine.items())
        return f"The machine ({self.store_names[store]}): {properties}.{warning}"

    def _data_path(self, out: Path, name: str) -> Path:
        return out / f"{self.paper}-{name}.json"
