"""What applications and operators do with queues of an external store: statements as in its schema's SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

import msgspec

from fairlead.simulation.external import statements
from fairlead.simulation.external.items import CarryOut, State, StoredItem, Transaction
from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import (
    COUNTED_MAX,
    DeadLetterPlace,
    DeadRow,
    EndedRow,
    FoundRow,
    ItemToPut,
)
from fairlead.zones.queue.dead_letters import DeadLetter, reset_attempts
from fairlead.zones.queue.items import EnqueueStatus, Item

_FOUND = {
    State.WAITS: EnqueueStatus.PRESENT,
    State.ENDED: EnqueueStatus.COMPLETED,
    State.DEAD: EnqueueStatus.DEAD_LETTER,
}


# --- Statements ---


def put(tx: Transaction, each: ItemToPut) -> EnqueueStatus:
    """See `QueueOperations`. Raises `Locked`: another transaction is inserting the id."""
    if statements.enqueue(tx, each.queue, each.id, each.item):
        return EnqueueStatus.ENQUEUED
    found = tx.item(each.id)
    assert found is not None
    return _FOUND[found.state]


def find(tx: Transaction, queue: Queue, ids: Iterable[bytes], now_us: int) -> FoundRow | None:
    """See `QueueOperations`."""
    row = _row(tx, queue, ids)
    if row is None:
        return None
    if row.state is State.ENDED:
        return EndedRow(row.item_id, row.result)
    return _dead_row(row) if row.state is State.DEAD else _item(tx, row, now_us)


def peek(tx: Transaction, queue: Queue, items_max: int, vested_only: bool, now_us: int) -> list[Item]:
    """See `QueueOperations`."""
    found = [_item(tx, row, now_us) for row in _waiting(tx, queue)]
    found.sort(key=lambda item: (item.record.priority, item.record.vesting_us, item.id))
    return [item for item in found if not vested_only or item.record.vesting_us <= now_us][:items_max]


def count(tx: Transaction, queue: Queue) -> dict[str, int]:
    """See `QueueOperations`."""
    places = Counter((row.record.kind, row.record.priority) for row in _waiting(tx, queue))
    counts: dict[str, int] = {}
    for (kind, _), number in places.items():
        counts[kind] = counts.get(kind, 0) + min(number, COUNTED_MAX)
    return counts


def cancel(tx: Transaction, queue: Queue, ids: Iterable[bytes], *, force: bool) -> bool:
    """See `QueueOperations`. Raises `Locked`: another transaction has locked the item."""
    states = (State.WAITS, State.DEAD) if force else (State.WAITS,)
    row = _row(tx, queue, ids, states)
    if row is None:
        return False
    tx.lock(row.item_id)
    tx.write(row.item_id, None)
    return True


def dead_letters(tx: Transaction, queue: Queue | None, items_max: int, behind: DeadLetterPlace | None) -> list[DeadRow]:
    """See `QueueOperations`."""
    rows = [row for row in tx.table.rows() if row.state is State.DEAD and queue in (None, row.queue)]
    found = [_dead_row(row) for row in rows]
    return sorted(each for each in found if behind is None or each.place > behind)[:items_max]


def retry_dead_letters(tx: Transaction, rows: Sequence[DeadRow], now_us: int) -> list[DeadRow]:
    """See `QueueOperations`."""
    done = [each for each in rows if each.dead_letter is not None and _is_still(tx, each)]
    for each in done:
        assert each.dead_letter is not None
        record = msgspec.structs.replace(each.dead_letter.record.item)
        reset_attempts(record, now_us=now_us)
        row = tx.item(each.place.id)
        assert row is not None
        tx.lock(row.item_id)
        again = replace(row, state=State.WAITS, record=record, dead_letter=None, expired=0, leased_until_us=0)
        tx.write(row.item_id, replace(again, vesting_us=tx.table.now_us(), number=tx.take_number()))
    statements.notify(tx)
    return done


def discard_dead_letters(tx: Transaction, rows: Sequence[DeadRow]) -> list[DeadRow]:
    """See `QueueOperations`."""
    done = [each for each in rows if each.dead_letter is not None and _is_still(tx, each)]
    for each in done:
        tx.lock(each.place.id)
        tx.write(each.place.id, None)
    return done


def _is_still(tx: Transaction, each: DeadRow) -> bool:
    row = tx.item(each.place.id)
    return row is not None and row.state is State.DEAD and row.dead_since_us == each.place.since_us


def _row(
    tx: Transaction, queue: Queue, ids: Iterable[bytes], states: Container[State] = tuple(State)
) -> StoredItem | None:
    found = (tx.item(item_id) for item_id in ids)
    return next((row for row in found if row is not None and row.queue == queue and row.state in states), None)


def _waiting(tx: Transaction, queue: Queue) -> list[StoredItem]:
    return [row for row in tx.table.rows() if row.queue == queue and row.state is State.WAITS]


def _item(tx: Transaction, row: StoredItem, now_us: int) -> Item:
    here_us = tx.table.now_us()
    vesting_us = now_us + max(row.vesting_us, row.leased_until_us) - here_us
    return Item(row.item_id, msgspec.structs.replace(statements.record_of(row, here_us, now_us), vesting_us=vesting_us))


def _dead_row(row: StoredItem) -> DeadRow:
    found = None if row.dead_letter is None else DeadLetter(*row.queue, row.item_id, row.dead_letter)
    return DeadRow(DeadLetterPlace(row.dead_since_us, row.item_id), found)


# --- Calls ---


class Queues:
    """See `QueueOperations`."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def put(self, items: Sequence[ItemToPut]) -> list[EnqueueStatus]:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: [put(tx, each) for each in items], writes=True)

    def find(self, queue: Queue, ids: Sequence[bytes], *, now_us: int, with_payload: bool = True) -> FoundRow | None:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: find(tx, queue, ids, now_us), writes=False)

    def peek(self, queue: Queue, *, items_max: int, vested_only: bool, now_us: int) -> list[Item]:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: peek(tx, queue, items_max, vested_only, now_us), writes=False)

    def count(self, queue: Queue) -> dict[str, int]:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: count(tx, queue), writes=False)

    def cancel(self, queue: Queue, ids: Sequence[bytes], *, force: bool) -> bool:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: cancel(tx, queue, ids, force=force), writes=True)

    def dead_letters(
        self, queue: Queue | None, *, items_max: int, behind: DeadLetterPlace | None = None, with_payloads: bool = True
    ) -> list[DeadRow]:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: dead_letters(tx, queue, items_max, behind), writes=False)

    def retry_dead_letters(self, rows: Sequence[DeadRow], *, now_us: int) -> list[DeadRow]:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: retry_dead_letters(tx, rows, now_us), writes=True)

    def discard_dead_letters(self, rows: Sequence[DeadRow]) -> list[DeadRow]:
        """See `QueueOperations`."""
        return self._carry_out(lambda tx: discard_dead_letters(tx, rows), writes=True)
