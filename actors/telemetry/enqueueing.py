"""What one call enqueues: a producer span around its transaction, and a count of its items.

A transaction's body may run twice, and may fail. So the span begins with the first item that any attempt enqueues, is
the same in every attempt, and ends with the call; items are counted once the transaction has committed. Where no span
is current, all of this is a look at a context variable and an addition.
"""

import threading
from collections import Counter
from types import TracebackType

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from actors.telemetry.metrics import ATTRIBUTES, SENT, SYSTEM
from actors.telemetry.run import is_recorded
from actors.telemetry.tally import Reading
from actors.telemetry.tenants import tenant_hash
from actors.telemetry.traces import NOT_RECORDED, trace_of
from zones.items import Enqueued, EnqueueStatus, NewItem
from zones.layout import Tenant
from zones.records import Trace

_tracer = trace.get_tracer(SYSTEM)
_counter = metrics.get_meter(SYSTEM).create_counter(SENT.name, SENT.unit, SENT.help)
_sent: Counter[str] = Counter()  # By this process since it began, by kind.
_lock = threading.Lock()


class Enqueueing:
    """One call that may enqueue, in one transaction or in several; see `zones.tenant_transaction.Enqueuer`.

    Args:
      shard: where; None: on several.
      tenant: for whom; None: for several.
    """

    __slots__ = ("_entered", "_kinds", "_last", "_shard", "_span", "_tenant", "_trace")

    def __init__(self, shard: str | None, tenant: Tenant | None) -> None:
        self._shard = shard
        self._tenant = tenant
        self._span: Span | None = None
        self._kinds: Counter[str] = Counter()  # of this attempt
        self._entered: Counter[str] = Counter()  # of those that have committed
        self._last: Enqueued | None = None
        current = trace.get_current_span().get_span_context()
        self._trace: Trace | None = None
        if current.is_valid:
            self._trace = trace_of(current)
        elif not is_recorded():
            self._trace = NOT_RECORDED

    def __enter__(self) -> "Enqueueing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.commit() if error is None else self._kinds.clear()
        if self._entered:
            self._count()
        if self._span is not None:
            self._end(self._span, error)

    def begin_attempt(self) -> "Enqueueing":
        """Forget what an attempt before this one enqueued."""
        self._kinds.clear()
        return self

    def commit(self) -> None:
        """Note that the last attempt has been committed; another transaction may follow."""
        self._entered.update(self._kinds)
        self._kinds.clear()

    def traced(self, item: NewItem) -> NewItem:
        """Return an item with the caller's context, unless it has one. Begins the producer span."""
        if self._trace is None or item.trace is not None:
            return item
        if self._span is None and trace.get_current_span().is_recording():
            self._span = _tracer.start_span(f"enqueue {item.kind}", kind=SpanKind.PRODUCER)
            self._trace = trace_of(self._span.get_span_context())
        return item._replace(trace=self._trace)

    def entered(self, item: NewItem, enqueued: Enqueued) -> None:
        """Count an item that this attempt has enqueued."""
        if enqueued.status is EnqueueStatus.ENQUEUED:
            self._kinds[item.kind] += 1
            self._last = enqueued

    def _count(self) -> None:
        with _lock:
            _sent.update(self._entered)
        for kind, count in self._entered.items():
            _counter.add(count, {"messaging.system": SYSTEM, ATTRIBUTES["kind"]: kind})

    def _end(self, span: Span, error: BaseException | None) -> None:
        count = self._entered.total()
        attributes: dict[str, str | int] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
        }
        if self._shard is not None:
            attributes[ATTRIBUTES["shard"]] = self._shard
        if self._tenant is not None:
            attributes["fairlead.tenant_hash"] = tenant_hash(self._tenant)
        if len(self._entered) == 1:
            attributes[ATTRIBUTES["kind"]] = next(iter(self._entered))
        if count == 1 and self._last is not None:
            attributes["messaging.message.id"] = self._last.item_id.hex()
        else:
            attributes["messaging.batch.message_count"] = count
        span.set_attributes(attributes)
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
        span.end()


def read_sent() -> Reading:
    """Return what this process has enqueued since it began."""
    with _lock:
        return Reading({(SENT.name, (kind,)): count for kind, count in _sent.items()})
