"""A Prometheus server of the machine's own package, on a free port and in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import eventually

COMMAND = "prometheus"
SCRAPE_S = 0.2


class Prometheus:
    """A server that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it answers."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._url}/-/ready") as answer:
            return bool(answer.status == 200)
        return False

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression is now: series with their values."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}") as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def number(self, expression: str) -> float | None:
        """Return the value of an expression that has one; None: there is none yet."""
        found = self.ask(expression)
        return float(found[0]["value"][1]) if found else None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def scraping(directory: Path, target_port: int) -> Iterator[Prometheus]:
    """Run a server that scrapes a port of this machine five times a second."""
    if shutil.which(COMMAND) is None:
        pytest.skip("there is no prometheus here: apt-get install prometheus")
    jobs = [{"job_name": "fairlead", "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}]}]
    settings = {"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": jobs}
    written = directory / "prometheus.yml"
    written.write_text(json.dumps(settings))  # which is YAML, too
    port = free_port()
    command = [
        COMMAND, f"--config.file={written}", f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    server = Prometheus(port)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(server.is_ready)
            yield server
        finally:
            process.kill()
