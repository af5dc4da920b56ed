"""How a fleet and its actors stop: what runs may finish, what waits goes back, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    machine,
    opened,
    written,
)
from tests.acceptance.loads import TENANTS, Load, depth, lines_of
from tests.acceptance.shop import payload

RUNTIMES = ("ray", "threads")


def start(on: Machine, chosen: Config, runtime: str) -> subprocess.Popen[str]:
    """Run the application's work on a machine."""
    written(chosen, on.directory)
    with (on.directory / "log").open("w") as log:
        return on.run("run", SHOP, "--config", "fairlead.toml", "--runtime", runtime, log=log)


def begin_long_work(app: App, directory: Path, count: int) -> Path:
    """Enqueue items that run until a file appears, wait until as many as fit run, and return the file."""
    path = directory / "told"
    for number in range(count):
        app.tenant("shop", f"user {number}").enqueue("until_told", payload(number, path=str(path)))
    return path


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in lines_of(path)]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sigterm_lets_what_runs_finish_and_gives_back_what_waits(tmp_path: Path, runtime: str) -> None:
    chosen = config(tmp_path, workers=2, slots=1, lease_ms=120_000)
    with opened(chosen) as app, machine(tmp_path) as on:
        process = start(on, chosen, runtime)
        told = begin_long_work(app, tmp_path, 6)
        begun, ended = tmp_path / "told.begun", tmp_path / "told.ended"
        eventually(lambda: len(lines(begun)) == 2, otherwise=(tmp_path / "log").read_text)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: "draining" in (tmp_path / "log").read_text())
        # What waits is there for other consumers, long before the two minutes of its lease.
        eventually(lambda: free(app) == 4, otherwise=lambda: free(app))
        assert process.poll() is None, "two handlers run"
        told.touch()
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
        assert [line[-1] for line in lines(ended)] == ["told", "told"]
        assert depth(app) == 4
        assert len(lines(begun)) == 2, "nothing new was started"
        eventually(lambda: not on.working(), within_s=15.0, otherwise=on.working)


def free(app: App) -> int:
    """Return how many items nobody holds."""
    views = [view for number in range(6) for view in app.tenant("shop", f"user {number}").peek()]
    return sum(view.state.name == "VESTED" for view in views)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_once_it_says_that_it_drains_nothing_new_starts_though_its_store_hangs(tmp_path: Path, runtime: str) -> None:
    """Before, workers heard of the stop once the scanner had ended, for which it waited up to ten seconds."""
    chosen = config(tmp_path, workers=2, slots=1, lease_ms=10_000)
    with opened(chosen) as app, machine(tmp_path) as on:
        process = start(on, chosen, runtime)
        told = begin_long_work(app, tmp_path, 4)
        begun, ended = tmp_path / "told.begun", tmp_path / "told.ended"
        eventually(lambda: len(lines(begun)) == 2 and free(app) == 0, otherwise=(tmp_path / "log").read_text)
        with nobody_commits(tmp_path / "main"):
            process.send_signal(signal.SIGTERM)
            eventually(lambda: "draining" in (tmp_path / "log").read_text())
            told.touch()
            eventually(lambda: len(lines(ended)) >= 2)
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
        assert len(lines(begun)) == 2
        assert depth(app) == 2


@contextmanager
def nobody_commits(store: Path) -> Iterator[None]:
    """Hold the write lock of a store, by a process of its own."""
    code = "import lmdb, sys; txn = lmdb.open(sys.argv[1]).begin(write=True); print('held', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.kill()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_runs_longer_than_the_grace_is_returned(tmp_path: Path, runtime: str) -> None:
    grace_s = 5.0
    chosen = config(tmp_path, workers=2, slots=1, drain_ms=int(grace_s * 1_000), lease_ms=60_000)
    with opened(chosen) as app, machine(tmp_path) as on:
        process = start(on, chosen, runtime)
        begin_long_work(app, tmp_path, 2)
        eventually(lambda: len(lines(tmp_path / "told.begun")) == 2, otherwise=(tmp_path / "log").read_text)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        eventually(lambda: free(app) == 2, otherwise=(tmp_path / "log").read_text)
        assert time.monotonic() - begun < 2 * grace_s, "one grace for all workers, not one each"
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, runtime: str, number: int) -> None:
    chosen = config(tmp_path, workers=1, slots=1, drain_ms=600_000)
    with opened(chosen) as app, machine(tmp_path) as on:
        process = start(on, chosen, runtime)
        begin_long_work(app, tmp_path, 1)
        eventually(lambda: lines(tmp_path / "told.begun"), otherwise=(tmp_path / "log").read_text)
        process.send_signal(number)
        eventually(lambda: "draining" in (tmp_path / "log").read_text())
        begun = time.monotonic()
        process.send_signal(number)
        assert process.wait(15) != 0
        assert time.monotonic() - begun < 5.0
        assert depth(app) == 1, "its lease gives it back"
        eventually(lambda: not on.working(), within_s=15.0, otherwise=on.working)


@pytest.mark.usefixtures("cluster")
def test_a_fleet_that_stops_under_load_leaves_nothing_under_a_lease(tmp_path: Path) -> None:
    """Managers are leasing all the while, also when they are told to stop; what they lease still finds its worker."""
    chosen = config(tmp_path, workers=2, lease_ms=30_000)
    with opened(chosen) as app, Load(app, per_s=3_000) as load:
        for _ in range(3):
            with consumer(chosen):
                so_far = len(load.enqueued)
                eventually(lambda so_far=so_far: len(load.enqueued) > so_far + 1_000)  # type: ignore[misc]
            assert leased(app) == 0


def leased(app: App) -> int:
    """Return how many items of a load are under a lease."""
    views = [view for number in range(TENANTS) for view in app.tenant("shop", f"user {number}").peek(10_000)]
    return sum(view.state.name == "LEASED" for view in views)


@pytest.mark.usefixtures("cluster")
def test_an_actor_that_gets_the_signal_itself_drains(tmp_path: Path) -> None:
    """As when a whole machine is being shut down, each process by itself: what runs in it may finish."""
    chosen = config(tmp_path, workers=2, slots=1, lease_ms=10_000)
    with opened(chosen) as app, consumer(chosen):
        told = begin_long_work(app, tmp_path, 2)
        begun, ended = tmp_path / "told.begun", tmp_path / "told.ended"
        eventually(lambda: len(lines(begun)) == 2)
        number, pid = lines(begun)[0]
        os.kill(int(pid), signal.SIGTERM)
        tenant = app.tenant("shop", "alice")
        for _ in range(5):
            tenant.enqueue("plain", payload(7))
        time.sleep(1.0)  # in which it must neither die nor start anything
        assert Path(f"/proc/{pid}").exists(), "it lets its handler finish"
        assert lines(ended) == []
        told.touch()
        eventually(lambda: depth(app) == 0)
        assert [number, "told"] in lines(ended)
        assert len(lines(begun)) == 2, "nothing ran twice"
        eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("role", [*ROLES, "coordinator"])
def test_a_fleet_that_goes_on_gets_an_actor_back_that_was_told_to_stop(tmp_path: Path, role: str) -> None:
    """Somebody's `kill` on one process of a fleet that goes on: its part of the work must not be lost for good."""
    chosen = config(tmp_path, workers=1, slots=2, selection="in_order")
    with opened(chosen) as app, consumer(chosen) as running:
        (pid,) = running.pids()[role]
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: running.pids()[role] not in ([], [pid]) and is_whole(running, chosen), within_s=30.0)
        app.tenant("shop", "alice").enqueue("plain", payload(1))
        eventually(lambda: depth(app) == 0, within_s=20.0)
