"""A Ray cluster of two nodes, each with a consumer on one store; one node dies with all its processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest

from fairlead import App, Config
from fairlead.status import read_status
from tests.acceptance.fleets import PATIENCE_S, SHOP, Machine, config, eventually, machine, written
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left

RAY = str(Path(sys.executable).with_name("ray"))
HEAD_IP, OTHER_IP = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path)


class Cluster:
    """A Ray cluster of nodes on one machine, each with an address and a token of its own."""

    def __init__(self, log: IO[str]) -> None:
        with socket.socket() as free:
            free.bind((HEAD_IP, 0))
            self._address = f"{HEAD_IP}:{free.getsockname()[1]}"
        self._log = log
        self._env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex * 2, "RAY_worker_niceness": "0"}

    def start_node(self, on: Machine, ip: str) -> None:
        """Start Ray's daemons of a node, the head's first."""
        joining = ["--address", self._address]
        if ip == HEAD_IP:
            joining = ["--head", "--port", self._address.partition(":")[2], "--include-dashboard", "false"]
        command = [RAY, "start", *joining, "--node-ip-address", ip, "--num-cpus", "1", "--disable-usage-stats",
                   "--object-store-memory", "100000000", "--min-worker-port=0", "--max-worker-port=0"]  # fmt: skip
        started = on.start(command, log=self._log, env=self._env, stdin=subprocess.DEVNULL)
        assert started.wait(PATIENCE_S) == 0, Path(self._log.name).read_text()

    def start_consumer(self, on: Machine, ip: str) -> None:
        """Start an application's consumer on a node."""
        command = [sys.executable, "-m", "tests.acceptance.joining", ip, SHOP, "--config", "fairlead.toml",
                   "--address", self._address]  # fmt: skip
        on.start(command, log=self._log, env=self._env)


def live_consumers(app: App) -> int:
    return sum(each.live for each in read_status(app.shards["main"], "").consumers)


@pytest.mark.long
def test_when_a_node_dies_with_all_its_processes_the_others_do_its_work(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    """Raylet, consumer and actors at once, in the middle of their work."""
    written(chosen, tmp_path)
    with (tmp_path / "log").open("a") as log, machine(tmp_path) as head, machine(tmp_path) as other:
        cluster = Cluster(log)
        nodes = ((head, HEAD_IP), (other, OTHER_IP))
        for on, ip in nodes:
            cluster.start_node(on, ip)
        for on, ip in nodes:
            cluster.start_consumer(on, ip)
        eventually(lambda: live_consumers(app) == len(nodes), otherwise=(tmp_path / "log").read_text)
        with Load(app, per_s=200) as load:
            eventually(lambda: len(load.enqueued) >= 200)
            assert other.kill() >= 6, "its raylet, its consumer and every actor of that"
            killed = len(load.enqueued)
            eventually(lambda: len(load.enqueued) >= killed + 200)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)
