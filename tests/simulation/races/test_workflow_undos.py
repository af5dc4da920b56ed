"""Undos and cancellations of workflows: what comes between their reads and their commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.keyspace import FENCE, STEP_LOG
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.poison_candidates import SHARED_EXPIRIES
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.cancellation import CancelOutcome
from tests.simulation.races.director import SentCommit
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.scene import LEASE_US, WorkerRole
from tests.simulation.races.workflow_scene import BOB, FAR, KIND, MINE, NAME, WorkflowScene, do, undo
from tests.simulation.stage import ALICE, SECOND

on_each = pytest.mark.parametrize("tenant", [ALICE, BOB])


def fails_behind_a_step(tenant: Tenant) -> Callable[[WorkflowContext], None]:
    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", on=tenant, undo=undo)
        raise PermanentError("no")

    return work


def until_the_undo(scene: WorkflowScene, tenant: Tenant) -> tuple[WorkerRole, SentCommit]:
    """Return a worker, and its commit of the undo, which is on its way."""
    scene.enqueued()
    worker = scene.executor(fails_behind_a_step(tenant))
    worker.runs_until_commit(of="slot", at=scene.store_of(tenant)).goes_its_way()
    if tenant == ALICE:
        worker.runs_until_commit(of="slot").goes_its_way()  # That the run is undone.
    return worker, worker.runs_until_commit(of="slot", at=scene.store_of(tenant))


@on_each
def test_a_cancellation_during_an_undo_changes_nothing(tenant: Tenant) -> None:
    scene = WorkflowScene()
    worker, commit = until_the_undo(scene, tenant)
    scene.has(lambda alice: alice.cancel(NAME))
    worker.runs_until_idle()
    assert (commit.refusal, worker.counts) == (NOT_COMMITTED if tenant == ALICE else None, {"dead_lettered": 1})
    assert scene.counts(tenant, "done", "undo done") == [1, 1]


def cancelled_and_overtaken_in_an_undo(scene: WorkflowScene, tenant: Tenant) -> dict[str, int]:
    """Return what becomes of the item of a run that is cancelled while it is undone, by the next executor."""
    until_the_undo(scene, tenant)
    scene.has(lambda alice: alice.cancel(NAME))
    other = scene.overtaken_by(fails_behind_a_step(tenant))
    other.runs_until_idle()
    assert scene.counts(tenant, "done", "undo done") == [1, 1]
    return dict(other.counts)


@on_each
def test_the_next_executor_of_a_run_that_is_cancelled_during_its_undo_keeps_the_reason(tenant: Tenant) -> None:
    assert cancelled_and_overtaken_in_an_undo(WorkflowScene(), tenant) == {"dead_lettered": 1}


@on_each
def test_without_a_look_at_the_reason_a_cancellation_during_an_undo_takes_its_place(tenant: Tenant) -> None:
    with planted("a cancellation takes the place of the reason of an undo"):
        assert cancelled_and_overtaken_in_an_undo(WorkflowScene(), tenant) == {"cancelled": 1}


def overtaken_in_an_undo(scene: WorkflowScene, tenant: Tenant) -> tuple[int | None, list[int]]:
    """Another executor undoes the step meanwhile. The undos are held apart from the end of the run."""
    paused, commit = until_the_undo(scene, tenant)
    other = scene.overtaken_by(fails_behind_a_step(tenant))
    other.runs_until_idle()
    assert other.counts == {"dead_lettered": 1}
    paused.runs_until_idle()
    assert paused.counts == {"lost": 1}
    return commit.refusal, scene.counts(tenant, "done", "undo done")


@on_each
def test_an_executor_that_is_overtaken_in_an_undo_does_not_undo_the_step_again(tenant: Tenant) -> None:
    assert overtaken_in_an_undo(WorkflowScene(), tenant) == (NOT_COMMITTED, [1, 1])


def test_without_conflicts_elsewhere_an_executor_that_is_overtaken_undoes_a_step_again() -> None:
    """The fence and the entry each suffice. At home it would have to pass its lease, too."""
    with planted("a step on another shard reads its entry and its fence by snapshot"):
        assert overtaken_in_an_undo(WorkflowScene(), BOB) == (None, [1, 2])


def undo_of_unknown_result(scene: WorkflowScene, tenant: Tenant) -> list[int]:
    worker, commit = until_the_undo(scene, tenant)
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    return scene.counts(tenant, "done", "undo done")


@on_each
def test_an_undo_of_unknown_result_happens_once(tenant: Tenant) -> None:
    assert undo_of_unknown_result(WorkflowScene(), tenant) == [1, 1]


@pytest.mark.parametrize(
    ("tenant", "bug"),
    [
        (ALICE, "a step at home does not look for its entry"),
        (BOB, "a step on another shard does not look for its entry"),
    ],
)
def test_without_a_look_at_its_entry_an_undo_of_unknown_result_happens_twice(tenant: Tenant, bug: str) -> None:
    with planted(bug):
        assert undo_of_unknown_result(WorkflowScene(), tenant) == [1, 2]


def first_undo(scene: WorkflowScene) -> list[int]:
    """Stop behind the first undo. Steps are on both shards."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "a", undo=undo)
        wf.step(do, "b", on=BOB, undo=undo)
        wf.step(do, "c", undo=undo)
        raise PermanentError("no")

    scene.enqueued()
    worker = scene.executor(work)
    for _ in range(4):  # Step a, the participant, step c, that the run is undone.
        worker.runs_until_commit(of="slot").goes_its_way()
    worker.runs_until_commit(of="slot").arrives()
    return scene.counts(ALICE, "undo a", "undo c") + scene.counts(BOB, "undo b")


