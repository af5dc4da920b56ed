"""The saved data of a figure: a run for each kind of store, in one JSON file beside the plot."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bench.olive_page.data import Row, Run

POSTGRESQL, SIMULATED, EMBEDDED = "postgresql", "simulated", "embedded"
Runs = Mapping[str, Run]  # By kind of store.

__all__ = ["EMBEDDED", "POSTGRESQL", "SIMULATED", "Row", "Run", "Runs", "data_path", "load", "plot_path", "save"]


def save(out: Path, name: str, store: str, run: Run) -> None:
    """Replace the run on one kind of store, and keep those on others."""
    out.mkdir(parents=True, exist_ok=True)
    runs = {**load(out, name), store: run}
    written = {store: asdict(each) for store, each in sorted(runs.items())}
    data_path(out, name).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def load(out: Path, name: str) -> dict[str, Run]:
    """Return the saved runs of a figure by kind of store; none if it was never measured."""
    path = data_path(out, name)
    if not path.exists():
        return {}
    return {store: Run(**found) for store, found in json.loads(path.read_text(encoding="utf-8")).items()}


def data_path(out: Path, name: str) -> Path:
    """Return the path of a figure's data."""
    return out / f"uniqorn-{name}.json"


def plot_path(out: Path, name: str) -> Path:
    """Return the path of a figure's plot."""
    return out / f"uniqorn-{name}.png"
