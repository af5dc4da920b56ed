"""The producer's side: what is stored with an item, and what an enqueue costs where nobody traces."""

from __future__ import annotations

import time
import timeit
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from fairlead import App, SpanningTransaction, TenantDatabase, TenantTransaction, WorkflowContext, new_item
from fairlead.actors.telemetry import enqueueing
from fairlead.actors.telemetry.enqueue_counts import BUFFERED_MAX, ENQUEUE_COUNTS, EnqueueCall, EnqueueCounts
from fairlead.actors.telemetry.errors import error_type
from fairlead.actors.telemetry.metrics import OPERATION, SENT
from fairlead.actors.telemetry.run import Run, RunningJob
from fairlead.actors.telemetry.tenants import tenant_hash
from fairlead.actors.telemetry.traces import NOT_RECORDED, trace_of
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.records import ItemRecord, Trace, decode
from tests.actors.stage import ALICE
from tests.actors.telemetry.recorder import Recorder, ids

UNTRACED_US_MAX = 25.0  # Measured: 7; and an enqueue takes 135.


@pytest.fixture
def app() -> Iterator[App]:
    app = App("memory:")
    yield app
    app.close()


@pytest.fixture
def alice(app: App) -> TenantDatabase:
    return app.tenant(*ALICE)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Where spans go that this process's enqueues begin."""
    recorder = Recorder()
    monkeypatch.setattr(enqueueing, "_tracer", recorder.tracer)
    return recorder


def stored(database: TenantDatabase, item_id: bytes) -> Trace | None:
    """Return the trace context in an item's record."""
    key = database.shard.zone(database.tenant).location.keys.item(item_id)
    value = database.shard.transact(lambda attempt: attempt.tr.get(key).value)
    record = decode(ItemRecord, value or b"")
    assert record is not None
    return record.trace


def sent(kind: str, failed_by: str = "") -> float:
    return ENQUEUE_COUNTS.read().numbers.get((SENT.name, (kind, failed_by)), 0)


def calls(kind: str, failed_by: str = "") -> int:
    """How many calls that enqueue have been timed."""
    counts, _ = ENQUEUE_COUNTS.read().histograms.get((OPERATION.name, ("enqueue", kind, "main", failed_by)), ([], 0.0))
    return sum(counts)


