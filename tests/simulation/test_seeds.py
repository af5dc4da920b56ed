"""Whole runs of a seed's worlds: under all faults no item is lost, done twice, or left behind."""

import pytest

from fairlead.simulation.campaign import run_seed
from fairlead.simulation.run import run


@pytest.mark.timeout(600)  # A busy machine takes minutes for the worlds of one seed.
def test_a_fresh_seed_breaks_no_promise(fresh_seed: int) -> None:
    assert not run_seed(fresh_seed).broken, f"replay: fairlead simulate --seed {fresh_seed}"


@pytest.mark.long
def test_a_seed_of_the_corpus_breaks_no_promise(corpus_seed: int) -> None:
    assert not run_seed(corpus_seed).broken, f"replay: fairlead simulate --seed {corpus_seed}"


def test_a_run_keeps_all_its_actors_busy_with_hundreds_of_items_under_faults() -> None:
    """A world with few events would prove little."""
    report = run(1, faults=("conflicts", "unknown results", "kills", "pauses", "late calls"))
    assert report.commits > 400
    assert report.turns > 2_000
    happened = " ".join(report.lines)
    for event in (
        "kill c",
        "is paused for",
        "refuses",
        "1021, applied",
        "runs effect",
        "ends flaky",
        "the faults have stopped",
    ):
        assert event in happened, event
