"""A failing run is reduced: the smaller run breaks the same promise, and shows the cause."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairlead.simulation.reduction import NO_REDUCTION, Reduction, reduction_from, whole_plan
from fairlead.simulation.run import run
from fairlead.simulation.shrink import RUNS_MAX, RUNS_MIN, minimize, runs_for, shrink
from fairlead.simulation.trial import Report
from fairlead.simulation.world import Violation, World
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.queue import stored_item
from tests.fairlead.shell import run as command

WHOLE = Reduction(
    faults=("conflicts", "kills", "pauses"),
    items=80,
    tenants=20,
    producers=2,
    consumers=3,
    workers=3,
    trouble_ms=4_000,
)
SOME = Reduction(faults=("conflicts", "kills", "clock jumps"), items=40, trouble_ms=2_000)


def forget_the_index_entry(tr: Any, location: ZoneLocation, item_id: bytes, record: Any, **_: Any) -> None:
    tr.clear(location.keys.item(item_id))


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug that only a kill reveals: a worker that was killed and restarted leaves index entries behind."""
    remove = stored_item.remove

    def remove_or_forget(tr: Any, location: ZoneLocation, item_id: bytes, record: Any, **how: Any) -> None:
        if was_killed(tr._latent_store.world):
            forget_the_index_entry(tr, location, item_id, record)
        else:
            remove(tr, location, item_id, record, **how)

    monkeypatch.setattr(stored_item, "remove", remove_or_forget)


def was_killed(world: World) -> bool:
    """Whether the actor that has the turn was killed before, by the fault `kills`."""
    assert world.current is not None
    actor = world.current.host.name.partition("#")[0]
    return any(f" kill {actor}#" in line and line.endswith(": killed") for line in world.log.lines)


# --- The search ---


def least(reduction: Reduction, fails: Callable[[Reduction], bool], *, runs_max: int) -> Reduction:
    return list(minimize(reduction, fails, runs_max=runs_max))[-1]


def smallest(report: Report, again: Callable[[Reduction], Report], *, runs_max: int) -> Report:
    return list(shrink(report, again, runs_max=runs_max))[-1]


def test_only_the_parts_that_matter_for_the_failure_are_kept() -> None:
    def fails(reduction: Reduction) -> bool:
        assert reduction.faults is not None
        assert reduction.items is not None
        return "pauses" in reduction.faults and reduction.items >= 10 and reduction.consumers == 3

    small = least(WHOLE, fails, runs_max=60)
    assert (small.faults, small.consumers) == (("pauses",), 3)
    assert (small.tenants, small.producers, small.workers, small.trouble_ms) == (1, 1, 1, 100)
    assert small.items is not None
    assert 10 <= small.items <= 13  # One more reduction by a quarter would go below 10.


def test_two_faults_that_only_fail_together_are_both_kept() -> None:
    small = least(WHOLE, lambda reduction: {"conflicts", "pauses"} <= set(reduction.faults or ()), runs_max=60)
    assert small.faults == ("conflicts", "pauses")


def test_a_failure_in_every_run_is_reduced_to_the_least_run_at_once() -> None:
    """Such a run may take half a minute."""
    least_of_all = Reduction((), items=1, tenants=1, producers=1, consumers=1, workers=1, trouble_ms=100)
    assert list(minimize(WHOLE, lambda reduction: True, runs_max=1)) == [WHOLE, least_of_all]


def test_a_run_of_which_no_part_can_be_removed_is_not_changed() -> None:
    assert least(WHOLE, lambda reduction: False, runs_max=60) == WHOLE


@pytest.mark.parametrize("runs_max", [0, 1, 7])
def test_the_search_ends_after_so_many_runs_with_the_smallest_so_far(runs_max: int) -> None:
    tried: list[Reduction] = []

    def fails(reduction: Reduction) -> bool:
        tried.append(reduction)
        return len(tried) % 2 == 0

    small = least(WHOLE, fails, runs_max=runs_max)
    assert len(tried) == runs_max == len(set(tried))
    assert small == (tried[-1 - runs_max % 2] if runs_max > 1 else WHOLE)