def test_an_enqueue_is_a_span_and_its_context_is_in_the_item(alice: TenantDatabase, recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("POST /orders") as request:
        item_id = alice.enqueue("mail", {"card": "stolen"}).item_id
    span = recorder.span("enqueue mail")
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.kind is SpanKind.PRODUCER
    assert stored(alice, item_id) == trace_of(ids(span))
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == item_id.hex()
    assert span.attributes["fairlead.tenant_hash"] == tenant_hash(ALICE)
    assert "stolen" not in span.to_json()
    assert "alice" not in span.to_json()


def test_items_of_one_transaction_have_one_span_in_all_attempts(alice: TenantDatabase, recorder: Recorder) -> None:
    """A body runs twice after a conflict: what the first attempt enqueued is not there, and not in a span."""
    attempts = 0

    def body(tr: TenantTransaction) -> list[bytes]:
        nonlocal attempts
        attempts += 1
        tr.get(("balance",))
        if attempts == 1:
            alice.transact(lambda other: other.set(("balance",), b"0"))
        tr.set(("balance",), b"1")
        return [tr.enqueue("mail", number).item_id for number in range(3)]

    before = sent("mail")
    with recorder.tracer.start_as_current_span("POST /orders"):
        item_ids = alice.transact(body)
    span = recorder.span("enqueue mail")
    assert attempts == 2
    assert {item_id: stored(alice, item_id) for item_id in item_ids} == dict.fromkeys(item_ids, trace_of(ids(span)))
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert sent("mail") == before + 3


def test_a_bulk_has_one_span(app: App, alice: TenantDatabase, recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("nightly"):
        enqueued = app.enqueue_many((app.tenant("shop", f"t{n}"), new_item("mail", n)) for n in range(700))
    span = recorder.span("enqueue mail")
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 700
    assert stored(app.tenant("shop", "t699"), enqueued[699].item_id) == trace_of(ids(span))


@pytest.mark.parametrize("in_workflow", [False, True])
def test_items_of_a_transaction_across_shards_have_one_span_in_all_attempts(
    recorder: Recorder, in_workflow: bool
) -> None:
    """Before, they had no trace context, and were not counted."""
    app = App({"main": "memory:", "us": "memory:"}, clock=ManualClock())
    users = [app.tenant("shop", f"t{number}") for number in range(9)]
    alice, bob = (next(each for each in users if each.shard.name == name) for name in ("main", "us"))
    attempts: list[int] = []

    def body(tx: SpanningTransaction) -> None:
        tx.on(alice).get(("balance",))
        if not attempts:
            home = alice.shard
            home.transact(lambda other: TenantTransaction(home, alice.tenant, other).set(("balance",), b"0"))
        attempts.append(1)
        tx.on(alice).set(("balance",), b"1")
        for tenant in (alice, bob, bob):
            tx.on(tenant).enqueue("mail", item_id=f"mail {len(attempts)} {tenant}")

    @app.workflow("pays")
    def pays(wf: WorkflowContext) -> None:
        wf.transact(body)

    before = sent("mail")
    with recorder.tracer.start_as_current_span("POST /orders"):
        if in_workflow:
            alice.enqueue("pays")
            drain(app)  # Records no spans: the items have the context of the workflow's item.
        else:
            app.transact(body)
    span = recorder.span("enqueue pays" if in_workflow else "enqueue mail")
    (of_alice,), (of_bob,) = ([item.id for item in each.peek() if item.kind == "mail"] for each in (alice, bob))
    assert len(attempts) == 2
    assert (stored(alice, of_alice), stored(bob, of_bob)) == (trace_of(ids(span)), trace_of(ids(span)))
    assert span.attributes is not None
    assert in_workflow or span.attributes["messaging.batch.message_count"] == 2
    assert sent("mail") == before + 2, "an id that is taken is not counted"
    app.close()


def test_an_enqueue_that_fails_has_failed_in_its_span_and_is_not_counted(
    alice: TenantDatabase, recorder: Recorder
) -> None:
    def body(tr: TenantTransaction) -> None:
        tr.enqueue("mail")
        raise KeyError("a stolen card")

    before, failed_before = sent("mail"), calls("mail", "KeyError")
    with recorder.tracer.start_as_current_span("POST /orders"), pytest.raises(KeyError):
        alice.transact(body)
    span = recorder.span("enqueue mail")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert (span.attributes["error.type"], span.attributes["messaging.destination.name"]) == ("KeyError", "mail")
    assert "stolen" not in span.to_json()
    assert (sent("mail"), sent("mail", "KeyError")) == (before, 0)
    assert calls("mail", "KeyError") == failed_before + 1


def test_items_that_the_store_refuses_are_counted_with_its_error(
    alice: TenantDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(transaction: object) -> None:
        raise StoreUnavailable("the disk is gone", remedy="Bring it back.")

    refused = error_type(StoreUnavailable("", remedy=""))
    before, failed_before = sent("mail"), sent("mail", refused)
    with monkeypatch.context() as broken:
        broken.setattr(type(alice.shard.db.create_transaction()), "commit", refuse)
        with pytest.raises(StoreUnavailable):
            alice.transact(lambda tr: [tr.enqueue("mail"), tr.enqueue("mail")])
    assert (sent("mail"), sent("mail", refused)) == (before, failed_before + 2)


def test_a_call_is_timed_from_its_first_item_to_its_end_and_one_that_enqueues_nothing_is_not() -> None:
    app = App("memory:", clock=(clock := ManualClock()))

    def body(tr: TenantTransaction) -> None:
        clock.advance(3)
        tr.enqueue("timed alone")
        clock.advance(0.02)

    app.tenant(*ALICE).transact(lambda tr: tr.get(("balance",)))
    app.tenant(*ALICE).transact(body)
    app.close()
    counts, sum_s = ENQUEUE_COUNTS.read().histograms[OPERATION.name, ("enqueue", "timed alone", "main", "")]
    assert (sum(counts), sum_s) == (1, 0.02)


def test_enqueues_of_a_ray_task_are_reported_and_counted_once() -> None:
    """Its process ends when Ray likes, and nobody reads it."""
    task, worker = EnqueueCounts(), EnqueueCounts()
    told: list[Sequence[EnqueueCall]] = []
    call = EnqueueCall({"mail": 2}, {}, "mail", "main", "", 5_000)
    with task.reporting_to(told.append):
        for _ in range(BUFFERED_MAX + 1):
            task.add(call)
    assert [len(calls) for calls in told] == [BUFFERED_MAX, 1]
    assert not task.read().numbers
    for each in (each for calls in told for each in calls):
        worker.add(each)
    assert worker.read().numbers[SENT.name, ("mail", "")] == 2 * (BUFFERED_MAX + 1)
    task.add(call)
    assert task.read().numbers[SENT.name, ("mail", "")] == 2


def test_a_second_enqueue_of_the_same_name_is_not_counted(alice: TenantDatabase) -> None:
    before = sent("mail")
    alice.enqueue("mail", item_id="order 7")
    alice.enqueue("mail", item_id="order 7")
    assert sent("mail") == before + 1


def test_only_the_fact_is_stored_that_a_trace_is_not_recorded(alice: TenantDatabase, recorder: Recorder) -> None:
    """So whoever runs the item knows that nobody records this request."""
    not_recorded = Recorder(ALWAYS_OFF).tracer.start_span("POST /orders")
    with trace.use_span(not_recorded):
        item_id = alice.enqueue("mail").item_id
    assert recorder.spans() == []
    assert stored(alice, item_id) == NOT_RECORDED


def test_what_a_job_of_such_an_item_enqueues_is_not_recorded_either(alice: TenantDatabase) -> None:
    with Run(RunningJob(b"i" * 16, ALICE, "mail", 1, recorded=False), None):
        item_id = alice.enqueue("mail").item_id
    assert stored(alice, item_id) == NOT_RECORDED


def test_without_a_span_nothing_is_stored_with_an_item(alice: TenantDatabase) -> None:
    assert stored(alice, alice.enqueue("mail").item_id) is None


def test_without_tracing_an_enqueue_costs_almost_nothing(alice: TenantDatabase) -> None:
    item, shard = new_item("mail"), alice.shard

    def untraced() -> None:
        with enqueueing.Enqueueing(ALICE) as each:
            each.begin_attempt(shard).with_trace(item)

    own_time = timeit.repeat(
        untraced, timer=time.thread_time, number=1_000, repeat=5
    )  # whatever else this machine does
    assert min(own_time) * 1_000 < UNTRACED_US_MAX
