"""Workflows in simulated worlds: a first one, and seeds that found bugs. `test_seeds` draws random shapes."""

import pytest

from fairlead.simulation.run import Simulation
from fairlead.simulation.workflow_shapes import FIRST, Shape
from fairlead.simulation.workflow_shop import WorkflowShop, run_workflows, sizes_of_workflows
from fairlead.simulation.world import World

# Seeds that have found bugs, in the worlds of then, and what was wrong.
REGRESSIONS = {
    48: "a run that was cancelled as it recorded its first participant left a fence there",
    175: "a run whose first commit was a suspension lost its version, if a signal had come before",
    89: "a cancelled run whose worker noticed it during a replay became a dead letter",
    1086: "a step whose commit had an unknown result was not undone when its run was cancelled meanwhile",
    1123: "an attempt that had ended raised a fence after the tombstone was cleared, and the fence stayed",
    17: "an effect during which its run was cancelled was not undone",
    1015: "a failure counted those before a step whose commit had an unknown result, and was applied",
    3: "a step of unknown result was done, and its attempt's failure counted those before the step again",
    30115: "a manager returned the slot of a kind by which a call under way took a workflow",
    66: "the delivery of a child that was retried as a dead letter comes again, as it may",
}
SHORT = Shape(FIRST.calls[:1], fails=False, finishes=True)


def first(world: World) -> WorkflowShop:
    """Return a workload in which every order is the first workflow, and has a short child."""
    return WorkflowShop(world, lambda order: SHORT if "." in order else FIRST)


@pytest.mark.parametrize("seed", range(3))
def test_a_workflow_with_each_kind_of_call_runs_in_a_world_with_faults(seed: int) -> None:
    report = Simulation(seed, workload=first, **sizes_of_workflows()).run()
    assert not report.violations, report


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed == 66 else ()) for seed in REGRESSIONS]
)
def test_a_seed_that_has_found_a_bug_finds_none_any_more(seed: int) -> None:
    report = run_workflows(seed)
    assert not report.violations, report