def test_the_last_step_is_undone_first() -> None:
    assert first_undo(WorkflowScene()) == [0, 1, 0]


def test_without_the_order_of_steps_the_first_step_is_undone_first() -> None:
    with planted("undos run first to last"):
        assert first_undo(WorkflowScene()) == [1, 0, 0]


# --- Cancellations that find nothing to undo ---


def cancelled_as_its_first_step_commits(scene: WorkflowScene) -> tuple[list[int], list[int]]:
    """A signal came before, so the step need not write the item's record. Return refusals of the cancellation."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", undo=undo)
        wf.sleep(60)

    scene.enqueued()
    scene.signals("go")
    worker = scene.executor(work)
    canceller = scene.user("canceller", lambda alice: alice.cancel(NAME))
    canceller.runs_until_commit()
    worker.runs_until_commit(of="slot").arrives()
    canceller.runs()
    worker.runs_until_idle()
    if scene.zone.items:
        scene.executor(work).runs_until_idle()
    return canceller.refused, scene.counts(ALICE, "done", "undo done")


def test_a_run_that_is_cancelled_as_its_first_step_commits_is_undone() -> None:
    assert cancelled_as_its_first_step_commits(WorkflowScene()) == ([NOT_COMMITTED], [1, 1])


def test_without_the_conflict_on_the_head_a_run_is_deleted_as_its_first_step_commits() -> None:
    with planted("a cancellation that deletes reads the head by snapshot"):
        assert cancelled_as_its_first_step_commits(WorkflowScene()) == ([], [1, 0])


def deleted_as_a_participant_is_recorded(scene: WorkflowScene) -> tuple[list[int], list[int]]:
    """Return refusals of the deletion by force, and what Bob keeps at the end."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.step(do, "done", on=BOB)
        wf.step(do, "after")

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    worker.runs_until_commit(of="slot")
    operator = scene.user("operator", lambda alice: alice.cancel(NAME, force=True))
    operator.runs_until_commit()
    worker.runs_until_commit(of="slot", at=scene.far).arrives()
    operator.runs()
    worker.runs_until_idle()
    scene.cleans_up()
    return operator.refused, scene.kept(FAR)


def test_a_run_that_is_deleted_as_its_participant_is_recorded_is_cleaned_up_there() -> None:
    assert deleted_as_a_participant_is_recorded(WorkflowScene()) == ([NOT_COMMITTED], [FENCE])


def test_without_the_conflict_on_the_head_the_log_of_a_deleted_run_stays() -> None:
    with planted("the end of a run reads the head by snapshot"):
        assert deleted_as_a_participant_is_recorded(WorkflowScene()) == ([], [STEP_LOG])


# --- A step elsewhere of unknown result, and a cancellation ---


def moves_twice(scene: WorkflowScene) -> None:
    scene.moves_twice(BOB)


def floor_is_raised(scene: WorkflowScene) -> None:
    """A run that has ended has left a tombstone."""
    scene.ends_at_bobs(b"another run")
    scene.raises_floor(ahead_us=0)


