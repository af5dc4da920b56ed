"""`why` for every state of a workflow. Each test produces its state with real components."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import fairlead
from fairlead import App, AsyncWorkflowContext, Cause, Job, PermanentError, Retry, TenantDatabase, WorkflowContext
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow import step_log
from fairlead.zones.workflow.run_records import StepState
from tests.fairlead.shell import run
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards


def advance(app: App, seconds: float) -> None:
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(seconds)


def fail(tr: TenantTransaction) -> None:
    raise RuntimeError("no carrier")


# --- It waits ---


def test_a_workflow_that_waits_for_a_signal_says_since_when_and_until_when(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.wait_for("approved", timeout=3600)

    handle = alice.enqueue("w")
    drain(app)
    began_us = app.clock.now_us()
    advance(app, 600)
    said = handle.explain()
    sentence = "it waits for the signal approved, for 10 min so far; without it, it goes on in 50 min"
    assert (said.cause, said.sentence) == (Cause.WAITS_FOR_SIGNAL, sentence)
    assert said.details == {
        "vests_us": began_us + 3_600_000_000, "steps": 1, "version": 1, "since_us": began_us, "signals": ["approved"],
    }  # fmt: skip


def test_a_wait_without_a_timeout_names_no_end(app: App, alice: TenantDatabase) -> None:
    app.workflow("w")(lambda wf: wf.wait_for("approved"))
    handle = alice.enqueue("w")
    drain(app)
    assert handle.explain().sentence == "it waits for the signal approved, for 0.0 s so far"


def test_a_workflow_that_sleeps_says_until_when(app: App, alice: TenantDatabase) -> None:
    app.workflow("w")(lambda wf: wf.sleep(3600))
    handle = alice.enqueue("w")
    drain(app)
    said = handle.explain()
    assert (said.cause, said.sentence) == (Cause.SLEEPING, "it sleeps for another 60 min")


def test_a_workflow_that_waits_for_children_says_for_how_many(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.call("resize", 0)
        wf.gather([fairlead.child("resize", number, delay=0 if number < 2 else 3600) for number in range(5)])

    @app.handler("resize")
    def resize(job: Job) -> None:
        pass

    handle = alice.enqueue("w")
    drain(app, within=1)
    said = handle.explain()
    assert said.cause is Cause.WAITS_FOR_CHILDREN
    names = ["call resize (4)", "call resize (5)", "call resize (6)"]
    assert said.sentence.startswith(f"it waits for 3 of 5 children: {', '.join(names)}, for ")
    assert (said.details["children"], said.details["children_ended"]) == (names, 2)


# --- It failed, and is tried again ---


def test_a_workflow_whose_branches_wait_for_different_things_names_them_all(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        async with asyncio.TaskGroup() as branches:
            branches.create_task(wf.wait_for("approved"))
            branches.create_task(wf.call("resize", delay=3600))
            branches.create_task(wf.step(fail, name="ship", retry=Retry(attempts=9, backoff=60)))

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    said = handle.explain()
    sentence = "it waits for the signal approved and for 1 of 1 children: call resize, for 0.0 s so far; its step ship"
    assert said.cause is Cause.WAITS_FOR_SIGNAL
    assert said.sentence.startswith(f"{sentence} failed once: RuntimeError: no carrier; the next try comes in ")
    assert (said.details["signals"], said.details["children"]) == (["approved"], ["call resize"])
    assert (said.details["step"], said.details["tries"]) == ("ship", 1)


def test_a_step_that_failed_is_named_with_its_error_and_its_next_try(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w", retry=Retry(attempts=9, backoff=60))
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.step(fail, name="ship")

    handle = alice.enqueue("w")
    drain(app, within=200, raise_errors=False)
    said = handle.explain()
    assert (said.cause, said.details["step"]) == (Cause.RETRYING, "ship")
    assert said.sentence.startswith("its step ship failed 3 times: RuntimeError: no carrier; the next try comes in ")
    assert said.attempts.last_traceback.endswith("RuntimeError: no carrier\nin the step ship\n")


def test_a_step_with_a_policy_of_its_own_says_how_often_it_failed(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(fail, name="ship", retry=Retry(attempts=9, backoff=60))

    handle = alice.enqueue("w")
    drain(app)
    said = handle.explain()
    assert (said.cause, said.details["tries"]) == (Cause.RETRYING, 1)
    assert said.sentence.startswith("its step ship failed once: RuntimeError: no carrier; the next try comes in ")
    (step,) = handle.steps().steps
    assert (step.state, step.error_type, step.error) == (StepState.WAITING, "RuntimeError", "no carrier")


def test_a_shard_that_is_away_holds_a_workflow_up(monkeypatch: pytest.MonkeyPatch) -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", on=ELSEWHERE)
        wf.wait_for("go")
        wf.step(add, "a", on=ELSEWHERE)

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    other = app.tenant(ELSEWHERE).shard

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is gone", remedy="wait")

    monkeypatch.setattr(other, "transact", refuse)
    handle.signal("go")
    home = app.tenant(HOME).shard
    monkeypatch.setattr(type(app.shards), "__iter__", lambda shards: iter([home.name]))
    drain(app, raise_errors=False)
    said = handle.explain()
    assert said.cause is Cause.PARTICIPANT_AWAY
    assert said.sentence.startswith(
        f"shard {other.name} of {ELSEWHERE}, on whom it has acted, cannot be read: store unav"
    )


def test_a_run_that_newer_code_began_says_which_version_it_needs(app: App, alice: TenantDatabase) -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.wait_for("go")

    app.workflow("w", version=3)(work)
    handle = alice.enqueue("w")
    drain(app)
    del app.registry.handlers["w"]
    app.workflow("w", version=2)(work)
    handle.signal("go")
    drain(app)
    said = handle.explain()
    assert said.cause is Cause.NEEDS_NEWER_CODE
    assert said.sentence == (
        "version 3 of its code began it, and older code gave it back; deploy that version or a higher one; it is tried"
        " again in 5.0 s"
    )


def test_a_run_that_failed_before_older_code_gave_it_back_says_which_version_it_needs(
    app: App, alice: TenantDatabase
) -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.step(fail, name="ship")

    app.workflow("w", version=3, retry=Retry(attempts=9, backoff=1))(work)
    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    assert handle.explain().cause is Cause.RETRYING
    del app.registry.handlers["w"]
    app.workflow("w", version=2)(work)
    advance(app, 60)
    assert drain(app).returned["w"] == 1
    said = handle.explain()
    assert said.cause is Cause.NEEDS_NEWER_CODE
    assert said.sentence.startswith("version 3 of its code began it")


# --- It is undone ---


def test_a_workflow_whose_undo_fails_says_what_is_undone_and_why(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w", retry=Retry(attempts=9, backoff=60))
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve", undo=lambda tr, name: fail(tr))
        wf.step(add, "b", undo=lambda tr, name: None)
        raise PermanentError("nobody approved")

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    said = handle.explain()
    assert said.cause is Cause.RETRYING
    assert said.sentence.startswith(
        "its steps are being undone, 1 so far: PermanentError: nobody approved; its step undo reserve failed once: Runt"
    )
    assert (said.details["undo_reason"], said.details["undone"]) == ("PermanentError: nobody approved", 1)


def test_a_workflow_that_is_cancelled_says_so_until_it_is_undone(live: App) -> None:
    @live.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=lambda tr, name: None)
        wf.wait_for("go")

    handle = live.tenant("shop/alice").enqueue("w")
    drain(live)
    handle.cancel()
    said = handle.explain()
    assert said.sentence.startswith("its steps are being undone, 0 so far: its cancellation was requested; ")
    assert said.details["undo_reason"] == "cancelled"


# --- It is a dead letter ---


def test_a_dead_letter_of_other_code_shows_both_lists_side_by_side(app: App, alice: TenantDatabase) -> None:
    def before(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve")
        wf.step(add, "b", name="pay")
        wf.wait_for("go")

    def after(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve")
        wf.step(add, "c", name="ship")
        wf.wait_for("go")

    app.workflow("w")(before)
    handle = alice.enqueue("w")
    drain(app)
    del app.registry.handlers["w"]
    app.workflow("w")(after)
    handle.signal("go")
    drain(app, raise_errors=False)
    said = handle.explain()
    assert (said.cause, said.sentence) == (
        Cause.DEAD_LETTER,
        "it failed for good: StepsDiffer: the workflow's steps differ from those that are recorded: ship is new, and"
        " pay, wait_for go were not reached; what its 2 recorded steps, up to pay, have done stays done; fairlead"
        " dead-letters retry runs it again",
    )
    assert said.details["difference"] == [
        "  recorded     this code",
        "  reserve      reserve",
        "> pay          ship",
        "  wait_for go",
    ]


def test_a_dead_letter_whose_undo_failed_says_that_a_retry_goes_on(app: App, alice: TenantDatabase) -> None:
    def cannot(tr: TenantTransaction, name: str) -> None:
        raise PermanentError("no way back")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=cannot)
        raise PermanentError("nobody approved")

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    said = handle.explain()
    assert said.sentence.startswith(
        "its undo failed, and a retry goes on undoing it: PermanentError: nobody approved; it failed for good: Perm"
    )


def test_a_dead_letter_of_more_steps_than_a_page_does_not_give_the_count_of_the_page(
    app: App, alice: TenantDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "PAGE_ROWS", 4)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for number in range(9):
            wf.step(add, "a", name=f"step {number}")
        wf.step(lambda tr: object(), name="bad")

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    assert "what its more than 3 recorded steps have done stays done" in handle.explain().sentence


def test_a_dead_letter_names_the_last_step_that_was_done(app: App, alice: TenantDatabase) -> None:
    """A worker that died inside a step has recorded nothing of it: the step before it tells the place."""

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve")
        wf.step(lambda tr: object(), name="bad")

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    assert "; what its recorded step reserve has done stays done; " in handle.explain().sentence


# --- The command ---


@pytest.mark.parametrize("at_home", [0, 1, 2])
def test_a_dead_letter_that_has_done_steps_on_another_shard_does_not_say_that_it_has_done_none(at_home: int) -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for number in range(at_home):
            wf.step(add, f"{number}", name=f"reserve {number}")
        wf.step(add, "b", name="ship", on=ELSEWHERE)
        wf.step(lambda tr: object(), name="odd")

    handle = app.tenant(HOME).enqueue("w")
    drain(app, raise_errors=False)
    said = (
        "; what it has done on other shards stays done; ",
        "; what its recorded step reserve 0 has done stays done, and so does what it has done on other shards; ",
        "; what its 2 recorded steps, up to reserve 1, have done stays done, and so does what it has done on other sha",
    )
    assert said[at_home] in handle.explain().sentence


def test_steps_that_were_undone_on_other_shards_are_not_counted_and_the_sentence_says_so() -> None:
    app = two_shards()

    @app.workflow("w", retry=Retry(attempts=9, backoff=60))
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve", undo=lambda tr, name: fail(tr))
        wf.step(add, "b", on=ELSEWHERE, undo=lambda tr, name: None)
        raise PermanentError("nobody approved")

    handle = app.tenant(HOME).enqueue("w")
    drain(app, raise_errors=False)
    assert handle.explain().sentence.startswith("its steps are being undone, 0 so far on its own shard: PermanentError")


def test_a_dead_letter_that_was_undone_says_that_a_retry_begins_anew(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=lambda tr, name: None)
        raise PermanentError("nobody approved")

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    assert handle.explain().sentence == (
        "it failed for good: PermanentError: nobody approved; its steps were undone, and a retry begins anew; fairlead"
        " dead-letters retry runs it again"
    )
    (view,) = alice.dead_letters()
    assert view.reason == "undone"


def test_the_command_prints_both_lists_once(empty_directory: Path) -> None:
    app = App("embedded:data", clock=ManualClock())
    steps = iter(["reserve", "pay"])

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name=next(steps))

    app.tenant("shop/alice").enqueue("w", item_id="order-7")
    drain(app, raise_errors=False)
    app.close()
    text = run("why", "order-7", "--tenant", "shop/alice", "--store", "embedded:data").out
    assert text.startswith("dead letter: it failed for good: StepsDiffer: the workflow's steps differ")
    assert text.count("> reserve   pay") == 1
