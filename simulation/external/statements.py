"""What is asked of an external store: each function is one statement, within a transaction, as in its schema's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from fairlead.simulation.external.items import DOORBELL, Locked, State, StoredItem, Transaction, sees
from fairlead.zones.external.first_due import note_first_due
from fairlead.zones.external.store import (
    Arrival,
    Dequeued,
    ItemLease,
    LeasedRow,
    Look,
    Outlook,
    Queue,
    RunningState,
    Start,
    Stop,
    Want,
)
from fairlead.zones.queue.items import NewItem, Outcome, new_record
from fairlead.zones.records import DeadLetterRecord, ItemRecord

EXPIRED_ALONE = 3  # Where a `Start` stands otherwise.
LATE_US = 1_000_000  # What has vested within this time is looked for in any case.


def enqueue(tx: Transaction, queue: Queue, item_id: bytes, item: NewItem) -> bool:
    """Enqueue an item in a user's transaction; return whether its id was free.

    Raises:
      Locked: another transaction is inserting the id.
      SerializationFailure: one has done so since the transaction began, which is above READ COMMITTED.
    """
    tx.begin_statement()
    now_us = tx.table.now_us()
    tx.lock(item_id, inserts=True)
    found = tx.item(item_id)
    if found is not None and (found.state is not State.ENDED or found.taken_until_us > now_us):
        return False
    vesting_us = now_us + item.delay_us
    record = new_record(item, item_id, vesting_us=0, now_us=0)
    tx.write(item_id, StoredItem(queue, item_id, record, tx.take_number(), vesting_us, now_us))
    notify(tx)
    return True


def hold(tx: Transaction, held: ItemLease) -> bool:
    """Lock an item, if it is held under this lease; return whether it is.

    Raises:
      Locked: by another transaction, for whose end the caller waits.
    """
    tx.begin_statement()
    if not _is_held(tx, held):
        return False
    tx.lock(held.id)
    return True


def holder(tx: Transaction, item_id: bytes) -> bytes | None:
    """Lock an item; return its lease id, None if it has left its queue.

    Raises:
      Locked: by another transaction, for whose end the caller waits.
    """
    tx.begin_statement()
    tx.lock(item_id)
    row = tx.item(item_id)
    return None if row is None or row.state is not State.WAITS else row.lease_id


def dequeue(
    tx: Transaction, wants: Sequence[Want], rooms: Mapping[str, int], *, lease_id: bytes, lease_us: int, now_us: int
) -> Dequeued:
    """Lease items of many queues, and pass over what is locked; see `ExternalStore`."""
    here_us = tx.table.now_us()
    passed = sum(_passed(tx, want) for want in wants)
    taken: list[tuple[int, int, StoredItem]] = []  # Which item of its queue it is, which queue, the item
    for place, want in enumerate(wants):
        front = [row for row in _front(tx, want, rooms, here_us) if not tx.is_locked(row.item_id)]
        for row in front:
            tx.lock(row.item_id)
        front.sort(key=lambda row: (row.record.priority, row.vesting_us, row.item_id))
        taken += [(nth, place, row) for nth, row in enumerate(front[: want.items_max])]
    left, leased = dict(rooms), []
    for _, _, row in sorted(taken, key=lambda each: each[:2]):
        if left.get(row.record.kind, 0) > 0:
            left[row.record.kind] -= 1
            after = _after_dequeue(row, lease_id, here_us + lease_us)
            tx.write(row.item_id, after)
            leased.append(_leased(after, here_us, lease_us, now_us))
    return Dequeued(sorted(leased, key=lambda each: (each.record.priority, -each.waited_us, each.id)), passed)


def _after_dequeue(row: StoredItem, lease_id: bytes, until_us: int) -> StoredItem:
    """Return a row under a new lease. One that has a lease id still has an expired lease."""
    expires = bool(row.lease_id)
    started = EXPIRED_ALONE if expires and row.started > Start.BESIDE_OTHERS else 0
    deaths = row.deaths + (expires and row.started in tuple(Start))
    expired, leases = row.expired + expires, row.leases + 1
    leased = replace(row, lease_id=lease_id, leased_until_us=until_us, leases=leases, session=b"")
    return replace(leased, expired=expired, deaths=deaths, started=started)


def _passed(tx: Transaction, want: Want) -> int:
    """Return how many entries of ended items a look at a queue steps over."""
    known = {(stop.kind, stop.priority) for stop in want.stops}
    found = tx.table.ended.items()
    return sum(count for (queue, *pair), count in found if queue == want.queue and (*pair,) not in known)


def _is_before(row: StoredItem, stops: Sequence[Stop], here_us: int) -> bool:
    """Whether a look from these stops does not find an item."""
    pair = (row.record.kind, row.record.priority)
    froms_us = [stop.from_us for stop in stops if (stop.kind, stop.priority) == pair]
    return bool(froms_us) and row.vesting_us < min(*froms_us, here_us - LATE_US)


def _front(tx: Transaction, want: Want, rooms: Mapping[str, int], here_us: int) -> list[StoredItem]:
    """Return the first items of each kind and priority of a queue that may run."""
    fronts: dict[tuple[str, int], list[StoredItem]] = {}
    for row in sorted(_waiting(tx, want.queue), key=lambda each: each.vesting_us):
        place = (row.record.kind, row.record.priority)
        if _is_before(row, want.stops, here_us):
            continue
        front = fronts.setdefault(place, [])
        is_free = not tx.is_locked(row.item_id) and max(row.vesting_us, row.leased_until_us) <= here_us
        if is_free and len(front) < min(want.items_max, rooms.get(row.record.kind, 0)):
            front.append(row)
    return [row for front in fronts.values() for row in front]


def _leased(row: StoredItem, here_us: int, lease_us: int, now_us: int) -> LeasedRow:
    """Return a leased row as the product has it: with times of the caller's clock."""
    expired_since = row.expired - row.record.expired_count
    waited_us = here_us - row.vesting_us
    record = msgspec.structs.replace(
        record_of(row, here_us, now_us), lease_us=lease_us, leased_us=now_us, vesting_us=now_us + lease_us
    )
    note_first_due(record, waited_us=waited_us, now_us=now_us)
    return LeasedRow(row.queue, row.item_id, record, waited_us, expired_since > 0, row.vesting_us)


