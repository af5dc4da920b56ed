"""A store that refuses for a while: everything waits, says so once, and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.allowed import WHY_NOT_MOUNTED, WHY_NOT_TRACED
from tests.acceptance.fleets import ROOT

may_mount = pytest.mark.skipif(bool(WHY_NOT_MOUNTED), reason=WHY_NOT_MOUNTED)
may_trace = pytest.mark.skipif(bool(WHY_NOT_TRACED), reason=WHY_NOT_TRACED)


def tell(story: str, place: Path, runtime: str) -> None:
    """Run a story in a mount namespace of its own, where it has a small file system to itself."""
    begun = time.monotonic()
    told = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-m", f"tests.acceptance.{story}", str(place), runtime],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert told.returncode == 0, f"after {time.monotonic() - begun:.0f} s\n{told.stdout}\n{told.stderr}"


@may_mount
@pytest.mark.parametrize("runtime", ["threads", pytest.param("ray", marks=pytest.mark.long)])
def test_a_disk_that_is_full_for_a_while_costs_nothing_but_time(tmp_path: Path, runtime: str) -> None:
    tell("full_disk_story", tmp_path, runtime)


@may_mount
def test_actors_that_find_the_disk_read_only_come_back_when_it_is_not(tmp_path: Path) -> None:
    tell("read_only_story", tmp_path, "ray")


@may_trace
@pytest.mark.parametrize(
    ("calls", "error", "reason", "remedy"),
    [
        ("pwrite64,writev", "EROFS", "the path is read-only", "Make it writable"),
        ("fdatasync", "EROFS", "the path is read-only", "Make it writable"),
        ("pwrite64,writev", "ENOSPC", "the disk is full", "Free some space"),
        ("fdatasync", "EIO", "the disk failed", "See the cause, and the kernel's log"),
    ],
)
def test_an_open_store_whose_disk_refuses_says_why_and_goes_on_when_it_no_longer_does(
    tmp_path: Path, calls: str, error: str, reason: str, remedy: str
) -> None:
    """The error is injected into the system calls of a process that has the store open."""
    command = ["strace", "-f", "-o", "/dev/null", "-e", f"inject={calls}:error={error}:when=12..20"]
    told = subprocess.run(
        [*command, sys.executable, "-m", "tests.acceptance.refused_writes", f"embedded:{tmp_path / 'store'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    (said,) = found["said"]
    assert said.startswith(f"{reason}. {remedy}")
    assert found["acknowledged"] > 0
