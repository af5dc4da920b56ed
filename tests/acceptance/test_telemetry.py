"""One request's whole way, as a collector of OpenTelemetry's sees it: from the web handler to the end of the last item.

A real fleet of Ray actors, each a process that exports by itself; a web server of one request in another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from fairlead import Tenant
from fairlead.actors.telemetry.tenants import tenant_hash
from tests.acceptance.collector import Collector, attributes, collecting
from tests.acceptance.fleets import ROOT, config, consumer, eventually
from tests.acceptance.loads import lines_of

TRACED = "tests.acceptance.traced_shop:app"
KINDS = ("charge", "async", "remote", "transactional", "last", "asked")
RUNS = 7  # One of each kind, and the attempt that failed. A transaction that runs twice notes the same line twice.

pytestmark = pytest.mark.usefixtures("cluster")


class Way:
    """One order, from its request to its end."""

    def __init__(self, collector: Collector, notes: list[list[str]]) -> None:
        self.collector = collector
        self.notes = notes

    def span(self, name: str) -> Span:
        """Return the only span of a name."""
        (found,) = self.collector.named(name)
        return found


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Iterator[Way]:
    """An order that was placed and carried out, and the fleet drained."""
    directory = tmp_path_factory.mktemp("telemetry")
    notes = directory / "notes"
    with collecting() as collector, pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret-of-the-collector",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }.items():
            environment.setenv(name, value)
        chosen = config(directory, workers=1)
        with consumer(chosen, reference=TRACED):
            order = [sys.executable, "-m", "tests.acceptance.traced_shop", chosen.shards["main"], str(notes)]
            web = {"OTEL_SERVICE_NAME": "web", "PYTHONPATH": str(ROOT)}
            subprocess.run(order, env={**os.environ, **web}, cwd=ROOT, check=True)
            eventually(lambda: len(set(lines_of(notes))) == RUNS)
        # Ray keeps the process of a task for the next one. It must not look for this collector in other tests.
        os.kill(int(Path(f"{notes}.pid").read_text()), signal.SIGKILL)
        yield Way(collector, [line.split() for line in notes.read_text().splitlines()])


def test_the_first_attempt_is_below_the_enqueue_and_that_below_the_request(way: Way) -> None:
    request, enqueue = way.span("POST /orders"), way.span("enqueue charge")
    first, _ = way.collector.named("run charge")
    assert (enqueue.trace_id, enqueue.parent_span_id) == (request.trace_id, request.span_id)
    assert (first.trace_id, first.parent_span_id) == (request.trace_id, enqueue.span_id)
    assert (enqueue.kind, first.kind) == (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER)
    about = attributes(first.attributes)
    assert about["messaging.system"] == "fairlead"
    assert about["messaging.destination.name"] == "charge"
    assert about["messaging.message.id"] == attributes(enqueue.attributes)["messaging.message.id"]
    assert about["fairlead.tenant_hash"] == tenant_hash(Tenant("shop", "alice"))


def test_the_attempt_that_failed_says_so_and_the_retry_is_linked_to_the_enqueue(way: Way) -> None:
    enqueue = way.span("enqueue charge")
    first, second = way.collector.named("run charge")
    assert (first.status.code, second.status.code) == (Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET)
    assert attributes(first.attributes)["error.type"] == "ConnectionError"
    assert [(link.trace_id, link.span_id) for link in second.links] == [(enqueue.trace_id, enqueue.span_id)]
    assert (second.parent_span_id, attributes(second.attributes)["fairlead.attempt"]) == (b"", 2)


def test_what_a_handler_enqueues_goes_on_from_its_run_whatever_the_handler(way: Way) -> None:
    _, charge = way.collector.named("run charge")
    for kind, by in (("async", charge), ("remote", charge), ("transactional", charge)):
        enqueue, run = way.span(f"enqueue {kind}"), way.span(f"run {kind}")
        assert (enqueue.trace_id, enqueue.parent_span_id) == (by.trace_id, by.span_id)
        assert (run.trace_id, run.parent_span_id) == (enqueue.trace_id, enqueue.span_id)
    assert way.span("enqueue last").parent_span_id == way.span("run transactional").span_id
    assert way.span("run last").parent_span_id == way.span("enqueue last").span_id
    assert way.span("enqueue asked").parent_span_id == way.span("ask the bank").span_id
    assert way.span("run asked").parent_span_id == way.span("enqueue asked").span_id


def test_a_span_of_a_ray_task_is_below_the_run_of_its_item(way: Way) -> None:
    task, run = way.span("ask the bank"), way.span("run remote")
    assert (task.trace_id, task.parent_span_id) == (run.trace_id, run.span_id)


def test_batches_are_linked_to_what_they_are_about(way: Way) -> None:
    enqueue = way.span("enqueue charge")
    linked = [
        span
        for span in way.collector.named("serve main")
        if (enqueue.trace_id, enqueue.span_id) in [(link.trace_id, link.span_id) for link in span.links]
    ]
    assert len(linked) == 2  # The first attempt, and the second.
    scans = {span.span_id for span in way.collector.named("scan main")}
    assert all(scans & {link.span_id for link in span.links} for span in linked)


def test_log_records_name_the_run_that_they_come_from(way: Way) -> None:
    """Whether the handler runs in a thread, on an event loop, or in a Ray task."""
    told = {(kind, attempt, trace_id, span_id) for kind, attempt, trace_id, span_id, _ in way.notes}
    runs = [span for kind in KINDS for span in way.collector.named(f"run {kind}")]
    assert told == {
        (
            span.name.removeprefix("run "),
            str(attributes(span.attributes)["fairlead.attempt"]),
            span.trace_id.hex(),
            span.span_id.hex(),
        )
        for span in runs
    }
    items = {attributes(span.attributes)["messaging.message.id"] for span in runs}
    assert {item_id for *_, item_id in way.notes} == items


def test_every_process_says_which_one_it_is(way: Way) -> None:
    by_process = {process["service.instance.id"]: process["service.name"] for process, _ in way.collector.spans()}
    assert sorted(by_process.values()) == ["fairlead"] * 4 + ["web"]  # Scanner, manager, worker, the task.


def test_counts_and_durations_come_by_kind_and_from_one_process_each(way: Way) -> None:
    """What the handlers enqueue, too, that are Ray tasks: their worker counts it."""
    last: dict[tuple[str, str], float] = {}
    for _, metric in way.collector.metrics():
        points = metric.sum.data_points or metric.histogram.data_points
        for point in points:
            about = attributes(point.attributes)
            if "messaging.destination.name" in about:
                of = " ".join(filter(None, (about["messaging.destination.name"], about.get("error.type"))))
                last[metric.name, of] = getattr(point, "count", 0) or getattr(point, "as_int", 0)
    for each in ("charge", "charge ConnectionError"):
        assert last["messaging.client.consumed.messages", each] == last["messaging.process.duration", each] == 1
    assert {kind: last["messaging.client.operation.duration", kind] for kind in KINDS} == dict.fromkeys(KINDS, 1)
    assert last["fairlead.attempts.failed", "charge"] == last["fairlead.items.retried", "charge"] == 1
    assert {kind: last["fairlead.items.completed", kind] for kind in KINDS} == dict.fromkeys(KINDS, 1)
    assert {kind: last["messaging.client.sent.messages", kind] for kind in KINDS} == dict.fromkeys(KINDS, 1)


def test_every_point_of_a_messaging_metric_says_what_opentelemetry_requires(way: Way) -> None:
    told: set[tuple[str, str]] = set()
    for _, metric in way.collector.metrics():
        if metric.name.startswith("messaging."):
            for point in metric.sum.data_points or metric.histogram.data_points:
                about = attributes(point.attributes)
                assert about["messaging.system"] == "fairlead"
                told.add((metric.name.removeprefix("messaging."), about["messaging.operation.name"]))
    assert told == {
        ("client.sent.messages", "enqueue"),
        ("client.operation.duration", "enqueue"),
        ("client.operation.duration", "serve"),
        ("client.consumed.messages", "run"),
        ("process.duration", "run"),
    }


def test_no_name_no_payload_no_error_text_and_no_secret_leaves_the_fleet(way: Way) -> None:
    sent = b"".join(way.collector.bodies)
    for word in (b"alice", b"a stolen card", b"the bank does not answer", b"secret-of-the-collector"):
        assert word not in sent


def test_where_nothing_asks_for_it_nothing_is_loaded_and_nobody_is_warned(tmp_path: Path) -> None:
    program = """
import sys, warnings
warnings.simplefilter("error")
from fairlead import App, fleet
app = App("embedded:data")
app.handler("mail")(lambda job: done.append(job))
done = []
running = fleet.start(app, "shop:app", runtime="threads")
app.tenant("shop", "alice").enqueue("mail")
while not done:
    app.clock.sleep_us(1_000)
running.stop()
loaded = [name for name in ("opentelemetry.sdk", "prometheus_client", "requests") if name in sys.modules]
assert not loaded, loaded
"""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env={**environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, f"made a new store at {tmp_path / 'data'}, for shard main\n")
