"""Why an item is not running, or how it ended: one cause and one sentence, from one read of the store.

`cause_of` is a pure decision over `fairlead.zones.reporting.diagnosis.Diagnosis`. The rest of this module reads the
diagnosis and makes the sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from shlex import quote
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
    TENANT_AT_LIMIT = "tenant at its limit"
    KIND_AT_LIMIT = "kind at its limit"  # as many items of its kind run as its limit allows
    ISOLATED = "waits to run isolated"  # it is a poison candidate
    POINTER_LEASED = "pointer leased"  # a consumer is about to read its queue
    POINTER_ASLEEP = "pointer asleep"  # its queue is read later
    POINTER_MISSING = "pointer missing"  # no consumer finds its queue: a fault that `fairlead check --repair` mends
    BEHIND = "behind others"  # other items of its tenant come first
    NEXT = "next"  # the first of its queue; other queues have their turn first
    DEAD_LETTER = "dead letter"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DROPPED = "dropped"  # it failed for good, and its kind has `drop=True`
    UNREADABLE = "unreadable"  # a newer version wrote it
    DAMAGED = "damaged"  # its record is damaged and not in quarantine yet
    QUARANTINED = "set aside"  # its damaged record is in quarantine
    NEVER_SEEN = "never seen"  # or it ended before the completion log begins
    NOT_FOUND = "not found"  # the search was bounded and did not read every queue


@dataclass(frozen=True, slots=True)
class Attempts:
    """How an item's attempts so far ended.

    Attributes:
      raised: attempts whose handler failed.
      died: attempts whose worker was seen to die.
      lease_lost: attempts whose lease expired, without a death that was seen.
      return_count: how often a worker returned the item, because it drained or had no slot. Such attempts do not count.
      last_traceback: of `last_error`, from the handler's own frame on; a long one without its middle.
    """

    raised: int = 0
    died: int = 0
    lease_lost: int = 0
    return_count: int = 0
    last_error: str = ""
    last_traceback: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause of an item's state, in words and as data.

    Attributes:
      progress: as the item's handler last reported it.
      details: data of the cause: times in microseconds since the epoch, names, counts.
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
    """Explain an item whose tenant is unknown: searches a bounded number of active zones of every shard.

    If several items have this id, one that has not ended is preferred.
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
    return Explanation(item_id, Cause.NOT_FOUND, "not found in the queues that were searched; name its tenant")


def _whereabouts(shard: Shard, item_id: bytes) -> Whereabouts:
    return shard.transact(lambda attempt: whereabouts(attempt.tr, shard.layout, item_id))


RETRY_HINT = "fairlead dead-letters retry runs it again"  # Pages leave it out: they have a button.
_NEVER_SEEN = "there is no such item, and the completion log, of one hour at most, has none that ended"


def cause_of(diagnosis: Diagnosis, shard_name: str, tenant: Tenant) -> tuple[Cause, str, dict[str, Any]]:
    """Return why an item is not running, or how it ended: the cause, a sentence, and details."""
    item = diagnosis.item
    if item is not None:
        return _held_back(diagnosis, item, shard_name, tenant)
    if diagnosis.damaged:
        return (
            Cause.DAMAGED,
            "its record is damaged, and no consumer takes it; fairlead check --quarantine sets it aside",
            {},
        )
    if diagnosis.unreadable:
        return Cause.UNREADABLE, "a newer version of fairlead wrote it; this version does not touch it", {}
    if diagnosis.dead_letter is not None:
        dead_letter = diagnosis.dead_letter
        since = {"dead_lettered_us": dead_letter.dead_lettered_us, "reason": dead_letter.reason}
        return Cause.DEAD_LETTER, f"it failed for good: {dead_letter.error}; {RETRY_HINT}", since
    if diagnosis.ended:
        return _ended(diagnosis.ended[0], diagnosis.now_us)
    if diagnosis.set_aside:
        return (
            Cause.QUARANTINED,
            "its record was damaged, and set aside; fairlead quarantine shows it",
            {},
        )
    return Cause.NEVER_SEEN, _NEVER_SEEN, {}


