"""Fleets to measure, each in a process of its own and started as `fairlead run` starts it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from bench.handlers import APP
from bench.harness import SPAWN
from fairlead import Config, fleet
from fairlead.loading import load_app
from fairlead.telemetry.fleet_metrics import export_fleet_metrics

ANSWER_S_MAX = 90.0  # A fleet of Ray actors starts within seconds, on a busy machine within tens of them.
DRAIN_MS = 2_000


class FleetFailed(Exception):
    """The process of a fleet ended, or did not answer in time; its output shows why."""


class RunningFleet:
    """A fleet in another process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pids(self) -> dict[str, int]:
        """Return the processes of its actors by name: `scanner`, `manager-0`, ...; with threads only `consumer`."""
        return dict(self.ask("pids"))

    def counts(self) -> dict[str, int]:
        """Return the counts of the fleet since it started."""
        return dict(self.ask("counts"))

    def ask(self, question: str) -> Any:
        """Return the fleet's answer. "started" waits until it runs, "stop" drains and ends it.

        Raises:
          FleetFailed: there was no answer.
        """
        try:
            self._connection.send(question)
            if not self._connection.poll(ANSWER_S_MAX):
                raise FleetFailed(question)
            return self._connection.recv()
        except (EOFError, BrokenPipeError):
            raise FleetFailed(question) from None


@contextmanager
def running(
    config: Config, *, runtime: str, address: str | None = None, reference: str = APP
) -> Iterator[RunningFleet]:
    """Run a fleet of the bench's application in a fresh process while the caller measures.

    Args:
      runtime: "threads" or "ray".
      reference: the application, as MODULE:ATTRIBUTE.
      address: the Ray cluster to join; required for "ray", so that starting Ray is not measured.
    """
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run, args=(theirs, config, runtime, address, reference), name=f"fleet-{runtime}")
    process.start()
    theirs.close()
    running_fleet = RunningFleet(ours)
    try:
        running_fleet.ask("started")
        yield running_fleet
        running_fleet.ask("stop")
    finally:
        ours.close()
        process.join(ANSWER_S_MAX)
        process.kill()


def _run(connection: Connection, config: Config, runtime: str, address: str | None, reference: str) -> None:
    app = load_app(reference)
    app.configure(config)
    with export_fleet_metrics(app) as fleet_metrics:
        fleet_metrics.fleet = started = fleet.start(app, reference, runtime=runtime, address=address, show_output=False)
        _answer(connection, started)


def _answer(connection: Connection, started: fleet.Fleet) -> None:
    answers: dict[str, Callable[[], Any]] = {
        "started": lambda: None, "counts": started.counts, "pids": lambda: _pids(started),
    }  # fmt: skip
    try:
        while (question := connection.recv()) != "stop":
            connection.send(answers[question]())
    except EOFError:  # The measuring process has ended.
        started.stop(drain=0)
    else:
        connection.send(started.stop(drain=DRAIN_MS / 1000))


def _pids(started: fleet.Fleet) -> dict[str, int]:
    if not isinstance(started, fleet.RayFleet):
        return {"consumer": os.getpid()}
    return {
        role if role in ("scanner", "coordinator") else f"{role}-{number}": pid
        for role, pids in started.pids().items()
        for number, pid in enumerate(pids)
    }
