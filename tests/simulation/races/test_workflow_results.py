"""Commits of workflows whose result is unknown: applied, lost, or late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.layout import Tenant
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.director import SentCommit
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.workflow_scene import BOB, NAME, WorkflowScene, do, undo
from tests.simulation.stage import ALICE, SECOND


def step_of_unknown_result(scene: WorkflowScene, tenant: Tenant, answer: Callable[[SentCommit], None]) -> SentCommit:
    """The second step of a run. The first has made its record say that keys of the run are stored."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=tenant)
        wf.step(do, "done", on=tenant)

    scene.enqueued()
    worker = scene.executor(work)
    before = worker.runs_until_commit(of="slot", at=scene.store_of(tenant))
    before.goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=scene.store_of(tenant))
    answer(commit)
    worker.runs_until_idle()
    assert worker.counts == {"completed": 1}
    return commit


def is_applied(commit: SentCommit) -> None:
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)


def is_lost(commit: SentCommit) -> None:
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)


on_each = pytest.mark.parametrize("tenant", [ALICE, BOB])


@on_each
@pytest.mark.parametrize("answer", [is_applied, is_lost])
def test_a_step_of_unknown_result_is_done_once(tenant: Tenant, answer: Callable[[SentCommit], None]) -> None:
    scene = WorkflowScene()
    step_of_unknown_result(scene, tenant, answer)
    assert scene.counts(tenant, "before", "done") == [1, 1]


@pytest.mark.parametrize(
    ("tenant", "bug"),
    [
        (ALICE, "a step at home does not look for its entry"),
        (BOB, "a step on another shard does not look for its entry"),
    ],
)
def test_without_a_look_at_its_entry_a_step_of_unknown_result_is_done_twice(tenant: Tenant, bug: str) -> None:
    scene = WorkflowScene()
    with planted(bug):
        step_of_unknown_result(scene, tenant, is_applied)
    assert scene.counts(tenant, "done") == [2]


@on_each
def test_a_step_that_arrives_after_its_next_try_is_refused(tenant: Tenant) -> None:
    scene = WorkflowScene()

    commit = late_step(scene, tenant)
    assert (commit.refusal, scene.counts(tenant, "done")) == (NOT_COMMITTED, [1])


def late_step(scene: WorkflowScene, tenant: Tenant) -> SentCommit:
    """The commit of the second step arrives while its run still lasts, and its worker has tried again."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=tenant)
        wf.step(do, "done", on=tenant)
        wf.sleep(60)

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot", at=scene.store_of(tenant)).goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=scene.store_of(tenant))
    is_lost(commit)
    if tenant == ALICE:
        worker.runs_until_commit(of="slot").goes_its_way()  # The next try.
    worker.runs_until_commit(of="slot")  # The suspension.
    commit.arrives()
    return commit


@pytest.mark.parametrize(
    ("tenant", "bug"),
    [
        (ALICE, "a step at home reads its entry by snapshot"),
        (BOB, "a step on another shard reads its entry by snapshot"),
    ],
)
def test_without_the_conflict_on_its_entry_a_late_step_is_done_twice(tenant: Tenant, bug: str) -> None:
    scene = WorkflowScene()
    with planted(bug):
        commit = late_step(scene, tenant)
    assert (commit.refusal, scene.counts(tenant, "done")) == (None, [2])


def failure_behind_a_late_step(scene: WorkflowScene) -> tuple[int | None, list[int]]:
    """The step's last try fails for good while the commit of the try before is still on its way."""
    tries = []

    def fails_later(tr: TenantTransaction, name: str) -> None:
        tries.append(name)
        if len(tries) > 1:
            raise PermanentError("no")
        do(tr, name)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB)
        wf.step(fails_later, "done", on=BOB, undo=undo)

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=scene.far)
    is_lost(commit)
    worker.runs_until_idle()
    assert worker.counts == {"dead_lettered": 1}
    commit.arrives()
    return commit.refusal, scene.counts(BOB, "done", "undo done")


def test_a_step_that_arrives_after_its_error_was_recorded_is_refused() -> None:
    assert failure_behind_a_late_step(WorkflowScene()) == (NOT_COMMITTED, [0, 0])


def test_without_the_error_as_its_entry_a_late_step_stays_done_in_a_run_that_is_undone() -> None:
    with planted("the error of a step on another shard is recorded at home"):
        assert failure_behind_a_late_step(WorkflowScene()) == (None, [1, 0])


def finished_with_unknown_result(scene: WorkflowScene, *, again: bool) -> dict[str, int]:
    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.finish(do, "done")

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    if again:
        scene.enqueued()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    assert scene.counts(ALICE, "done") == [1]
    return worker.counts


@pytest.mark.parametrize("again", [False, True])
def test_a_last_step_of_unknown_result_counts_as_the_completion(again: bool) -> None:
    """Also if the name has been enqueued again meanwhile."""
    assert finished_with_unknown_result(WorkflowScene(), again=again) == {"completed": 1}


@pytest.mark.parametrize(
    ("again", "bug"),
    [
        (False, "a last step does not see that its run has ended"),
        (True, "a last step does not see that another run has its name"),
    ],
)
def test_without_a_look_at_the_run_a_worker_takes_its_own_completion_for_another_ones(again: bool, bug: str) -> None:
    with planted(bug):
        assert finished_with_unknown_result(WorkflowScene(), again=again) == {"lost": 1}


STEP, CHECKPOINT = 0, 1  # Which commit of the workflow has an unknown result.


