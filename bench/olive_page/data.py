"""The saved data of a figure: a run on each engine, in one JSON file beside the plot."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

EMBEDDED, FOUNDATIONDB = "embedded", "foundationdb"
BETWEEN = "embedded to foundationdb"


@dataclass(frozen=True, slots=True)
class Run:
    """What a command measured. `quick`: with small sizes, so that its numbers mean little."""

    quick: bool
    machine: dict[str, Any]
    rows: list[Row]


Runs = Mapping[str, Run]  # By engine.


def save(out: Path, name: str, engine: str, run: Run) -> None:
    """Replace the run on one engine, and keep that on the other."""
    out.mkdir(parents=True, exist_ok=True)
    runs = {**load(out, name), engine: run}
    written = {engine: asdict(each) for engine, each in sorted(runs.items())}
    data_path(out, name).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def load(out: Path, name: str) -> dict[str, Run]:
    """Return the saved runs of a figure by engine; none if it was never measured."""
    path = data_path(out, name)
    if not path.exists():
        return {}
    return {engine: Run(**found) for engine, found in json.loads(path.read_text(encoding="utf-8")).items()}


def data_path(out: Path, name: str) -> Path:
    """Return the path of a figure's data."""
    return out / f"olive-{name}.json"


def plot_path(out: Path, name: str) -> Path:
    """Return the path of a figure's plot."""
    return out / f"olive-{name}.png"
