"""A long job whose worker dies together with all that could know of it: it runs again within seven seconds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Config
from fairlead.zones.pipelining import run_one
from fairlead.zones.top_level import worker_sessions
from tests.acceptance.fleets import config, consumer, eventually, machine, written
from tests.acceptance.loads import depth, lines_of
from tests.acceptance.shop import payload
from tests.acceptance.test_nodes import HEAD_IP, OTHER_IP, Cluster, live_consumers

AGAIN_S = 7.0


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    """A long job is a claim after a second; its lease would last for ten minutes."""
    return config(tmp_path, lease_ms=2_000)


def begin_long_job(app: App, path: Path) -> int:
    """Enqueue an item whose handler runs until `path` is there; return the process that runs it, as a claim."""
    begun = path.with_suffix(".begun")
    app.tenant("shop", "alice").enqueue("until_told", payload(1, path=str(path)))
    eventually(lambda: lines_of(begun))
    eventually(lambda: len(sessions(app)) == 1)
    return int(lines_of(begun)[0].split()[1])


def sessions(app: App) -> Any:
    """Return the worker sessions that have not ended."""
    return app.shards["main"].transact(lambda attempt: run_one(worker_sessions.look_op(attempt.tr))).beats


def assert_runs_again(app: App, path: Path, killed: float) -> None:
    begun = path.with_suffix(".begun")
    eventually(lambda: len(begun.read_text().splitlines()) == 2)
    assert time.monotonic() - killed < AGAIN_S
    path.touch()
    eventually(lambda: depth(app) == 0)


@pytest.mark.usefixtures("cluster")
def test_a_long_job_whose_worker_and_manager_are_killed_runs_again_within_seven_seconds(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    path = tmp_path / "told"
    with consumer(chosen) as running:
        worker = begin_long_job(app, path)
        pids = running.pids()
        assert worker in pids["worker"]
        killed = time.monotonic()
        for doomed in (*pids["manager"], worker):
            os.kill(doomed, signal.SIGKILL)
        assert_runs_again(app, path, killed)


def test_a_long_job_whose_node_dies_with_all_its_processes_runs_again_within_seven_seconds(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    """Raylet, consumer and actors at once: another node's consumer finds that the heartbeats have ended."""
    path = tmp_path / "told"
    written(chosen, tmp_path)
    with (tmp_path / "log").open("a") as log, machine(tmp_path) as head, machine(tmp_path) as other:
        cluster = Cluster(log)
        for on, ip in ((head, HEAD_IP), (other, OTHER_IP)):
            cluster.start_node(on, ip)
        cluster.start_consumer(other, OTHER_IP)
        assert begin_long_job(app, path) in other.pids()
        cluster.start_consumer(head, HEAD_IP)
        eventually(lambda: live_consumers(app) == 2, otherwise=(tmp_path / "log").read_text)
        killed = time.monotonic()
        assert other.kill() >= 6, "its raylet, its consumer and every actor of that"
        assert_runs_again(app, path, killed)
