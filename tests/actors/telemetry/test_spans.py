"""One item's spans: whose child each is, what it is linked to, and what it never says."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
)
from opentelemetry.trace import SpanKind, StatusCode

from fairlead.actors.telemetry.spans import LINKS_MAX, Spans, end_run, passed_on
from fairlead.actors.telemetry.tenants import tenant_hash
from fairlead.actors.telemetry.traces import NOT_RECORDED, context_of, is_sampled, trace_of
from fairlead.telemetry.otel_sdk import LinkedSampler
from tests.actors.stage import ALICE, item_ref
from tests.actors.telemetry.recorder import Recorder, ids

ENQUEUED = {"traceparent": f"00-{7:032x}-{8:016x}-01"}


def attempt(
    recorder: Recorder,
    number: int,
    stored: dict[str, str] | None,
    error: Exception | None = None,
    *,
    parent_based: bool = False,
) -> None:
    """Run an attempt from its beginning to its end."""
    span = Spans(recorder.tracer, parent_based=parent_based).run(item_ref(1), number, stored)
    if span is not None:
        end_run(span, error)


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_the_first_attempt_is_a_child_of_the_enqueue() -> None:
    recorder = Recorder()
    attempt(recorder, 1, ENQUEUED)
    (span,) = recorder.spans()
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id, ids(span).trace_id) == (7, 8, 7)
    assert (span.name, span.kind, links_of(span)) == ("run mail", SpanKind.CONSUMER, [])
    assert span.attributes is not None
    assert span.attributes["fairlead.attempt"] == 1
    assert span.attributes["fairlead.tenant_hash"] == tenant_hash(ALICE)
    assert span.attributes["messaging.message.id"] == item_ref(1).item_id.hex()
    assert span.attributes["messaging.destination.name"] == "mail"
    assert span.attributes["messaging.destination.partition.id"] == "main"


def test_a_later_attempt_begins_a_trace_and_is_linked_to_the_enqueue() -> None:
    recorder = Recorder()
    attempt(recorder, 2, ENQUEUED)
    (span,) = recorder.spans()
    assert (span.parent, links_of(span)) == (None, [(7, 8)])
    assert ids(span).trace_id != 7


def test_an_item_that_was_enqueued_without_a_trace_begins_one() -> None:
    recorder = Recorder()
    attempt(recorder, 1, None)
    (span,) = recorder.spans()
    assert (span.parent, links_of(span)) == (None, [])


def test_an_invalid_trace_context_is_none() -> None:
    recorder = Recorder()
    for stored in ({"traceparent": "00-1-2-01"}, {"traceparent": "x" * 10_000 + "1"}, {"x": "y"}, {}):
        assert context_of(stored) is None
        attempt(recorder, 1, stored)
    assert all(span.parent is None for span in recorder.spans())


def test_a_span_has_the_class_of_an_error_and_never_its_text() -> None:
    recorder = Recorder()
    attempt(recorder, 1, ENQUEUED, ValueError("a stolen card"))
    (span,) = recorder.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"
    assert "stolen" not in span.to_json()


def test_a_retry_is_recorded_if_and_only_if_the_first_attempt_was() -> None:
    """Whatever the sampler's ratio: half a way through a request helps nobody."""
    for sampler in (ParentBased(ALWAYS_OFF), ParentBasedTraceIdRatio(0.0001), DEFAULT_ON):
        recorder = Recorder(LinkedSampler(sampler))
        attempt(recorder, 2, ENQUEUED)
        attempt(recorder, 3, NOT_RECORDED, parent_based=True)
        assert [(span.attributes or {}).get("fairlead.attempt") for span in recorder.spans()] == [2]


def test_a_sampler_that_ignores_parents_ignores_links() -> None:
    recorder = Recorder(LinkedSampler(ALWAYS_OFF))
    attempt(recorder, 2, ENQUEUED)
    assert recorder.spans() == []
    recorder = Recorder(LinkedSampler(ALWAYS_ON))
    attempt(recorder, 2, NOT_RECORDED)
    assert len(recorder.spans()) == 1


def test_a_trace_that_the_enqueuer_did_not_record_is_not_recorded_and_not_sampled() -> None:
    recorder = Recorder()
    assert Spans(recorder.tracer, parent_based=True).run(item_ref(1), 1, NOT_RECORDED) is None


def test_a_span_of_another_process_is_passed_on_where_nothing_is_recorded() -> None:
    span = passed_on(ENQUEUED)
    assert span is not None
    assert trace_of(span.get_span_context()) == ENQUEUED
    assert passed_on(NOT_RECORDED) is passed_on(None) is None


def test_if_no_trace_begins_here_only_recorded_traces_continue() -> None:
    recorder = Recorder()
    spans = Spans(recorder.tracer, starts_traces=False, parent_based=True)
    assert spans.run(item_ref(1), 1, None) is None
    assert spans.scan("main", pointers=1, began_us=1, ended_us=2) is None
    spans.serve("main", traces=[], items=1, began_us=1, ended_us=2, scan=None)
    assert recorder.spans() == []
    spans.serve("main", traces=[ENQUEUED], items=1, began_us=1, ended_us=2, scan=None)
    assert [span.name for span in recorder.spans()] == ["serve main"]


def test_a_batch_is_linked_to_its_scan_and_to_the_enqueues_of_its_items() -> None:
    recorder = Recorder()
    spans = Spans(recorder.tracer)
    scan = spans.scan("main", pointers=5, began_us=1_000, ended_us=2_000)
    assert is_sampled(scan)
    spans.serve("main", traces=[ENQUEUED], items=4, began_us=2_000, ended_us=7_000, scan=scan)
    serve, scanned = recorder.span("serve main"), ids(recorder.span("scan main"))
    assert links_of(serve) == [(scanned.trace_id, scanned.span_id), (7, 8)]
    assert (serve.start_time, serve.end_time, serve.parent) == (2_000_000, 7_000_000, None)
    assert serve.attributes is not None
    assert serve.attributes["messaging.batch.message_count"] == 4


def test_a_batch_of_many_items_has_as_many_links_as_tools_keep() -> None:
    recorder = Recorder()
    Spans(recorder.tracer).serve("main", traces=[ENQUEUED] * 500, items=500, began_us=1, ended_us=2, scan=None)
    assert len(links_of(recorder.span("serve main"))) == LINKS_MAX
