"""One round: one system, one measure, in a process of its own. All processes below it end with it.

    python -m bench.peers.round MEASURE quick|full

`python -m bench.peers` starts it with a `RoundContext` in the environment, and reads `outcome.json` from its directory.
"""

import json
import multiprocessing
import signal
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from bench.peers import processes
from bench.peers.measures import MEASURES
from bench.peers.round_context import CONTEXT
from bench.peers.servers import NotInstalled, ServerFailed
from bench.peers.sizes import FULL, QUICK
from bench.peers.system import System
from bench.peers.systems import load
from bench.peers.testbed import RoundFailed, prepared_testbed


@dataclass(frozen=True, slots=True)
class About:
    """The properties of a system that a reader needs to judge its figures."""

    title: str
    durable: bool
    durability: str
    settings: str
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a round. `reason`: why there are no figures; `missing`: whether the system is not installed."""

    about: About | None = None
    figures: dict[str, float | None] = field(default_factory=dict)
    reason: str = ""
    missing: bool = False


def outcome(measure: str, *, quick: bool) -> Outcome:
    """Take a measure of this round's system."""
    try:
        system = load(CONTEXT.system)
        about = _about(system)
    except NotInstalled as error:
        return Outcome(reason=str(error), missing=True)
    except ModuleNotFoundError as error:
        return Outcome(reason=f"{error}: make bench-peers makes an environment that has it", missing=True)
    try:
        with prepared_testbed(system) as testbed:
            return Outcome(about, dict(MEASURES[measure].measure(testbed, QUICK if quick else FULL)))
    except (ServerFailed, RoundFailed) as error:
        return Outcome(about, reason=str(error))


def _about(system: System) -> About:
    return About(system.title, system.durable, system.durability, system.settings, dict(system.versions()))


def write(directory: Path, found: Outcome) -> None:
    """Write an outcome for `read`."""
    (directory / "outcome.json").write_text(json.dumps(asdict(found)))


def read(directory: Path) -> Outcome:
    """Return the outcome of the round in `directory`. Raises `FileNotFoundError` if the round broke off without one."""
    stored = json.loads((directory / "outcome.json").read_text())
    return Outcome(**stored | {"about": stored["about"] and About(**stored["about"])})


def main() -> None:
    """Take the measure of the command line."""
    signal.signal(signal.SIGTERM, _end)
    processes.adopt_orphans()
    try:
        write(CONTEXT.directory, outcome(sys.argv[1], quick=sys.argv[2] == "quick"))
    finally:
        processes.end_all_below()


def _end(number: int, frame: FrameType | None) -> None:
    for sender in multiprocessing.active_children():  # The parent does not read its output any more.
        sender.kill()
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
