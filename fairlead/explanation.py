"""Why an item is not running, or how it ended: one cause and one sentence, from one read of the store.

`cause_of` is a pure decision over `fairlead.zones.reporting.diagnosis.Diagnosis`. The rest of this module reads the
diagnosis and makes the sentence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import Any

from fairlead.causes import Cause as Cause
from fairlead.causes import Explained, span_text
from fairlead.ends_elsewhere import ends_elsewhere
from fairlead.formatting import iso_time
from fairlead.move_views import move_in_words
from fairlead.queries.locks import awaited_lock
from fairlead.queries.per_shard import query_home, query_store
from fairlead.shards import Shards
from fairlead.workflow_explanation import (
    RecordedRun,
    explain_dead_run,
    explain_run,
    is_suspended,
    lock_signals,
    may_be_held_up,
)
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.external.names import external_zone, store_of_participant
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.queue.dequeue_plan import Admission
from fairlead.zones.records import ItemRecord, Policy, Progress
from fairlead.zones.reporting.completion_log import Ended, EndReason
from fairlead.zones.reporting.diagnosis import COUNTED_MAX, Diagnosis, Whereabouts, diagnose, whereabouts
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.sessions import ListedSession
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.holds import process_of
from fairlead.zones.workflow.locks import HOLD_KIND
from fairlead.zones.workflow.step_log import StoredRun, read_run
from fairlead.zones.workflow.undone_end import UNDONE


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
      shard: where the item is, or the pointer of its queue. `store`: the external store that holds the item; None: the
        shard does.
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
    store: str | None = None


def explain_at(
    shard: Shard,
    tenant: Tenant,
    zone: str,
    item_id: bytes,
    *,
    shards: Shards | None = None,
    stores: Mapping[str, ExternalStore] = NO_EXTERNALS,
) -> Explanation:
    """Explain an item of a queue zone; by the name of a pointer of an external queue: how an item there has ended.

    Args:
      shards: where other tenants live on whom a workflow has acted; None: they are not looked at.
      stores: external stores in which it may have acted.

    If transactions on the tenant wait for a move or for a transaction across shards, this waits for five seconds, too.

    Raises:
      TenantMoved: the tenant is another shard's.
    """
    location = shard.layout.location(tenant, zone)

    def body(attempt: Attempt) -> tuple[Diagnosis, RecordedRun | None, str]:
        diagnosis = diagnose(attempt.tr, location, item_id, now_us=attempt.now_us)
        moving = move_in_words(attempt.tr, shard, tenant)
        record = _record_of(diagnosis)
        if record is None or not record.keeps_run:
            return diagnosis, None, moving
        stored = StoredRun()
        more = read_run(attempt.tr, location, record.run_of(item_id), stored)  # One page explains a longer run, too.
        return diagnosis, RecordedRun(stored, whole=not more), moving

    try:
        diagnosis, recorded, moving = shard.transact(body)
    except TenantBusy as busy:
        return Explanation(item_id, Cause.TENANT_LOCKED, _locked(busy), shard.name, tenant, zone)
    if shards is not None and recorded is not None and diagnosis.item is not None:
        recorded = recorded._replace(lock=_lock_in_words(shards, tenant, item_id, diagnosis.item, recorded.stored))
    if shards is not None and recorded is not None and may_be_held_up(diagnosis):
        recorded = recorded._replace(away=_away(shards, stores, recorded.stored.participants))
    more = {TENANT_MOVES: moving} if moving else {}
    if shards is not None and diagnosis.item is None and diagnosis.dead_letter is None:
        return _ended_anywhere(shards, shard, location, item_id, diagnosis, more)
    explained = _explained(shard.name, location, item_id, diagnosis, recorded)
    return replace(explained, details={**explained.details, **more}) if more else explained


def _ended_anywhere(
    shards: Shards, home: Shard, location: ZoneLocation, item_id: bytes, diagnosis: Diagnosis, more: dict[str, Any]
) -> Explanation:
    """Explain an item that is not there: it may have ended on a shard where its tenant lived before it moved."""
    elsewhere = ends_elsewhere(shards, home, location, item_id)
    if elsewhere.ends and (not diagnosis.ended or elsewhere.ends[0][1].ended_us > diagnosis.ended[0].ended_us):
        ended_on, ended = elsewhere.ends[0]
        diagnosis = diagnosis._replace(ended=[ended, *diagnosis.ended])
        more = {**more, ENDED_ON: ended_on}
    explained = _explained(home.name, location, item_id, diagnosis, None)
    sentence = explained.sentence
    if elsewhere.unread and not diagnosis.ended:
        sentence += f"; shard {', '.join(elsewhere.unread)}, where its tenant may have lived, cannot be read"
    return replace(explained, sentence=sentence, details={**explained.details, **more})


def _locked(busy: TenantBusy) -> str:
    """Return why all transactions on a tenant wait, in words."""
    by = "the last step of its move" if "move" in busy.fields else f"transaction {busy.fields.get('transaction')}"
    return f"all transactions on its tenant wait for {by}: {busy.fields.get('reason')}"


def _lock_in_words(shards: Shards, home: Tenant, item_id: bytes, item: ItemRecord, stored: StoredRun) -> str:
    """Return the lock that a workflow waits for, its holder, and why that one does not go on; empty: it waits for none.

    Of a holder that waits for a lock itself, no further holder is named.
    """
    signals = lock_signals(item)
    if not signals or not is_suspended(item):
        return ""
    found = awaited_lock(shards, [home, *stored.participants], item.run_of(item_id), signals)
    if found is None:
        return ""
    lock = f"the lock {found.key} of {found.tenant}"
    holder = found.holder
    if holder is None:
        return lock
    if holder.process:
        return f"{lock}, held by {holder.process} since {iso_time(holder.held_us or holder.asked_us)}"
    held = f"{lock}, held by {holder.kind} {holder.item_id.hex()} of {holder.tenant}"
    explain_holder = partial(explain_at, tenant=holder.tenant, zone=holder.zone, item_id=holder.item_id)
    of_holder = query_home(shards, holder.tenant, explain_holder).found
    if of_holder is None:
        return held
    sentence = of_holder.sentence
    return f"{held}, which {sentence[3:]}" if sentence.startswith("it ") else f"{held}; of that item: {sentence}"


def _away(shards: Shards, stores: Mapping[str, ExternalStore], participants: Iterable[Tenant]) -> str:
    """Return which tenant or store of some participants cannot be read now, and why, in words; empty: all can.

    A store that this program does not name may be read by those that run the workflow, and is passed over.
    """
    for participant in participants:
        store = store_of_participant(participant)
        if store is None:
            read = query_home(shards, participant, partial(_read_owner, tenant=participant))
            if read.error is not None:
                return f"shard {read.shard} of {participant}, on whom it has acted, cannot be read: {read.sentence}"
        elif store in stores:
            asked = query_store(stores, store, lambda steps: steps.ask())
            if asked.error is not None:
                return f"{asked.shard}, in which it acts, cannot be read: {asked.sentence}"
    return ""


def _read_owner(shard: Shard, tenant: Tenant) -> bool:
    return shard.transact(lambda attempt: attempt.tr.snapshot.get(TenantKeys(*tenant).owner).present())


def explain(shards: Shards, item_id: bytes, *, stores: Mapping[str, ExternalStore] = NO_EXTERNALS) -> Explanation:
    """Explain an item whose tenant is unknown: searches a bounded number of active zones of every shard.

    `stores`: see `explain_at`. If several items have this id, one that has not ended is preferred.
    """
    found: list[Explanation] = []
    whole = True
    for name in shards:
        shard = shards[name]
        where = _whereabouts(shard, item_id)
        whole = whole and where.whole
        found += [_explain_found(shards, stores, shard, location, item_id) for location in where.locations]
    found.sort(key=lambda each: each.cause in (*ENDED, Cause.NEVER_SEEN))
    if found:
        return found[0]
    if whole:
        return Explanation(item_id, Cause.NEVER_SEEN, _NEVER_SEEN)
    return Explanation(item_id, Cause.NOT_FOUND, "not found in the queues that were searched; name its tenant")


def _explain_found(
    shards: Shards, stores: Mapping[str, ExternalStore], shard: Shard, location: ZoneLocation, item_id: bytes
) -> Explanation:
    """Explain an item that a shard has named; if its tenant lives elsewhere by now, there."""
    explain_there = partial(
        explain_at, tenant=location.tenant, zone=location.name, item_id=item_id, shards=shards, stores=stores
    )
    try:
        return explain_there(shard)
    except TenantMoved as moved:
        shards.note_moved(moved)
        return shards.at_home(location.tenant, explain_there)


def _whereabouts(shard: Shard, item_id: bytes) -> Whereabouts:
    return shard.transact(lambda attempt: whereabouts(attempt.tr, shard.layout, item_id))


TENANT_MOVES = "tenant_moves"  # Among the details: where the tenant moves, and how far it is.
ENDED = (Cause.COMPLETED, Cause.CANCELLED, Cause.DROPPED)
ENDED_ON = "ended_on"  # Among the details: on which shard it ended, if its tenant has moved since.
RETRY_HINT = "fairlead dead-letters retry runs it again"  # Pages leave it out: they have a button.
_NEVER_SEEN = "there is no such item, and the completion log, of one hour at most, has none that ended"


def cause_of(diagnosis: Diagnosis, shard_name: str, tenant: Tenant) -> Explained:
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
        error = dead_letter.error.partition("\n")[0]
        undone = "its steps were undone, and a retry begins anew; " if dead_letter.reason == UNDONE else ""
        return Cause.DEAD_LETTER, f"it failed for good: {error}; {undone}{RETRY_HINT}", since
    if diagnosis.ended:
        return ended_in_words(diagnosis.ended[0], diagnosis.now_us)
    if diagnosis.set_aside:
        return (
            Cause.QUARANTINED,
            "its record was damaged, and set aside; fairlead quarantine shows it",
            {},
        )
    return Cause.NEVER_SEEN, _NEVER_SEEN, {}


def _held_back(diagnosis: Diagnosis, item: ItemRecord, shard_name: str, tenant: Tenant) -> Explained:
    now_us = diagnosis.now_us
    if item.vesting_us > now_us:
        if item.lease_id:
            return _running(diagnosis, item)
        until = {"vests_us": item.vesting_us}
        if item.error_count:
            attempt = f"attempt {item.attempt} comes in {span_text(item.vesting_us - now_us)}"
            return Cause.RETRYING, f"it failed: {item.last_error or 'no error text'}; {attempt}", until
        return Cause.DELAYED, f"it vests in {span_text(item.vesting_us - now_us)}", until
    paused = _paused(diagnosis, item, shard_name, tenant)
    if paused is not None:
        return paused
    for decide in (_unserved, _isolated, _pointer):
        found = decide(diagnosis, item)
        if found is not None:
            return found
    if item.lease_id:
        late = span_text(now_us - item.vesting_us)
        return Cause.LEASE_EXPIRED, f"its lease expired {late} ago; it runs again in its turn", {}
    if diagnosis.items_before:
        count = _counted(diagnosis.items_before)
        return Cause.BEHIND, f"{count} items of its tenant come before it", {"items_before": diagnosis.items_before}
    count = _counted(diagnosis.pointers_before)
    ahead = {"queues_before": diagnosis.pointers_before}
    return Cause.NEXT, f"it is the first of its queue, and about {count} queues have their turn before it", ahead


def _running(diagnosis: Diagnosis, item: ItemRecord) -> Explained:
    has_consumer = any(each.live for each in diagnosis.consumers)
    holder, details = holder_in_words(diagnosis, item)
    if item.kind == HOLD_KIND and item.session is None:
        return Cause.RUNNING, _holding(item, has_consumer=has_consumer, now_us=diagnosis.now_us), details
    left = span_text(item.vesting_us - diagnosis.now_us)
    if details.get("live"):
        ends = f"its lease ends in {left} if it is not extended"
    elif has_consumer:
        # A claim ends before its lease, once another consumer has seen that its session is silent.
        ends = f"if it is gone, another consumer takes over {'within seconds' if item.claim else f'in {left}'}"
    else:
        ends = "no live consumer can take over: start one with fairlead run"
    return Cause.RUNNING, f"{holder}; {ends}", details


def holder_in_words(diagnosis: Diagnosis, item: ItemRecord) -> tuple[str, dict[str, Any]]:
    """Return which consumer has leased an item, and for how long: in words, and as details of a cause."""
    details: dict[str, Any] = {
        "since_us": item.leased_us,
        "lease_until_us": item.vesting_us,
        "consumer": None if item.session is None else item.session.hex(),
    }
    where = "a consumer that drains, or is gone,"
    consumer = next((each for each in diagnosis.consumers if each.consumer_id == item.session), None)
    if consumer is not None:
        where = f"the consumer on {consumer.record.host}, process {consumer.record.pid}"
        details |= {"host": consumer.record.host, "pid": consumer.record.pid, "live": consumer.live}
        where += "" if consumer.live else ", which sends no heartbeats,"
    return f"{where} has had it for {span_text(diagnosis.now_us - item.leased_us)}", details


def _holding(item: ItemRecord, *, has_consumer: bool, now_us: int) -> str:
    """Return what the hold of a process says, in words."""
    released = "within seconds" if has_consumer else "once there is a consumer: start one with fairlead run"
    since = span_text(now_us - item.leased_us)
    return f"{process_of(item.payload)} has held its locks for {since}; if it dies, they are released {released}"


def _paused(diagnosis: Diagnosis, item: ItemRecord, shard_name: str, tenant: Tenant) -> Explained | None:
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


def _unserved(diagnosis: Diagnosis, item: ItemRecord) -> Explained | None:
    live: Sequence[ListedSession] = [each for each in diagnosis.consumers if each.live]
    if not live:
        return Cause.NO_CONSUMER, "its shard has no live consumer; start one with fairlead run", {}
    if item.kind != HOLD_KIND and not any(item.kind in each.record.kinds for each in live):
        known = sorted({kind for each in live for kind in each.record.kinds})
        consumers = (
            f"none of the {len(live)} live consumers has a" if len(live) > 1 else "the only live consumer has no"
        )
        sentence = f"{consumers} handler for {item.kind}"
        return Cause.KIND_UNKNOWN, sentence, {"consumers": len(live), "known_kinds": known}
    return None


def _isolated(diagnosis: Diagnosis, item: ItemRecord) -> Explained | None:
    if not diagnosis.poison_candidate:
        return None
    expiries = item.expiry_count + item.started
    sentence = f"its worker died or stalled {expiries} times in a row while it ran"
    return Cause.ISOLATED, f"{sentence}; each consumer runs one such item at a time, isolated", {"expiries": expiries}


def _pointer(diagnosis: Diagnosis, item: ItemRecord) -> Explained | None:
    pointer, now_us = diagnosis.pointer, diagnosis.now_us
    if pointer is None:
        return Cause.POINTER_MISSING, "no consumer finds its queue; fairlead check --repair mends that", {}
    left = {"pointer_vests_us": pointer.vesting_us}
    if pointer.outcome == Admission.FULL and item.vesting_us <= pointer.last_active_us:
        return _full(diagnosis, item, left)
    if pointer.vesting_us <= now_us:
        return None
    span = span_text(pointer.vesting_us - now_us)
    if pointer.lease_id:
        return Cause.POINTER_LEASED, f"a consumer reads its queue within {span}", left
    return Cause.POINTER_ASLEEP, f"its queue is read again in {span}", left


def _full(diagnosis: Diagnosis, item: ItemRecord, left: dict[str, Any]) -> Explained:
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


def ended_in_words(ended: Ended, now_us: int) -> Explained:
    """Return how an item ended, and when."""
    item, ago = ended.item, span_text(now_us - ended.ended_us)
    details = {"ended_us": ended.ended_us, "attempt": item.attempt, "took_ms": item.took_ms}
    if item.end_reason == EndReason.CANCELLED:
        return Cause.CANCELLED, f"it was cancelled {ago} ago", details
    if item.end_reason == EndReason.DROPPED:
        return Cause.DROPPED, f"it failed for good {ago} ago, in attempt {item.attempt}, and was dropped", details
    took = span_text(item.took_ms * 1000)
    return Cause.COMPLETED, f"it completed {ago} ago, in attempt {item.attempt}, {took} after it was leased", details


def _record_of(diagnosis: Diagnosis) -> ItemRecord | None:
    """Return the record of an item in its queue, or of a dead letter."""
    return diagnosis.item or (diagnosis.dead_letter.item if diagnosis.dead_letter is not None else None)


def _explained(
    shard_name: str, location: ZoneLocation, item_id: bytes, diagnosis: Diagnosis, recorded: RecordedRun | None
) -> Explanation:
    found = cause_of(diagnosis, shard_name, location.tenant)
    if recorded is not None and diagnosis.item is not None:
        found = explain_run(found, diagnosis.item, recorded, diagnosis.now_us)
    elif recorded is not None and diagnosis.dead_letter is not None:
        found = explain_dead_run(found, diagnosis.dead_letter, recorded)
    cause, sentence, details = found
    record = _record_of(diagnosis)
    attempts = Attempts() if record is None else attempts_of(record, diagnosis.traceback)
    kind = record.kind if record is not None else diagnosis.ended[0].item.kind if diagnosis.ended else None
    external = external_zone(location.name)
    return Explanation(
        item_id,
        cause,
        sentence,
        shard_name,
        location.tenant,
        location.name if external is None else external.zone,
        kind,
        attempts=attempts,
        progress=None if record is None else record.progress,
        details=details,
        store=None if external is None else external.store,
    )


def attempts_of(record: ItemRecord, traceback: str) -> Attempts:
    """Return how the attempts of an item ended, by its record."""
    lease_lost = max(0, record.expired_count - record.died)  # A death is known before the expiry is counted.
    return Attempts(record.error_count, record.died, lease_lost, record.return_count, record.last_error, traceback)


def _counted(count: int) -> str:
    return f"{count:,}" if count < COUNTED_MAX else f"{count:,} or more"
