"""What a workflow has recorded, as a program and as a command show it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fairlead import App, ItemGone, Job, Retry, RunView, StepKind, StepState, TenantDatabase, WorkflowContext
from fairlead.actors.handlers import PermanentError
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.layout import Tenant
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.fairlead.shell import run
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards


def rows(view: RunView) -> list[tuple[str, str, str]]:
    return [(step.name, step.kind.name, step.state.name) for step in view.steps]


def test_the_steps_of_a_run_are_shown_in_the_order_in_which_they_began() -> None:
    app = two_shards()

    @app.workflow("w", version=3)
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "b", name="second letter")
        wf.step(add, "a", on=ELSEWHERE)
        wf.effect(lambda key: "paid", name="pay")
        wf.read(lambda tr: 7, name="look")
        wf.wait_for("approved", timeout=60)

    handle = app.tenant(HOME).enqueue("w", item_id="order-7")
    drain(app)
    view = handle.steps()
    assert rows(view) == [
        ("second letter", "STEP", "DONE"),
        ("add", "STEP", "DONE"),
        ("pay", "EFFECT", "DONE"),
        ("look", "READ", "DONE"),
        ("wait_for approved", "WAIT", "WAITING"),
    ]
    assert [step.result for step in view.steps] == [1, 1, "paid", 7, None]
    assert [step.tenant for step in view.steps][:2] == [Tenant("shop", "alice"), Tenant("shop", "u1")]
    assert (view.version, view.segment, view.undo_reason, view.whole, view.away) == (3, 0, None, True, [])
    assert (view.waits_for_signals, view.until_us) == (("approved",), app.clock.now_us() + 60_000_000)
    assert asyncio.run(handle.asteps()) == view


def test_a_step_begins_when_the_one_before_it_has_ended() -> None:
    """The time of its transaction, from before its body, stood for its end: slow steps seemed to overlap."""
    app = two_shards()

    def slow(*_: object) -> None:
        app.clock.sleep_us(2_000_000)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(slow)
        wf.step(slow, on=ELSEWHERE)
        wf.read(slow)
        wf.effect(slow)
        wf.wait_for("approved")

    began_us = app.clock.now_us()
    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    assert [(step.began_us - began_us, step.at_us - began_us) for step in handle.steps().steps[:4]] == [
        (2_000_000 * number, 2_000_000 * (number + 1)) for number in range(4)
    ]


def test_a_step_says_how_long_it_took_and_how_often_it_failed(app: App, alice: TenantDatabase) -> None:
    fails = [True, True]

    def flaky(tr: TenantTransaction) -> None:
        app.clock.sleep_us(1_000_000)
        if fails:
            fails.pop()
            raise RuntimeError

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(flaky, retry=Retry(attempts=3, backoff=20))
        wf.sleep(3600)

    handle = alice.enqueue("w")
    drain(app, replays=False)
    (step,) = handle.steps().steps
    assert (step.state, step.tries, step.took_us) == (StepState.WAITING, 1, 1_000_000)
    assert step.until_us is not None
    assert 10_000_000 <= step.until_us - app.clock.now_us() <= 20_000_000
    drain(app, within=65, replays=False)
    step = handle.steps().steps[0]
    assert (step.state, step.tries, step.until_us) == (StepState.DONE, 2, None)
    assert 33_000_000 <= step.took_us < 65_000_000
    assert step.began_us == step.at_us - step.took_us


def test_a_dead_letter_shows_its_steps_and_the_error_that_was_recorded(app: App, alice: TenantDatabase) -> None:
    def refuse(tr: TenantTransaction) -> None:
        raise PermanentError("sold out")

    def cannot(tr: TenantTransaction) -> None:
        raise PermanentError("no way back")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=lambda tr, name: None)
        wf.step(add, "b", undo=lambda tr, name: cannot(tr))
        wf.step(add, "c", undo=lambda tr, name: None)
        wf.step(refuse)

    handle = alice.enqueue("w")
    drain(app, raise_errors=False)
    view = handle.steps()
    assert view.undo_reason == "PermanentError: sold out"
    assert view.dead_letter_error == "PermanentError: no way back\nin the step undo add (2)"
    refused = next(step for step in view.steps if step.name == "refuse")
    assert (refused.state, refused.error_type, refused.error) == (StepState.FAILED, "PermanentError", "sold out")
    assert [step.undone_us is not None for step in view.steps if step.kind is StepKind.STEP] == [
        False,
        False,
        True,
        False,
    ]


def test_a_child_that_has_not_ended_is_named_by_its_id(app: App, alice: TenantDatabase) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        if wf.state is None:
            wf.checkpoint("begun")
        wf.call("resize", {"width": 100})

    handle = alice.enqueue("w")
    drain(app)
    view = handle.steps()
    child = next(step for step in view.steps if step.child_id is not None)
    assert child.name == "call resize"
    assert [item.id for item in alice.peek() if item.kind == "resize"] == [child.child_id]
    assert (view.waits_for_children, view.segment, view.checkpoint) == (("call resize",), 1, "begun")


def test_an_item_that_is_no_workflow_has_no_steps_and_one_that_is_gone_is_gone(app: App, alice: TenantDatabase) -> None:
    handle = alice.enqueue("mail")
    view = handle.steps()
    assert (view.steps, view.version) == ([], None)
    handle.cancel()
    with pytest.raises(ItemGone):
        handle.steps()


def test_a_shard_that_is_away_is_named_and_the_other_steps_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="here")
        wf.step(add, "a", on=ELSEWHERE)
        wf.sleep(60)

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    other = app.tenant(ELSEWHERE).shard

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer", remedy="wait")

    monkeypatch.setattr(other, "transact", refuse)
    view = handle.steps()
    assert [step.name for step in view.steps] == ["here", "sleep"]
    ((tenant, sentence),) = view.away
    assert (tenant, "no answer" in sentence) == (Tenant("shop", "u1"), True)


# --- Commands ---

STORE = ("--store", "embedded:data")
ALICE = ("--tenant", "shop/alice")


@pytest.fixture
def order(empty_directory: Path) -> None:
    """Leave a workflow in the store that waits for a signal."""
    app = App("embedded:data", clock=ManualClock())

    @app.workflow("checkout")
    def checkout(wf: WorkflowContext) -> None:
        wf.step(add, "reserved", name="reserve")
        wf.wait_for("approved")

    @app.handler("mail")
    def mail(job: Job) -> None:
        raise AssertionError

    alice = app.tenant("shop/alice")
    alice.enqueue("checkout", item_id="order-7")
    drain(app)
    app.close()


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("tenant", [ALICE, ()])
def test_a_command_shows_the_steps(tenant: tuple[str, ...]) -> None:
    shown = run("steps", "order-7", *tenant, *STORE, "--json").json
    assert [(step["name"], step["state"], step["result"]) for step in shown["steps"]] == [
        ("reserve", "done", 1),
        ("wait_for approved", "waiting", None),
    ]
    assert (shown["kind"], shown["version"], shown["waits_for_signals"]) == ("checkout", 1, ["approved"])
    text = run("steps", "order-7", *tenant, *STORE).out
    assert re.search(r"0 +step +done +\d+ ms +reserve", text)
    assert "waits for signal approved" in text


@pytest.mark.usefixtures("order")
def test_a_command_sends_a_signal_and_the_audit_log_names_it() -> None:
    sent = run("signal", "order-7", "approved", '{"by": "bob"}', *ALICE, *STORE, "--json")
    assert sent.json == {"sent": "approved", "item": "order-7"}
    (entry,) = run("log", *STORE, "--json").json["entries"]
    assert entry["what"] == "signal"
    app, taken = App("embedded:data"), []

    @app.workflow("checkout")
    def checkout(wf: WorkflowContext) -> None:
        wf.step(add, "reserved", name="reserve")
        taken.append(wf.wait_for("approved"))

    drain(app, replays=False)
    app.close()
    assert taken == [{"by": "bob"}]


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("command", [("steps", "order-8"), ("signal", "order-8", "approved")])
def test_a_command_for_an_item_that_is_not_there_says_so(command: tuple[str, ...]) -> None:
    assert run(*command, *ALICE, *STORE).code == 4
    if command[0] == "steps":
        assert run(*command, *STORE).code == 4


@pytest.mark.usefixtures("empty_directory")
def test_the_error_of_a_step_whose_attempt_is_repeated_is_shown() -> None:
    app = App("embedded:data", clock=ManualClock())

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(lambda tr: 1 // 0, name="divide")

    handle = app.tenant(Tenant("shop", "alice")).enqueue("w")
    drain(app, raise_errors=False)
    view = handle.steps()
    assert (view.failed_attempts, view.last_error is None) == (1, False)
    app.close()
    text = run("steps", handle.item_id.hex(), *ALICE, *STORE).out
    assert "the step divide failed once: ZeroDivisionError: integer division or modulo by zero" in text


@pytest.mark.usefixtures("empty_directory")
def test_the_error_of_a_dead_letter_is_shown_with_its_step_and_an_item_that_runs_says_so() -> None:
    app, shown = App("embedded:data", clock=ManualClock()), []

    @app.workflow("w", retry=Retry(attempts=1))
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.effect(lambda key: shown.append(handle.steps().running), name="look")
        wf.step(lambda tr: 1 // 0, name="divide")

    handle = app.tenant(Tenant("shop", "alice")).enqueue("w")
    before = handle.steps().running
    drain(app, raise_errors=False, replays=False)
    assert (before, shown, handle.steps().running) == (False, [True], False)
    app.close()
    text = run("steps", handle.item_id.hex(), *ALICE, *STORE).out
    assert "a dead letter: the step divide failed: ZeroDivisionError: integer division or modulo by zero\n" in text


@pytest.mark.usefixtures("empty_directory")
def test_a_wait_says_when_it_ends_or_that_it_has_no_timeout() -> None:
    app = App("embedded:data")
    app.workflow("timed")(lambda wf: wf.wait_for("approved", timeout=3600))
    app.workflow("asleep")(lambda wf: wf.sleep(3600))
    app.workflow("patient")(lambda wf: wf.wait_for("approved"))
    alice = app.tenant("shop", "alice")
    handles = [alice.enqueue(kind) for kind in ("timed", "asleep", "patient")]
    drain(app)
    app.close()
    timed, asleep, patient = (run("steps", each.item_id.hex(), *ALICE, *STORE).out for each in handles)
    assert re.fullmatch(r"waits for signal approved; goes on in .* at the latest", timed.splitlines()[-1])
    assert re.fullmatch(r"goes on in .* min", asleep.splitlines()[-1])
    assert patient.splitlines()[-1] == "waits for signal approved, without a timeout"
    assert ["until" in text for text in (timed, asleep, patient)] == [True, True, False]
