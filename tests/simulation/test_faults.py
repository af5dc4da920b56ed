"""Faults: each strikes in its runs, the product gets over it, and its check speaks if the product does not."""

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

SHORT: dict[str, Any] = {"items": 60, "trouble_us": 1_500_000}
SEEDS = range(10)


def run_until(enough: Callable[[Report], bool], **chosen: Any) -> Report:
    """Run seed after seed until one is enough."""
    for seed in SEEDS:
        report = run(seed, **SHORT, **chosen)
        if enough(report):
            return report
    raise AssertionError(f"no seed of {SEEDS} was enough: {chosen}")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_strikes_and_the_system_gets_over_it(name: str) -> None:
    report = run_until(lambda report: bool(report.violations or report.struck[name]), faults=(name,))
    assert not report.violations, str(report)
    assert set(report.struck) == {name}


def what_is_left(**chosen: Any) -> str:
    """Run until a fault's check has spoken, and return what it said."""
    oracle = "the system gets over a fault that has stopped"
    report = run_until(lambda report: any(violation.oracle == oracle for violation in report.violations), **chosen)
    return report.violations[0].what


def test_an_actor_that_does_not_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Actor, "restart", lambda self, reason, delay_us: self.kill(reason))
    assert what_is_left(faults=("coordinator loss",)).endswith("has not restarted")


def test_a_consumer_that_does_not_show_that_it_lives_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.zones.top_level.sessions.heartbeat", lambda *_: None)
    assert "has no live session on s0" in what_is_left(faults=("coordinator loss",))


def test_a_pointer_that_a_scanner_does_not_let_go_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Scanner._served

    def forgets_the_lost(self: Scanner, number: int, shard: Any, refs: Any, served: Any, error: Any) -> None:
        whole(self, number, shard, refs if error is None else (), served, error)

    monkeypatch.setattr(Scanner, "_served", forgets_the_lost)
    assert "and all queues are empty" in what_is_left(faults=("lost calls",))


def test_a_stray_entry_that_nobody_clears_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(tr: Any, layout: Any, ref: Any) -> Any:
        yield
        return PointerResult(ref, PointerOutcome.GONE)

    monkeypatch.setattr(process_pointers, "_clear_dangling", leave)
    assert "stray entries are left" in what_is_left(faults=("stray entries",))


def test_a_shard_that_nobody_commits_on_any_more_is_found() -> None:
    simulation = Simulation(1)
    fault = Conflicts(simulation.cluster, simulation.world.random("fault"))
    fault.stop()
    assert fault.check() == "no commit was applied on s0 since"
    for store in simulation.cluster.stores.values():
        store.commits += 1
    assert fault.check() is None
    simulation.cluster.stores["s1"].late_commits = 2
    assert fault.check() == "2 commits are still on their way to s1"