# --- The parts of a run that are kept ---


def test_a_reduction_that_keeps_everything_gives_the_same_run() -> None:
    assert reduction_from(run(3, items=20).plan, whole_plan(run(3, items=20).plan)) == NO_REDUCTION
    whole = run(3, Reduction(items=20))
    assert run(3, whole_plan(whole.plan)).events == whole.events


def test_the_parts_that_are_not_kept_are_not_in_the_run() -> None:
    report = run(
        3, Reduction(faults=("kills",), items=5, tenants=1, consumers=1, workers=1, producers=1, trouble_ms=300)
    )
    hosts = {line.split()[1].partition("#")[0] for line in report.lines if "#" in line.split()[1]}
    assert report.plan.faults == ("kills",)
    assert hosts <= {"coordinator", "c0.scanner", "c0.manager0", "c0.worker0", "p0"}
    assert not any("/t1/" in line for line in report.lines)


# --- Failing runs ---


def test_a_failing_run_shrinks_to_its_cause(forgetful: None) -> None:
    report = failing_run()
    small = smallest(report, lambda reduction: run(report.seed, reduction), runs_max=40)
    assert small.violations[0].oracle == report.violations[0].oracle
    assert small.plan.faults == ("kills",)
    assert small.plan.items < 20
    assert "VIOLATION" in small.last_events[-1]


def test_the_same_failure_shrinks_to_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_item, "remove", forget_the_index_entry)
    report = run(7)
    first, second = (smallest(report, lambda reduction: run(7, reduction), runs_max=30) for _ in range(2))
    assert (first.reduction, first.events) == (second.reduction, second.events)
    assert (first.plan.faults, first.plan.items) == ((), 1)


def test_a_smaller_run_that_breaks_another_promise_does_not_count(forgetful: None) -> None:
    """Otherwise the report would explain a bug that the campaign did not find."""
    report = failing_run()

    def fails_otherwise(reduction: Reduction) -> Report:
        return replace(report, reduction=reduction, violations=[Violation("another promise", "it is broken")])

    assert smallest(report, fails_otherwise, runs_max=5) is report


def test_long_runs_are_tried_less_often() -> None:
    report = run(3, Reduction(items=1, faults=()))
    allowed = {seconds: runs_for(replace(report, virtual_us=seconds * 1_000_000)) for seconds in (5, 100, 600)}
    assert allowed == {5: RUNS_MAX, 100: 36, 600: RUNS_MIN}


def failing_run() -> Report:
    """Return a run of the standard workload in which the planted bug is found."""
    return next(report for report in (run(seed, SOME) for seed in range(20)) if report.violations)


# --- The command line ---


@pytest.mark.long
def test_a_campaign_shows_the_smallest_run_of_its_first_failure_and_the_command_that_replays_it(
    forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.simulation.shrink.RUNS_MAX", 12)
    seed = failing_run().seed
    assert SOME.faults is not None
    chosen = ("--faults", ", ".join(SOME.faults), "--size", "items=40,trouble_ms=2000")
    shown = command("simulate", "--first", seed, "--seeds", 2, "--processes", 1, *chosen)
    assert shown.code == 1
    printed = [line.partition("replay: ")[2] for line in shown.out.splitlines() if "replay: " in line]
    shortest = printed[-1]
    assert shortest not in printed[:-1]
    typed = shlex.split(shortest)
    assert typed[:6] == ["fairlead", "simulate", "--seed", str(seed), "--faults", "kills"]
    replayed = command(*typed[1:], "--json")
    assert replayed.code == 1
    assert f"digest of the events: {replayed.json['events']}" in shown.out
    assert replayed.json["violations"][0]["replay"] == shortest
    last = next(line.strip() for line in shown.out.splitlines() if "VIOLATION" in line)
    assert last in command(*typed[1:]).out.splitlines()
