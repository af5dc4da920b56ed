"""Every metric: its name in OpenTelemetry's conventions, its unit, its labels.

Metrics that OpenTelemetry defines for messaging have its names and its buckets. In Prometheus dots become underscores,
the unit `s` becomes the suffix `_seconds`, and the name of a counter ends in `_total`.
"""

from dataclasses import dataclass
from enum import Enum

SYSTEM = "fairlead"  # `messaging.system`, in metrics and spans.


class MetricType(Enum):
    """What a metric's numbers are."""

    COUNTER = "counter"  # since the actor's process began
    GAUGE = "gauge"  # now
    HISTOGRAM = "histogram"  # since the actor's process began


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
      bounds_s: the upper bounds of a histogram's buckets, in seconds; the last bucket has none.
      operation: the operation that is counted, if it is the same for all of it: a key of `OPERATION_TYPES`.
    """

    name: str
    form: MetricType
    unit: str
    help: str
    labels: tuple[str, ...]
    bounds_s: tuple[float, ...] = ()
    operation: str = ""


# Operations on items, as `messaging.operation.name`; and OpenTelemetry's type of the operation, if there is one.
OPERATION_TYPES = {"enqueue": "send", "scan": "", "serve": "receive", "run": "process", "step": ""}

# OpenTelemetry's names of the labels. An empty label is omitted.
ATTRIBUTES = {
    "operation": "messaging.operation.name",
    "kind": "messaging.destination.name",
    "shard": "messaging.destination.partition.id",
    "error_type": "error.type",
    "step": "fairlead.step",
    "store": "fairlead.store",
    "outcome": "fairlead.outcome",
    "actor": "fairlead.actor",
}

_WAIT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
_MESSAGING_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # The convention's.
_STEP_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)
_BY_KIND = ("kind",)
_BY_KIND_AND_ERROR = ("kind", "error_type")

SENT = Metric(
    "messaging.client.sent.messages", MetricType.COUNTER, "{message}",
    "Items enqueued by a fleet's handlers; with an error type: items that the store refused.",
    _BY_KIND_AND_ERROR, operation="enqueue",
)  # fmt: skip
CONSUMED = Metric(
    "messaging.client.consumed.messages", MetricType.COUNTER, "{message}",
    "Attempts that ended or were given up; with an error type: failed ones.", _BY_KIND_AND_ERROR, operation="run",
)  # fmt: skip
OPERATION = Metric(
    "messaging.client.operation.duration", MetricType.HISTOGRAM, "s",
    "Duration of a call that enqueues, from its first item to its end, and of serving a batch of queues.",
    ("operation", "kind", "shard", "error_type"), _MESSAGING_S,
)  # fmt: skip
COMPLETED = Metric("fairlead.items.completed", MetricType.COUNTER, "{item}", "Items completed.", _BY_KIND)
FAILED = Metric(
    "fairlead.attempts.failed",
    MetricType.COUNTER,
    "{attempt}",
    "Attempts that raised an error, or ran too long.",
    _BY_KIND,
)
RETRIED = Metric("fairlead.items.retried", MetricType.COUNTER, "{item}", "Failed items that will run again.", _BY_KIND)
DEAD_LETTERED = Metric(
    "fairlead.items.dead_lettered", MetricType.COUNTER, "{item}", "Items that failed for good and are kept.", _BY_KIND
)
DROPPED = Metric(
    "fairlead.items.dropped", MetricType.COUNTER, "{item}", "Items that failed for good and were deleted.", _BY_KIND
)
SUSPENDED = Metric(
    "fairlead.items.suspended", MetricType.COUNTER, "{item}",
    "Workflows that began to wait: for a signal, a time, or the end of a child.", _BY_KIND,
)  # fmt: skip
CANCELLED = Metric(
    "fairlead.items.cancelled", MetricType.COUNTER, "{item}",
    "Workflows whose steps were undone because they were cancelled.", _BY_KIND,
)  # fmt: skip
RETURNED = Metric(
    "fairlead.items.returned", MetricType.COUNTER, "{item}",
    "Workflows that were given back: newer code began them, or they were cancelled at their end.", _BY_KIND,
)  # fmt: skip
LOST = Metric(
    "fairlead.attempts.lost", MetricType.COUNTER, "{attempt}", "Attempts that ended after their lease was lost.",
    _BY_KIND,
)  # fmt: skip
EXPIRED = Metric(
    "fairlead.lease.expiries", MetricType.COUNTER, "{lease}",
    "Leases that expired because the worker died or stalled; the item was leased again.", _BY_KIND,
)  # fmt: skip
CONFLICTS = Metric(
    "fairlead.lease.conflicts", MetricType.COUNTER, "{conflict}",
    "Pointers that another consumer had leased (step read), and dequeues that conflicted (step commit).",
    ("shard", "step"),
)  # fmt: skip
CONFLICT_STEPS = ("read", "commit")
POINTER_LATENCY = Metric(
    "fairlead.pointer.latency", MetricType.HISTOGRAM, "s",
    "From when a pointer vests until a manager leases it.", ("shard",), _WAIT_S,
)  # fmt: skip
ITEM_LATENCY = Metric(
    "fairlead.item.latency", MetricType.HISTOGRAM, "s",
    "From when an item vests until its handler begins.", _BY_KIND, _WAIT_S,
)  # fmt: skip
DURATION = Metric(
    "messaging.process.duration", MetricType.HISTOGRAM, "s", "How long handlers run, per attempt.",
    _BY_KIND_AND_ERROR, _MESSAGING_S, operation="run",
)  # fmt: skip
STEPS = Metric(
    "fairlead.workflow.steps", MetricType.COUNTER, "{try}",
    "Tries at steps of workflows: done, failed for good, or without an answer, to be tried again (outcome retried).",
    ("kind", "outcome"),
)  # fmt: skip
STEP_DURATION = Metric(
    "fairlead.workflow.step.duration", MetricType.HISTOGRAM, "s",
    "How long a try at a step takes, its commit included; of an effect, the call and the commit of its answer.",
    ("kind", "outcome"), _STEP_S,
)  # fmt: skip
REPLAYS = Metric(
    "fairlead.workflow.replays", MetricType.COUNTER, "{attempt}",
    "Attempts at workflows that replayed recorded steps: after a wait, a failure, or the end of a worker.", _BY_KIND,
)  # fmt: skip
SCATTERS = Metric(
    "fairlead.records.scatters", MetricType.COUNTER, "{lookup}",
    "Lookups of records that asked all shards, because this one, which has the index record, did not answer.",
    ("shard",),
)  # fmt: skip
SLOTS = Metric("fairlead.slots", MetricType.GAUGE, "{slot}", "Handlers that a worker can run at once.", ())
SLOTS_IN_USE = Metric("fairlead.slots.in_use", MetricType.GAUGE, "{slot}", "Handlers that a worker runs now.", ())
DEPTH = Metric(
    "fairlead.queue.depth", MetricType.GAUGE, "{item}",
    "Items in all queues of a shard: waiting, delayed and leased ones, not dead letters.", ("shard", "kind"),
)  # fmt: skip
OLDEST_AGE = Metric(
    "fairlead.queue.oldest_age", MetricType.GAUGE, "s",
    "Age of the oldest vested item of a shard, held back or not.", ("shard",),
)  # fmt: skip
HELD_BACK = Metric(
    "fairlead.queue.held_back", MetricType.GAUGE, "{item}",
    "Items of a shard held back by a limit, a pause, or an unknown kind; counted in up to 200 queues.", ("shard",),
)  # fmt: skip
HELD_BACK_AGE = Metric(
    "fairlead.queue.held_back.oldest_age", MetricType.GAUGE, "s",
    "Age of the oldest item of a shard that is held back.", ("shard",),
)  # fmt: skip
MOVES = Metric(
    "fairlead.moves.under_way", MetricType.GAUGE, "{move}",
    "Tenants that move from a shard to another one, or whose moves wait.", ("shard",),
)  # fmt: skip
MOVES_COPIED = Metric(
    "fairlead.moves.copied_bytes", MetricType.GAUGE, "By",
    "Bytes that the moves from a shard have copied that are under way.", ("shard",),
)  # fmt: skip
EXTERNAL_UP = Metric(
    "fairlead.external.up", MetricType.GAUGE, "1", "Whether an external store can be read: 1, or 0.", ("store",)
)
EXTERNAL_DEPTH = Metric(
    "fairlead.external.depth", MetricType.GAUGE, "{item}",
    "Items of an external store, not dead letters; from 10,000 on an estimate of its server.", ("store",),
)  # fmt: skip
EXTERNAL_OLDEST_AGE = Metric(
    "fairlead.external.oldest_age", MetricType.GAUGE, "s", "Age of the oldest vested item of an external store.",
    ("store",),
)  # fmt: skip
EXTERNAL_UNSEEN = Metric(
    "fairlead.external.unseen", MetricType.GAUGE, "{item}",
    "Items of an external store that its reader has not seen yet, counted up to 10,000.", ("store",),
)  # fmt: skip
EXTERNAL_READER_LAG = Metric(
    "fairlead.external.reader_lag", MetricType.GAUGE, "s",
    "How long ago the oldest item that the reader has not seen was enqueued; 0: it has seen all.", ("store",),
)  # fmt: skip
EXTERNAL_DEAD_LETTERS = Metric(
    "fairlead.external.dead_letters", MetricType.GAUGE, "{item}",
    "Dead letters of an external store, counted up to 10,000.", ("store",),
)  # fmt: skip
EXTERNAL_DEAD_ROWS = Metric(
    "fairlead.external.dead_rows", MetricType.GAUGE, "{row}",
    "Rows of an external store's items that VACUUM has not removed yet, as its server estimates.", ("store",),
)  # fmt: skip

METRICS = (
    SENT, CONSUMED, OPERATION, COMPLETED, FAILED, RETRIED, DEAD_LETTERED, DROPPED, SUSPENDED, CANCELLED, RETURNED,
    LOST, EXPIRED, CONFLICTS,
    POINTER_LATENCY, ITEM_LATENCY, DURATION, STEPS, STEP_DURATION, REPLAYS, SCATTERS,
    SLOTS, SLOTS_IN_USE, DEPTH, OLDEST_AGE, HELD_BACK, HELD_BACK_AGE, MOVES, MOVES_COPIED,
    EXTERNAL_UP, EXTERNAL_DEPTH, EXTERNAL_OLDEST_AGE, EXTERNAL_UNSEEN, EXTERNAL_READER_LAG, EXTERNAL_DEAD_LETTERS,
    EXTERNAL_DEAD_ROWS,
)  # fmt: skip
METRICS_BY_NAME = {metric.name: metric for metric in METRICS}

# The outcomes of `fairlead.actors.execution.acknowledgement`.
OUTCOME_METRICS = {
    "completed": COMPLETED,
    "retried": RETRIED,
    "dead_lettered": DEAD_LETTERED,
    "dropped": DROPPED,
    "suspended": SUSPENDED,
    "cancelled": CANCELLED,
    "returned": RETURNED,
    "lost": LOST,
}