def record_of(row: StoredItem, here_us: int, now_us: int) -> ItemRecord:
    """Return the record of an item as the product has it. Its vesting time is not set."""
    return msgspec.structs.replace(
        row.record, lease_id=row.lease_id, lease_number=row.leases, expired_count=row.expired, expiry_count=row.deaths,
        started=0 < row.started < EXPIRED_ALONE, ran_isolated=row.started > Start.BESIDE_OTHERS,
        enqueued_us=max(0, now_us - (here_us - row.enqueued_us)),
    )  # fmt: skip


def read(tx: Transaction, held: Sequence[ItemLease], *, now_us: int) -> list[LeasedRow]:
    """See `ExternalStore`."""
    here_us = tx.table.now_us()
    rows = [tx.item(each.id) for each in held if _is_held(tx, each)]
    return [_leased(row, here_us, row.leased_until_us - here_us, now_us) for row in rows if row is not None]


def outlook(tx: Transaction, queue: Queue, stops: Sequence[Stop] = ()) -> list[Outlook]:
    """See `ExternalStore`. What another transaction has locked is seen as it was."""
    here_us = tx.table.now_us()
    rows = [row for row in _waiting(tx, queue) if not _is_before(row, stops, here_us)]
    found = []
    for kind, priority in sorted({(row.record.kind, row.record.priority) for row in rows}):
        some = [row for row in rows if (row.record.kind, row.record.priority) == (kind, priority)]
        times = [max(row.vesting_us, row.leased_until_us) - here_us for row in some]
        later = [time for time in times if time > 0]
        found.append(Outlook(kind, priority, len(later) < len(times), min(later, default=None)))
    if not found and not stops:
        tx.found_empty.append(queue)
    return found


def complete(
    tx: Transaction, held: Sequence[ItemLease], keeps_us: Sequence[int], results: Sequence[bytes | None] = ()
) -> list[Outcome | None]:
    """See `ExternalStore`."""
    here_us = tx.table.now_us()
    outcomes = []
    for each, keep_us, result in zip(held, keeps_us, results or [None] * len(held), strict=True):
        row, outcome = hold_or_pass(tx, each)
        if row is not None:
            taken_until_us = here_us + row.record.unique_us
            kept = replace(row, state=State.ENDED, taken_until_us=taken_until_us, lease_id=b"", session=b"")
            kept = replace(kept, kept_until_us=here_us + keep_us, result=result)
            tx.write(each.id, kept if keep_us else None)
            tx.table.ended[row.queue, row.record.kind, row.record.priority] += tx.table.entries_left
        outcomes.append(outcome)
    return outcomes


def extend(
    tx: Transaction, held: Sequence[ItemLease], *, lease_us: int, begins: Start | None = None, session: bytes = b""
) -> list[Outcome | None]:
    """See `ExternalStore`. A shorter lease makes the item vest earlier; one that has expired is lost.

    `session`: which claims them; empty: as it is.
    """
    here_us = tx.table.now_us()
    until_us = here_us + lease_us
    outcomes = []
    for each in held:
        row, outcome = hold_or_pass(tx, each)
        if row is not None and row.leased_until_us <= here_us:
            outcome = Outcome.LEASE_LOST
        elif row is not None:
            number = tx.take_number() if until_us < row.leased_until_us else row.number
            started = row.started if begins is None else begins
            after = replace(row, leased_until_us=until_us, number=number, started=started)
            tx.write(each.id, replace(after, session=session or row.session))
        outcomes.append(outcome)
    return outcomes


