"""What OpenTelemetry has a name for bears that name."""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes

from actors.telemetry.metrics import ATTRIBUTES, METRICS
from actors.telemetry.spans import Spans, end_run
from tests.actors.stage import item_ref
from tests.actors.telemetry.recorder import Recorder

ATTRIBUTE_NAMES = {value for name, value in vars(messaging_attributes).items() if name.isupper()}
METRIC_NAMES = {value for name, value in vars(messaging_metrics).items() if name.isupper()}
OPERATION_TYPES = {each.value for each in messaging_attributes.MessagingOperationTypeValues}


def test_metrics_and_labels_that_claim_a_convention_are_in_it() -> None:
    assert {each.name for each in METRICS if each.name.startswith("messaging.")} <= METRIC_NAMES
    assert {each for each in ATTRIBUTES.values() if each.startswith("messaging.")} <= ATTRIBUTE_NAMES


def test_attributes_of_spans_that_claim_a_convention_are_in_it() -> None:
    recorder = Recorder()
    spans = Spans(recorder.tracer)
    scan = spans.scan("main", pointers=3, began_us=1, ended_us=2)
    spans.serve("main", traces=[], items=2, began_us=1, ended_us=2, scan=scan)
    run = spans.run(item_ref(1), 1, None)
    assert run is not None
    end_run(run, KeyError("no"))
    found = recorder.spans()
    names = {name for span in found for name in span.attributes or {}}
    assert {name for name in names if not name.startswith("fairlead.")} <= {
        *ATTRIBUTE_NAMES,
        error_attributes.ERROR_TYPE,
    }
    types = {(span.attributes or {}).get("messaging.operation.type") for span in found} - {None}
    assert types <= OPERATION_TYPES
    assert len(found) == 3
