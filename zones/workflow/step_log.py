"""The step log at home: what a run has done, read at the start of an attempt and appended to under the lease.

A worker that has lost its lease cannot append: each transaction that does reads the item's record with conflict and
compares the lease id. Reads, answers of waits and of effects are *pending* until the next transaction at home.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.zones.engines import KeyValue, Reader, Transaction
from fairlead.zones.errors import RunUnreadable
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end, unpack_int, unpack_names
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.items import Outcome, is_payload
from fairlead.zones.queue.lease_check import check_lease, error_of
from fairlead.zones.records import ItemRecord
from fairlead.zones.snapshots.snapshot_list import usable_snapshots
from fairlead.zones.workflow.run_records import (
    ParticipantState,
    RunHead,
    StepEntry,
    decode_entry,
    decode_head,
    decode_participant,
    encode,
    entries_prefix,
    head_key,
    packed_step,
    participant_key,
    participants_prefix,
    unreadable,
)

PAGE_ROWS = 2_000  # Of up to 64,000 bytes each: what FoundationDB returns within the five seconds of a transaction.


class StepName(NamedTuple):
    """What identifies a step within a run: its name, and for the how manieth time, from 0 on."""

    name: str
    occurrence: int


class HeldRun:
    """A run whose item the caller holds under a lease. Its keys are packed once: each of its steps needs them.

    `owner`: the tenant's ownership record, as `check_held_op` has read it last; `has_snapshots`: whether it lists any.
    """

    __slots__ = (
        "_entries", "has_snapshots", "head_key", "item_id", "item_key", "lease_id", "location", "owner", "owner_key",
        "run",
    )  # fmt: skip

    def __init__(self, location: ZoneLocation, item_id: bytes, lease_id: bytes, run: bytes) -> None:
        self.location = location
        self.item_id = item_id
        self.lease_id = lease_id
        self.run = run
        self.owner: bytes | None = None
        self.has_snapshots = False
        self.owner_key = location.keys.tenant.owner
        self.item_key = location.keys.item(item_id)
        self.head_key = head_key(location.keys.tenant, run)
        self._entries = (0, entries_prefix(location.keys.tenant, run, 0))  # A segment, and the prefix of its entries.

    def entry_key(self, segment: int, step: StepName) -> bytes:
        """Return the key of a step's entry. A commit reads it with conflict: so it knows whether the step was done."""
        known, prefix = self._entries
        if segment != known:
            prefix = entries_prefix(self.location.keys.tenant, self.run, segment)
            self._entries = (segment, prefix)
        return prefix + packed_step(*step)


@dataclass(slots=True)
class StoredRun:
    """What is stored at home of a run. `head` None: nothing has been recorded.

    `unreadable`: the first of what cannot be read; what is damaged goes before what is newer. Then the rest
    is for people to look at, and nobody may go on from there.
    """

    head: RunHead | None = None
    entries: dict[StepName, StepEntry] = field(default_factory=dict)
    participants: dict[Tenant, ParticipantState] = field(default_factory=dict)
    unreadable: RunUnreadable | None = None

    @property
    def segment(self) -> int:
        """The segment whose entries count; see `RunHead`."""
        return 0 if self.head is None else self.head.segment

    def note_unreadable(self, error: RunUnreadable) -> None:
        """Note something that cannot be read."""
        if self.unreadable is None or (self.unreadable.is_newer and not error.is_newer):
            self.unreadable = error


class Append(NamedTuple):
    """What a transaction at home adds to the log. `cleared`: keys of signals and child results that were taken."""

    entries: Sequence[tuple[StepName, StepEntry]] = ()
    participants: Sequence[tuple[Tenant, ParticipantState]] = ()
    cleared: Sequence[bytes] = ()


def read_run(tr: Reader, location: ZoneLocation, run: bytes, stored: StoredRun, *, begin: bytes = b"") -> bytes:
    """Add a page of what is stored of a run at home to `stored`; return where the next page begins, empty at the end.

    One range read by snapshot. Its caller holds the lease, and only the holder of the lease appends. So pages that are
    read in several transactions fit together.
    """
    keys = location.keys.tenant
    prefix = keys.step_log(run)
    rows = _page(tr, begin or range_begin(prefix), range_end(prefix))
    if rows and not begin:
        _add_head(rows[0], head_key(keys, run), stored)
    segment_prefix = entries_prefix(keys, run, stored.segment)
    participants = participants_prefix(keys, run)
    for row in rows:
        if row.key.startswith(segment_prefix):
            _add_entry(row, len(segment_prefix), stored)
        elif row.key.startswith(participants):
            names = unpack_names(row.key, len(participants), 2)
            place = decode_participant(row.value)
            if names is None or place is None:
                stored.note_unreadable(unreadable(row.key, row.value))
            else:
                stored.participants[Tenant(*names[0])] = place
    return _after(rows)


