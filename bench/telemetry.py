"""The cost of telemetry: the rate of a drain with and without telemetry, and the time of each part per item.

    python -m bench.telemetry            a table, after some minutes
    python -m bench.telemetry --json     one JSON object
    python -m bench.telemetry --quick    smaller sizes, within two minutes

A repetition drains one store per way, one right after the other; the next repetition has the opposite order:
    without       actors without the calls of telemetry
    unset         the product with no variable and no port for exports
    sampled_off   metrics are exported and scraped every five seconds, more often than usual; no trace is sampled, by
                  the fleet and by the enqueuer
    sampled_on    the same, but each item has a recorded trace: one span, sent to a collector
`of_without` is the median of the ratios of drain throughput within a repetition. `cpu_us` is the processor time of all
actors per item, which varies less on a busy machine. `parts_us` is the time of each part in a loop: of an item, of an
enqueue, and of a try at a step of a workflow, which has a count, a duration, and a span if its attempt has one.
"""

import contextlib
import os
import statistics
import threading
import timeit
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from bench import handlers, harness, ray_cluster
from bench.drain import Drained, drain
from bench.enqueueing import fill
from bench.machine import describe, scratch
from bench.report import options, say, show
from fairlead import App, new_item
from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.actors.telemetry.run import Run, RunningJob
from fairlead.actors.telemetry.spans import Spans
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.actors.telemetry.traces import NOT_RECORDED
from fairlead.clock import SystemClock
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_try import StepTry
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.queue.items import Enqueued, EnqueueStatus
from fairlead.zones.workflow.run_records import StepKind, StepState
from fairlead.zones.workflow.step_log import StepName

REPETITIONS, ITEMS = 5, 50_000
QUICK_REPETITIONS, QUICK_ITEMS = 1, 5_000
HOST = "127.0.0.1"
SCRAPE_EVERY_S = 5.0
ITERATIONS = 20_000
NO_TELEMETRY = "bench.no_telemetry:app"  # By name: importing it turns telemetry off in this process.


@dataclass(frozen=True, slots=True)
class Way:
    """One way to drain. `sampler`: of the enqueuer; None: it knows no traces. `exports`: if anything is exported."""

    name: str
    reference: str = handlers.APP
    sampler: Sampler | None = None
    exports: bool = False


WAYS = (
    Way("without", NO_TELEMETRY),
    Way("unset"),
    Way("sampled_off", sampler=ALWAYS_OFF, exports=True),
    Way("sampled_on", sampler=ALWAYS_ON, exports=True),
)


def measure(directory: Path, *, repetitions: int, items: int) -> dict[str, Any]:
    """Return the object that is printed."""
    before = describe(directory)
    done: dict[str, list[Drained]] = {way.name: [] for way in WAYS}
    with ray_cluster.cluster() as address, _collector() as collector_url:
        for number in range(repetitions):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                say(f"drain, {way.name}, {number + 1} of {repetitions}")
                store = directory / f"{way.name}-{number}"
                harness.run_in_process(fill_traced, store, items, way.sampler)
                with _exporting(collector_url if way.exports else None) as port:
                    done[way.name].append(
                        drain(store, items, runtime="ray", address=address, reference=way.reference, metrics_port=port)
                    )
    return {
        **{way.name: _figure(done[way.name], done["without"]) for way in WAYS},
        "parts_us": parts_us(),
        "machine": {"before": before, "after": describe(directory)},
    }


def fill_traced(store: Path, items: int, sampler: Sampler | None) -> None:
    """Enqueue no-op items, a hundred per transaction, and those in a request's span, if there is a sampler for it."""
    app = harness.open_app(store)
    tenants = harness.tenants_of(items)
    if sampler is None:
        fill(app, 0, items, tenants)
        return
    tracer = TracerProvider(sampler=sampler).get_tracer("bench")
    for begin in range(0, items, 100):
        with trace.use_span(tracer.start_span("request")):
            fill(app, begin, min(begin + 100, items), tenants)


