"""Repeat an experiment of the paper's section 8.

    python -m bench.paper figure4                     on this machine and simulated at the paper's scale
    python -m bench.paper figure7 --form simulated    simulated only
    python -m bench.paper figure5 --quick             the same shapes, far smaller, within a minute

Writes the data, a plot, and the page that sets all figures beside the paper's words, into `docs/paper`; with `--quick`
into `build/paper`.
"""

from pathlib import Path
from typing import Any

from bench import ray_cluster
from bench.machine import describe, scratch
from bench.paper import data, page
from bench.paper.experiments import EXPERIMENTS
from bench.paper.forms import REAL, SIMULATED
from bench.paper.machine import Machine
from bench.paper.model import Model
from bench.paper.points import Row, one_by_one, side_by_side
from bench.report import Options, parser, say, show_rows

FORMS = (SIMULATED, REAL)


def measure(name: str, form: str, *, quick: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of an experiment in a form, and the machine of the real form; a simulation needs none."""
    points = EXPERIMENTS[name].points(form, quick=quick)
    if form == SIMULATED:
        return side_by_side(Model(), points), {}
    with scratch() as directory, ray_cluster.cluster() as address:
        machine = describe(directory)
        return one_by_one(Machine(directory, address), points), machine


def main() -> None:
    """Measure, save, and print."""
    commands = parser(__doc__)
    commands.add_argument("figure", choices=EXPERIMENTS)
    commands.add_argument("--form", choices=(*FORMS, "both"), default="both", help="where (default both)")
    commands.add_argument("--out", type=Path, help="a folder (default docs/paper, with --quick build/paper)")
    chosen = commands.parse_args()
    out = chosen.out or Path("build/paper" if chosen.quick else "docs/paper")
    rows: list[Row] = []
    for form in FORMS if chosen.form == "both" else (chosen.form,):
        found, machine = measure(chosen.figure, form, quick=chosen.quick)
        data.save(out, chosen.figure, form, found, machine)
        rows += found
    page.write(out)
    say(f"written to {out}")
    experiment = EXPERIMENTS[chosen.figure]
    show_rows(rows, experiment.table(rows), Options(as_json=chosen.json, quick=chosen.quick), experiment.title)


if __name__ == "__main__":
    main()
