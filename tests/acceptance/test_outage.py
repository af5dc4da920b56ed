"""A store that refuses for a while: everything waits, says so once, and goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.fleets import ROOT

# In a mount namespace of its own, a small file system whose space is taken away and given back.
STORY = "tests.acceptance.full_disk_story"


def isolated() -> bool:
    """Whether this machine lets a user make a mount namespace."""
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    return probe.returncode == 0


@pytest.mark.skipif(not isolated(), reason="this machine lets nobody mount: unshare -Urm is refused")
@pytest.mark.parametrize("host", ["threads", "ray"])
def test_a_disk_that_is_full_for_a_while_costs_nothing_but_time(tmp_path: Path, host: str) -> None:
    begun = time.monotonic()
    story = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-m", STORY, str(tmp_path), host],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert story.returncode == 0, f"after {time.monotonic() - begun:.0f} s\n{story.stdout}\n{story.stderr}"
