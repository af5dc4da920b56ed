"""Containers on one embedded store: each has process ids of its own, but LMDB distinguishes processes by id."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINER = ["unshare", "-Urpf", "--mount-proc"]

OPEN = """
import logging, random, sys, threading
from tests.clocks import WallClock
from fairlead.zones.engines import StoreUnavailable, open, transact
from fairlead.zones.engines.embedded import lock_watchdog
logging.basicConfig(stream=sys.stdout)
lock_watchdog._LOOK_S = 0.2
try:
    db = open("embedded:" + sys.argv[1], clock=WallClock(), random=random.Random(1))
    transact(db, lambda tr: tr.set(b"a", b""))
    print("committed", flush=True)
except StoreUnavailable as error:
    print(error, flush=True)
"""
HOLD = (
    OPEN
    + """
def hold():
    txn = db._store.files.begin_write()
    print("holds", threading.get_native_id(), flush=True)
    sys.stdin.read()

threading.Thread(target=hold).start()
"""
)
KEEP = OPEN + "sys.stdin.read()\n"

pytestmark = pytest.mark.skipif(
    bool(subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode),
    reason="this user may not create a namespace of processes",
)


@contextmanager
def running(code: str, store: Path, *, number: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a container of its own, as its first or second process."""
    command = [sys.executable, "-c", code, str(store)]
    if number == 2:
        command = ["sh", "-c", '"$@"; true', "sh", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen([*CONTAINER, *command], stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_process_id_that_another_container_uses_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with running(KEEP, tmp_path / "store") as first, running(KEEP, tmp_path / "store", number=2) as other:
        assert line_of(first) == line_of(other) == "committed\n"
        with running(KEEP, tmp_path / "store") as second:
            output = line_of(second)
    assert "a process with the same process id, in another container, has the store open" in output
    assert "pid=1" in output
    assert "docker run --pid=container:" in output
    assert "disk" not in output


def test_a_waiting_process_does_not_report_itself_as_the_holder_of_the_write_lock(tmp_path: Path) -> None:
    with running(HOLD, tmp_path / "store") as holder:
        assert line_of(holder) == "committed\n"
        number = int(line_of(holder).removeprefix("holds "))
        assert number == 2
        with running(OPEN, tmp_path / "store", number=number) as waiting:
            output = line_of(waiting)
    assert "held by an unknown process" in output
    assert f"-KILL {number}" not in output
