"""Why an item is not running, or what became of it: one cause, in one sentence, from one look at the store.

`cause_of` is a pure decision over `fairlead.zones.reporting.diagnosis.Diagnosis`; everything else here finds the facts
and words the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fairlead.shards import Shards
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.queue.dequeue_plan import Admission
from fairlead.zones.records import ItemRecord, Policy, Progress
from fairlead.zones.reporting.completion_log import Ended, EndReason
from fairlead.zones.reporting.diagnosis import COUNTED_MAX, Diagnosis, Whereabouts, diagnose, whereabouts
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.sessions import ListedSession
from fairlead.zones.transaction_runner import Attempt


class Cause(Enum):
    """Why an item is not running, or that it is, or what became of it."""

    RUNNING = "running"  # a consumer holds it: it runs there, or starts as soon as a slot is free
    LEASE_EXPIRED = "lapsed"  # its lease has ended, and nobody has given it back: it runs again in its turn
    DELAYED = "delayed"
    RETRYING = "retrying"  # it failed, and waits for its next attempt
    SHARD_PAUSED = "shard paused"
    TENANT_PAUSED = "tenant paused"
    KIND_PAUSED = "kind paused"
    NO_CONSUMER = "no consumer"  # none that is alive serves the shard
    KIND_UNKNOWN = "kind unknown"  # none of those that are alive has a handler for it
    TENANT_AT_LIMIT = "tenant at its limit"
    KIND_AT_LIMIT = "kind at its limit"  # as many of its kind as may run are running
    ISOLATED = "waits to run isolated"  # it is suspected of ending its worker's process
    POINTER_LEASED = "pointer leased"  # a consumer is about to look into its queue
    POINTER_ASLEEP = "pointer asleep"  # its queue is looked at later
    POINTER_MISSING = "pointer missing"  # nobody is led to its queue: a fault, which `fairlead check --repair` mends
    BEHIND = "behind others"  # of its own tenant
    NEXT = "next"  # its tenant's turn comes after some others'
    DEAD_LETTER = "buried"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DROPPED = "dropped"  # it failed for good, and its kind says that such items are deleted
    UNREADABLE = "unreadable"  # a newer version wrote it
    DAMAGED = "damaged"  # its record is, and waits for somebody to set it aside
    QUARANTINED = "set aside"  # its damaged record was, into the quarantine
    NEVER_SEEN = "never seen"  # or it ended before what is remembered
    NOT_FOUND = "not found"  # and not all was looked at: name its tenant


@dataclass(frozen=True, slots=True)
class Attempts:
    """What became of an item's attempts so far.

    `raised`: its handler failed. `died`: its worker did, as was seen. `lease_lost`: its lease ended meanwhile.
    `return_count`: by a worker that drained, or had no slot for it; such count for nothing. `last_traceback`: of
    `last_error`, from the handler's own frame on; its middle is left out if it is long.
    """

    raised: int = 0
    died: int = 0
    lease_lost: int = 0
    return_count: int = 0
    last_error: str = ""
    last_traceback: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is to be said of an item.

    `progress`: what the last of its attempts that told any told of it.

    `details`: what the cause is about, as data: times as microseconds since the epoch, names, counts.
    """

    item_id: bytes
    cause: Cause
    sentence: str
    shard: str | None = None
    tenant: Tenant | None = None
    zone: str | None = None
    kind: str | None = None
    attempts: Attempts = Attempts()
    progress: Progress | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def explain_at(shard: Shard, tenant: Tenant, zone: str, item_id: bytes) -> Explanation:
    """Explain an item of a queue zone.

    Raises:
      TenantMoved: the tenant is another shard's.
    """
    location = shard.layout.location(tenant, zone)

    def body(attempt: Attempt) -> Explanation:
        return _explained(shard.name, location, item_id, diagnose(attempt.tr, location, item_id, now_us=attempt.now_us))

    return shard.transact(body)


def explain(shards: Shards, item_id: bytes) -> Explanation:
    """Explain an item whose tenant is unknown: looks through a bounded number of active zones of every shard.

    Of several items of this id the first is taken that is still there.
    """
    found: list[Explanation] = []
    whole = True
    for name in shards:
        shard = shards[name]
        where = _whereabouts(shard, item_id)
        whole = whole and where.whole
        found += [explain_at(shard, location.tenant, location.name, item_id) for location in where.locations]
    ended = (Cause.COMPLETED, Cause.CANCELLED, Cause.DROPPED, Cause.NEVER_SEEN)
    found.sort(key=lambda each: each.cause in ended)
    if found:
        return found[0]
    if whole:
        return Explanation(item_id, Cause.NEVER_SEEN, _NEVER_SEEN)
    return Explanation(item_id, Cause.NOT_FOUND, "not found in the queues that were looked through; name its tenant")


