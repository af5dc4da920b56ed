"""One item, with all that the store knows of it: why it does not run, its record, its payload, its history."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.audit_log import action_of
from fairlead.ends_elsewhere import ends_elsewhere
from fairlead.explanation import Explanation, explain_at
from fairlead.shards import Shards
from fairlead.views import DeadLetterView, ItemView, dead_letter_view, item_view, progress_in_words
from fairlead.workflow_explanation import has_timeout
from fairlead.zones.engines import Transaction
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.results import Returned, ending
from fairlead.zones.records import AuditEntry, DeadLetterRecord, ItemRecord, decode
from fairlead.zones.reporting import audit_log, completion_log
from fairlead.zones.reporting.completion_log import Ended, EndReason
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

AUDIT_ENTRIES_READ = 1_000  # Of the shard, the latest, searched for those of the item.


class Event(NamedTuple):
    """Something that happened to an item, or will. `detail`: such as an error, or who did it."""

    at_us: int
    what: str
    detail: str = ""


class ItemDetails(NamedTuple):
    """An item. `view`: if it is in its queue; `dead_letter`: if it failed for good; neither: it ended, or never was.

    `record`: the item's own, if it is in its queue; `stored`: that, or the dead letter's. `returned`: the result of its
    handler, if that is kept. `history`: the events that the store has, oldest first.
    """

    explanation: Explanation
    view: ItemView | None
    record: ItemRecord | None
    stored: ItemRecord | None
    dead_letter: DeadLetterView | None
    returned: Returned | None
    history: list[Event]
    now_us: int


def read_item(
    shard: Shard,
    tenant: Tenant,
    zone: str,
    item_id: bytes,
    *,
    shards: Shards | None = None,
    stores: Mapping[str, ExternalStore] = NO_EXTERNALS,
) -> ItemDetails:
    """Return what is known of an item. Snapshot reads, except of its tenant's ownership.

    `shards`, `stores`: see `explain_at`.

    Raises:
      TenantMoved: another shard owns the tenant.
      One of `shard.db.errors`: the shard cannot be read.
    """
    explanation = explain_at(shard, tenant, zone, item_id, shards=shards, stores=stores)
    location = shard.layout.location(tenant, zone)
    found_elsewhere = ends_elsewhere(shards, shard, location, item_id).ends if shards is not None else []
    elsewhere = [ended for _, ended in found_elsewhere]
    target = {"tenant": list(tenant), "zone": zone, "item": item_id.hex()}

    def body(attempt: Attempt) -> ItemDetails:
        tr, now_us = attempt.tr, attempt.now_us
        stored = tr.snapshot.get(location.keys.item(item_id))
        stored_dead_letter = tr.snapshot.get(location.keys.dead_letter(item_id))
        record = None if stored.value is None else decode(ItemRecord, stored.value)
        dead = None if stored_dead_letter.value is None else decode(DeadLetterRecord, stored_dead_letter.value)
        view = None if record is None else item_view(shard, tr, location, item_id, record, now_us=now_us)
        dead_letter = None if dead is None else dead_letter_view(shard, tr, DeadLetter(tenant, zone, item_id, dead))
        ended = None if stored.present() or stored_dead_letter.present() else ending(tr, location, item_id)
        ends = [*elsewhere, *ends_at(tr, location, item_id)]
        stored_record = dead.item if record is None and dead is not None else record
        return ItemDetails(
            explanation, view, record, stored_record, dead_letter, ended if isinstance(ended, Returned) else None,
            history(record, dead, ends, audit_entries(tr, target), now_us), now_us,
        )  # fmt: skip

    return shard.transact(body)


def history(
    item: ItemRecord | None, dead: DeadLetterRecord | None, ends: list[Ended], actions: list[AuditEntry], now_us: int
) -> list[Event]:
    """Return the events of an item in order of time.

    The store keeps the last error and counts of earlier attempts, and no event for each attempt.
    """
    events = [Event(each.done_us, action_of(each), f"by {each.by}, {each.through}") for each in actions]
    events += [Event(each.ended_us, *_end_in_words(each)) for each in ends]
    record = item if item is not None else None if dead is None else dead.item
    if record is not None:
        events.append(Event(record.enqueued_us, "enqueued"))
        if record.delayed_until_us and (not record.waits_for or has_timeout(record.delayed_until_us, now_us)):
            events.append(Event(record.delayed_until_us, "due, after a delay, a wait, or a retry by an operator"))
        if record.leased_us:
            events.append(_latest_lease(record, is_dead=dead is not None))
        if record.progress is not None:
            events.append(Event(record.progress.at_us, "progress reported", progress_in_words(record.progress)))
    if dead is not None:
        events.append(Event(dead.dead_lettered_us, "failed for good", dead.error))
    elif record is not None and record.lease_id:
        events.append(Event(record.vesting_us, "lease ends" if record.vesting_us > now_us else "lease expired"))
    elif record is not None and record.attempt > 1:
        events.append(Event(record.vesting_us, f"attempt {record.attempt} is due"))
    return sorted(events, key=lambda each: each.at_us)


def _latest_lease(record: ItemRecord, *, is_dead: bool) -> Event:
    """Return when the latest attempt began, its number if the record says so, and its error if it failed."""
    if is_dead:
        return Event(record.leased_us, f"attempt {max(1, record.attempt - 1)} leased")
    if record.lease_id:
        return Event(record.leased_us, f"attempt {record.attempt} leased")
    if record.return_count or record.attempt == 1:  # Returned attempts keep their number; a retry resets it.
        return Event(record.leased_us, "latest attempt leased")
    return Event(record.leased_us, f"attempt {record.attempt - 1} leased, and failed", record.last_error)


def _end_in_words(ended: Ended) -> tuple[str, str]:
    item = ended.item
    if item.end_reason == EndReason.CANCELLED:
        return "cancelled", ""
    what = "failed for good, and dropped" if item.end_reason == EndReason.DROPPED else "completed"
    return what, f"in attempt {item.attempt}, {item.took_ms / 1000:g} s after it was leased"


def ends_at(tr: Transaction, location: ZoneLocation, item_id: bytes) -> list[Ended]:
    """Return how items of this id and zone ended, within the last hour. Snapshot reads."""
    return [each for each in completion_log.find(tr, item_id) if each.is_at(location)]


def audit_entries(tr: Transaction, target: Mapping[str, object]) -> list[AuditEntry]:
    """Return what operators did to this item by itself, of the latest entries of the audit log. A snapshot read."""
    latest = audit_log.latest(tr, entries_max=AUDIT_ENTRIES_READ)
    return [each.audit_entry for each in latest if each.audit_entry.to == target]
