"""The stored data of an experiment: its rows and the machine that ran it, as one JSON file beside the plot."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.paper.experiments import EXPERIMENTS
from bench.paper.points import Row


def save(out: Path, name: str, form: str, rows: Sequence[Row], machine: dict[str, Any]) -> None:
    """Replace the rows of one form, keep those of the other form, and draw all of them."""
    out.mkdir(parents=True, exist_ok=True)
    saved = load(out, name)
    both = [*(row for row in saved["rows"] if row["form"] != form), *rows]
    written = {"machine": {**saved["machine"], form: machine}, "rows": both}
    _path(out, name).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    EXPERIMENTS[name].draw(both).savefig(plot_path(out, name), bbox_inches="tight")


def load(out: Path, name: str) -> dict[str, Any]:
    """Return the data of an experiment: `rows`, and `machine` by form."""
    path = _path(out, name)
    if not path.exists():
        return {"machine": {}, "rows": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def plot_path(out: Path, name: str) -> Path:
    """Return the path of an experiment's plot."""
    return out / f"{name}.png"


def _path(out: Path, name: str) -> Path:
    return out / f"{name}.json"
