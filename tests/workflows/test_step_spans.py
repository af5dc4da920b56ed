"""The spans of steps: a child of the attempt for each try, and nothing where nothing is recorded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from fairlead import App, PermanentError, Retry
from fairlead.actors.telemetry import enqueueing
from fairlead.actors.telemetry.spans import Spans
from fairlead.actors.telemetry.tenants import tenant_hash
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.context import WorkflowContext
from fairlead.zones.layout import Tenant
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.actors.telemetry.recorder import Recorder, ids
from tests.workflows.application import ELSEWHERE, add, enqueue, run, two_shards


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What records the spans of attempts, and of what they enqueue."""
    made = Recorder()
    monkeypatch.setattr("fairlead.testing.spans_of_process", lambda: Spans(made.tracer))
    monkeypatch.setattr(enqueueing, "_tracer", made.tracer)
    return made


@pytest.fixture
def app() -> App:
    return two_shards()


def steps(recorder: Recorder) -> list[ReadableSpan]:
    return [span for span in recorder.spans() if span.name.startswith("step ")]


def about(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(f"fairlead.{name}")


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_each_step_is_a_child_of_the_attempt_and_says_which_it_is(app: App, recorder: Recorder) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.step(add, "a", on=ELSEWHERE)
        wf.effect(lambda key: None, name="pay")
        wf.read(lambda tr: None, name="look")
        wf.finish(add, "b")

    item = enqueue(app, "w")
    run(app, replays=False)
    attempt = recorder.span("run w")
    assert [(span.name, about(span, "step.occurrence"), about(span, "step.kind")) for span in steps(recorder)] == [
        ("step add", 0, "step"),
        ("step add", 1, "step"),
        ("step pay", 0, "effect"),
        ("step look", 0, "read"),
        ("step add", 2, "step"),
    ]
    for span in steps(recorder):
        assert parent_of(span) == ids(attempt).span_id
        assert (span.name, about(span, "outcome")) == (f"step {about(span, 'step.name')}", "done")
        assert (span.attributes or {})["messaging.message.id"] == item.item_id.hex()
        assert (span.attributes or {})["messaging.destination.name"] == "w"
    elsewhere = Tenant("shop", "u1")
    assert [about(span, "tenant_hash") == tenant_hash(elsewhere) for span in steps(recorder)[:3]] == [
        False,
        True,
        False,
    ]


def test_recorded_steps_that_replay_and_waits_have_no_span(app: App, recorder: Recorder) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="first")
        wf.sleep(10)
        wf.step(add, "a", name="second")

    enqueue(app, "w")
    run(app, within=20, replays=False)
    first, second = (ids(span) for span in recorder.spans() if span.name == "run w")
    assert [(span.name, parent_of(span)) for span in steps(recorder)] == [
        ("step first", first.span_id),
        ("step second", second.span_id),
    ]


def test_each_try_has_a_span_with_its_outcome_and_the_class_of_its_error(app: App, recorder: Recorder) -> None:
    fails: list[Exception] = [ConnectionError("a stolen card")]

    def pay(key: str) -> None:
        if fails:
            raise fails.pop()

    def refuse(tr: TenantTransaction) -> None:
        raise PermanentError("a stolen card")

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.effect(pay, retry=Retry(attempts=2, backoff=1), undo=lambda key: None)
        with suppress(PermanentError):
            wf.step(refuse)
        wf.step(refuse, name="last")

    enqueue(app, "w")
    run(app, replays=False)
    told = [(span.name, about(span, "outcome"), (span.attributes or {}).get("error.type")) for span in steps(recorder)]
    permanent = "fairlead.actors.handlers.PermanentError"
    assert told == [
        ("step pay", "retried", "ConnectionError"),
        ("step pay", "done", None),
        ("step refuse", "failed", permanent),
        ("step last", "failed", permanent),
        ("step undo pay", "done", None),
    ]
    for span in steps(recorder):
        assert (span.status.status_code is StatusCode.ERROR) == ("error.type" in (span.attributes or {}))
    assert "stolen" not in "".join(span.to_json() for span in steps(recorder))


def test_a_step_that_ends_its_attempt_has_its_error_in_both_spans(app: App, recorder: Recorder) -> None:
    def fall(tr: TenantTransaction) -> None:
        raise TimeoutError

    app.workflow("w")(lambda wf: wf.step(fall))
    enqueue(app, "w")
    run(app, replays=False)
    assert [(span.name, (span.attributes or {}).get("error.type")) for span in recorder.spans()] == [
        ("step fall", "TimeoutError"),
        ("run w", "TimeoutError"),
    ]


def test_what_a_step_enqueues_and_what_an_effect_calls_is_below_its_span(app: App, recorder: Recorder) -> None:
    def order(tr: TenantTransaction) -> None:
        tr.enqueue("mail")

    def pay(key: str) -> None:
        with recorder.tracer.start_as_current_span("POST /pay"):
            pass

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(order)
        wf.effect(pay)
        with recorder.tracer.start_as_current_span("between"):
            pass

    enqueue(app, "w")
    run(app, replays=False)
    for name, above in (("enqueue mail", "step order"), ("POST /pay", "step pay"), ("between", "run w")):
        assert parent_of(recorder.span(name)) == ids(recorder.span(above)).span_id


def test_steps_of_branches_that_run_side_by_side_are_children_of_the_attempt(app: App, recorder: Recorder) -> None:
    async def pay(key: str, number: int) -> None:
        with recorder.tracer.start_as_current_span(f"POST {number}"):
            await asyncio.sleep(0.001 * (3 - number))

    @app.workflow("w")
    async def work(wf: AsyncWorkflowContext) -> None:
        await asyncio.gather(*[wf.effect(pay, number, name=f"pay {number}") for number in range(3)])
        await wf.step(add, "a")

    enqueue(app, "w")
    assert run(app, replays=False).completed["w"] == 1
    attempt = ids(recorder.span("run w")).span_id
    assert sorted(span.name for span in steps(recorder)) == ["step add", "step pay 0", "step pay 1", "step pay 2"]
    assert {parent_of(span) for span in steps(recorder)} == {attempt}
    for number in range(3):
        assert parent_of(recorder.span(f"POST {number}")) == ids(recorder.span(f"step pay {number}")).span_id


def test_a_step_of_an_attempt_that_is_not_recorded_has_no_span(
    app: App, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Recorder(ALWAYS_OFF)
    monkeypatch.setattr("fairlead.testing.spans_of_process", lambda: Spans(silent.tracer))
    seen = []

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.effect(lambda key: seen.append(trace.get_current_span().is_recording()), name="pay")

    enqueue(app, "w")
    run(app, replays=False)
    assert (silent.spans(), recorder.spans(), seen) == ([], [], [False])


def test_where_nothing_records_spans_no_context_is_made(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a context was made")

    monkeypatch.setattr(context, "attach", refuse)
    monkeypatch.setattr(trace, "set_span_in_context", refuse)
    app.workflow("w")(lambda wf: wf.step(add, "a"))
    enqueue(app, "w")
    assert run(app).completed["w"] == 1