def _whereabouts(shard: Shard, item_id: bytes) -> Whereabouts:
    return shard.transact(lambda attempt: whereabouts(attempt.tr, shard.layout, item_id))


_NEVER_SEEN = "there is no such item, and none ended within what is remembered, an hour at most"


def cause_of(diagnosis: Diagnosis) -> tuple[Cause, str, dict[str, Any]]:
    """Say why an item is not running, or what became of it: the cause, a sentence, and its details."""
    item = diagnosis.item
    if item is not None:
        return _held_back(diagnosis, item)
    if diagnosis.damaged:
        return Cause.DAMAGED, "its record is damaged, and left alone; fairlead check --quarantine sets it aside", {}
    if diagnosis.unreadable:
        return Cause.UNREADABLE, "a newer version of fairlead wrote it; this one leaves it alone", {}
    if diagnosis.dead_letter is not None:
        dead_letter = diagnosis.dead_letter
        since = {"buried_us": dead_letter.dead_lettered_us, "reason": dead_letter.reason}
        return Cause.DEAD_LETTER, f"it failed for good: {dead_letter.error}; fairlead revive runs it again", since
    if diagnosis.ended:
        return _ended(diagnosis.ended[0], diagnosis.now_us)
    if diagnosis.set_aside:
        return (
            Cause.QUARANTINED,
            "its record was damaged, and set aside; fairlead quarantine shows what is left",
            {},
        )
    return Cause.NEVER_SEEN, _NEVER_SEEN, {}


def _held_back(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]]:
    now_us = diagnosis.now_us
    if item.vesting_us > now_us:
        if item.lease_id:
            return _running(diagnosis, item)
        until = {"vests_us": item.vesting_us}
        if item.error_count:
            attempt = f"attempt {item.attempt} comes in {_span(item.vesting_us - now_us)}"
            return Cause.RETRYING, f"it failed: {item.last_error or 'without a word'}; {attempt}", until
        return Cause.DELAYED, f"it vests in {_span(item.vesting_us - now_us)}", until
    for decide in (_paused, _unserved, _isolated, _pointer):
        said = decide(diagnosis, item)
        if said is not None:
            return said
    if item.lease_id:
        late = _span(now_us - item.vesting_us)
        return Cause.LEASE_EXPIRED, f"its lease ended {late} ago and was not given back; it runs again in its turn", {}
    if diagnosis.items_before:
        count = _counted(diagnosis.items_before)
        return Cause.BEHIND, f"{count} items of its tenant come before it", {"items_before": diagnosis.items_before}
    count = _counted(diagnosis.pointers_before)
    ahead = {"queues_before": diagnosis.pointers_before}
    return Cause.NEXT, f"it is the first of its queue, and some {count} queues have their turn before", ahead


def _running(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]]:
    consumer = next((each for each in diagnosis.consumers if each.consumer_id == item.session), None)
    details: dict[str, Any] = {
        "since_us": item.leased_us,
        "lease_until_us": item.vesting_us,
        "consumer": None if item.session is None else item.session.hex(),
    }
    where = "somebody"
    if consumer is not None:
        where = f"the consumer on {consumer.record.host}, process {consumer.record.pid}"
        details |= {"host": consumer.record.host, "pid": consumer.record.pid, "live": consumer.live}
        where += "" if consumer.live else ", which gives no sign of life,"
    since, left = _span(diagnosis.now_us - item.leased_us), _span(item.vesting_us - diagnosis.now_us)
    return Cause.RUNNING, f"{where} has had it for {since}; its lease ends in {left} if it is not extended", details