def _held_back(
    diagnosis: Diagnosis, item: ItemRecord, shard_name: str, tenant: Tenant
) -> tuple[Cause, str, dict[str, Any]]:
    now_us = diagnosis.now_us
    if item.vesting_us > now_us:
        if item.lease_id:
            return _running(diagnosis, item)
        until = {"vests_us": item.vesting_us}
        if item.error_count:
            attempt = f"attempt {item.attempt} comes in {_span(item.vesting_us - now_us)}"
            return Cause.RETRYING, f"it failed: {item.last_error or 'no error text'}; {attempt}", until
        return Cause.DELAYED, f"it vests in {_span(item.vesting_us - now_us)}", until
    paused = _paused(diagnosis, item, shard_name, tenant)
    if paused is not None:
        return paused
    for decide in (_unserved, _isolated, _pointer):
        found = decide(diagnosis, item)
        if found is not None:
            return found
    if item.lease_id:
        late = _span(now_us - item.vesting_us)
        return Cause.LEASE_EXPIRED, f"its lease expired {late} ago; it runs again in its turn", {}
    if diagnosis.items_before:
        count = _counted(diagnosis.items_before)
        return Cause.BEHIND, f"{count} items of its tenant come before it", {"items_before": diagnosis.items_before}
    count = _counted(diagnosis.pointers_before)
    ahead = {"queues_before": diagnosis.pointers_before}
    return Cause.NEXT, f"it is the first of its queue, and about {count} queues have their turn before it", ahead


def _running(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]]:
    consumer = next((each for each in diagnosis.consumers if each.consumer_id == item.session), None)
    details: dict[str, Any] = {
        "since_us": item.leased_us,
        "lease_until_us": item.vesting_us,
        "consumer": None if item.session is None else item.session.hex(),
    }
    where = "a consumer"
    if consumer is not None:
        where = f"the consumer on {consumer.record.host}, process {consumer.record.pid}"
        details |= {"host": consumer.record.host, "pid": consumer.record.pid, "live": consumer.live}
        where += "" if consumer.live else ", which sends no heartbeats,"
    since, left = _span(diagnosis.now_us - item.leased_us), _span(item.vesting_us - diagnosis.now_us)
    return Cause.RUNNING, f"{where} has had it for {since}; its lease ends in {left} if it is not extended", details


def _paused(
    diagnosis: Diagnosis, item: ItemRecord, shard_name: str, tenant: Tenant
) -> tuple[Cause, str, dict[str, Any]] | None:
    if diagnosis.policies.shard_paused:
        return Cause.SHARD_PAUSED, f"its shard is paused; fairlead resume --shard {quote(shard_name)} resumes it", {}
    if diagnosis.policy.paused:
        return (
            Cause.TENANT_PAUSED,
            f"its tenant is paused; fairlead resume --tenant {quote(str(tenant))} resumes it",
            {},
        )
    if item.kind in diagnosis.policies.paused_kinds:
        return Cause.KIND_PAUSED, f"its kind is paused; fairlead resume --kind {quote(item.kind)} resumes it", {}
    return None