def parts_us(*, iterations: int = ITERATIONS) -> dict[str, float]:
    """Return what parts of telemetry take, in microseconds, each alone in a loop: the profile of an item."""
    ref = ItemRef("main", Tenant("bench", "tenant"), DEFAULT_ZONE, bytes(16), bytes(16), "noop", False, b"", 1)
    job = RunningJob(ref.item_id, ref.tenant, ref.kind, 1)
    outcome_counts = OutcomeCounts()
    shard, item = App("memory:").shards["main"], new_item("noop")
    enqueued = Enqueued(bytes(16), EnqueueStatus.ENQUEUED)
    tracer = TracerProvider(sampler=ALWAYS_ON).get_tracer("bench")
    spans = Spans(tracer, parent_based=True)
    call = StepCall(StepName("charge", 0), StepKind.STEP, b"", ordinal=0, entry=None, began_us=1_000)
    step_counts, clock = StepCounts(), SystemClock()

    def run(stored: dict[str, str] | None) -> None:
        with Run(job, None if stored is None else spans.run(ref, 1, stored)):
            pass

    def count() -> None:
        outcome_counts.end(ref, began_us=1_000, ended_us=2_000)
        outcome_counts["noop"].outcomes["completed"] += 1

    def enqueue() -> None:
        with Enqueueing(ref.tenant) as each:
            each.begin_attempt(shard).with_trace(item)
            each.on_enqueued(item, enqueued)
            each.end_attempt()

    def step(spans_of_process: Spans | None) -> None:
        with StepTry(step_counts, spans_of_process, ref, call, ref.tenant, clock) as step_try:
            step_try.state = StepState.DONE

    def us(part: Callable[[], None]) -> float:
        return round(min(timeit.repeat(part, number=iterations, repeat=5)) / iterations * 1e6, 2)

    with trace.use_span(tracer.start_span("attempt")):
        recorded_step_us = us(lambda: step(spans))
    return {
        "count": us(count),
        "run, no trace": us(lambda: run(None)),
        "run, not recorded": us(lambda: run(NOT_RECORDED)),
        "run, recorded": us(lambda: run({"traceparent": f"00-{7:032x}-{8:016x}-01"})),
        "enqueue, no span": us(enqueue),
        "step, no trace": us(lambda: step(None)),
        "step, not recorded": us(lambda: step(spans)),
        "step, recorded": recorded_step_us,
    }


def _figure(done: Sequence[Drained], without: Sequence[Drained]) -> dict[str, float]:
    ratios = [one.per_s / other.per_s for one, other in zip(done, without, strict=True)]
    cpu_us = [sum(one.cpu_us.values()) for one in done]
    cpu_ratios = [
        sum(one.cpu_us.values()) / sum(other.cpu_us.values()) for one, other in zip(done, without, strict=True)
    ]
    return {
        "per_s": round(statistics.median(one.per_s for one in done), 1),
        "of_without": round(statistics.median(ratios), 3),
        "of_without_min": round(min(ratios), 3),
        "of_without_max": round(max(ratios), 3),
        "cpu_us": round(statistics.median(cpu_us), 1),
        "cpu_of_without": round(statistics.median(cpu_ratios), 3),
    }


# --- Collector and scraper ---


@contextlib.contextmanager
def _exporting(collector_url: str | None) -> Iterator[int]:
    """Request all exports, in the environment and by scraping a port; yield the port. 0: nothing is requested."""
    if collector_url is None:
        yield 0
        return
    port = _free_port()
    asked = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector_url,
        "OTEL_METRIC_EXPORT_INTERVAL": str(round(SCRAPE_EVERY_S * 1000)),
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    }
    os.environ.update(asked)
    ended = threading.Event()
    scraper = threading.Thread(target=_scrape, args=(port, ended))
    scraper.start()
    try:
        yield port
    finally:
        ended.set()
        scraper.join()
        for name in asked:
            del os.environ[name]


def _scrape(port: int, ended: threading.Event) -> None:
    while not ended.wait(SCRAPE_EVERY_S):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{port}/metrics") as answer:
            answer.read()


def _free_port() -> int:
    with ThreadingHTTPServer((HOST, 0), BaseHTTPRequestHandler) as server:
        return int(server.server_port)


class _Discarding(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Read an export and discard it."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def _run_collector(connection: Connection) -> None:
    server = ThreadingHTTPServer((HOST, 0), _Discarding)
    connection.send(server.server_port)
    server.serve_forever()


@contextlib.contextmanager
def _collector() -> Iterator[str]:
    """Run a collector in a process of its own, and yield its URL."""
    ours, theirs = harness.SPAWN.Pipe()
    process = harness.SPAWN.Process(target=_run_collector, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://{HOST}:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        result = measure(
            directory,
            repetitions=QUICK_REPETITIONS if opts.quick else REPETITIONS,
            items=QUICK_ITEMS if opts.quick else ITEMS,
        )
    show(result, opts, "What telemetry costs a drain by Ray actors")


if __name__ == "__main__":
    main()