def _paused(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    if diagnosis.policies.shard_paused:
        return Cause.SHARD_PAUSED, "its shard is paused; fairlead resume --shard lets it go on", {}
    if diagnosis.policy.paused:
        return Cause.TENANT_PAUSED, "its tenant is paused; fairlead resume --tenant lets it go on", {}
    if item.kind in diagnosis.policies.paused_kinds:
        return Cause.KIND_PAUSED, f"its kind is paused; fairlead resume --kind {item.kind} lets it go on", {}
    return None


def _unserved(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    live: Sequence[ListedSession] = [each for each in diagnosis.consumers if each.live]
    if not live:
        return Cause.NO_CONSUMER, "no consumer of its shard is alive; start one with fairlead run", {}
    if not any(item.kind in each.record.kinds for each in live):
        known = sorted({kind for each in live for kind in each.record.kinds})
        said = f"none of the {len(live)} live consumers has a handler for {item.kind}"
        return Cause.KIND_UNKNOWN, said, {"consumers": len(live), "known_kinds": known}
    return None


def _isolated(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    if not diagnosis.poison_candidate:
        return None
    lapses = item.expiry_count + item.started
    said = f"its worker died or stalled {lapses} times in a row while it ran"
    return Cause.ISOLATED, f"{said}; each consumer runs one such item at a time, isolated", {"lapses": lapses}


def _pointer(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    pointer, now_us = diagnosis.pointer, diagnosis.now_us
    if pointer is None:
        return Cause.POINTER_MISSING, "nobody is led to its queue; fairlead check --repair mends that", {}
    left = {"pointer_vests_us": pointer.vesting_us}
    if pointer.outcome == Admission.FULL and item.vesting_us <= pointer.last_active_us:
        return _full(diagnosis, item, left)
    if pointer.vesting_us <= now_us:
        return None
    span = _span(pointer.vesting_us - now_us)
    if pointer.lease_id:
        return Cause.POINTER_LEASED, f"a consumer looks into its queue, within {span}", left
    return Cause.POINTER_ASLEEP, f"its queue is looked at again in {span}", left


def _full(diagnosis: Diagnosis, item: ItemRecord, left: dict[str, Any]) -> tuple[Cause, str, dict[str, Any]]:
    """Say which limit an item waits for: its tenant's, its kind's in all of the fleet, or its handler's.

    All that can be, where the store does not tell: of handlers it knows nothing, of a kind its own shard does.
    """
    of_tenant, of_kind = diagnosis.policy, diagnosis.policies.kinds.get(item.kind)
    tenants = f"its tenant is at its limit: {limit_in_words(of_tenant)}"
    kinds = "" if of_kind is None else f"its kind is at its limit in the fleet: {limit_in_words(of_kind)}"
    reached = [tenants] * diagnosis.tenant_full + [kinds] * diagnosis.kind_full
    if reached:
        return Cause.TENANT_AT_LIMIT if diagnosis.tenant_full else Cause.KIND_AT_LIMIT, "; and ".join(reached), left
    possible = [f"as many items of kind {item.kind} as its handler's max_running lets run are running"]
    possible += [kinds] if of_kind is not None and of_kind.is_limited else []
    possible += [tenants] if of_tenant.is_limited else []
    return Cause.KIND_AT_LIMIT, "; or ".join(possible), left


def limit_in_words(policy: Policy) -> str:
    """Return a limit as people say it."""
    said = [f"at most {policy.max_running:,} run at once"] if policy.max_running is not None else []
    said += [f"at most {policy.per_s:g} start in a second"] if policy.per_s is not None else []
    return ", ".join(said) or "not limited"


def _ended(ended: Ended, now_us: int) -> tuple[Cause, str, dict[str, Any]]:
    item, ago = ended.item, _span(now_us - ended.ended_us)
    details = {"ended_us": ended.ended_us, "attempt": item.attempt, "took_ms": item.took_ms}
    if item.end_reason == EndReason.CANCELLED:
        return Cause.CANCELLED, f"it was cancelled {ago} ago", details
    if item.end_reason == EndReason.DROPPED:
        return Cause.DROPPED, f"it failed for good {ago} ago, in attempt {item.attempt}, and was dropped", details
    took = _span(item.took_ms * 1000)
    return Cause.COMPLETED, f"it completed {ago} ago, in attempt {item.attempt}, {took} after it was taken", details


def _explained(shard_name: str, location: ZoneLocation, item_id: bytes, diagnosis: Diagnosis) -> Explanation:
    cause, sentence, details = cause_of(diagnosis)
    record = diagnosis.item or (diagnosis.dead_letter.item if diagnosis.dead_letter is not None else None)
    attempts = Attempts()
    if record is not None:
        lease_lost = max(0, record.expired_count - record.died)  # A death is known before the lapse is counted.
        attempts = Attempts(
            record.error_count, record.died, lease_lost, record.return_count, record.last_error, diagnosis.traceback
        )
    kind = record.kind if record is not None else diagnosis.ended[0].item.kind if diagnosis.ended else None
    return Explanation(
        item_id,
        cause,
        sentence,
        shard_name,
        location.tenant,
        location.name,
        kind,
        attempts=attempts,
        progress=None if record is None else record.progress,
        details=details,
    )


def _span(duration_us: int) -> str:
    """Return a duration as people say it."""
    seconds = max(0, duration_us) / 1e6
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _counted(count: int) -> str:
    return f"{count:,}" if count < COUNTED_MAX else f"{count:,} or more"
