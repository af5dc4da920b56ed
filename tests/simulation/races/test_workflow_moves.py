"""Tenants that move while a step of a workflow acts on them, by the product's own mover.

A commit arrives when the source says that its tenant has moved, and has cleared nothing yet. So it conflicts with no
more than the ownership record.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.step_identity import digest_of
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.keyspace import FENCE, STEP_LOG, TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState, encode, entry_key
from tests.simulation.races.missing_guards import Patch, planted, read_by_snapshot
from tests.simulation.races.workflow_scene import BOB, CAROL, FAR, HOME, WorkflowScene, do
from tests.simulation.stage import ALICE, SECOND


def moves_between_reads_and_commit(scene: WorkflowScene, tenant: Tenant, to: str) -> tuple[int | None, list[int]]:
    """Return by which code the step's commit was refused, and the steps that the tenant has at its new home."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=tenant)
        wf.step(do, "done", on=tenant)

    store = scene.store_of(tenant)
    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot", at=store).goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=store)
    mover = scene.leaves(tenant, to)
    worker.runs_until_idle()
    mover.runs()
    if scene.zone.items:
        scene.pass_us(2 * SECOND)
        scene.executor(work).runs_until_idle()
    return commit.refusal, scene.counts(tenant, "before", "done")


@pytest.mark.parametrize(("tenant", "to"), [(BOB, HOME), (CAROL, FAR)])
def test_a_step_on_a_tenant_that_moves_is_done_at_its_new_home(tenant: Tenant, to: str) -> None:
    assert moves_between_reads_and_commit(WorkflowScene(), tenant, to) == (NOT_COMMITTED, [1, 1])


@pytest.mark.parametrize(("tenant", "to"), [(BOB, HOME), (CAROL, FAR)])
def test_without_the_conflict_on_ownership_a_step_is_lost_at_the_old_home(
    tenant: Tenant, to: str, monkeypatch: Patch
) -> None:
    read_by_snapshot(monkeypatch, TenantKeys(*tenant).owner)
    assert moves_between_reads_and_commit(WorkflowScene(), tenant, to) == (None, [1, 0])


def moves_before_the_next_try(scene: WorkflowScene, tenant: Tenant, to: str, *, is_applied: bool) -> list[int]:
    """The commit of a step has an unknown result. Its tenant moves before the step is tried again."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=tenant)
        wf.step(do, "done", on=tenant)
        wf.sleep(60)

    store = scene.store_of(tenant)
    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot", at=store).goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=store)
    if is_applied:
        commit.arrives()
    mover = scene.leaves(tenant, to)
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    if not is_applied:
        commit.arrives()
        assert commit.refusal == NOT_COMMITTED
    mover.runs()
    if worker.counts != {"suspended": 1}:
        scene.pass_us(2 * SECOND)
        scene.executor(work).runs_until_idle()
    return scene.counts(tenant, "before", "done")


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize(("tenant", "to"), [(BOB, HOME), (CAROL, FAR)])
def test_a_step_of_unknown_result_whose_tenant_moves_is_done_once(tenant: Tenant, to: str, is_applied: bool) -> None:
    assert moves_before_the_next_try(WorkflowScene(), tenant, to, is_applied=is_applied) == [1, 1]


def read_and_do(tr: TenantTransaction, name: str) -> None:
    """Do a step that reads."""
    tr.get(("stock",))
    do(tr, name)


def home_moves(
    scene: WorkflowScene, body: Callable[[TenantTransaction, str], None]
) -> tuple[int | None, dict[str, int]]:
    """Alice moves when a step of hers is about to commit."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")  # It writes the record, which is not known at its version.
        wf.step(do, "before")
        wf.step(body, "done")

    scene.enqueued()
    worker = scene.executor(work)
    for _ in range(2):
        worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    mover = scene.leaves(ALICE, FAR)
    worker.runs_until_idle()
    mover.runs()
    return commit.refusal, worker.counts


