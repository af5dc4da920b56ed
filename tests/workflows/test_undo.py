"""Undo: what a run has done is undone, last first and each exactly once, if it fails for good or is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import App, Retry
from fairlead.actors.handlers import PermanentError
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.interrupts import Cause, WorkflowInterrupt
from fairlead.workflows.run_log import RunLog
from fairlead.zones.errors import ItemGone
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.cancellation import CancelOutcome
from fairlead.zones.workflow.step_log import StepName
from tests.workflows.application import ELSEWHERE, HOME, add, append, count, enqueue, kept_keys, run, two_shards, words


def undo(tr: TenantTransaction, word: str) -> None:
    append(tr, f"-{word}")


def booking(app: App, *, ends: Any, **options: Any) -> None:
    """Register a workflow of three steps that can be undone, which then `ends`."""

    @app.workflow("w", **options)
    def work(wf: WorkflowContext) -> None:
        for word in ("flight", "hotel", "car"):
            wf.step(append, word, name=word, undo=undo)
        ends(wf)


def fail(wf: WorkflowContext) -> None:
    raise PermanentError("no money")


def wait(wf: WorkflowContext) -> None:
    wf.wait_for("go")


def test_a_permanent_error_undoes_the_steps_last_first() -> None:
    app = two_shards()
    booking(app, ends=fail)
    enqueue(app, "w")
    assert run(app).dead_lettered["w"] == 1
    assert words(app) == "flight hotel car -car -hotel -flight"
    (dead_letter,) = app.tenant(HOME).dead_letters()
    assert dead_letter.error == "PermanentError: no money"
    assert kept_keys(app) == []


def test_a_step_on_another_shard_is_undone_there() -> None:
    app = two_shards()

    @app.workflow("w", drop=True)
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "hotel", on=ELSEWHERE, undo=undo)
        raise PermanentError

    enqueue(app, "w")
    assert run(app).dropped["w"] == 1
    assert words(app, ELSEWHERE) == "hotel -hotel"


def test_tries_that_are_used_up_undo_the_steps() -> None:
    app = two_shards()

    def broken(tr: TenantTransaction) -> None:
        raise RuntimeError("down")

    booking(app, ends=lambda wf: wf.step(broken), retry=Retry(attempts=3, backoff=1))
    enqueue(app, "w")
    assert run(app, within=60).dead_lettered["w"] == 1
    assert words(app) == "flight hotel car -car -hotel -flight"
    (dead_letter,) = app.tenant(HOME).dead_letters()
    assert dead_letter.error == "RuntimeError: down\nin the step broken"


def test_undos_have_all_their_tries_after_the_workflow_has_used_up_its_own() -> None:
    app, fails = two_shards(), [True]

    def flaky(tr: TenantTransaction, word: str) -> None:
        undo(tr, word)
        if fails:
            fails.pop()
            raise RuntimeError

    def broken(tr: TenantTransaction) -> None:
        raise RuntimeError("down")

    @app.workflow("w", retry=Retry(attempts=2, backoff=1))
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=flaky)
        wf.step(broken)

    enqueue(app, "w")
    assert run(app, within=60).dead_lettered["w"] == 1
    assert (words(app), kept_keys(app)) == ("a -a", [])


def test_a_dead_letter_that_was_undone_is_retried_as_a_new_run() -> None:
    app, fails = two_shards(), [True]

    def maybe(wf: WorkflowContext) -> None:
        if fails:
            raise PermanentError

    booking(app, ends=maybe)
    item = enqueue(app, "w")
    run(app)
    fails.clear()
    app.tenant(HOME).retry_dead_letter(item.item_id)
    assert run(app).completed["w"] == 1
    assert words(app) == "flight hotel car -car -hotel -flight flight hotel car"


def test_an_undo_that_fails_is_tried_again_and_done_once() -> None:
    app, fails = two_shards(), [True, True]

    def flaky(tr: TenantTransaction, word: str) -> None:
        undo(tr, word)
        if fails:
            fails.pop()
            raise RuntimeError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", name="a", undo=flaky)
        wf.step(append, "b", name="b", undo=undo)
        raise PermanentError

    enqueue(app, "w")
    drained = run(app, within=60)
    assert (drained.retried["w"], drained.dead_lettered["w"]) == (2, 1)
    assert words(app) == "a b -b -a"


def test_an_undo_that_fails_for_good_leaves_a_dead_letter_whose_retry_goes_on_undoing() -> None:
    app, fails = two_shards(), [True]

    def broken(tr: TenantTransaction, word: str) -> None:
        undo(tr, word)
        if fails:
            raise PermanentError("cannot")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", name="a", undo=broken)
        wf.step(append, "b", name="b", undo=undo)
        raise PermanentError("first")

    item = enqueue(app, "w")
    run(app)
    (dead_letter,) = app.tenant(HOME).dead_letters()
    assert (words(app), dead_letter.error) == ("a b -b", "PermanentError: cannot\nin the step undo a")
    fails.clear()
    app.tenant(HOME).retry_dead_letter(item.item_id)
    run(app)
    assert words(app) == "a b -b -a"
    (dead_letter,) = app.tenant(HOME).dead_letters()
    assert dead_letter.error == "PermanentError: first"


def test_an_undo_gets_the_result_of_its_step_if_it_asks_for_it() -> None:
    app, got = two_shards(), []

    def release(tr: TenantTransaction, name: str, result: int) -> None:
        got.append((name, result))

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "stock", undo=release)
        raise PermanentError

    enqueue(app, "w")
    run(app)
    assert got == [("stock", 1)]


@pytest.mark.parametrize(
    ("error", "undone"), [(ConnectionError("no answer"), ["undo 1 None"]), (PermanentError("refused"), [])]
)
@pytest.mark.parametrize("once", [True, False])
def test_an_effect_is_undone_if_its_own_tries_are_used_up_but_not_if_it_was_refused(
    error: Exception, undone: list[str], once: bool
) -> None:
    app, seen = two_shards(), []

    def pay(key: str, order: int) -> None:
        raise error

    def give_back(key: str, order: int, result: object) -> None:
        seen.append(f"undo {order} {result}")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.effect(pay, 1, undo=give_back, once=once, retry=None if once else Retry(attempts=2, backoff=0.1))

    enqueue(app, "w")
    assert run(app, within=60).dead_lettered["w"] == 1
    assert seen == undone


def test_an_effect_of_unknown_result_is_undone_as_well() -> None:
    """It may have happened: the answer of the provider is lost."""
    app, repaid = two_shards(), []

    def pay(key: str) -> str:
        raise ConnectionError

    def give_back(key: str, result: str | None) -> None:
        repaid.append(result)

    @app.workflow("w", retry=Retry(attempts=2, backoff=1))
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "before")
        wf.effect(pay, undo=give_back)

    enqueue(app, "w")
    assert run(app, within=60).dead_lettered["w"] == 1
    assert repaid == [None]


# --- Cancel ---


def test_the_cancellation_of_a_run_that_waits_undoes_its_steps_at_once() -> None:
    app = two_shards()
    booking(app, ends=wait)
    item = enqueue(app, "w")
    run(app)
    assert item.cancel() is CancelOutcome.UNDOING
    assert run(app).cancelled["w"] == 1
    assert words(app) == "flight hotel car -car -hotel -flight"
    assert (app.tenant(HOME).count(), app.tenant(HOME).dead_letters(), kept_keys(app)) == ({}, [], [])


def test_a_run_that_is_cancelled_before_its_first_step_is_deleted() -> None:
    app = two_shards()
    booking(app, ends=wait)
    item = enqueue(app, "w")
    assert item.cancel() is CancelOutcome.DELETED
    with pytest.raises(ItemGone):
        item.cancel()


def test_a_run_that_is_cancelled_between_two_steps_does_not_do_the_second() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=undo)
        app.tenant(HOME).cancel(wf.item_id)
        wf.step(append, "b", undo=undo, name="second")

    enqueue(app, "w")
    run(app, replays=False)
    assert words(app) == "a -a"


@pytest.mark.parametrize("errors", [0, 1])
def test_a_step_that_cancels_its_own_run_is_undone_with_it(errors: int) -> None:
    app, fails = two_shards(), [True] * errors

    def cancel(tr: TenantTransaction, item_id: bytes) -> None:
        if fails:
            fails.pop()
            raise RuntimeError
        tr.cancel(item_id)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        if errors:
            wf.step(append, "a", undo=undo)
        wf.step(cancel, wf.item_id)
        wf.step(append, "b", name="second", undo=undo)

    enqueue(app, "w")
    assert run(app, within=60, replays=False).cancelled["w"] == 1
    assert words(app) == ("a -a" if errors else "")
    assert (app.tenant(HOME).count(), kept_keys(app)) == ({}, [])


def test_a_run_whose_cancellation_its_worker_notices_during_a_replay_is_undone() -> None:
    """The replay passes the recorded steps first: otherwise nobody would know how to undo them."""
    app, attempts = two_shards(), []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        attempts.append(wf)
        if len(attempts) == 2:
            app.tenant(HOME).cancel(wf.item_id)
            wf._execution.held.job.cancel_requested = True  # As the worker's status does.
        wf.step(append, "a", undo=undo)
        wf.sleep(1)
        wf.step(append, "b", undo=undo, name="second")

    enqueue(app, "w")
    assert run(app, within=5, replays=False).cancelled["w"] == 1
    assert words(app) == "a -a"


def test_a_run_that_is_cancelled_behind_its_last_step_is_undone() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=undo)
        app.tenant(HOME).cancel(wf.item_id)

    enqueue(app, "w")
    drained = run(app, replays=False)
    assert (drained.returned["w"], drained.cancelled["w"]) == (1, 1)
    assert words(app) == "a -a"


@pytest.mark.parametrize("later", [RuntimeError("bug"), PermanentError("no")])
def test_a_run_whose_code_fails_is_undone_as_soon_as_it_is_cancelled(later: Exception) -> None:
    app, errors = two_shards(), [later, RuntimeError("bug")]

    @app.workflow("w", retry=Retry(attempts=None, backoff=3600))
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=undo)
        raise errors.pop()

    item = enqueue(app, "w")
    run(app, replays=False)
    assert item.cancel() is CancelOutcome.UNDOING
    assert run(app, replays=False).cancelled["w"] == 1
    assert (words(app), app.tenant(HOME).dead_letters()) == ("a -a", [])


@pytest.mark.parametrize("error", [RuntimeError("down"), PermanentError("no")])
def test_a_run_that_fails_while_it_is_cancelled_is_undone_without_a_backoff(error: Exception) -> None:
    app = two_shards()

    def call(key: str, item_id: bytes) -> None:
        app.tenant(HOME).cancel(item_id)
        raise error

    @app.workflow("w", retry=Retry(backoff=3600))
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=undo)
        wf.effect(call, wf.item_id)

    enqueue(app, "w")
    assert run(app, replays=False).cancelled["w"] == 1
    assert (words(app), app.tenant(HOME).dead_letters()) == ("a -a", [])


def test_a_run_whose_tries_are_used_up_while_it_is_cancelled_leaves_no_dead_letter() -> None:
    app = two_shards()

    def call(key: str, item_id: bytes) -> None:
        app.tenant(HOME).cancel(item_id)
        raise RuntimeError

    @app.workflow("w", retry=Retry(attempts=1))
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=undo)
        wf.effect(call, wf.item_id)

    enqueue(app, "w")
    assert run(app, replays=False).cancelled["w"] == 1
    assert (words(app), app.tenant(HOME).dead_letters()) == ("a -a", [])


def test_a_cancellation_during_the_undo_changes_nothing() -> None:
    app = two_shards()
    cancelled: list[CancelOutcome] = []

    def cancelling(tr: TenantTransaction, word: str) -> None:
        undo(tr, word)
        if not cancelled:
            cancelled.append(app.tenant(HOME).cancel("mine"))

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", name="a", undo=undo)
        wf.step(append, "b", name="b", undo=cancelling)
        raise PermanentError("no")

    enqueue(app, "w", item_id="mine")
    drained = run(app)
    assert cancelled == [CancelOutcome.UNDOING]
    assert words(app) == "a b -b -a"
    assert (drained.dead_lettered["w"], drained.cancelled["w"]) == (1, 0)


def test_a_dead_letter_whose_run_was_cancelled_during_its_undo_can_be_retried() -> None:
    """The request came too late for its run. It is none to cancel the next one."""
    app, fails = two_shards(), [True]

    def cancelling(tr: TenantTransaction, word: str) -> None:
        undo(tr, word)
        app.tenant(HOME).cancel("mine")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=cancelling)
        if fails:
            raise PermanentError("no")

    enqueue(app, "w", item_id="mine")
    assert run(app, replays=False).dead_lettered["w"] == 1
    fails.clear()
    app.tenant(HOME).retry_dead_letter("mine")
    assert run(app).completed["w"] == 1
    assert words(app) == "a -a a"


def test_a_cancelled_dead_letter_is_undone() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> object:
        wf.step(append, "a", undo=undo)
        return wf.step(lambda tr: object(), name="no data")

    item = enqueue(app, "w")
    assert run(app).dead_lettered["w"] == 1
    assert words(app) == "a"
    assert item.cancel() is CancelOutcome.UNDOING
    assert run(app).cancelled["w"] == 1
    assert words(app) == "a -a"


def test_a_cancellation_by_force_undoes_nothing() -> None:
    app = two_shards()
    booking(app, ends=wait)
    item = enqueue(app, "w")
    run(app)
    app.tenant(HOME).cancel(item.item_id, force=True)
    assert run(app).runs == 0
    assert (words(app), kept_keys(app)) == ("flight hotel car", [])


def test_steps_without_an_undo_stay_done() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "kept")
        raise PermanentError

    enqueue(app, "w")
    run(app)
    assert count(app, HOME, "kept") == 1


def test_a_run_that_is_cancelled_as_its_first_participant_is_recorded_is_cleaned_up_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result of that commit is unknown, and its next try finds the request: nobody knows that it was applied."""
    app, record = two_shards(), RunLog.record_pending

    def of_unknown_result(self: RunLog, step: StepName, participant: Any) -> None:
        before = self.head
        record(self, step, participant)
        self.head = before
        raise WorkflowInterrupt(Cause.CANCELLED)

    monkeypatch.setattr(RunLog, "record_pending", of_unknown_result)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=undo)
        wf.step(append, "b", on=ELSEWHERE, name="second")

    enqueue(app, "w")
    drained = run(app, replays=False)
    assert (drained.cancelled["w"], drained.completed["fairlead.cleanup"]) == (1, 1)
    assert kept_keys(app) == []
