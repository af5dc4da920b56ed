"""Faults: each occurs in its runs, the product recovers, and the fault's check fails if it does not."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.actors.scanner import Scanner
from fairlead.simulation.actor import Actor
from fairlead.simulation.faults.commits import Conflicts
from fairlead.simulation.faults.table import FAULTS
from fairlead.simulation.run import Simulation, run
from fairlead.simulation.trial import Report
from fairlead.zones.top_level import process_pointers
from fairlead.zones.top_level.process_pointers import PointerOutcome, PointerResult
from tests.conftest import SEEDS as FRESH_SEEDS

SHORT: dict[str, Any] = {"items": 30, "trouble_us": 1_000_000}
SEEDS = range(10)


def run_until(enough: Callable[[Report], bool], **chosen: Any) -> Report:
    """Return the report of the first seed for which `enough` is true."""
    for seed in SEEDS:
        report = run(seed, **SHORT, **chosen)
        if enough(report):
            return report
    raise AssertionError(f"no seed of {SEEDS} was enough: {chosen}")


SHARE = 4  # A short run strikes with one in so many faults: five seconds each.
DRAWN = int(os.environ[FRESH_SEEDS].partition(",")[0]) % SHARE


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if number % SHARE == DRAWN else pytest.mark.long)
        for number, name in enumerate(FAULTS)
    ],
)
def test_a_fault_occurs_and_the_system_recovers(name: str) -> None:
    report = run_until(lambda report: bool(report.violations or report.struck[name]), faults=(name,))
    assert not report.violations, str(report)
    assert set(report.struck) == {name}


def failure_of_recovery(**chosen: Any) -> str:
    """Run seeds until the check of a fault fails, and return its message."""
    oracle = "the system gets over a fault that has stopped"
    report = run_until(lambda report: any(violation.oracle == oracle for violation in report.violations), **chosen)
    return report.violations[0].what


def test_an_actor_that_does_not_restart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Actor, "restart", lambda self, reason, delay_us: self.kill(reason))
    assert failure_of_recovery(faults=("coordinator loss",)).endswith("has not restarted")


def test_a_consumer_without_heartbeats_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.zones.top_level.sessions.heartbeat", lambda *_: None)
    assert "has no live session on s0" in failure_of_recovery(faults=("coordinator loss",))


def test_a_pointer_that_a_scanner_does_not_release_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Scanner._served

    def forgets_the_lost(self: Scanner, number: int, shard: Any, refs: Any, served: Any, error: Any) -> None:
        whole(self, number, shard, refs if error is None else (), served, error)

    monkeypatch.setattr(Scanner, "_served", forgets_the_lost)
    assert "and all queues are empty" in failure_of_recovery(faults=("lost calls",))


def test_a_stray_entry_that_is_not_cleared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(tr: Any, layout: Any, ref: Any) -> Any:
        yield
        return PointerResult(ref, PointerOutcome.GONE)

    monkeypatch.setattr(process_pointers, "clear_dangling_op", leave)
    assert "stray entries are left" in failure_of_recovery(faults=("stray entries",))


def test_a_shard_without_further_commits_is_found() -> None:
    simulation = Simulation(1)
    fault = Conflicts(simulation.cluster, simulation.world.random("fault"))
    fault.stop()
    assert fault.check() == "no commit was applied on s0 since"
    for store in simulation.cluster.stores.values():
        store.commits += 1
    assert fault.check() is None
    simulation.cluster.stores["s1"].late_commits = 2
    assert fault.check() == "2 commits are still on their way to s1"