@pytest.mark.parametrize("body", [do, read_and_do])
def test_a_worker_has_lost_a_run_whose_home_has_moved(body: Callable[[TenantTransaction, str], None]) -> None:
    scene = WorkflowScene()
    assert home_moves(scene, body) == (NOT_COMMITTED, {"lost": 1})
    assert scene.counts(ALICE, "before", "done") == [2, 0]


def test_without_the_conflict_on_ownership_a_step_is_done_where_nobody_looks_for_it(monkeypatch: Patch) -> None:
    with planted("a step that reads nothing does not conflict on the owner of its tenant"):
        assert home_moves(WorkflowScene(), do)[0] is None
    read_by_snapshot(monkeypatch, TenantKeys(*ALICE).owner)
    assert home_moves(WorkflowScene(), read_and_do)[0] is None


# --- Cleanups ---


def moves_before_its_cleanup(scene: WorkflowScene) -> list[int]:
    """Bob moves while the cleanup is on its way to him. Return what is kept at his new home."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", on=BOB)

    scene.enqueued()
    scene.executor(work).runs_until_idle()
    cleanup = scene.system()
    cleanup.runs_until_commit(of="slot", at=scene.far)
    mover = scene.leaves(BOB, HOME)
    cleanup.runs_until_idle()
    mover.runs()
    scene.pass_us(10 * SECOND)
    scene.cleans_up()
    return scene.kept(HOME)


def test_a_participant_that_moves_is_cleaned_up_at_its_new_home() -> None:
    assert moves_before_its_cleanup(WorkflowScene()) == [FENCE]


def test_without_the_conflict_on_ownership_the_log_of_a_participant_stays_at_its_new_home(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TenantKeys(*BOB).owner)
    assert STEP_LOG in moves_before_its_cleanup(WorkflowScene())


# --- Entries that came with a move ---


def entry_that_comes_with_its_tenant(
    scene: WorkflowScene, tenant: Tenant, below: Tenant
) -> tuple[int | None, list[int]]:
    """The entry of a step appears on Alice's shard while an executor is about to do that step.

    A tenant has brought it, which lived on another shard when the step was done. Return by which code the executor's
    commit was refused, and how often the step was done since.
    """

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.step(do, "done", on=tenant, name="step")
        wf.sleep(60)

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot")
    digest = digest_of(StepKind.STEP, ("done", *tenant))
    entry = StepEntry(1, StepKind.STEP, digest, StepState.DONE, scene.now_us, pack_payload(None))
    scene.plant(entry_key(TenantKeys(*below), scene.run, 0, "step", 0), encode(entry))
    worker.runs_until_idle()
    assert worker.counts == {"suspended": 1}
    return commit.refusal, scene.counts(tenant, "done")


def test_an_executor_looks_for_the_entry_at_home_as_it_records_a_participant() -> None:
    """The participant lived on Alice's shard when the step was done, and has moved back since."""
    assert entry_that_comes_with_its_tenant(WorkflowScene(), BOB, ALICE) == (NOT_COMMITTED, [0])


def test_without_the_look_at_home_a_step_is_done_again_elsewhere() -> None:
    with planted("an executor that records a participant does not look for its step at home"):
        assert entry_that_comes_with_its_tenant(WorkflowScene(), BOB, ALICE) == (NOT_COMMITTED, [1])


def test_a_step_on_the_homes_shard_looks_for_its_entry_below_its_tenant() -> None:
    """The tenant lived on another shard when the step was done, and has moved here since."""
    assert entry_that_comes_with_its_tenant(WorkflowScene(), CAROL, CAROL) == (NOT_COMMITTED, [0])


def test_without_the_look_below_its_tenant_a_step_is_done_again_at_home() -> None:
    with planted("a step at home looks for its entry at home only"):
        assert entry_that_comes_with_its_tenant(WorkflowScene(), CAROL, CAROL) == (None, [1])
