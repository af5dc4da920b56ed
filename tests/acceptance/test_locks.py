"""Locks outside of workflows, on Ray: a handler holds one, and its worker is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fairlead import App, Config
from tests.acceptance.fleets import config, consumer, eventually
from tests.acceptance.loads import depth, lines_of
from tests.acceptance.shop import payload

pytestmark = pytest.mark.usefixtures("cluster")

KILLS = 5
FREE_S = 1.0  # The median, on a machine that does other work. On a quiet one it is below half a second.


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path)


@pytest.mark.timeout(300)
def test_a_lock_is_free_at_once_after_the_worker_that_held_it_was_killed(
    app: App, chosen: Config, tmp_path: Path, record_property: Any
) -> None:
    """The worker's manager sees that the process has ended, and ends the session by which it held the lock."""
    took_s = []
    alice = app.tenant("shop", "alice")
    with consumer(chosen):
        for number in range(KILLS):
            path = tmp_path / f"held {number}"
            alice.enqueue("locking", payload(number, path=str(path)))
            eventually(lambda path=path: lines_of(path))  # type: ignore[misc]
            worker = int(lines_of(path)[0].split()[1])
            os.kill(worker, signal.SIGKILL)
            killed = time.monotonic()
            with alice.lock(("account", 7), wait=60):
                took_s.append(time.monotonic() - killed)
            eventually(lambda: depth(app) == 0)
    record_property(
        f"a lock is free after its worker was killed, {KILLS} times",
        f"median {median(took_s):.2f} s, {max(took_s):.2f} s at most",
    )
    assert median(took_s) < FREE_S
