"""`fairlead run` runs an application's items until SIGTERM, and then lets running items finish."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from select import select
from typing import Any

import pytest

from fairlead import App, fleet
from fairlead.cli.fleet import stop_signal
from fairlead.fleet import FleetLost
from tests.fairlead.shell import ROOT, run

SHOP = """
import time

import fairlead

app = fairlead.App("embedded:data")


@app.handler("receipt", transactional=True)
def receipt(job, tr):
    print("sending", job.payload)
    tr.set(("sent", job.payload), b"")


@app.handler("slow")
def slow(job):
    app.tenant(*job.tenant).transact(lambda tr: tr.set(("started",), b""))
    time.sleep(1)
    app.tenant(*job.tenant).transact(lambda tr: tr.set(("finished",), b""))


@app.every(1)
def sweep(job):
    app.tenant("shop", "sweeper").transact(lambda tr: tr.add(("sweeps",), 1))
"""
PATIENCE_S = 30.0


@pytest.fixture
def shop(empty_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """A directory with an application, and the application's store as another process sees it."""
    (empty_directory / "fl_shop.py").write_text(SHOP)
    monkeypatch.setenv("FAIRLEAD_SIGNING_KEY", "a key of the tests' own")
    app = App("embedded:data")
    app.tenant("shop", "alice").count()  # So that the store exists, and the fleet does not log a new one.
    yield app
    app.close()


