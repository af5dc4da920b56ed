"""Any process may be killed at any instant: nothing is lost, nothing happens twice, nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config
from tests.acceptance.fleets import (
    PATIENCE_S,
    ROLES,
    SHOP,
    Machine,
    config,
    consumer,
    eventually,
    is_whole,
    kill_one,
    machine,
    written,
)
from tests.acceptance.loads import Load, assert_all_done, assert_nothing_left, depth, lines_of, most_at_once, runs_of
from tests.acceptance.shop import payload
from tests.foundationdb_server import FoundationServer, needs_server

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(params=["embedded", pytest.param("foundationdb", marks=needs_server)])
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    if request.param == "embedded":
        yield config(tmp_path)
        return
    with FoundationServer(tmp_path / "cluster") as server:
        yield config(tmp_path, url=server.url)


def kill_under_load(
    app: App, running: Any, chosen: Config, roles: list[str], *, per_s: int, apart: int = 0, seed: int = 1
) -> Load:
    """Kill one process after the other, each when the one before is back, while items keep coming; return the load.

    `apart`: how many items come between two kills, at least.
    """
    random = Random(seed)
    with Load(app, per_s=per_s) as load:
        eventually(lambda: len(load.enqueued) >= per_s)
        for role in roles:
            kill_one(running, chosen, role, random)
            eventually(partial(has_enqueued, load, len(load.enqueued) + apart))
    return load


def has_enqueued(load: Load, count: int) -> bool:
    return len(load.enqueued) >= count


def test_nothing_is_lost_or_doubled_when_processes_are_killed_one_after_the_other(app: App, chosen: Config) -> None:
    """Each role once, and then two more."""
    with consumer(chosen) as running:
        load = kill_under_load(app, running, chosen, [*ROLES, "worker", "manager"], per_s=200)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_doubled_over_twenty_kills(app: App, chosen: Config, seed: int) -> None:
    random = Random(seed)
    with consumer(chosen) as running:
        roles = [random.choice(ROLES) for _ in range(20)]
        load = kill_under_load(app, running, chosen, roles, per_s=300, seed=seed)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


def test_no_slot_is_lost_when_actors_come_back(app: App, chosen: Config, tmp_path: Path) -> None:
    """As many handlers run at once after the kills as before: one per slot."""
    slots = chosen.consumer.slots * chosen.consumer.workers

    def at_once(name: str) -> int:
        """Return how many of twice as many handlers as there are slots run at once."""
        notes = tmp_path / name
        for number in range(2 * slots):
            app.tenant("shop", "alice").enqueue("noted", payload(number, path=str(notes), takes_ms=1_000))
        eventually(lambda: depth(app) == 0)
        return most_at_once(runs_of(notes))

    with consumer(chosen) as running:
        assert at_once("before") == slots
        for role in ("worker", "worker", "manager", "scanner"):
            kill_one(running, chosen, role, Random(3))
        assert at_once("after") == slots


def test_without_a_coordinator_only_order_suffers(app: App, chosen: Config) -> None:
    in_order = replace(chosen, consumer=replace(chosen.consumer, selection="in_order"))
    with consumer(in_order) as running:
        tenant = app.tenant("shop", "alice")
        for _ in range(3):
            kill_one(running, in_order, "coordinator", Random(3))
            begun = time.monotonic()
            tenant.enqueue("plain", payload(1))
            eventually(lambda: depth(app) == 0)
            assert time.monotonic() - begun < 1.0


def kill_in_mid_run(app: App, running: Any, path: Path, *more: str) -> float:
    """Kill the worker that runs an item, and first the processes of `more` roles; return how long it took to run again.

    The item's handler runs until `path` is there, which it is then.
    """
    begun = path.with_suffix(".begun")
    app.tenant("shop", "alice").enqueue("until_told", payload(1, path=str(path)))
    eventually(lambda: lines_of(begun))
    pid = int(lines_of(begun)[0].split()[1])
    pids = running.pids()
    assert pid in pids["worker"]
    killed = time.monotonic()
    for doomed in (*(each for role in more for each in pids[role]), pid):
        os.kill(doomed, signal.SIGKILL)
    eventually(lambda: len(begun.read_text().splitlines()) == 2)
    took_s = time.monotonic() - killed
    path.touch()
    eventually(lambda: depth(app) == 0)
    return took_s


def test_what_a_dead_worker_held_runs_again_at_once(app: App, chosen: Config, tmp_path: Path) -> None:
    """Whatever its lease, the job's length and its timeout are: its manager sees that it is dead."""
    long_leases = replace(chosen, consumer=replace(chosen.consumer, lease_ms=60_000))
    with consumer(long_leases) as running:
        assert kill_in_mid_run(app, running, tmp_path / "told") < 3.0