def read_participant(tr: Reader, keys: TenantKeys, run: bytes, stored: StoredRun, *, begin: bytes = b"") -> bytes:
    """Add a page of the entries that a participant keeps to `stored`; see `read_run`.

    Its caller has raised the fence there, or follows an attempt that has suspended itself: no entry is added meanwhile.
    """
    prefix = entries_prefix(keys, run, stored.segment)
    rows = _page(tr, begin or range_begin(prefix), range_end(prefix))
    for row in rows:
        _add_entry(row, len(prefix), stored)
    return _after(rows)


def _page(tr: Reader, begin: bytes, end: bytes) -> list[KeyValue]:
    return list(tr.snapshot.get_range(begin, end, limit=PAGE_ROWS, streaming_mode=WANT_ALL))


def _after(rows: Sequence[KeyValue]) -> bytes:
    return rows[-1].key + b"\0" if len(rows) == PAGE_ROWS else b""


def _add_head(first: KeyValue, key: bytes, stored: StoredRun) -> None:
    """Add the head; `first`: the first row of a run, which is its head, because the first commit writes it."""
    if first.key != key:
        stored.note_unreadable(RunUnreadable(key=key.hex(), reason=RunUnreadable.MISSING))
        return
    stored.head = decode_head(first.value)
    if stored.head is None or (stored.head.checkpoint and not is_payload(stored.head.checkpoint)):
        stored.note_unreadable(unreadable(key, first.value))


def _add_entry(row: KeyValue, at: int, stored: StoredRun) -> None:
    named = parse_step(row.key, at)
    entry = decode_entry(row.value)
    if named is None or entry is None:
        stored.note_unreadable(unreadable(row.key, row.value))
    else:
        stored.entries[named] = entry


def parse_step(key: bytes, at: int) -> StepName | None:
    """Return the step that an entry's key names from `at` on; None: the key is damaged."""
    named = unpack_names(key, at, 1)
    number = None if named is None else unpack_int(key, named[1])
    return None if named is None or number is None else StepName(named[0][0], number[0])


def check_held_op(tr: Transaction, held: HeldRun) -> Operation[ItemRecord]:
    """Read the item's record and the tenant's ownership with conflict; return the record if the lease stands.

    Raises:
      LeaseLost: another worker holds the item, or it lives another life.
      ItemGone: there is no such item.
      TenantMoved: another shard owns the tenant.
      Restoring: the tenant is being restored to a snapshot.
    """
    owner, stored = tr.get(held.owner_key), tr.get(held.item_key)
    yield
    check_owner(tr, held.location.layout, held.location.keys.tenant, owner.value)
    held.owner = owner.value
    held.has_snapshots = usable_snapshots(held.location.keys.tenant, owner.value) is not None
    record = check_lease(stored.value, held.lease_id)
    if isinstance(record, Outcome):
        raise error_of(record, held.item_id)
    if record.run_of(held.item_id) != held.run:
        raise error_of(Outcome.LEASE_LOST, held.item_id)
    return record


def append(
    tr: Transaction, held: HeldRun, record: ItemRecord, head: RunHead, added: Append, *, head_changed: bool
) -> None:
    """Append to the log in a transaction that has called `check_held_op`.

    Writes the entries and participants; the head, if it has changed or is the first; the record, if the run keeps keys
    from now on, or if the record still counts failures: those count from the last step that committed. Reads
    with conflict: the head, if it writes it. May run twice.
    """
    for step, entry in added.entries:
        tr.set(held.entry_key(head.segment, step), encode(entry))
    for tenant, place in added.participants:
        tr.set(participant_key(held.location.keys.tenant, held.run, tenant), encode(place))
    for key in added.cleared:
        tr.clear(key)
    if head_changed or not record.keeps_run:
        # An earlier commit of unknown result may still arrive. It must not put an older head in place of this one.
        tr.add_read_conflict_key(held.head_key)
        tr.set(held.head_key, encode(head))
    if is_rewritten(record):
        record.keeps_run = True
        record.error_count = record.expiry_count = record.expired_count = 0
        stored_item.rewrite(tr, held.location, held.item_id, record)


def is_rewritten(record: ItemRecord) -> bool:
    """Whether an append writes the item's record; see `append`."""
    return not record.keeps_run or record.error_count + record.expiry_count + record.expired_count > 0


def clear_segment(tr: Transaction, held: HeldRun, segment: int) -> None:
    """Forget the entries of a segment, after a checkpoint. One blind clear."""
    prefix = entries_prefix(held.location.keys.tenant, held.run, segment)
    tr.clear_range(range_begin(prefix), range_end(prefix))