def _unserved(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    live: Sequence[ListedSession] = [each for each in diagnosis.consumers if each.live]
    if not live:
        return Cause.NO_CONSUMER, "its shard has no live consumer; start one with fairlead run", {}
    if not any(item.kind in each.record.kinds for each in live):
        known = sorted({kind for each in live for kind in each.record.kinds})
        sentence = f"none of the {len(live)} live consumers has a handler for {item.kind}"
        return Cause.KIND_UNKNOWN, sentence, {"consumers": len(live), "known_kinds": known}
    return None


def _isolated(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    if not diagnosis.poison_candidate:
        return None
    expiries = item.expiry_count + item.started
    sentence = f"its worker died or stalled {expiries} times in a row while it ran"
    return Cause.ISOLATED, f"{sentence}; each consumer runs one such item at a time, isolated", {"expiries": expiries}


def _pointer(diagnosis: Diagnosis, item: ItemRecord) -> tuple[Cause, str, dict[str, Any]] | None:
    pointer, now_us = diagnosis.pointer, diagnosis.now_us
    if pointer is None:
        return Cause.POINTER_MISSING, "no consumer finds its queue; fairlead check --repair mends that", {}
    left = {"pointer_vests_us": pointer.vesting_us}
    if pointer.outcome == Admission.FULL and item.vesting_us <= pointer.last_active_us:
        return _full(diagnosis, item, left)
    if pointer.vesting_us <= now_us:
        return None
    span = _span(pointer.vesting_us - now_us)
    if pointer.lease_id:
        return Cause.POINTER_LEASED, f"a consumer reads its queue within {span}", left
    return Cause.POINTER_ASLEEP, f"its queue is read again in {span}", left


def _full(diagnosis: Diagnosis, item: ItemRecord, left: dict[str, Any]) -> tuple[Cause, str, dict[str, Any]]:
    """Return which limit an item waits for: its tenant's, its kind's in the whole fleet, or its handler's.

    Lists every possible limit if the store does not know it: handlers' own limits are not stored, and only a kind's own
    shard knows the state of the kind's limit.
    """
    of_tenant, of_kind = diagnosis.policy, diagnosis.policies.kinds.get(item.kind)
    tenants = f"its tenant is at its limit: {limit_in_words(of_tenant)}"
    kinds = "" if of_kind is None else f"its kind is at its limit in the fleet: {limit_in_words(of_kind)}"
    reached = [tenants] * diagnosis.tenant_full + [kinds] * diagnosis.kind_full
    if reached:
        return Cause.TENANT_AT_LIMIT if diagnosis.tenant_full else Cause.KIND_AT_LIMIT, "; and ".join(reached), left
    possible = [f"its handler's max_running items of kind {item.kind} are running"]
    possible += [kinds] if of_kind is not None and of_kind.is_limited else []
    possible += [tenants] if of_tenant.is_limited else []
    return Cause.KIND_AT_LIMIT, "; or ".join(possible), left


def limit_in_words(policy: Policy) -> str:
    """Return a limit in words."""
    limits = [f"at most {policy.max_running:,} run at once"] if policy.max_running is not None else []
    limits += [f"at most {policy.per_s:g} start per second"] if policy.per_s is not None else []
    return ", ".join(limits) or "not limited"


def _ended(ended: Ended, now_us: int) -> tuple[Cause, str, dict[str, Any]]:
    item, ago = ended.item, _span(now_us - ended.ended_us)
    details = {"ended_us": ended.ended_us, "attempt": item.attempt, "took_ms": item.took_ms}
    if item.end_reason == EndReason.CANCELLED:
        return Cause.CANCELLED, f"it was cancelled {ago} ago", details
    if item.end_reason == EndReason.DROPPED:
        return Cause.DROPPED, f"it failed for good {ago} ago, in attempt {item.attempt}, and was dropped", details
    took = _span(item.took_ms * 1000)
    return Cause.COMPLETED, f"it completed {ago} ago, in attempt {item.attempt}, {took} after it was leased", details


def _explained(shard_name: str, location: ZoneLocation, item_id: bytes, diagnosis: Diagnosis) -> Explanation:
    cause, sentence, details = cause_of(diagnosis, shard_name, location.tenant)
    record = diagnosis.item or (diagnosis.dead_letter.item if diagnosis.dead_letter is not None else None)
    attempts = Attempts()
    if record is not None:
        lease_lost = max(0, record.expired_count - record.died)  # A death is known before the expiry is counted.
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
    """Return a duration as text, in the largest unit of which it has two."""
    seconds = max(0, duration_us) / 1e6
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _counted(count: int) -> str:
    return f"{count:,}" if count < COUNTED_MAX else f"{count:,} or more"
