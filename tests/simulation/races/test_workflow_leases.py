"""The lease of a workflow while a step of it is open: nobody writes the item's record, and the lease does not end."""

from __future__ import annotations

from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import LEASE_US
from tests.simulation.races.workflow_scene import WorkflowScene, do
from tests.simulation.stage import ALICE, SECOND


def a_step_as_the_lease_is_due(scene: WorkflowScene) -> list[int]:
    """Its worker would extend the lease while the step is open. Return by which codes its commits were refused."""

    def slowly(tr: TenantTransaction, name: str) -> None:
        do(tr, name)
        worker.host.clock.sleep_us(3 * SECOND)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.step(slowly, "done")

    scene.enqueued()
    worker = scene.executor(work, lease_us=LEASE_US - SECOND)
    worker.runs_until_idle()
    assert (worker.counts, scene.counts(ALICE, "done")) == ({"completed": 1}, [1])
    return worker.refused


def test_nobody_writes_the_record_of_an_item_while_a_step_is_open() -> None:
    assert a_step_as_the_lease_is_due(WorkflowScene()) == []


def test_without_a_look_at_open_steps_a_worker_lets_its_own_step_conflict() -> None:
    with planted("a lease is extended while a step is open"):
        assert a_step_as_the_lease_is_due(WorkflowScene()) == [NOT_COMMITTED]


def steps_without_a_pause(scene: WorkflowScene) -> dict[str, int]:
    """One step follows the other at once: their worker finds no moment to extend the lease."""

    def slowly(tr: TenantTransaction, name: str) -> None:
        do(tr, name)
        worker.host.clock.sleep_us(4 * SECOND)

    def work(wf: WorkflowContext) -> None:
        for number in range(4):
            wf.step(slowly, f"a{number}")

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_idle()
    return worker.counts


def test_a_step_extends_the_lease_that_might_end_in_it() -> None:
    assert steps_without_a_pause(WorkflowScene()) == {"completed": 1}


def test_without_an_extension_before_a_step_the_lease_ends_in_it() -> None:
    with planted("a step begins with any rest of its lease"):
        assert steps_without_a_pause(WorkflowScene()) == {"lost": 1}
