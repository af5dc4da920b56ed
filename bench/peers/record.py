"""The measurements so far: the rounds of each measure, and the conditions of their run.

`results.json` stores them, so that measures can be taken in several runs. The figures of one measure, which are
compared, always come from one run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.page import page
from bench.peers.plot import draw
from bench.peers.results import Conditions, Results, RoundResult, results
from bench.peers.round import About, Outcome

RESULTS, PAGE, PICTURE = "results.json", "README.md", "peers.png"


@dataclass(frozen=True, slots=True)
class Record:
    """Rounds, and conditions by measure."""

    rounds: Sequence[RoundResult] = ()
    conditions: Mapping[str, Conditions] = field(default_factory=dict)

    def with_measure(self, measure: str, conditions: Conditions, rounds: Sequence[RoundResult]) -> "Record":
        """Return the record with the rounds of one measure replaced."""
        others = [result for result in self.rounds if result.measure != measure]
        taken = [result for result in rounds if result.measure == measure]
        return Record([*others, *taken], {**self.conditions, measure: conditions})

    def results(self) -> Results:
        """Return the rows of all rounds."""
        return results(self.rounds)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `results.json`: rows to read, and their rounds."""
        found = self.results()
        return {
            "conditions": {measure: asdict(each) for measure, each in self.conditions.items()},
            "missing": dict(found.missing),
            "failed": list(found.failed),
            "rows": [asdict(row) for row in found.rows],
            "turns": [asdict(result) for result in self.rounds],
        }

    def write(self, directory: Path) -> None:
        """Write results, page and picture."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / RESULTS).write_text(json.dumps(self.as_json(), indent=1) + "\n")
        (directory / PAGE).write_text(page(self.results(), self.conditions))
        draw(self.results(), directory / PICTURE)


def read(directory: Path) -> Record:
    """Return the record in a directory, an empty one if there is none."""
    path = directory / RESULTS
    if not path.exists():
        return Record()
    stored = json.loads(path.read_text())
    return Record(
        [_round_result(**each) for each in stored["turns"]],
        {measure: Conditions(**each) for measure, each in stored["conditions"].items()},
    )


def _round_result(system: str, measure: str, outcome: dict[str, Any]) -> RoundResult:
    about = outcome.pop("about")
    return RoundResult(system, measure, Outcome(About(**about) if about else None, **outcome))