@pytest.mark.parametrize(("held", "undone"), [(STEP, 1), (CHECKPOINT, 0)])
def test_a_commit_of_unknown_result_counts_though_its_run_is_cancelled_meanwhile(held: int, undone: int) -> None:
    """The step is undone, unless the checkpoint that forgets it was made."""
    scene = WorkflowScene()

    def work(wf: WorkflowContext) -> None:
        if not wf.state:
            wf.step(do, "first", undo=undo)
            wf.checkpoint({"first": True})
        wf.step(do, "second", undo=undo)

    scene.enqueued()
    worker = scene.executor(work)
    commit = worker.runs_until_commit(of="slot")
    for _ in range(held):
        commit.goes_its_way()
        commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    assert commit.refusal is None
    scene.has(lambda alice: alice.cancel(NAME))
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    assert scene.counts(ALICE, "first", "undo first", "second") == [1, undone, 0]
    assert scene.zone.items == {}


def late_record_of_a_participant(scene: WorkflowScene) -> tuple[int | None, dict[str, int]]:
    """It comes after the commit that begins to undo the run. Return how another executor, which does not fail, ends."""
    fails = [True]

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", undo=undo)
        wf.step(do, "done", on=BOB, undo=undo)
        if fails:
            fails.pop()
            raise PermanentError("no")

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    is_lost(commit)
    worker.runs_until_commit(of="slot").goes_its_way()  # The next try.
    worker.runs_until_commit(of="slot").goes_its_way()  # That the run is undone.
    worker.runs_until_commit(of="slot")
    commit.arrives()
    worker.host.kill()
    other = scene.overtaken_by(work)
    other.runs_until_idle()
    return commit.refusal, other.counts


def test_a_late_commit_does_not_put_an_older_head_in_place_of_that_of_an_undo() -> None:
    assert late_record_of_a_participant(WorkflowScene()) == (NOT_COMMITTED, {"dead_lettered": 1})


def test_without_the_conflict_on_the_head_a_run_that_is_undone_goes_forward_again() -> None:
    with planted("the head is written without a read"):
        assert late_record_of_a_participant(WorkflowScene()) == (None, {"completed": 1})


def fails_behind_a_late_try(tenant: Tenant) -> Callable[[WorkflowContext], None]:
    """Return a workflow whose second step fails in its second try, and is to be tried again in half a minute."""
    tries = []

    def flaky(tr: TenantTransaction, name: str) -> None:
        tries.append(name)
        if len(tries) == 2:
            raise RuntimeError("not now")
        do(tr, name)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=tenant)
        wf.step(flaky, "done", on=tenant, undo=undo, retry=Retry(attempts=3, backoff=30, backoff_max=30))

    return work


def late_try_before_the_suspension(scene: WorkflowScene, *, is_cancelled: bool = False) -> list[int]:
    """The commit of the first try arrives as the suspension is on its way; then the run is cancelled, perhaps."""
    work = fails_behind_a_late_try(ALICE)
    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    is_lost(commit)
    worker.runs_until_commit(of="slot")  # The suspension.
    commit.arrives()
    if is_cancelled:
        scene.has(lambda alice: alice.cancel(NAME))
    worker.runs_until_idle()
    if scene.zone.items:
        scene.pass_us(31 * SECOND)
        scene.executor(work).runs_until_idle()
    assert scene.zone.items == {}
    return scene.counts(ALICE, "done", "undo done")


def test_a_late_try_is_noticed_by_the_suspension_until_the_next_one() -> None:
    assert late_try_before_the_suspension(WorkflowScene()) == [1, 0]


def test_without_a_look_at_the_entry_a_suspension_forgets_a_late_try() -> None:
    with planted("a suspension until the next try of a step does not look whether the step is done"):
        assert late_try_before_the_suspension(WorkflowScene()) == [2, 0]


def test_a_late_try_is_undone_if_its_run_is_cancelled_as_it_would_wait_for_the_next_one() -> None:
    assert late_try_before_the_suspension(WorkflowScene(), is_cancelled=True) == [1, 1]


def test_without_another_attempt_a_late_try_before_a_suspension_is_not_undone() -> None:
    with planted("a run that is cancelled as it would wait for the next try of a step is undone at once"):
        assert late_try_before_the_suspension(WorkflowScene(), is_cancelled=True) == [1, 0]


def late_try_after_the_suspension(scene: WorkflowScene) -> list[int]:
    """The run is cancelled. The commit of the first try arrives when its next executor has read what was done."""
    work = fails_behind_a_late_try(BOB)
    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=scene.far)
    is_lost(commit)
    worker.runs_until_idle()
    assert worker.counts == {"suspended": 1}
    scene.has(lambda alice: alice.cancel(NAME))
    other = scene.executor(work)
    other.runs_until_commit(of="slot")  # That the run is undone.
    commit.arrives()
    other.runs_until_idle()
    assert other.counts == {"cancelled": 1}
    return scene.counts(BOB, "done", "undo done")


def test_a_late_try_elsewhere_is_refused_after_the_next_executor_has_begun() -> None:
    assert late_try_after_the_suspension(WorkflowScene()) == [0, 0]


def test_without_a_raised_fence_a_late_try_elsewhere_stays_done_in_a_run_that_is_undone() -> None:
    with planted("an attempt behind a suspension between two tries raises no fence"):
        assert late_try_after_the_suspension(WorkflowScene()) == [1, 0]
