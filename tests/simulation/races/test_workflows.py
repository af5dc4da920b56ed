"""Executors of a workflow that are overtaken inside a step, between its reads and its commit.

Where each race of workflows is forced; many are in `tests/workflows/test_races`, too, over the memory engine:

    an executor pauses in a step elsewhere; the run ends, and is cleaned up     here
    it goes on after the tombstone was cleared, by a clock that is a day ahead  here
    it goes on after two moves of the participant                               here
    it goes on while the run is undone                                          here
    its fence comes after the tombstone was cleared                             here
    a crash behind the commit elsewhere, before home knows of it                test_workflow_logs
    an unknown result of a step at home, of a step elsewhere, of the end        test_workflow_results
    an unknown result of a signal, of a suspension                              test_workflow_arrivals
    the name is enqueued again before the cleanup; a late cleanup               here
    a signal between the look and the suspension                                test_workflow_arrivals
    a signal to a run that has just ended                                       test_workflow_arrivals
    two executors after a lease expiry, one behind on reads                     test_workflow_logs
    a cancellation during an undo, at home or elsewhere                         test_workflow_undos
    either tenant is moved between two steps                                    test_workflow_moves
    a checkpoint and a late executor                                            test_workflow_logs
    a session ends while its heartbeat, or a claim, commits                     test_worker_sessions
    a child that ends before its parent waits                                   test_workflow_arrivals
    the version is raised, or older code runs, in the middle                    test_workflow_logs
    a log that is longer than one transaction                                   test_workflow_logs
    a running step is given back                                                here

`tests/workflows/orders` tries all orders of the transactions of two executors.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.actors.handlers import PermanentError
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.durations import DAY_S
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.keyspace import FENCE, STEP_LOG
from tests.simulation.races.missing_guards import planted
from tests.simulation.races.workflow_scene import BOB, FAR, NAME, WorkflowScene, do, undo
from tests.simulation.stage import ALICE, SECOND


def overtaken_at_its_end(scene: WorkflowScene, meanwhile: Callable[[WorkflowScene], None]) -> list[int]:
    """An executor pauses between the reads and the commit of a step elsewhere. Another one ends the run."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB)
        wf.step(do, "done", on=BOB)

    scene.enqueued()
    paused = scene.executor(work)
    paused.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.overtaken_by(work).runs_until_idle()
    scene.cleans_up()
    meanwhile(scene)
    paused.runs_until_idle()
    assert paused.counts == {"lost": 1}
    return scene.counts(BOB, "before", "done")


def nothing(scene: WorkflowScene) -> None:
    assert FENCE in scene.kept(FAR)


def the_tombstone_is_cleared(scene: WorkflowScene) -> None:
    """A consumer whose clock is a day ahead raises FLOOR."""
    scene.raises_floor(ahead_us=DAY_S * SECOND)
    assert scene.kept(FAR) == []


def the_participant_moves_twice(scene: WorkflowScene) -> None:
    scene.moves_twice(BOB)
    assert scene.kept(FAR) == []


MEANWHILE = [nothing, the_tombstone_is_cleared, the_participant_moves_twice]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_an_executor_that_goes_on_after_its_run_has_ended_does_nothing(
    meanwhile: Callable[[WorkflowScene], None],
) -> None:
    assert overtaken_at_its_end(WorkflowScene(), meanwhile) == [1, 1]


@pytest.mark.parametrize(
    ("meanwhile", "bug"),
    [
        (lambda scene: None, "a cleanup leaves no tombstone"),
        (the_tombstone_is_cleared, "a step on another shard does not compare FLOOR"),
        (the_tombstone_is_cleared, "tombstones are cleared, and FLOOR is not raised"),
        (the_tombstone_is_cleared, "a clock that is ahead stands in for FLOOR"),
        (the_tombstone_is_cleared, "an executor that has asked again does not record the answer at home"),
        (the_participant_moves_twice, "a step on another shard does not compare the epoch of its tenant"),
    ],
)
def test_an_executor_does_a_step_again_after_the_end_if(meanwhile: Callable[[WorkflowScene], None], bug: str) -> None:
    with planted(bug):
        assert overtaken_at_its_end(WorkflowScene(), meanwhile) == [1, 2]


