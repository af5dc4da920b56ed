"""Obvious mistakes: each gets a clear error, and nothing is lost."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead import App, DuplicateHandler, child
from fairlead.actors.handlers import UnfitCode
from fairlead.workflows import execution
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.errors import (
    AfterFinish,
    OtherThread,
    PayloadMismatch,
    ReadOnly,
    StepInStep,
    StepTooLong,
    TooManySteps,
)
from fairlead.zones.errors import BadArgument, ItemGone
from fairlead.zones.queue.results import RESULT_BYTES_MAX, ResultNotKept
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.workflows.application import ELSEWHERE, HOME, NEIGHBOUR, add, append, count, enqueue, run, two_shards, words


def error_of(app: App, work: Any, payload: Any = None, *, dead: bool = True) -> Exception:
    """Run a workflow; return its first error. It must be a dead letter afterwards, or be retried."""
    app.workflow("w")(work)
    enqueue(app, "w", payload)
    drained = run(app)
    assert (drained.dead_lettered["w"], drained.retried["w"]) == ((1, 0) if dead else (0, 1))
    return drained.errors[0]


@pytest.mark.parametrize("result", [object(), {1, 2}, b"x" * 70_000])
def test_a_result_that_cannot_be_kept_keeps_what_was_done_before(result: Any) -> None:
    app = two_shards()

    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a")
        wf.step(lambda tr: result, name="bad")

    error = error_of(app, work)
    assert isinstance(error, ResultNotKept)
    assert "step='bad'" in str(error)
    assert words(app) == "a"


def test_a_result_of_the_workflow_that_cannot_be_kept_keeps_what_was_done() -> None:
    app = two_shards()

    @app.workflow("kept", keep_result=60)
    def work(wf: WorkflowContext) -> object:
        wf.step(append, "a", undo=lambda tr, word: append(tr, "undone"))
        return object()

    enqueue(app, "kept")
    drained = run(app)
    assert isinstance(drained.errors[0], ResultNotKept)
    assert (drained.dead_lettered["kept"], words(app)) == (1, "a")


def test_a_step_in_a_step_is_refused() -> None:
    app = two_shards()

    def work(wf: WorkflowContext) -> None:
        wf.step(lambda tr: wf.step(add, "inner"), name="outer")

    error = error_of(app, work)
    assert isinstance(error, StepInStep)
    assert str(error) == (
        "a step was begun inside another step: call wf after that step has returned, kind='w', step='add'"
    )
    assert count(app, HOME, "inner") == 0


def test_a_step_in_another_thread_is_refused() -> None:
    app = two_shards()

    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a")
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda word: wf.step(append, word, name=word), ["b", "c"]))

    assert isinstance(error_of(app, work), OtherThread)
    assert words(app) == "a"


def test_a_step_in_a_thread_of_a_step_is_refused() -> None:
    app = two_shards()

    def outer(tr: TenantTransaction, wf: WorkflowContext) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(wf.step, append, "b", name="inner").result()

    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a")
        wf.step(lambda tr: outer(tr, wf), name="outer")

    assert isinstance(error_of(app, work), OtherThread)
    assert words(app) == "a"


def test_a_step_in_an_effect_is_refused() -> None:
    app = two_shards()
    error = error_of(app, lambda wf: wf.effect(lambda key: wf.step(add, "inner"), name="outer"))
    assert isinstance(error, StepInStep)


def test_a_read_that_writes_is_refused() -> None:
    app = two_shards()
    assert isinstance(error_of(app, lambda wf: wf.read(add, "x")), ReadOnly)
    assert count(app, HOME, "x") == 0


LATE_CALLS: list[tuple[Any, str]] = [
    (lambda wf: wf.step(add, "y", name="late step"), "late step"),
    (lambda wf: wf.effect(lambda key: None, name="late effect"), "late effect"),
    (lambda wf: wf.sleep(60), "sleep"),
    (lambda wf: wf.call("w"), "call w"),
    (lambda wf: wf.finish(add, "y"), "add"),
    (lambda wf: wf.checkpoint(1), "checkpoint"),
]


@pytest.mark.parametrize(("late", "name"), LATE_CALLS)
def test_a_call_after_the_last_step_is_an_error_that_names_it_but_the_item_has_ended(
    late: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.finish(add, "x")
        late(wf)

    enqueue(app, "w")
    drained = run(app)
    assert drained.completed["w"] == 1
    assert isinstance(drained.errors[0], AfterFinish)
    assert drained.errors[0].fields["call"] == name
    assert f"call='{name}'" in caplog.text
    assert (count(app, HOME, "x"), count(app, HOME, "y")) == (1, 0)


def test_a_late_call_is_named_though_the_workflow_swallows_what_it_raises() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.finish(add, "x")
        with suppress(BaseException):
            wf.step(add, "y")

    enqueue(app, "w")
    assert [type(error) for error in run(app).errors] == [AfterFinish]


def test_an_error_after_the_last_step_is_reported_but_the_item_has_ended() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.finish(add, "x")
        raise ValueError("too late")

    enqueue(app, "w")
    drained = run(app)
    assert (drained.completed["w"], str(drained.errors[0])) == (1, "too late")


@pytest.mark.parametrize("payload", [{"other": 1}, {"order": 1, "more": 2}, None, {}])
def test_a_payload_that_does_not_fit_is_shown_with_the_reason(payload: Any) -> None:
    def work(wf: WorkflowContext, order: int) -> None: ...

    error = error_of(two_shards(), work, payload)
    assert isinstance(error, PayloadMismatch)
    assert "order" in str(error) or "more" in str(error) or "other" in str(error)


NOT_NAMES: list[Any] = ["", 7, "x" * 97, "a\0b", "\ud800", "undo reserve", "cancel call double"]


@pytest.mark.parametrize("name", NOT_NAMES)
def test_what_is_no_name_of_a_step_is_refused(name: Any) -> None:
    """An undo has the name of its step: a step of that name would take its place, and nothing would be undone."""
    calls: list[Any] = [
        lambda wf: wf.step(add, "x", name=name),
        lambda wf: wf.effect(print, name=name),
        lambda wf: wf.sleep(1, name=name),
        lambda wf: wf.wait_for("go", 1, name=name),
        lambda wf: wf.enqueue("w", name=name),
        lambda wf: wf.signal("nobody", "go", name=name),
    ]
    for call in calls:
        assert isinstance(error_of(two_shards(), call, dead=False), BadArgument)


def test_a_call_about_nobody_is_an_error_that_shows_the_name_as_it_was_given() -> None:
    app = two_shards()
    calls: list[Any] = [
        lambda: app.tenant(HOME).signal("nobody", "go"),
        lambda: app.tenant(HOME).item("nobody").signal("go"),
        lambda: app.tenant(HOME).item("nobody").steps(),
        lambda: app.tenant(HOME).cancel("nobody"),
        lambda: app.tenant(HOME).transact(lambda tr: tr.signal("nobody", "go")),
        lambda: app.tenant(HOME).transact(lambda tr: tr.cancel("nobody")),
    ]
    for call in calls:
        with pytest.raises(ItemGone, match="item='nobody'"):
            call()
    with pytest.raises(ItemGone, match=b"nobody".hex()):
        app.tenant(HOME).signal(b"nobody" + bytes(10), "go")


@pytest.mark.parametrize("place", [HOME, NEIGHBOUR, ELSEWHERE])
def test_a_workflow_that_signals_nobody_may_catch_it_and_goes_the_same_way_in_each_replay(place: str) -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        try:
            wf.signal("nobody", "go", on=place)
        except ItemGone as error:
            wf.step(append, f"{error.fields['item']}:{error.fields['tenant']}", name="note")
        wf.sleep(60)
        wf.step(append, "end")

    enqueue(app, "w")
    run(app)
    app.tenant(place).enqueue("w", item_id="nobody", delay=3600)  # Now there is somebody: a replay must not notice.
    drained = run(app, within=61)
    assert (drained.errors, words(app)) == ([], f"nobody:{place} end")


def test_a_workflow_that_signals_nobody_and_does_not_catch_it_is_undone() -> None:
    app = two_shards()

    def work(wf: WorkflowContext) -> None:
        wf.step(append, "a", undo=lambda tr, word: append(tr, "undo-a"))
        wf.signal("nobody", "go")

    assert isinstance(error_of(app, work), ItemGone)
    assert words(app) == "a undo-a"


def test_a_step_that_takes_longer_than_a_transaction_has_failed() -> None:
    app = two_shards()

    def slow(tr: TenantTransaction) -> None:
        app.clock.sleep_us(6_000_000)
        tr.set(("x",), b"")

    error = error_of(app, lambda wf: wf.step(slow), dead=False)
    assert isinstance(error, StepTooLong)
    assert error.fields["step"] == "slow"


def test_too_many_steps_are_warned_of_and_then_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(execution, "STEPS_WARNED", 10)
    monkeypatch.setattr(execution, "STEPS_MAX", 30)
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for _ in range(40):
            wf.step(append, "x")

    enqueue(app, "w")
    drained = run(app, replays=False)
    assert isinstance(drained.errors[0], TooManySteps)
    assert (len(words(app).split()), drained.dead_lettered["w"]) == (30, 1)
    assert sum("call wf.checkpoint" in record.message for record in caplog.records) == 2


def test_a_run_is_warned_of_though_several_answers_come_with_one_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(execution, "STEPS_WARNED", 10)
    app = two_shards()
    app.handler("kid")(lambda job: None)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(append, "x")
        wf.gather([child("kid") for _ in range(6)])  # Six steps, and six answers beside each other.
        wf.step(append, "y")
        wf.step(append, "z")

    enqueue(app, "w")
    assert run(app, replays=False, within=10).completed["w"] == 1
    warnings = [record.message for record in caplog.records if "call wf.checkpoint" in record.message]
    assert len(warnings) == 1
    assert warnings[0].startswith("a workflow has recorded 13 steps")


def test_a_result_of_any_length_is_told_the_limit_of_results() -> None:
    for length in (70_000, 2_000_000):
        app = two_shards()
        app.workflow("w", keep_result=60)(lambda wf, length=length: "x" * length)
        enqueue(app, "w")
        (error,) = run(app).errors
        assert isinstance(error, ResultNotKept)
        assert error.fields["bytes_max"] == RESULT_BYTES_MAX


def test_an_async_effect_in_a_plain_workflow_is_refused() -> None:
    async def pay(key: str) -> None:
        await asyncio.sleep(0)

    error = error_of(two_shards(), lambda wf: wf.effect(pay), dead=False)
    assert isinstance(error, BadArgument)


def test_an_async_body_of_a_step_is_refused() -> None:
    async def body(tr: TenantTransaction) -> None:
        await asyncio.sleep(0)

    error = error_of(two_shards(), lambda wf: wf.step(body), dead=False)
    assert isinstance(error, BadArgument)


def generate(first: Any, *_: Any) -> Any:
    yield first


async def wait(_: Any, *__: Any) -> None:
    await asyncio.sleep(0)


NOT_STEPS: list[tuple[Any, str]] = [
    (lambda wf: wf.step(None), "body"),
    (lambda wf: wf.step(7, name="seven"), "body"),
    (lambda wf: wf.step(generate), "body"),
    (lambda wf: wf.step(wait), "body"),
    (lambda wf: wf.step(partial(wait, 1), name="partial"), "body"),
    (lambda wf: wf.read(None), "body"),
    (lambda wf: wf.read(wait), "body"),
    (lambda wf: wf.finish(None), "body"),
    (lambda wf: wf.finish(generate), "body"),
    (lambda wf: wf.effect({}, name="dict"), "function"),
    (lambda wf: wf.effect(generate), "function"),
    (lambda wf: wf.effect(wait), "function"),
    (lambda wf: wf.step(append, "a", undo=True), "undo"),
    (lambda wf: wf.step(append, "a", undo=wait), "undo"),
    (lambda wf: wf.step(append, "a", undo=generate), "undo"),
    (lambda wf: wf.effect(str, undo="str"), "undo"),
    (lambda wf: wf.effect(str, undo=wait), "undo"),
    (lambda wf: wf.step(append, "a", retry=3), "retry"),
    (lambda wf: wf.effect(str, retry=3), "retry"),
    (lambda wf: wf.step(append, "a", on=7), "on"),
    (lambda wf: wf.call("job", on=["shop/alice"]), "on"),
    (lambda wf: wf.gather(["job"]), "calls"),
    (lambda wf: wf.gather([child("job"), 7]), "calls"),
    (lambda wf: wf.gather("job"), "calls"),
    (lambda wf: wf.gather(child("job")), "calls"),
    (lambda wf: wf.gather(child("job") for _ in range(2)), "calls"),
    (lambda wf: wf.call(child("job")), "kind"),
]


@pytest.mark.parametrize(("call", "argument"), NOT_STEPS)
def test_what_no_step_can_be_made_of_is_refused_by_the_name_of_its_argument_before_it_begins(
    call: Any, argument: str
) -> None:
    app = two_shards()
    error = error_of(app, call, dead=False)
    assert isinstance(error, BadArgument)
    assert error.fields["argument"] == argument
    assert (words(app), run(app).completed) == ("", {})


def test_an_async_workflow_may_await_an_effect_and_its_undo_but_no_body_of_a_step() -> None:
    app = two_shards()

    @app.workflow("w")
    async def work(wf: Any) -> None:
        await wf.effect(wait, undo=wait)
        await wf.step(append, "a")
        await wf.step(append, "b", name="second", undo=wait)

    enqueue(app, "w")
    (error,) = run(app).errors
    assert isinstance(error, BadArgument)
    assert (error.fields["argument"], words(app)) == ("undo", "a")


def test_a_step_that_was_called_too_early_is_told_how_it_is_given() -> None:
    error = error_of(two_shards(), lambda wf: wf.step(str(7), name="seven"), dead=False)
    assert "value=\"'7'\"" in str(error)
    assert "wf.step(reserve, 7), not wf.step(reserve(7))" in str(error)


@pytest.mark.parametrize("call", ["read", "transact", "finish"])
def test_a_function_that_is_none_is_refused_by_the_name_of_the_call(call: str) -> None:
    error = error_of(two_shards(), lambda wf: getattr(wf, call)(7), dead=False)
    assert f"wf.{call}(reserve, 7), not wf.{call}(reserve(7))" in str(error)


@pytest.mark.parametrize("version", [0, -1, "2", True, 1.5])
def test_a_version_is_a_whole_number(version: Any) -> None:
    with pytest.raises(BadArgument):
        two_shards().workflow("w", version=version)(lambda wf: None)


@pytest.mark.parametrize("signal", ["", "x" * 200, 7])
def test_a_signal_needs_a_name(signal: Any) -> None:
    assert isinstance(error_of(two_shards(), lambda wf: wf.wait_for(signal), dead=False), BadArgument)


def test_a_generator_is_no_workflow() -> None:
    def work(wf: WorkflowContext) -> Any:
        yield wf.step(add, "x")

    with pytest.raises(BadArgument):
        two_shards().workflow("w")(work)


@pytest.mark.parametrize("work", [lambda: None, lambda *, wf: None, lambda **payload: None])
def test_a_function_without_a_place_for_wf_is_no_workflow(work: Any) -> None:
    with pytest.raises(BadArgument, match="first parameter is `wf`"):
        two_shards().workflow("w")(work)


def test_a_function_of_the_payload_alone_is_told_that_wf_comes_first() -> None:
    error = error_of(two_shards(), lambda order: None, {"order": 7})
    assert isinstance(error, PayloadMismatch)
    assert error.fields["reason"] == "order is the first parameter, which gets wf"


def test_a_kind_has_one_workflow_or_handler() -> None:
    app = two_shards()
    app.workflow("w")(lambda wf: None)
    with pytest.raises(DuplicateHandler):
        app.workflow("w")(lambda wf: None)
    with pytest.raises(DuplicateHandler):
        app.handler("w")(lambda job: None)


def test_a_workflow_that_swallows_what_ends_its_attempt_changes_nothing() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        try:
            wf.sleep(60)
        except BaseException:  # noqa: BLE001
            wf.step(add, "too early")

    enqueue(app, "w")
    drained = run(app)
    assert (drained.suspended["w"], count(app, HOME, "too early")) == (1, 0)


def test_code_that_does_not_fit_is_no_error_that_a_workflow_may_catch() -> None:
    app, caught = two_shards(), []

    def work(wf: WorkflowContext) -> None:
        try:
            wf.step(lambda tr: object(), name="bad")
        except Exception as error:  # noqa: BLE001
            caught.append(error)

    assert isinstance(error_of(app, work), UnfitCode | ResultNotKept)
    assert caught == []


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (lambda wf, body: wf.step(body, 5), "the transaction"),
        (lambda wf, body: wf.effect(body, 5), "the idempotency key"),
    ],
)
def test_a_body_without_its_first_parameter_is_told_of_it(call: Any, first: str) -> None:
    app = two_shards()

    def pay(amount: int) -> None:
        raise AssertionError("never called with two arguments")

    error = error_of(app, lambda wf: call(wf, pay), dead=False)
    assert isinstance(error, TypeError)
    assert error.__notes__[0] == f"{first} is its first argument"


def test_a_type_error_of_a_body_says_what_the_body_says() -> None:
    def work(wf: WorkflowContext) -> None:
        wf.step(lambda tr: len(tr, 5), name="count")  # type: ignore[call-arg]

    error = error_of(two_shards(), work, dead=False)
    assert error.__notes__ == ["in the step count"]
