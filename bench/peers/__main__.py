"""Fairlead beside the queues that people use: one run, one machine, the same jobs, in turns.

    python -m bench.peers                                     everything; writes docs/peers (an hour and a half)
    python -m bench.peers --quick                             every system and measure, small; prints tables (minutes)
    python -m bench.peers --systems dbos,fairlead-ray --measures flood

`make bench-peers` installs what it needs and runs it. A run of everything in full writes `results.json`, `README.md`
and `peers.png` into docs/peers; any other run only where --output says so. Ctrl-C stops and removes everything.
"""

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from bench.machine import describe, scratch
from bench.peers import processes, turn
from bench.peers.measures import MEASURES
from bench.peers.page import page, tables
from bench.peers.place import Place
from bench.peers.plot import draw
from bench.peers.results import Conditions, Turn, results
from bench.peers.sizes import FULL, QUICK, Sizes
from bench.peers.systems import ONLY_IN, SYSTEMS
from bench.report import say

DOCS = Path("docs/peers")
TURN_S_MAX = 1_800.0
END_S_MAX = 30.0
LOG_CHARACTERS = 1_500
INTERRUPTED = 130  # What a shell says of a program that Ctrl-C ended.


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    systems: Sequence[str]
    measures: Sequence[str]
    quick: bool
    output: Path | None


def options(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the same shapes with smaller sizes, once each")
    parser.add_argument("--systems", type=_names(SYSTEMS), default=list(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--measures", type=_names(MEASURES), default=list(MEASURES), help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--output", type=Path, help="the directory to write results.json, README.md and peers.png into")
    parsed = parser.parse_args(arguments)
    everything = not parsed.quick and parsed.systems == list(SYSTEMS) and parsed.measures == list(MEASURES)
    return Options(parsed.systems, parsed.measures, parsed.quick, parsed.output or (DOCS if everything else None))


def _names(known: Any) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return names

    return parse


def rounds(opts: Options, sizes: Sizes) -> Iterator[list[tuple[str, str]]]:
    """Yield rounds: the systems, one after the other, in one measure, as often as it is repeated."""
    for measure in opts.measures:
        takes_part = [each for each in opts.systems if measure in ONLY_IN.get(each, (measure,))]
        for _ in range(sizes.repetitions):
            yield [(system, measure) for system in takes_part]


class Run:
    """The turns of one run, which happen in `directory`. `taken`: those that are over."""

    def __init__(self, opts: Options, directory: Path) -> None:
        self._sizes = QUICK if opts.quick else FULL
        self._quick = opts.quick
        self._directory = directory
        self._rounds = list(rounds(opts, self._sizes))
        self._total = sum(map(len, self._rounds))
        self._numbers = count(1)
        self._interrupted = threading.Event()
        self.taken: list[Turn] = []

    def take_turns(self) -> None:
        """Take all turns. `KeyboardInterrupt` passes through once the turns that ran are ended."""
        for each in self._rounds:
            at_once = self._sizes.turns_at_once if each and MEASURES[each[0][1]].mostly_waits else 1
            with ThreadPoolExecutor(at_once) as pool:
                try:
                    for _ in pool.map(lambda pair: self._take(*pair), each):
                        pass
                except KeyboardInterrupt:
                    self._interrupted.set()
                    raise

    def _take(self, system: str, measure: str) -> None:
        if self._interrupted.is_set():
            return
        number = next(self._numbers)
        say(f"{number} of {self._total}: {measure}, {system}")
        place = Place(
            system=system,
            directory=self._directory / f"{number:03d}",
            port=_free_port(),
            slots=MEASURES[measure].slots,
            longest_job_s=self._sizes.longest_job_s,
        )
        found = self._outcome(place, measure)
        if not self._interrupted.is_set():
            say(f"{number} of {self._total}: {_summary(found)}")
            self.taken.append(Turn(system, measure, found))

    def _outcome(self, place: Place, measure: str) -> turn.Outcome:
        """Run one turn in a process of its own, and remove what it leaves."""
        place.directory.mkdir()
        place.directory.chmod(0o711)  # A server that runs as another user must get through.
        command = [sys.executable, "-m", "bench.peers.turn", measure, "quick" if self._quick else "full"]
        log = place.directory / "turn.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                command, env=place.environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,  # Ctrl-C is for us; we end it in order.
            )  # fmt: skip
        try:
            self._wait(process)
            return turn.read(place.directory)
        except FileNotFoundError:
            return turn.Outcome(reason=f"the turn broke off: {log.read_text(errors='replace')[-LOG_CHARACTERS:]}")
        finally:
            _end(process)
            shutil.rmtree(place.directory, ignore_errors=True)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until_s = time.monotonic() + TURN_S_MAX
        while process.poll() is None and time.monotonic() < until_s and not self._interrupted.wait(0.05):
            pass


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a turn: asked first, so that its server can give back what it shares, then with all below it."""
    process.terminate()
    try:
        process.wait(END_S_MAX)
    except subprocess.TimeoutExpired:
        processes.kill([*processes.below(process.pid), process.pid])
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _summary(found: turn.Outcome) -> str:
    if found.reason:
        return found.reason.strip().splitlines()[-1]
    return "  ".join(f"{key} {value:,.1f}" if value is not None else f"{key} -" for key, value in found.figures.items())


@contextmanager
def everything_ended() -> Iterator[None]:
    """Leave no process behind, whatever happens; SIGTERM acts as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for each in (signal.SIGTERM, signal.SIGINT):  # A shell that starts us in the background has us ignore Ctrl-C.
        signal.signal(each, interrupt)
    processes.adopt_orphans()
    try:
        yield
    finally:
        processes.end_all_below()


def main() -> None:
    """Measure, print, and write; interrupted, print what was found until then."""
    opts = options()
    interrupted = False
    with everything_ended(), scratch() as directory:
        directory.chmod(0o711)
        conditions = Conditions(**describe(directory), size="quick" if opts.quick else "full")
        run = Run(opts, directory)
        try:
            run.take_turns()
        except KeyboardInterrupt:
            interrupted = True
    found = results(run.taken)
    print("\n".join(tables(found)))
    for line in [*(f"{system}: {reason}" for system, reason in found.missing.items()), *found.failed]:
        print(line)
    if interrupted:
        say("interrupted: everything is stopped and removed, and nothing is written")
        sys.exit(INTERRUPTED)
    if opts.output is not None:
        opts.output.mkdir(parents=True, exist_ok=True)
        (opts.output / "results.json").write_text(json.dumps(found.as_json(conditions), indent=1) + "\n")
        (opts.output / "README.md").write_text(page(found, conditions))
        draw(found, opts.output / "peers.png")


if __name__ == "__main__":
    main()