def overtaken_in_its_first_step(scene: WorkflowScene) -> list[int]:
    """Nobody but home knows of the participant when another executor ends the run: it takes another way."""
    executors = []

    def work(wf: WorkflowContext) -> None:
        executors.append(wf)
        if len(executors) == 1:
            wf.step(do, "done", on=BOB, undo=undo)
        raise PermanentError("no")

    scene.enqueued()
    paused = scene.executor(work)
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.overtaken_by(work).runs_until_idle()
    scene.cleans_up()
    paused.runs_until_idle()
    return scene.counts(BOB, "done", "undo done")


def test_an_executor_that_is_overtaken_in_its_first_step_elsewhere_does_nothing() -> None:
    assert overtaken_in_its_first_step(WorkflowScene()) == [0, 0]


def test_without_the_participant_in_the_log_at_home_a_step_is_done_after_the_end() -> None:
    with planted("home does not record a participant before the first step there"):
        assert overtaken_in_its_first_step(WorkflowScene()) == [1, 0]


def overtaken_by_an_undo(scene: WorkflowScene) -> list[int]:
    """Another executor undoes the run: no step may be done that it does not know of."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB, undo=undo)
        wf.step(do, "done", on=BOB, undo=undo)

    scene.enqueued()
    paused = scene.executor(work)
    paused.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.has(lambda alice: alice.cancel(NAME))
    other = scene.overtaken_by(work)
    other.runs_until_idle()
    assert other.counts == {"cancelled": 1}
    paused.runs_until_idle()
    return scene.counts(BOB, "before", "undo before", "done", "undo done")


def test_an_executor_that_goes_on_while_its_run_is_undone_does_nothing() -> None:
    assert overtaken_by_an_undo(WorkflowScene()) == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "bug",
    [
        "a new attempt does not raise the fences at participants",
        "a step on another shard reads its fence by snapshot",
    ],
)
def test_an_executor_does_a_step_that_nobody_undoes_if(bug: str) -> None:
    with planted(bug):
        assert overtaken_by_an_undo(WorkflowScene()) == [1, 1, 1, 0]


def a_fence_that_comes_late(scene: WorkflowScene) -> list[int]:
    """An attempt stands still as it raises its fence. Its run ends, and the tombstone is cleared."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", on=BOB)

    scene.enqueued()
    first = scene.executor(work)
    first.runs_until_commit(of="slot", at=scene.far).arrives()
    paused = scene.overtaken_by(work)
    paused.runs_until_commit(of="slot", at=scene.far)
    scene.overtaken_by(work).runs_until_idle()
    scene.cleans_up()
    the_tombstone_is_cleared(scene)
    paused.runs_until_idle()
    assert (paused.counts, scene.counts(BOB, "done")) == ({"lost": 1}, [1])
    return scene.kept(FAR)


def test_a_fence_is_not_raised_after_the_tombstone_was_cleared() -> None:
    assert a_fence_that_comes_late(WorkflowScene()) == []


def test_without_the_comparison_of_places_a_late_fence_stays_for_ever() -> None:
    with planted("a fence is raised where a tombstone may have been"):
        assert a_fence_that_comes_late(WorkflowScene()) == [FENCE]


def given_back_in_a_step(scene: WorkflowScene) -> tuple[int | None, list[int]]:
    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before")
        wf.step(do, "done")

    scene.enqueued()
    paused = scene.executor(work)
    paused.runs_until_commit(of="slot").goes_its_way()
    commit = paused.runs_until_commit(of="slot")
    scene.give_back()
    paused.runs_until_idle()
    assert paused.counts == {"lost": 1}
    return commit.refusal, scene.counts(ALICE, "done")


def test_a_step_at_home_of_an_item_that_was_given_back_is_not_done() -> None:
    assert given_back_in_a_step(WorkflowScene()) == (NOT_COMMITTED, [0])


def test_without_the_comparison_of_leases_a_step_is_done_of_an_item_that_was_given_back() -> None:
    with planted("a commit of a workflow at home does not compare the lease"):
        assert given_back_in_a_step(WorkflowScene()) == (NOT_COMMITTED, [1])


