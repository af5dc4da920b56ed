"""Steps that read nothing: they commit at the version before the run's latest commit, where the record is known.

Each conflicts with what was written since: the record, the owner (see `test_workflow_moves`), and its own entry (see
`test_workflow_results`). It also conflicts with what the latest commit itself has written, and with what other commits
have written at the same version. The record is not known while a cancellation is requested.
"""

from __future__ import annotations

import asyncio

from fairlead.actors.execution.retry import Retry
from fairlead.simulation.store import BATCH_US_MAX
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.director import SentCommit
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import WorkerRole
from tests.simulation.races.workflow_scene import BOB, NAME, WorkflowScene, do
from tests.simulation.stage import ALICE


def steps(wf: WorkflowContext) -> None:
    wf.step(do, "before")  # It writes the record.
    wf.step(do, "before")
    wf.step(do, "done")
    wf.sleep(60)


def last_step_sent(scene: WorkflowScene) -> tuple[WorkerRole, SentCommit]:
    """Return an executor whose last step waits for its commit: it has read nothing."""
    scene.enqueued()
    worker = scene.executor(steps)
    for _ in range(2):
        worker.runs_until_commit(of="slot").goes_its_way()
    return worker, worker.runs_until_commit(of="slot")


def test_a_step_that_reads_nothing_is_refused_once_its_lease_is_lost() -> None:
    scene = WorkflowScene()
    worker, commit = last_step_sent(scene)
    scene.give_back()
    worker.runs_until_idle()
    assert (commit.refusal, worker.counts) == (NOT_COMMITTED, {"lost": 1})
    assert scene.counts(ALICE, "before", "done") == [2, 0]


def test_without_the_conflict_on_the_record_a_worker_commits_a_step_without_its_lease() -> None:
    scene = WorkflowScene()
    with planted("a step that reads nothing does not conflict on its item's record"):
        worker, commit = last_step_sent(scene)
        scene.give_back()
        worker.runs_until_idle()
    assert (commit.refusal, scene.counts(ALICE, "before", "done")) == (None, [2, 1])


AT_ITS_VERSION = "the record is known at the version of a commit, not before it"


def is_given_back_in_one_batch(scene: WorkflowScene) -> WorkerRole:
    """Another commit has the version of the second step. FoundationDB gives all commits of a batch one version."""
    scene.enqueued()
    worker = scene.executor(steps)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    scene.give_back()
    scene.directed.put_into_one_batch(2)
    worker.runs_until_idle()
    return worker


def test_the_next_step_finds_that_the_lease_was_lost_at_the_version_of_a_step() -> None:
    scene = WorkflowScene()
    assert is_given_back_in_one_batch(scene).counts == {"lost": 1}
    assert scene.counts(ALICE, "before", "done") == [2, 0]


def test_at_the_version_of_the_step_before_a_worker_misses_that_its_lease_is_lost() -> None:
    scene = WorkflowScene()
    with planted(AT_ITS_VERSION):
        is_given_back_in_one_batch(scene)
    assert scene.counts(ALICE, "before", "done") == [2, 1]


def cancels_itself(scene: WorkflowScene) -> list[int]:
    """Return whether the step behind a step that cancels its own run was done."""

    def cancel(tr: TenantTransaction) -> None:
        tr.cancel(NAME)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.step(cancel)
        wf.step(do, "done")

    scene.enqueued()
    scene.executor(work).runs_until_idle()
    return scene.counts(ALICE, "before", "done")


def test_no_step_follows_a_step_that_cancels_its_own_run() -> None:
    assert cancels_itself(WorkflowScene()) == [1, 0]


def test_at_the_version_of_the_step_that_cancels_it_a_run_goes_on() -> None:
    with planted(AT_ITS_VERSION):
        assert cancels_itself(WorkflowScene()) == [1, 1]


def is_cancelled_before_its_first_commit(scene: WorkflowScene) -> list[int]:
    """The second attempt asks a participant again, and records the answer, while the run is cancelled."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB)
        wf.step(do, "done")
        wf.sleep(60)

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    worker.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    worker.runs_until_commit(of="slot")  # It stops here.
    scene.moves_twice(BOB)
    other = scene.overtaken_by(work)
    answer = other.runs_until_commit(of="slot", at=scene.directed)
    scene.has(lambda alice: alice.cancel(NAME))
    answer.goes_its_way()
    other.runs_until_idle()
    return scene.counts(ALICE, "done")


def test_a_cancellation_that_a_commit_has_met_is_met_by_the_next_step() -> None:
    assert is_cancelled_before_its_first_commit(WorkflowScene()) == [0]


def test_without_a_look_for_the_cancellation_the_next_step_is_done() -> None:
    with planted("the record is known while a cancellation is requested"):
        assert is_cancelled_before_its_first_commit(WorkflowScene()) == [1]


def fails_before_its_late_commit(scene: WorkflowScene) -> list[int]:
    """A try of a step is answered by 1021, its repetition fails, and the commit arrives before another branch's."""
    runs: list[TenantTransaction] = []
    has_failed = asyncio.Event()

    def fail_once(tr: TenantTransaction) -> None:
        runs.append(tr)
        if len(runs) == 2:
            has_failed.set()
            raise ValueError
        do(tr, "done")

    async def work(wf: AsyncWorkflowContext) -> None:
        await wf.step(do, "before")
        await wf.step(do, "before")
        async with asyncio.TaskGroup() as branches:
            branches.create_task(wf.step(fail_once, retry=Retry(backoff=2)))
            branches.create_task(goes_on(wf))

    async def goes_on(wf: AsyncWorkflowContext) -> None:
        await has_failed.wait()
        await wf.step(do, "other")

    scene.enqueued()
    worker = scene.executor(work)
    for _ in range(2):
        worker.runs_until_commit(of="event loop").goes_its_way()
    late = worker.runs_until_commit(of="event loop")
    late.answer_arrives(COMMIT_UNKNOWN_RESULT)
    other = worker.runs_until_commit(of="event loop")
    late.arrives()
    scene.pass_us(2 * BATCH_US_MAX)
    other.goes_its_way()
    worker.runs_until_idle()
    assert worker.counts == {"completed": 1}
    return scene.counts(ALICE, "other", "done")


def test_a_step_whose_earlier_try_arrived_before_another_branch_committed_is_done_once() -> None:
    assert fails_before_its_late_commit(WorkflowScene()) == [1, 1]


def test_at_the_version_of_the_other_branch_the_step_is_done_twice() -> None:
    with planted("a step that was tried before is new"):
        assert fails_before_its_late_commit(WorkflowScene()) == [1, 2]
