"""What is kept of an experiment: its rows, and the machine that they come from, as one JSON file beside its plot."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.paper.experiments import EXPERIMENTS
from bench.paper.points import Row


def save(out: Path, name: str, form: str, rows: Sequence[Row], machine: dict[str, Any]) -> None:
    """Write the rows of one form, beside those of the other form that are there, and draw all of them anew."""
    out.mkdir(parents=True, exist_ok=True)
    saved = load(out, name)
    both = [*(row for row in saved["rows"] if row["form"] != form), *rows]
    written = {"machine": {**saved["machine"], form: machine}, "rows": both}
    _path(out, name).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    EXPERIMENTS[name].draw(both).savefig(plot_path(out, name), bbox_inches="tight")


def load(out: Path, name: str) -> dict[str, Any]:
    """Return what is kept of an experiment: `rows`, and `machine` by form."""
    path = _path(out, name)
    if not path.exists():
        return {"machine": {}, "rows": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def plot_path(out: Path, name: str) -> Path:
    """Return where an experiment's plot is kept."""
    return out / f"{name}.png"


def _path(out: Path, name: str) -> Path:
    return out / f"{name}.json"