def test_what_was_on_its_way_to_a_dead_worker_runs_at_once_too(app: App, chosen: Config) -> None:
    """Under load something often is. Before, it waited out its lease: here minutes.

    The kills are so far apart that a worker that is back has work before the next one dies.
    """
    long_leases = replace(chosen, consumer=replace(chosen.consumer, lease_ms=600_000))
    with consumer(long_leases) as running:
        load = kill_under_load(app, running, chosen, ["worker"] * 4, per_s=250, apart=500)
        assert_all_done(app, load.enqueued)


def test_if_the_manager_died_with_it_that_runs_again_when_the_lease_expires_or_the_worker_is_found_silent(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    with consumer(chosen) as running:
        tries = (kill_in_mid_run(app, running, tmp_path / f"told {number}", "manager") for number in range(3))
        # A busy machine can only make it longer.
        assert any(took_s < max(chosen.consumer.lease_ms / 1000 + 2.0, 7.0) for took_s in tries)


# --- The whole machine ---


def start_fleet(on: Machine, directory: Path) -> subprocess.Popen[str]:
    """Run the application with Ray in processes of its own."""
    log = (directory / "fleet.log").open("a")
    process = on.run("run", SHOP, "--config", str(directory / "fairlead.toml"), log=log)
    log.close()
    return process


def completed(app: App, load: Load) -> int:
    """Return how many items are done, a few that are just being enqueued apart."""
    return len(load.enqueued) - depth(app)


def has_completed(app: App, load: Load, count: int) -> bool:
    return completed(app, load) > count


def kill_the_machine_in_mid_run(app: App, chosen: Config, directory: Path, *, times: int, per_s: int) -> None:
    """Kill everything while items keep coming, and start again; check that all is done and nothing left."""
    written(chosen, directory)
    with Load(app, per_s=per_s) as load:
        for _ in range(times):
            with machine(directory) as on:
                start_fleet(on, directory)
                wanted = completed(app, load) + 2 * per_s
                eventually(partial(has_completed, app, load, wanted), otherwise=(directory / "fleet.log").read_text)
                assert on.kill() >= 8, "the driver, Ray's daemons and every actor"
    with machine(directory) as on:
        start_fleet(on, directory)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)


def test_nothing_is_lost_or_doubled_when_the_whole_machine_dies(app: App, chosen: Config, tmp_path: Path) -> None:
    kill_the_machine_in_mid_run(app, chosen, tmp_path, times=1, per_s=200)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_the_whole_machine_dies_again_and_again(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    kill_the_machine_in_mid_run(app, chosen, tmp_path, times=6, per_s=300)


def test_a_consumer_is_whole_to_begin_with(chosen: Config) -> None:
    with consumer(chosen) as running:
        assert is_whole(running, chosen)


@pytest.mark.long
def test_a_fleet_whose_raylet_dies_says_so_and_ends_and_the_next_does_its_work(
    app: App, chosen: Config, tmp_path: Path
) -> None:
    """Before, it stayed and did nothing: Ray took its actors for dead, and nobody was told."""
    written(chosen, tmp_path)
    with machine(tmp_path) as on:
        with Load(app, per_s=100) as load:
            fleet = start_fleet(on, tmp_path)
            eventually(lambda: has_completed(app, load, 100), otherwise=(tmp_path / "fleet.log").read_text)
            (raylet,) = [pid for pid in on.pids() if Path(f"/proc/{pid}/exe").readlink().name == "raylet"]
            os.kill(raylet, signal.SIGKILL)
            assert fleet.wait(PATIENCE_S) == 1
            assert "Error: the fleet is gone" in (tmp_path / "fleet.log").read_text()
            eventually(lambda: on.working() == [], otherwise=lambda: f"left behind: {on.working()}")
            start_fleet(on, tmp_path)
            wanted = completed(app, load) + 100
            eventually(partial(has_completed, app, load, wanted), otherwise=(tmp_path / "fleet.log").read_text)
        assert_all_done(app, load.enqueued)
        assert_nothing_left(app)