def two_that_raise_their_fences(scene: WorkflowScene) -> list[int]:
    """The fence of an older attempt arrives after that of a newer one, which undoes the run."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB, undo=undo)
        wf.step(do, "done", on=BOB, undo=undo)

    scene.enqueued()
    scene.executor(work).runs_until_commit(of="slot", at=scene.far).arrives()
    older = scene.overtaken_by(work)
    older.runs_until_commit(of="slot", at=scene.far)
    scene.has(lambda alice: alice.cancel(NAME))
    scene.overtaken_by(work).runs_until_idle()
    older.runs_until_idle()
    assert older.counts == {"lost": 1}
    return scene.counts(BOB, "before", "undo before", "done", "undo done")


def test_a_fence_is_never_lowered() -> None:
    assert two_that_raise_their_fences(WorkflowScene()) == [1, 1, 0, 0]


def test_without_the_conflict_on_the_fence_an_older_attempt_lowers_it_and_does_a_step() -> None:
    with planted("a fence is raised after a read by snapshot"):
        assert two_that_raise_their_fences(WorkflowScene()) == [1, 1, 1, 0]


# --- The name is enqueued again ---


def late_cleanup(scene: WorkflowScene) -> tuple[dict[str, int], list[int]]:
    """The cleanup of a run comes while the next run of that name waits."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", on=BOB)
        wf.sleep(5)
        wf.step(do, "done", on=BOB)

    scene.enqueued()
    scene.executor(work).runs_until_idle()
    scene.has(lambda alice: alice.cancel(NAME, force=True))
    scene.enqueued()
    scene.executor(work).runs_until_idle()
    scene.cleans_up()
    scene.pass_us(6 * SECOND)
    last = scene.executor(work)
    last.runs_until_idle()
    return last.counts, scene.counts(BOB, "done")


def test_a_late_cleanup_leaves_the_next_run_of_its_name_alone() -> None:
    assert late_cleanup(WorkflowScene()) == ({"completed": 1}, [3])


def test_without_runs_a_late_cleanup_ends_the_next_life_of_the_item() -> None:
    with planted("logs are kept by the item, and not by its life"):
        assert late_cleanup(WorkflowScene()) != ({"completed": 1}, [3])


def two_cleanups(scene: WorkflowScene) -> list[int]:
    """The name is enqueued again, and this run ends, too, before the cleanup of the first. Return what Bob keeps."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "done", on=BOB)

    for _ in range(2):
        scene.enqueued()
        scene.executor(work).runs_until_idle()
    scene.cleans_up()
    assert (scene.counts(BOB, "done"), scene.zone.items) == ([2], {})
    return scene.kept(FAR)


def test_each_run_of_a_name_is_cleaned_up() -> None:
    assert two_cleanups(WorkflowScene()) == [FENCE, FENCE]


def test_without_the_run_in_the_id_of_a_cleanup_the_log_of_the_second_run_stays() -> None:
    with planted("the cleanups of all runs have one id"):
        assert two_cleanups(WorkflowScene()) == [STEP_LOG, FENCE]


# --- A home that was restored from a backup ---


def tombstone_under_a_lease(scene: WorkflowScene) -> dict[str, int]:
    """The run has ended, as the other shard knows. The home's shard was restored to a time before."""

    def work(wf: WorkflowContext) -> None:
        wf.step(do, "before", on=BOB)
        wf.step(do, "done", on=BOB)

    scene.enqueued()
    worker = scene.executor(work)
    worker.runs_until_commit(of="slot", at=scene.far).goes_its_way()
    worker.runs_until_commit(of="slot", at=scene.far)
    scene.ends_at_bobs(scene.run)
    worker.runs_until_idle()
    assert scene.counts(BOB, "done") == [0]
    return worker.counts


def test_a_run_that_holds_its_lease_and_has_ended_elsewhere_becomes_a_dead_letter() -> None:
    assert tombstone_under_a_lease(WorkflowScene()) == {"dead_lettered": 1}


def test_without_a_look_at_its_lease_a_run_that_has_ended_elsewhere_is_tried_for_ever() -> None:
    with planted("a tombstone always means a lost lease"):
        assert tombstone_under_a_lease(WorkflowScene()) == {"lost": 1}