def cancelled_before_it_asks_again(
    scene: WorkflowScene, meanwhile: Callable[[WorkflowScene], None], *, is_applied: bool
) -> list[int]:
    """The next try of the step must ask again, and finds the request as it records the answer."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", undo=undo)
        wf.step(do, "done", on=BOB, undo=undo)

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=scene.far)
    if is_applied:
        commit.arrives()
    meanwhile(scene)
    scene.has(lambda alice: alice.cancel(NAME))
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_commit(of="slot")  # That the run is undone.
    if not is_applied:
        commit.arrives()
    worker.runs_until_idle()
    while scene.zone.items.get(MINE):
        scene.executor(work).runs_until_idle()
    return scene.counts(ALICE, "before", "undo before") + scene.counts(BOB, "done", "undo done")


@pytest.mark.parametrize(
    ("meanwhile", "is_applied", "done"),
    [(moves_twice, True, 1), (moves_twice, False, 0), (floor_is_raised, True, 1), (floor_is_raised, False, 1)],
)
def test_a_step_elsewhere_of_unknown_result_is_undone_if_its_run_is_cancelled_before_it_asks_again(
    meanwhile: Callable[[WorkflowScene], None], is_applied: bool, done: int
) -> None:
    assert cancelled_before_it_asks_again(WorkflowScene(), meanwhile, is_applied=is_applied) == [1, 1, done, done]


@pytest.mark.parametrize(
    ("meanwhile", "is_applied"), [(moves_twice, True), (floor_is_raised, True), (floor_is_raised, False)]
)
def test_without_another_attempt_a_step_of_unknown_result_is_not_undone(
    meanwhile: Callable[[WorkflowScene], None], is_applied: bool
) -> None:
    with planted("a run that is cancelled as it asks again is undone at once"):
        assert cancelled_before_it_asks_again(WorkflowScene(), meanwhile, is_applied=is_applied) == [1, 1, 1, 0]


def cancelled_between_two_tries(scene: WorkflowScene) -> list[int]:
    """The commit of the first try is late. The second try fails, and the next is to come in three seconds."""
    tries = []

    def flaky(tr: TenantTransaction, name: str) -> None:
        tries.append(name)
        if len(tries) == 2:
            raise RuntimeError("not now")
        do(tr, name)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", undo=undo)
        wf.step(flaky, "done", on=BOB, undo=undo, retry=Retry(attempts=3, backoff=3))

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot").goes_its_way()
    commit = worker.runs_until_commit(of="slot", at=scene.far)
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.goes_on(SECOND // 2)
    scene.has(lambda alice: alice.cancel(NAME))
    worker.runs_until_commit(of="slot")  # That the run is undone.
    commit.arrives()
    worker.runs_until_idle()
    while scene.zone.items.get(MINE):
        scene.executor(work).runs_until_idle()
    return scene.counts(BOB, "done", "undo done")


def test_a_step_elsewhere_whose_run_is_cancelled_between_two_tries_is_undone() -> None:
    assert cancelled_between_two_tries(WorkflowScene()) == [1, 1]


def test_without_another_attempt_the_late_commit_of_a_try_is_not_undone() -> None:
    with planted("a run that is cancelled between two tries of a step is undone at once"):
        assert cancelled_between_two_tries(WorkflowScene()) == [1, 0]


# --- A run that kills its workers ---


def kills_its_workers(scene: WorkflowScene) -> Callable[[WorkflowContext], None]:
    """Let the run do a step at home and one elsewhere, and kill its workers until it is given up; return its code."""
    began: list[str] = []

    def crash(key: str) -> None:
        began.append(key)
        worker.host.clock.sleep_us(60 * SECOND)

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", undo=undo)
        wf.step(do, "done", name="elsewhere", on=BOB, undo=undo)
        wf.effect(crash)

    scene.enqueued()
    deaths = 1 + ZoneSettings().expiries_before_isolation + SHARED_EXPIRIES  # The first does not count: see `started`.
    for death in range(deaths):
        worker = scene.executor(work)
        worker.runs_until(lambda: len(began) > death)  # noqa: B023 - it is called at once
        worker.host.kill()
        scene.pass_us(2 * LEASE_US)
    assert scene.leased(kinds=[KIND]) == []
    return work


def test_a_run_that_kills_its_workers_is_given_up_and_not_undone() -> None:
    """No worker is left that could undo it: its undo may kill workers as well."""
    scene = WorkflowScene()
    kills_its_workers(scene)
    (dead,) = scene.has(lambda alice: alice.dead_letters())
    assert (dead.reason, dead.error) == (
        "lease expired",
        "its process died or stalled 6 times in a row while it ran",
    )
    scene.pass_us(3_600 * SECOND)
    assert scene.leased(kinds=[KIND]) == []
    for tenant in (ALICE, BOB):
        assert scene.counts(tenant, "done", "undo done") == [1, 0]


def test_a_run_that_was_given_up_is_undone_once_it_is_cancelled() -> None:
    scene = WorkflowScene()
    work = kills_its_workers(scene)
    assert scene.has(lambda alice: alice.cancel(NAME)) is CancelOutcome.UNDOING
    worker = scene.executor(work)
    worker.runs_until_idle()
    assert worker.counts == {"cancelled": 1}
    for tenant in (ALICE, BOB):
        assert scene.counts(tenant, "done", "undo done") == [1, 1]
