"""A run: its rounds one after the other, each in a process of its own, and their certain end."""

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
from itertools import count, groupby
from pathlib import Path
from types import FrameType

from bench.peers import processes, round
from bench.peers.measures import MEASURES
from bench.peers.results import RoundResult
from bench.peers.round_context import RoundContext
from bench.peers.sizes import FULL, QUICK
from bench.peers.systems import takes_part
from bench.report import say

ROUND_S_MAX = 1_800.0
END_S_MAX = 30.0
LOG_CHARACTERS = 1_500


def repetition_plan(
    systems: Sequence[str], measures: Sequence[str], repetitions: int
) -> Iterator[list[tuple[str, str]]]:
    """Yield the rounds of a measure: all systems, one after the other, once per repetition."""
    for measure in measures:
        taking_part = [system for system in systems if takes_part(system, measure)]
        for _ in range(repetitions):
            yield [(system, measure) for system in taking_part]


class Run:
    """The rounds of one run, which happen in `directory`. `finished`: the finished ones."""

    def __init__(self, systems: Sequence[str], measures: Sequence[str], directory: Path, *, quick: bool) -> None:
        self._sizes = QUICK if quick else FULL
        self._quick = quick
        self._directory = directory
        self._repetition_plan = list(repetition_plan(systems, measures, self._sizes.repetitions))
        self._total = sum(map(len, self._repetition_plan))
        self._numbers = count(1)
        self._interrupted = threading.Event()
        self.finished: list[RoundResult] = []

    def run_rounds(self) -> Iterator[str]:
        """Run all rounds, and yield each measure once all its rounds are finished.

        Raises `KeyboardInterrupt` again once the running rounds have ended.
        """
        for measure, its_repetitions in groupby(filter(None, self._repetition_plan), key=lambda pairs: pairs[0][1]):
            for pairs in its_repetitions:
                self._run_repetition(pairs)
            yield measure

    def _run_repetition(self, pairs: Sequence[tuple[str, str]]) -> None:
        at_once = self._sizes.rounds_at_once if MEASURES[pairs[0][1]].mostly_waits else 1
        with ThreadPoolExecutor(at_once) as pool:
            try:
                for _ in pool.map(lambda pair: self._run_round(*pair), pairs):
                    pass
            except KeyboardInterrupt:
                self._interrupted.set()
                raise

    def _run_round(self, system: str, measure: str) -> None:
        if self._interrupted.is_set():
            return
        number = next(self._numbers)
        say(f"{number} of {self._total}: {measure}, {system}")
        context = RoundContext(
            system=system,
            directory=self._directory / f"{number:03d}",
            port=_free_port(),
            slots=MEASURES[measure].slots,
            longest_job_s=self._sizes.longest_job_s,
        )
        found = self._outcome(context, measure)
        if not self._interrupted.is_set():
            say(f"{number} of {self._total}: {_summary(found)}")
            self.finished.append(RoundResult(system, measure, found))

    def _outcome(self, context: RoundContext, measure: str) -> round.Outcome:
        """Run one round in a process of its own, and remove its files."""
        context.directory.mkdir()
        context.directory.chmod(0o711)  # A server that runs as another user must be able to enter.
        command = [sys.executable, "-m", "bench.peers.round", measure, "quick" if self._quick else "full"]
        log = context.directory / "round.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=context.environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the round.
            )  # fmt: skip
        try:
            self._wait(process)
            return round.read(context.directory)
        except FileNotFoundError:
            return round.Outcome(reason=f"the round broke off: {log.read_text(errors='replace')[-LOG_CHARACTERS:]}")
        finally:
            _end(process)
            shutil.rmtree(context.directory, ignore_errors=True)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until_s = time.monotonic() + ROUND_S_MAX
        while process.poll() is None and time.monotonic() < until_s and not self._interrupted.wait(0.05):
            pass


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a round: first with SIGTERM, so that its server can free shared memory, then with all processes below it."""
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


def _summary(found: round.Outcome) -> str:
    if found.reason:
        return found.reason.strip().splitlines()[-1]
    return "  ".join(f"{key} {value:,.1f}" if value is not None else f"{key} -" for key, value in found.figures.items())


@contextmanager
def ending_everything() -> Iterator[None]:
    """End all processes below this one in any case. SIGTERM acts as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for each in (signal.SIGTERM, signal.SIGINT):  # A shell that starts this in the background lets it ignore SIGINT.
        signal.signal(each, interrupt)
    processes.adopt_orphans()
    try:
        yield
    finally:
        processes.end_all_below()