def requeue(
    tx: Transaction,
    held: Sequence[ItemLease],
    delays_us: Sequence[int | None],
    records: Sequence[ItemRecord | None],
) -> list[Outcome | None]:
    """See `ExternalStore`."""
    here_us = tx.table.now_us()
    outcomes = []
    for each, delay_us, record in zip(held, delays_us, records, strict=True):
        row, outcome = hold_or_pass(tx, each)
        if row is not None:
            vesting_us = row.vesting_us if delay_us is None else here_us + delay_us
            after = replace(row, lease_id=b"", leased_until_us=0, number=tx.take_number(), vesting_us=vesting_us)
            if record is not None:
                after = replace(after, record=msgspec.structs.replace(record), deaths=record.expiry_count)
            elif row.started in tuple(Start):
                after = replace(after, deaths=0)
            tx.write(each.id, replace(after, started=0, session=b""))
        outcomes.append(outcome)
    notify(tx)
    return outcomes


def dead_letter(
    tx: Transaction, held: Sequence[ItemLease], records: Sequence[DeadLetterRecord]
) -> list[Outcome | None]:
    """See `ExternalStore`."""
    outcomes = []
    for each, record in zip(held, records, strict=True):
        row, outcome = hold_or_pass(tx, each)
        if row is not None:
            dead = replace(row, state=State.DEAD, lease_id=b"", session=b"", started=0, deaths=0)
            tx.write(each.id, replace(dead, dead_letter=record, dead_since_us=tx.table.now_us()))
        outcomes.append(outcome)
    return outcomes


def running(tx: Transaction, item_id: bytes) -> RunningState:
    """See `ExternalStore`. The transaction of a handler has locked its item."""
    row = tx.item(item_id)
    if row is None or row.state is not State.WAITS or not row.lease_id:
        return RunningState.ENDED
    runs = row.leased_until_us > tx.table.now_us() or tx.is_locked(item_id)
    return RunningState.RUNS if runs else RunningState.EXPIRED


def arrivals(tx: Transaction, seen: str, history: str) -> Look:
    """See `ExternalStore`."""
    here_us = tx.table.now_us()
    came: dict[Queue, int] = {}
    since = seen if history == str(tx.table.timeline) else tx.table.snapshot_now()
    for row in tx.table.rows():
        if row.state is State.WAITS and not sees(since, row.number):
            in_us = row.vesting_us - here_us
            came[row.queue] = min(in_us, came.get(row.queue, in_us))
    found = [Arrival(queue, in_us) for queue, in_us in came.items()]
    return Look(str(tx.table.timeline), tx.table.snapshot_now(), found, bool(tx.get(DOORBELL)))


def queues_behind(tx: Transaction, queue: Queue | None, limit: int) -> list[Queue]:
    """See `ExternalStore`."""
    queues = sorted({row.queue for row in tx.table.rows() if row.state is State.WAITS})
    return [each for each in queues if queue is None or each > queue][:limit]


def set_doorbell(tx: Transaction, *, rings: bool) -> None:
    """See `ExternalStore`."""
    tx.lock(DOORBELL)
    tx.write(DOORBELL, int(rings))


def force_notify(tx: Transaction) -> None:
    """Let the commit ring the doorbell, whether it is on or not."""
    tx.rings = True


def notify(tx: Transaction) -> None:
    """Let the commit ring the doorbell, if it is on."""
    tx.rings = tx.rings or bool(tx.get(DOORBELL))


def _waiting(tx: Transaction, queue: Queue) -> list[StoredItem]:
    return [row for row in tx.table.rows() if row.queue == queue and row.state is State.WAITS]


def _is_held(tx: Transaction, held: ItemLease) -> bool:
    row = tx.item(held.id)
    return row is not None and row.state is State.WAITS and held.lease_id in (None, row.lease_id)


def hold_or_pass(tx: Transaction, held: ItemLease) -> tuple[StoredItem | None, Outcome | None]:
    """Lock a row that is held under a lease, or say why not; a row that is locked is passed over."""
    row = tx.item(held.id)
    if row is None or row.state is not State.WAITS:
        return None, Outcome.GONE
    if held.lease_id not in (None, row.lease_id):
        return None, Outcome.LEASE_LOST
    try:
        tx.lock(held.id)
    except Locked:
        return None, None
    return row, Outcome.DONE
