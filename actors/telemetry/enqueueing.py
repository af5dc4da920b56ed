"""What one call enqueues: a producer span around its transaction, and a count of its items.

A transaction's body may run twice, and may fail. So the span begins with the first item that any attempt enqueues, is
the same in every attempt, and ends with the call. Items are counted once the transaction has committed, and as refused
if the store has not committed it. Items of a body that fails by itself are not counted. Without a current span an
item costs a read of a context variable, one of the clock, and some additions; a call that enqueues nothing, none.
"""

from types import TracebackType
from typing import Protocol

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from fairlead.actors.telemetry.enqueue_counts import ENQUEUE_COUNTS, EnqueueCall
from fairlead.actors.telemetry.errors import error_type
from fairlead.actors.telemetry.metrics import SYSTEM
from fairlead.actors.telemetry.run import is_recorded
from fairlead.actors.telemetry.spans import record_error, span_attributes
from fairlead.actors.telemetry.tenants import tenant_hash
from fairlead.actors.telemetry.traces import NOT_RECORDED, trace_of
from fairlead.zones.engines import Clock
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, NewItem
from fairlead.zones.records import Trace

_tracer = trace.get_tracer(SYSTEM)


class EnqueuePlace(Protocol):
    """A shard, or an external store."""

    @property
    def name(self) -> str:
        """Return how metrics name it."""
        ...

    @property
    def clock(self) -> Clock:
        """Return the clock by which an enqueue is measured."""
        ...


class Enqueueing:
    """One call that may enqueue, in one transaction or in several; see `zones.tenant_transaction.EnqueueObserver`.

    Args:
      tenant: the tenant of its items; None: several.
    """

    __slots__ = (
        "_began_us",
        "_committed",
        "_ended",
        "_kind",
        "_kinds",
        "_last",
        "_shard",
        "_shard_name",
        "_span",
        "_tenant",
        "_trace",
    )  # fmt: skip

    def __init__(self, tenant: Tenant | None) -> None:
        self._tenant = tenant
        self._shard: EnqueuePlace | None = None  # of this attempt
        self._shard_name = ""  # of all of them
        self._kind = ""  # of all items
        self._began_us: int | None = None  # with the first item
        self._span: Span | None = None
        self._kinds: dict[str, int] = {}  # items of this attempt
        self._ended = False  # whether the body of this attempt has ended, so that its items are being committed
        self._committed: dict[str, int] = {}  # items of committed attempts
        self._last: Enqueued | None = None
        self._trace: Trace | None = None  # of the first item

    def __enter__(self) -> "Enqueueing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._began_us is None or self._shard is None:
            return
        if error is None:
            self.commit()
        elif not self._ended:
            self._kinds = {}
        ENQUEUE_COUNTS.add(
            EnqueueCall(
                self._committed,
                self._kinds,
                self._kind,
                self._shard_name,
                "" if error is None else error_type(error),
                self._shard.clock.now_us() - self._began_us,
            )
        )
        if self._span is not None:
            self._end(self._span, error)

    def begin_attempt(self, shard: EnqueuePlace) -> "Enqueueing":
        """Discard the items of an earlier attempt."""
        if self._shard is None:
            self._shard_name = shard.name
        elif shard is not self._shard:
            self._shard_name = ""
        self._shard = shard
        self._kinds = {}
        self._ended = False
        return self

    def begin_attempt_across_shards(self) -> None:
        """Discard the items of an earlier attempt. The shards of the items are noted by `on_shard`."""
        self._kinds = {}
        self._ended = False

    def on_shard(self, shard: EnqueuePlace) -> None:
        """Note on which shard the next item is enqueued."""
        if self._began_us is None:
            self._shard_name = shard.name
        elif shard is not self._shard:
            self._shard_name = ""
        self._shard = shard

    def end_attempt(self) -> None:
        """Note that the body has ended, and that its items are being committed."""
        self._ended = True

    def commit(self) -> None:
        """Note that the last attempt has been committed; another transaction may follow."""
        for kind, count in self._kinds.items():
            self._committed[kind] = self._committed.get(kind, 0) + count
        self._kinds = {}

    def with_trace(self, item: NewItem) -> NewItem:
        """Return an item with the caller's context, unless it has one. Begins the producer span."""
        if self._began_us is None:
            assert self._shard is not None
            self._began_us, self._kind = self._shard.clock.now_us(), item.kind
            self._trace = _current_trace()
        elif item.kind != self._kind:
            self._kind = ""
        if self._trace is None or item.trace is not None:
            return item
        if self._span is None and trace.get_current_span().is_recording():
            self._span = _tracer.start_span(
                f"enqueue {item.kind}", kind=SpanKind.PRODUCER, attributes=span_attributes("enqueue")
            )
            self._trace = trace_of(self._span.get_span_context())
        return item._replace(trace=self._trace)

    def on_enqueued(self, item: NewItem, enqueued: Enqueued) -> None:
        """Count an item that this attempt has enqueued."""
        if enqueued.status is EnqueueStatus.ENQUEUED:
            self._kinds[item.kind] = self._kinds.get(item.kind, 0) + 1
            self._last = enqueued

    def _end(self, span: Span, error: BaseException | None) -> None:
        attributes = span_attributes("enqueue", self._shard_name, self._kind)
        if self._tenant is not None:
            attributes["fairlead.tenant_hash"] = tenant_hash(self._tenant)
        count = sum(self._committed.values()) + sum(self._kinds.values())
        if count == 1 and self._last is not None:
            attributes["messaging.message.id"] = self._last.item_id.hex()
        else:
            attributes["messaging.batch.message_count"] = count
        span.set_attributes(attributes)
        if error is not None:
            record_error(span, error)
        span.end()


def _current_trace() -> Trace | None:
    """Return the context of the current span; without one, whether the items are recorded is still to be decided."""
    current = trace.get_current_span().get_span_context()
    if current.is_valid:
        return trace_of(current)
    return None if is_recorded() else NOT_RECORDED
