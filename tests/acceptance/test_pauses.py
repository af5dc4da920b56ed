"""Any process may be stopped (SIGSTOP) for longer than its leases, and go on: others do its work meanwhile, once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config
from fairlead.status import read_status
from fairlead.zones.engines import write_stall
from tests.acceptance.fleets import ROLES, config, consumer, eventually, is_whole, paused
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left, depth, effects, lines_of
from tests.acceptance.shop import payload

pytestmark = pytest.mark.usefixtures("cluster")

LEASE_MS = 600
PAUSE_S = 2 * LEASE_MS / 1_000


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path, lease_ms=LEASE_MS)


def pause_under_load(app: App, running: Any, chosen: Config, roles: Sequence[str], random: Random) -> Load:
    """Pause a process of each of these roles for twice its lease, one after the other, while items keep coming."""
    with Load(app, per_s=200) as load:
        eventually(lambda: len(load.enqueued) >= 200)
        for role in roles:
            with paused(random.choice(running.pids()[role])):
                time.sleep(PAUSE_S)
            eventually(lambda: is_whole(running, chosen))
    return load


def stop_outside_a_commit(app: App, pid: int) -> None:
    """Stop a process (SIGSTOP) at a moment when it does not hold the write lock."""
    os.kill(pid, signal.SIGSTOP)
    while write_stall(app.shards["main"].db):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGSTOP)


def test_nothing_is_lost_or_doubled_when_each_role_is_paused_past_its_lease(app: App, chosen: Config) -> None:
    with consumer(chosen) as running:
        load = pause_under_load(app, running, chosen, ROLES, Random(1))
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_over_thirty_pauses(app: App, chosen: Config, seed: int) -> None:
    random = Random(seed)
    with consumer(chosen) as running:
        roles = [random.choice(ROLES) for _ in range(30)]
        load = pause_under_load(app, running, chosen, roles, random)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


def test_a_paused_worker_that_goes_on_cannot_complete_what_another_took_over(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"

    def noted(what: str) -> list[int]:
        return [int(line.split()[1]) for line in lines_of(notes) if line.startswith(what)]

    with consumer(chosen) as running:
        workers = running.pids()["worker"]
        app.tenant("shop", "user 0").enqueue("contested", payload(7, path=str(notes)))
        eventually(lambda: noted("begun"))
        (first,) = noted("begun")
        stop_outside_a_commit(app, first)
        begun = time.monotonic()
        eventually(lambda: len(noted("begun")) == 2)
        assert time.monotonic() - begun < LEASE_MS / 1_000 + 4.0
        notes.with_suffix(".told").touch()
        os.kill(first, signal.SIGCONT)
        eventually(lambda: noted("completed"))
        eventually(lambda: depth(app) == 0)
    (_, second) = noted("begun")
    assert {first, second} == set(workers)
    assert (noted("refused"), noted("completed")) == ([first], [second])
    assert effects(app)[0] == {7: 1}


@pytest.mark.parametrize("ends", [signal.SIGCONT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_a_worker_that_is_stopped_while_it_holds_the_write_lock_holds_up_all_until_it_goes_on_or_dies(
    app: App, chosen: Config, tmp_path: Path, ends: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, in the log of whoever waits and by `fairlead status`, which does not wait."""
    with consumer(chosen) as running:
        workers = running.pids()["worker"]
        with Load(app, per_s=100) as load:
            eventually(lambda: len(load.enqueued) >= 50)
            app.tenant("shop", "user 0").enqueue("stopped_in_commit", payload(0, path=str(tmp_path / "stopped")))
            eventually(lambda: write_stall(app.shards["main"].db))
            stall = read_status(app.shards["main"], "").stall
            assert stall is not None
            assert stall.pid is not None
            assert (stall.pid in workers, stall.state) == (True, "stopped")
            held_up = len(load.enqueued)
            eventually(lambda: f"held by process {stall.pid} (stopped" in caplog.text)
            assert len(load.enqueued) == held_up
            os.kill(stall.pid, ends)
            eventually(lambda: len(load.enqueued) > held_up + 100)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)
    assert sum("held by process" in line for line in caplog.messages) == 1
