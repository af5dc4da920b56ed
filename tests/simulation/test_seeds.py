"""Whole runs of the standard workload: nothing is lost, doubled, or left behind, whatever happens meanwhile."""

from simulation.run import run


def test_a_fresh_seed_drains_without_a_violation(fresh_seed: int) -> None:
    report = run(fresh_seed, items=100, trouble_us=2_000_000)
    assert not report.violations, str(report)


def test_a_seed_that_failed_once_drains_without_a_violation(kept_seed: int) -> None:
    report = run(kept_seed)
    assert not report.violations, str(report)


def test_a_run_keeps_all_its_actors_busy_with_hundreds_of_items_under_faults() -> None:
    """A world in which little happens proves little."""
    report = run(1, faults=("conflicts", "unknown results", "kills", "pauses", "late calls"))
    assert report.commits > 400
    assert report.turns > 2_000
    happened = " ".join(report.lines)
    for event in ("kill c", "is paused for", "refuses", "1021, applied", "runs effect", "ends flaky", "peace"):
        assert event in happened, event
