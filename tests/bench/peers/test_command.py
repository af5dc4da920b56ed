"""The command line: with the installed systems, with real peers if there are any, and with an interruption."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest

from bench.peers import processes
from bench.peers.__main__ import INTERRUPTED
from bench.peers.measures import FIGURES, MEASURES
from bench.peers.run import repetition_plan
from bench.peers.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[3]
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
SERVERS = {
    "redis-server": shutil.which("redis-server"),
    "postgres": list(Path("/usr/lib/postgresql").glob("*/bin/postgres")),
}
LACKING = [name for name, found in {".venv-peers": PEERS_PYTHON.exists(), **SERVERS}.items() if not found]

needs_peers = pytest.mark.skipif(bool(LACKING), reason=f"no {', '.join(LACKING)}: make bench-peers installs them")


def command(*arguments: str, python: Path | str = sys.executable) -> list[str]:
    return [str(python), "-m", "bench.peers", "--quick", *arguments]


def test_a_peer_that_is_not_installed_is_named_and_fairlead_is_measured(tmp_path: Path) -> None:
    """The test holds with and without the peer: its output must have a row or a reason for it."""
    chosen = ["--systems", "fairlead-threads,dramatiq-always", "--measures", "drain", "--output", str(tmp_path)]
    ended = subprocess.run(command(*chosen), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["failed"] == []
    rows = {row["system"]: row for row in written["rows"]}
    assert rows["fairlead-threads"]["median"] > 0
    assert ("dramatiq-always" in rows) != ("make bench-peers" in written["missing"].get("dramatiq-always", ""))
    assert "Fairlead, threads" in ended.stdout
    assert "1 of 2: drain, fairlead-threads" in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "README.md", "peers.png"}


def test_after_an_interruption_no_process_and_no_file_remains(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command("--systems", "fairlead-threads", "--measures", "latency"),
        cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until_s = time.monotonic() + 60
    while not (working := list(tmp_path.glob("*/001/worker-*.log"))):
        assert time.monotonic() < until_s
        assert process.poll() is None
        time.sleep(0.02)
    assert working
    begun = processes.below(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == INTERRUPTED
    assert [pid for pid in begun if "bench.peers" in processes.name(pid)] == []
    assert list(tmp_path.iterdir()) == []


@needs_peers
@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_every_system_gives_every_figure_in_a_quick_run(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("--output", str(tmp_path), python=PEERS_PYTHON), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    written = json.loads((tmp_path / "results.json").read_text())
    assert (written["missing"], written["failed"]) == ({}, [])
    assert {row["figure"] for row in written["rows"]} == set(FIGURES)
    quick = chain(*repetition_plan(list(SYSTEMS), list(MEASURES), 1))
    assert {(each["system"], each["measure"]) for each in written["turns"]} == set(quick)
