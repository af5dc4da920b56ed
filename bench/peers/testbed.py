"""The testbed of one round: a system's server, its workers, and the operations of a measure."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import processes
from bench.peers.job import count, new_job, starts
from bench.peers.round_context import CONTEXT
from bench.peers.system import System

PROBE, WARM, MEASURED, HEAVY, SECOND = range(5)  # Tags of jobs.
START_S_MAX = 90.0  # A fleet of Ray actors starts within seconds, on a busy machine within tens of them.
DONE_S_MAX = 600.0
LOG_CHARACTERS = 1_500


class RoundFailed(Exception):
    """A system did not reach in time the state that a measure waits for; the text has the end of its workers' logs."""


class Testbed:
    """A system with its server running, empty at first, without workers."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._workers: list[subprocess.Popen[bytes]] = []

    def start_workers(self) -> None:
        """Start the workers, and return at once."""
        self._workers = [self._start_worker(number) for number in range(self.system.worker_count)]

    def start_warm_workers(self) -> None:
        """Start the workers, and return once they have run some jobs, in each process that runs jobs.

        Raises:
          RoundFailed: no job ran.
        """
        self.start_workers()
        with self.system.producer() as producer:
            producer.send(new_job(tag=PROBE))
            self.await_starts(PROBE, 1, seconds=START_S_MAX)
            time.sleep(1)  # Time for the other workers to start; the first job may have run before that.
            for sent in range(WARM_JOBS):
                producer.send(new_job(tag=PROBE, nap_ms=WARM_NAP_MS, tenant=sent))
            self.await_starts(PROBE, 1 + WARM_JOBS, seconds=START_S_MAX)
            self.await_done()

    def await_starts(self, tag: int, enough: int, *, seconds: float = DONE_S_MAX) -> None:
        """Return once `count` jobs with a tag have started.

        Raises:
          RoundFailed: they have not started within `seconds`.
        """
        # To count the starts of all tags is cheap; to read them is not.
        self._await(lambda: count() >= enough and len(starts(tag)) >= enough, seconds, f"{enough} jobs with tag {tag}")

    def await_count(self, enough: int, *, seconds: float = DONE_S_MAX) -> None:
        """Return once `count` jobs with any tag have started. Raises as `await_starts`."""
        self._await(lambda: count() >= enough, seconds, f"{enough} jobs")

    def await_done(self, *, seconds: float = DONE_S_MAX) -> float:
        """Return the time at which no job remained, by the monotonic clock. Raises as `await_starts`."""
        self._await(lambda: self.system.left() == 0, seconds, "an empty queue")
        return time.monotonic()

    def kill_worker_of(self, pid: int, *, whole: bool) -> float:
        """Kill process `pid`, which runs a job, or its whole worker. Return the time of the death.

        A worker that has ended is started again, as a supervisor does.

        Raises:
          RoundFailed: no worker has such a process.
        """
        for number, worker in enumerate(self._workers):
            if pid == worker.pid or pid in processes.below(worker.pid):
                processes_to_kill = self.system.processes_to_kill(worker.pid, pid) if whole else [pid]
                processes.kill(processes_to_kill)
                killed_s = time.monotonic()
                if worker.pid in processes_to_kill:
                    worker.wait()
                    self._workers[number] = self._start_worker(number)
                return killed_s
        raise RoundFailed(f"no worker has a process {pid}")

    def supervise(self) -> None:
        """Restart ended workers, as a supervisor does: some workers end when one of their processes is killed."""
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self._workers[number] = self._start_worker(number)

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        command = self.system.worker_command(number)
        with self._log(number).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _await(self, reached: Callable[[], bool], seconds: float, what: str) -> None:
        until_s = time.monotonic() + seconds
        while not reached():
            ended = [worker.returncode for worker in self._workers if worker.poll() is not None]
            if ended or time.monotonic() > until_s:
                why = f"a worker ended with {ended[0]}" if ended else f"not within {seconds:g} s"
                raise RoundFailed(
                    f"waited for {what}: {why}; {count()} started, {self.system.left()} left. {self._said()}"
                )
            time.sleep(0.01)

    def _log(self, number: int) -> Path:
        return CONTEXT.directory / f"worker-{number}.log"

    def _said(self) -> str:
        logs = [self._log(number) for number in range(len(self._workers))]
        return "\n".join(path.read_text(errors="replace")[-LOG_CHARACTERS:] for path in logs if path.exists())


WARM_JOBS = 40
WARM_NAP_MS = 20


@contextmanager
def prepared_testbed(system: System) -> Iterator[Testbed]:
    """Start a system's server and prepare it; stop it at the end. Workers end with the round's process.

    Raises:
      NotInstalled: the server is not on this machine.
      ServerFailed: it did not start.
    """
    CONTEXT.notes.mkdir()
    if system.server is None:
        system.prepare()
        yield Testbed(system)
        return
    try:
        system.server.start()
        system.prepare()
        yield Testbed(system)
    finally:
        system.server.stop()
