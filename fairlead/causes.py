"""The causes why an item is not running, and what explanations of all kinds of items have in common."""

from enum import Enum
from typing import Any


class Cause(Enum):
    """Why an item is not running, that it is running, or how it ended."""

    RUNNING = "running"  # a consumer holds its lease: it runs there, or starts as soon as a slot is free
    LEASE_EXPIRED = "lease expired"  # no worker completed or returned it: it runs again in its turn
    DELAYED = "delayed"
    RETRYING = "retrying"  # it failed, and waits for its next attempt
    SHARD_PAUSED = "shard paused"
    TENANT_PAUSED = "tenant paused"
    KIND_PAUSED = "kind paused"
    NO_CONSUMER = "no consumer"  # no live consumer serves the shard
    KIND_UNKNOWN = "kind unknown"  # no live consumer has a handler for the kind
    TENANT_LOCKED = "tenant locked"  # by the last step of its move, or a transaction across shards, that cannot end
    TENANT_AT_LIMIT = "tenant at its limit"
    KIND_AT_LIMIT = "kind at its limit"  # as many items of its kind run as its limit allows
    ISOLATED = "waits to run isolated"  # it is a poison candidate
    POINTER_LEASED = "pointer leased"  # a consumer is about to read its queue
    POINTER_ASLEEP = "pointer asleep"  # its queue is read later
    POINTER_MISSING = "pointer missing"  # no consumer finds its queue: a fault that `fairlead check --repair` mends
    READER_BEHIND = "reader behind"  # it is in an external store, whose reader has not made its pointer
    ROW_LOCKED = "row locked"  # it is in an external store, in which another transaction has locked it
    STORE_AWAY = "store away"  # no shard knows it, and an external store that may hold it cannot be read
    BEHIND = "behind others"  # other items of its tenant come first
    NEXT = "next"  # the first of its queue; other queues have their turn first
    WAITS_FOR_SIGNAL = "waits for a signal"  # a workflow, in `wf.wait_for`
    WAITS_FOR_CHILDREN = "waits for children"  # a workflow, in `wf.call` or `wf.gather`
    WAITS_FOR_LOCK = "waits for a lock"  # a workflow, before a block of `wf.lock`
    SLEEPING = "sleeping"  # a workflow, in `wf.sleep`
    BEING_UNDONE = "being undone"  # a workflow that failed for good: a consumer undoes its steps
    BEING_CANCELLED = "being cancelled"  # a workflow whose cancellation was requested: a consumer undoes its steps
    PARTICIPANT_AWAY = "participant away"  # a workflow that acts on a shard or in a store that cannot be read
    NEEDS_NEWER_CODE = "needs newer code"  # a workflow that was begun by code of a higher version
    DEAD_LETTER = "dead letter"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DROPPED = "dropped"  # it failed for good, and its kind has `drop=True`
    UNREADABLE = "unreadable"  # a newer version wrote it
    DAMAGED = "damaged"  # its record is damaged and not in quarantine yet
    QUARANTINED = "set aside"  # its damaged record is in quarantine
    NEVER_SEEN = "never seen"  # or it ended before the completion log begins
    NOT_FOUND = "not found"  # the search was bounded and did not read every queue


Explained = tuple[Cause, str, dict[str, Any]]  # A cause, a sentence, and details.


def span_text(duration_us: int) -> str:
    """Return a duration as text, in the largest unit of which it has two."""
    seconds = max(0, duration_us) / 1e6
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
