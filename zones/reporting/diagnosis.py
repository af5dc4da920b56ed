"""Diagnosis: all that the store knows of one item, to explain why it does not run, or how it ended.

Snapshot reads in one transaction, of bounded number: an answer costs the same in a shard of a million tenants, and
conflicts with nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import IndexEntry, item_key
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.maintenance import quarantine
from fairlead.zones.ownership import check_owner
from fairlead.zones.policy.limits import is_kind_full
from fairlead.zones.policy.policies import Policies, read_policies
from fairlead.zones.policy.tenant_limits import is_tenant_full
from fairlead.zones.queue.dead_letters import zones_with_dead_letter
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.poison_candidates import is_poison_candidate
from fairlead.zones.records import (
    POINTER_PRIORITY,
    DeadLetterRecord,
    ItemRecord,
    PointerRecord,
    TenantPolicy,
    decode,
    is_newer,
)
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import Ended
from fairlead.zones.top_level.pointers import pointer_ids
from fairlead.zones.top_level.sessions import ListedSession, listing

COUNTED_MAX = 1_000  # What comes before an item is counted up to this.
_NAMES = 3  # Names in the id of a pointer.
ZONES_MAX = 5_000  # So many active zones, and so many dead letters, are searched for an item whose tenant is unknown.


class Diagnosis(NamedTuple):
    """What is known of an item, in one version of the store. Times in microseconds since the epoch.

    Attributes:
      item: its record, if it is in its queue and readable.
      unreadable: its record, or its dead letter, exists and cannot be read. `damaged`: because it is damaged, and not
        because a newer version wrote it. `set_aside`: an operator set it aside in the quarantine.
      traceback: of its last failure; empty if it has not failed.
      dead_letter: its dead letter. `ended`: how items of this id ended lately, the latest first.
      policy: its tenant's. `policies`: the shard's. `consumers`: those of the shard, also those dead for less than a
        minute.
      tenant_full: whether its tenant's limit lets no more items run or start now. `kind_full`: the same of its kind's
        fleet-wide limit; only the kind's own shard knows it.
      poison_candidate: whether it may have ended its workers, and will run isolated.
      pointer: of its zone; None: there is none, or it cannot be read.
      items_before: vested items of its zone that come before it; `pointers_before`: vested pointers that come before
        its zone's, in its part of the top-level queue. Both counted up to 1,000.
    """

    now_us: int
    item: ItemRecord | None
    unreadable: bool
    damaged: bool
    set_aside: bool
    traceback: str
    dead_letter: DeadLetterRecord | None
    ended: Sequence[Ended]
    policy: TenantPolicy
    policies: Policies
    consumers: Sequence[ListedSession]
    pointer: PointerRecord | None
    items_before: int
    pointers_before: int
    tenant_full: bool
    kind_full: bool
    poison_candidate: bool


def diagnose(
    tr: Transaction, location: ZoneLocation, item_id: bytes, *, now_us: int, elsewhere: ItemRecord | None = None
) -> Diagnosis:
    """Return what is known of an item of this id in a queue zone.

    Args:
      elsewhere: its record, if it is in the queue that an external store holds, and the shard only its pointer.

    Raises:
      TenantMoved: another shard owns the tenant.
    """
    snapshot = tr.snapshot
    stored = snapshot.get(location.keys.item(item_id))
    dead_letter = snapshot.get(location.keys.dead_letter(item_id))
    owner = snapshot.get(location.keys.tenant.owner)
    pointing = snapshot.get(location.keys.pointer)
    traceback = snapshot.get(location.keys.traceback(item_id))
    policy = check_owner(tr, location.layout, location.keys.tenant, owner.value, writes=False)
    item = elsewhere if stored.value is None else decode(ItemRecord, stored.value)
    dead_letter_record = None if dead_letter.value is None else decode(DeadLetterRecord, dead_letter.value)
    found = ((stored.value, item), (dead_letter.value, dead_letter_record))
    unread = [value for value, record in found if value is not None and record is None]
    pointer = None if pointing.value is None else decode(PointerRecord, pointing.value)
    policies = read_policies(tr)
    return Diagnosis(
        now_us=now_us,
        item=item,
        unreadable=bool(unread),
        damaged=any(not is_newer(value) for value in unread),
        set_aside=any(
            quarantine.is_there(tr, key) for key in (location.keys.item(item_id), location.keys.dead_letter(item_id))
        ),
        traceback=(traceback.value or b"").decode(errors="replace")
        if dead_letter_record is None
        else dead_letter_record.traceback,
        dead_letter=dead_letter_record,
        ended=[] if item is not None else [each for each in completion_log.find(tr, item_id) if each.is_at(location)],
        policy=policy,
        policies=policies,
        consumers=listing(tr, now_us=now_us),
        pointer=pointer,
        items_before=0 if item is None else _items_before(tr, location, item_id, item, now_us),
        pointers_before=0 if pointer is None else _pointers_before(tr, location, pointer, now_us),
        tenant_full=is_tenant_full(tr, location, policy, now_us=now_us),
        kind_full=item is not None and _kind_full(tr, item.kind, policies, location.layout, now_us),
        poison_candidate=item is not None and is_poison_candidate(item, location.layout.settings),
    )


class Whereabouts(NamedTuple):
    """Where items of one id are or were. `whole`: whether the whole shard was searched."""

    locations: Sequence[ZoneLocation]
    whole: bool


def whereabouts(tr: Transaction, layout: ShardLayout, item_id: bytes) -> Whereabouts:
    """Search for an item whose tenant is unknown: in active zones, in dead letters, in the completion log."""
    ids, all_pointers = pointer_ids(tr, layout, ids_max=ZONES_MAX)
    snapshot = tr.snapshot
    reads = [(each, snapshot.get(item_key(each, item_id))) for each in ids if each.count(b"\x00") == _NAMES]
    found = [location for each, read in reads if read.present() and (location := layout.location_of(each)) is not None]
    dead_letters, all_dead_letters = zones_with_dead_letter(tr, layout, item_id, dead_letters_max=ZONES_MAX)
    ended = [layout.location(each.tenant, each.zone) for each in completion_log.find(tr, item_id)]
    unique = {(location.tenant, location.name): location for location in (*found, *dead_letters, *ended)}
    return Whereabouts(list(unique.values()), all_pointers and all_dead_letters)


def _kind_full(tr: Reader, kind: str, policies: Policies, layout: ShardLayout, now_us: int) -> bool:
    apart_us = layout.settings.clocks_apart_us_max
    return kind in policies.limited_kinds and is_kind_full(
        tr, kind, policies.kinds[kind], clocks_apart_us=apart_us, now_us=now_us
    )


def _items_before(tr: Reader, location: ZoneLocation, item_id: bytes, item: ItemRecord, now_us: int) -> int:
    """Count the vested items of a zone that come before an item, in (priority, vesting time) order."""
    keys, count = location.keys, 0
    last = keys.vest(item.priority, item.vesting_us, item_id)
    begin = keys.vest_priority(0)
    while count < COUNTED_MAX:
        rows = list(tr.snapshot.get_range(begin, last, limit=COUNTED_MAX - count, streaming_mode=WANT_ALL))
        entries = [entry for row in rows if (entry := keys.entry(row.key)) is not None]
        vested = [entry for entry in entries if entry.vesting_us <= now_us]
        count += len(vested)
        if len(vested) == len(entries):
            return count
        unvested: IndexEntry = next(entry for entry in entries if entry.vesting_us > now_us)
        if unvested.priority == item.priority:
            return count
        begin = keys.vest_priority(unvested.priority + 1)
        count -= sum(entry.priority > unvested.priority for entry in vested)
    return count


def _pointers_before(tr: Reader, location: ZoneLocation, pointer: PointerRecord, now_us: int) -> int:
    part = location.part
    end = part.vest(POINTER_PRIORITY, min(pointer.vesting_us, now_us), location.pointer_id)
    rows = tr.snapshot.get_range(part.vest_priority(POINTER_PRIORITY), end, limit=COUNTED_MAX, streaming_mode=WANT_ALL)
    return sum(1 for _ in rows)