@pytest.fixture
def running(shop: App) -> Iterator[subprocess.Popen[str]]:
    """Threads of another process run the application's items."""
    command = [sys.executable, "-m", "fairlead", "run", "fl_shop:app", "--runtime", "threads", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("running the kinds receipt, slow, sweep")
        yield process
        process.kill()


def eventually(what: Callable[[], bool]) -> None:
    """Wait until `what` is true; fail if it is not within half a minute."""
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


def stop(process: subprocess.Popen[str]) -> dict[str, int]:
    """Send SIGTERM and return the counts that the command ends with."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    counts: dict[str, int] = json.loads(out)
    assert not [name for name in counts if "within_us" in name], "a histogram is no summary"
    return counts


def test_what_is_enqueued_is_run_exactly_once(shop: App, running: subprocess.Popen[str]) -> None:
    alice = shop.tenant("shop", "alice")
    for number in range(20):
        alice.enqueue("receipt", number)
    eventually(lambda: not alice.count())
    assert stop(running)["completed"] >= 20
    assert alice.transact(lambda tr: [key for key, _ in tr.get_range(("sent",))]) == [("sent", n) for n in range(20)]


@pytest.mark.parametrize("runtime", fleet.RUNTIMES)
def test_what_a_handler_prints_is_shown_at_once_in_a_pipe_too(shop: App, runtime: str) -> None:
    """Before, a journal or `| tee log` got the text when the fleet ended, or after eight kilobytes."""
    command = [sys.executable, "-m", "fairlead", "run", "fl_shop:app", "--runtime", runtime]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONUNBUFFERED", None)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert next(line for line in process.stderr if line.startswith("running"))
            shop.tenant("shop", "alice").enqueue("receipt", 7)
            assert select([process.stdout], [], [], PATIENCE_S)[0], "nothing was shown"
            shown = process.stdout.readline()
            assert shown.endswith("sending 7\n")
            assert "\x1b" not in shown, "colours are for terminals"
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)


def test_running_items_may_finish_after_sigterm(shop: App, running: subprocess.Popen[str]) -> None:
    alice = shop.tenant("shop", "alice")
    alice.enqueue("slow")
    eventually(lambda: alice.transact(lambda tr: tr.get(("started",))) is not None)
    stop(running)
    assert alice.transact(lambda tr: tr.get(("finished",))) is not None
    assert alice.count() == {}


def test_a_running_consumer_is_seen_in_status(shop: App, running: subprocess.Popen[str]) -> None:
    def consumers() -> list[dict[str, object]]:
        found: list[dict[str, object]] = run("status", "--store", "embedded:data", "--json").json["shards"][0][
            "consumers"
        ]
        return found

    eventually(lambda: len(consumers()) == 1)
    (consumer,) = consumers()
    assert (consumer["live"], consumer["pid"]) == (True, running.pid)
    kinds = consumer["kinds"]
    assert isinstance(kinds, list)
    assert "fairlead.move" in kinds
    assert [kind for kind in kinds if not kind.startswith("fairlead.")] == ["receipt", "slow", "sweep"]
    stop(running)
    assert consumers() == []


def test_periodic_items_are_enqueued_by_the_fleet(shop: App, running: subprocess.Popen[str]) -> None:
    sweeper = shop.tenant("shop", "sweeper")
    eventually(lambda: sweeper.transact(lambda tr: tr.get(("sweeps",))) is not None)
    stop(running)


def test_a_submitted_handler_reaches_the_running_fleet(shop: App, running: subprocess.Popen[str]) -> None:
    alice = shop.tenant("shop", "alice")
    alice.enqueue("late")
    (Path.cwd() / "fl_late.py").write_text("def late(job): pass")
    assert run("submit", "fl_late:late", "--kind", "late", "--store", "embedded:data").code == 0
    eventually(lambda: not alice.count())
    stop(running)


def test_on_a_terminal_log_records_have_rows_of_their_own_above_the_live_line(empty_directory: Path) -> None:
    """Before, each was appended to the live line: `held 02026-11-24 14:23:32,282 WARNING boom`."""
    Path("fl_noisy.py").write_text(
        "import logging, fairlead\n"
        "app = fairlead.App('embedded:data')\n"
        "@app.every(1)\n"
        "def tick(job): logging.getLogger('shop').warning('from the handler')\n"
    )
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "fairlead", "run", "fl_noisy:app", "--runtime", "threads"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200"}
    drawn = ""
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env) as process:
        os.close(its)
        try:
            until = time.monotonic() + PATIENCE_S
            while drawn.count("from the handler") < 2:
                assert time.monotonic() < until, drawn
                drawn += os.read(mine, 65_536).decode()
        finally:
            process.kill()
            os.close(mine)
    rows = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).replace("\r", "\n").split("\n")
    logged = [row for row in rows if "from the handler" in row]
    assert all(re.match(r"\d{4}-\d\d-\d\d ", row) for row in logged), logged


def test_an_application_without_handlers_gets_a_hint(empty_directory: Path) -> None:
    Path("fl_core.py").write_text("import fairlead\napp = fairlead.App('embedded:data')\n")
    command = [sys.executable, "-m", "fairlead", "run", "fl_core:app", "--runtime", "threads"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("running"))
        process.kill()
    assert said == "running nothing: no handler is registered; import the modules that register handlers in fl_core\n"


def test_a_second_ctrl_c_ends_it_at_once_with_a_code_of_its_own(shop: App, running: subprocess.Popen[str]) -> None:
    """Before, it printed `Aborted!` and returned 1, which means that the fleet was lost."""
    alice = shop.tenant("shop", "alice")
    alice.enqueue("slow")
    eventually(lambda: alice.transact(lambda tr: tr.get(("started",))) is not None)
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    drains = next(line for line in running.stderr if line.startswith("draining"))
    assert "1 held now" in drains
    assert "within 30 s" in drains
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, err
    assert "ended at once" in err


@pytest.mark.parametrize("moment", range(30))
def test_a_signal_at_any_moment_of_waiting_ends_it(moment: int) -> None:
    """Before, a signal that came while the wait held a lock left a fleet that only SIGKILL could end."""
    sent: list[int] = []

    def send() -> None:
        if not sent:
            sent.append(moment)
            os.kill(os.getpid(), signal.SIGTERM)

    steps = count()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if next(steps) == moment:
            send()
        return trace

    with stop_signal() as stopped:
        later = threading.Timer(0.1, send)  # There are fewer steps than that.
        later.start()
        outer = sys.gettrace()
        sys.settrace(trace)
        try:
            while not stopped():
                assert next(steps) < 1_000, "the signal was not heard of"
        finally:
            sys.settrace(outer)
            later.cancel()
            later.join()


def test_a_fleet_that_did_nothing_counts_everything_and_finds_zero(running: subprocess.Popen[str]) -> None:
    counts = stop(running)
    names = ("completed", "retried", "dead_lettered", "dropped", "lost", "held")
    assert {name: counts.get(name) for name in names} == dict.fromkeys(names, 0)


def test_a_fleet_that_is_gone_ends_the_command_with_what_to_do(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager then restarts it."""

    class Gone:
        def check(self) -> None:
            raise FleetLost

    monkeypatch.setattr(fleet, "start", lambda *arguments, **options: Gone())
    answer = run("run", "fl_shop:app")
    assert answer.code == 1
    assert "Error: the fleet is gone" in answer.err
    assert "Do: restart the fleet" in answer.err
