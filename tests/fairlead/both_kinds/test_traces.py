"""An item is part of its enqueuer's trace: its first attempt is below the enqueue, and so is what that enqueues."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from fairlead import App, Job, Retry, new_item
from fairlead.actors.telemetry import enqueueing
from fairlead.actors.telemetry.run import log_fields
from tests.actors.telemetry.recorder import Recorder, ids
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.live_consumers import consumer, eventually
from tests.zones.postgresql.database import Database


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Where the spans of this process go: of enqueues, and of the consumer."""
    made = Recorder()
    monkeypatch.setattr(enqueueing, "_tracer", made.tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.provider)
    return made


def span_id_of(span: ReadableSpan) -> tuple[int, int]:
    """Return the trace and the id of a span."""
    return ids(span).trace_id, ids(span).span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """Return the trace and the id of the span above one."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def runs_of(recorder: Recorder, kind: str, count: int) -> list[ReadableSpan]:
    """Return the spans of attempts at items of a kind, once there are so many."""

    def found() -> list[ReadableSpan]:
        return [span for span in recorder.spans() if span.name == f"run {kind}"]

    eventually(lambda: len(found()) == count)
    return found()


def test_the_first_attempt_is_below_the_enqueue_and_a_retry_is_linked_to_it(
    app: App, alice: Queues, recorder: Recorder
) -> None:
    @app.handler("mail", retry=Retry(backoff=0.01))
    def mail(job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("no postman")

    with recorder.tracer.start_as_current_span("POST /orders"):
        handle = alice.enqueue("mail")
    with consumer(app):
        first, second = runs_of(recorder, "mail", 2)
    request, enqueue = recorder.span("POST /orders"), recorder.span("enqueue mail")
    assert (parent_of(enqueue), parent_of(first), parent_of(second)) == (span_id_of(request), span_id_of(enqueue), None)
    assert [(link.context.trace_id, link.context.span_id) for link in second.links] == [span_id_of(enqueue)]
    about = [dict(span.attributes or {}) for span in (first, second)]
    assert [each["fairlead.attempt"] for each in about] == [1, 2]
    assert {each["messaging.message.id"] for each in about} == {handle.item_id.hex()}
    assert about[0]["error.type"] == "ValueError"


def test_what_a_handler_enqueues_is_below_its_run(
    app: App, alice: Queues, recorder: Recorder, transactional: dict[str, Any], store: str | None
) -> None:
    @app.handler("first")
    async def first(job: Job) -> None:
        await alice.aenqueue("second")

    @app.handler("second", **transactional)
    def second(job: Job, transaction: Any) -> None:
        if store is None:
            transaction.enqueue("third")
        else:
            alice.enqueue("third", within=transaction)

    app.handler("third")(lambda job: None)
    alice.enqueue("first")
    with consumer(app):
        (third,) = runs_of(recorder, "third", 1)
    for kind, before in (("second", "first"), ("third", "second")):
        enqueue = recorder.span(f"enqueue {kind}")
        assert parent_of(enqueue) == span_id_of(recorder.span(f"run {before}"))
        assert parent_of(recorder.span(f"run {kind}")) == span_id_of(enqueue)
    assert ids(third).trace_id == ids(recorder.span("run first")).trace_id


def test_items_of_one_call_are_in_one_trace(app: App, alice: Queues, recorder: Recorder) -> None:
    app.handler("mail")(lambda job: None)
    with recorder.tracer.start_as_current_span("POST /orders"):
        alice.enqueue_many([new_item("mail"), new_item("mail")])
    with consumer(app):
        runs = runs_of(recorder, "mail", 2)
    assert [parent_of(span) for span in runs] == [span_id_of(recorder.span("enqueue mail"))] * 2


def test_the_trace_of_a_dead_letter_is_that_of_its_enqueue_when_it_is_retried(
    app: App, alice: Queues, recorder: Recorder
) -> None:
    @app.handler("mail", retry=Retry(attempts=1))
    def mail(job: Job) -> None:
        raise ValueError("no postman")

    with recorder.tracer.start_as_current_span("POST /orders"):
        handle = alice.enqueue("mail")
    with consumer(app):
        runs_of(recorder, "mail", 1)
        eventually(lambda: len(alice.dead_letters()) == 1)
        alice.retry_dead_letter(handle.item_id)
        runs = runs_of(recorder, "mail", 2)
    assert [parent_of(span) for span in runs] == [span_id_of(recorder.span("enqueue mail"))] * 2


def test_log_records_of_a_handler_name_its_item_and_its_run(app: App, alice: Queues, recorder: Recorder) -> None:
    logged: list[dict[str, Any]] = []
    app.handler("mail")(lambda job: logged.append(log_fields()))
    handle = alice.enqueue("mail")
    with consumer(app):
        (run,) = runs_of(recorder, "mail", 1)
    (fields,) = logged
    assert (fields["job_item_id"], fields["job_kind"], fields["job_attempt"]) == (handle.item_id.hex(), "mail", 1)
    assert (int(fields["job_trace_id"], 16), int(fields["job_span_id"], 16)) == span_id_of(run)


@pytest.mark.parametrize("store", ["pg"])
def test_an_item_that_sql_enqueues_begins_a_trace(app: App, database: Database, recorder: Recorder) -> None:
    app.handler("mail")(lambda job: None)
    with consumer(app), database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail')")
        (run,) = runs_of(recorder, "mail", 1)
    assert (run.parent, list(run.links)) == (None, [])
