"""A model of what applications and operators do with queues of an external store; see `QueueOperations`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import COUNTED_MAX, DeadLetterPlace, DeadRow, FoundRow, ItemToPut
from fairlead.zones.queue.dead_letters import DeadLetter, reset_attempts
from fairlead.zones.queue.items import EnqueueStatus, Item, new_record
from fairlead.zones.records import DeadLetterRecord, ItemRecord


@dataclass(slots=True)
class StoredItem:
    """One row. `number`: of the transaction that enqueued it, or last made it vest earlier."""

    queue: Queue
    item_id: bytes
    record: ItemRecord
    number: int
    vesting_us: int
    leased_until_us: int = 0
    expired: int = 0
    started: int = 0
    deaths: int = 0
    session: bytes = b""
    is_dead: bool = False
    dead_letter: DeadLetterRecord | None = None
    dead_since_us: int = 0


class ModelQueues:
    """See `QueueOperations`. Each operation is one instant. Ended items keep nothing here."""

    def __init__(
        self, rows: dict[bytes, StoredItem], now_us: Callable[[], int], take_number: Callable[[], int]
    ) -> None:
        self._rows = rows
        self._now_us = now_us
        self._take_number = take_number

    def put(self, items: Sequence[ItemToPut]) -> list[EnqueueStatus]:
        """See `QueueOperations`."""
        return [self._put(each) for each in items]

    def _put(self, each: ItemToPut) -> EnqueueStatus:
        found = self._rows.get(each.id)
        if found is not None:
            return EnqueueStatus.DEAD_LETTER if found.is_dead else EnqueueStatus.PRESENT
        here_us = self._now_us()
        vesting_us = here_us + each.item.delay_us
        record = new_record(each.item, each.id, vesting_us=vesting_us, now_us=here_us)
        self._rows[each.id] = StoredItem(each.queue, each.id, record, self._take_number(), vesting_us)
        return EnqueueStatus.ENQUEUED

    def find(self, queue: Queue, ids: Sequence[bytes], *, now_us: int, with_payload: bool = True) -> FoundRow | None:
        """See `QueueOperations`."""
        row = self._row(queue, ids)
        if row is None:
            return None
        return self._dead_row(row) if row.is_dead else self._item(row, now_us)

    def peek(self, queue: Queue, *, items_max: int, vested_only: bool, now_us: int) -> list[Item]:
        """See `QueueOperations`."""
        found = [self._item(row, now_us) for row in self._waiting(queue)]
        found.sort(key=lambda item: (item.record.priority, item.record.vesting_us, item.id))
        return [item for item in found if not vested_only or item.record.vesting_us <= now_us][:items_max]

    def count(self, queue: Queue) -> dict[str, int]:
        """See `QueueOperations`."""
        places = Counter((row.record.kind, row.record.priority) for row in self._waiting(queue))
        counts: dict[str, int] = {}
        for (kind, _), count in places.items():
            counts[kind] = counts.get(kind, 0) + min(count, COUNTED_MAX)
        return counts

    def cancel(self, queue: Queue, ids: Sequence[bytes], *, force: bool) -> bool:
        """See `QueueOperations`."""
        row = self._row(queue, ids)
        if row is None or (row.is_dead and not force):
            return False
        del self._rows[row.item_id]
        return True

    def dead_letters(
        self, queue: Queue | None, *, items_max: int, behind: DeadLetterPlace | None = None, with_payloads: bool = True
    ) -> list[DeadRow]:
        """See `QueueOperations`."""
        found = [self._dead_row(row) for row in self._rows.values() if row.is_dead and queue in (None, row.queue)]
        return sorted(each for each in found if behind is None or each.place > behind)[:items_max]

    def retry_dead_letters(self, rows: Sequence[DeadRow], *, now_us: int) -> list[DeadRow]:
        """See `QueueOperations`."""
        done = [each for each in rows if self._is_still(each)]
        for each in done:
            row = self._rows[each.place.id]
            assert each.dead_letter is not None
            row.record = replace(each.dead_letter.record.item)
            reset_attempts(row.record, now_us=now_us)
            row.is_dead, row.dead_letter, row.expired = False, None, 0
            row.vesting_us, row.leased_until_us, row.number = self._now_us(), 0, self._take_number()
        return done

    def discard_dead_letters(self, rows: Sequence[DeadRow]) -> list[DeadRow]:
        """See `QueueOperations`."""
        done = [each for each in rows if self._is_still(each)]
        for each in done:
            del self._rows[each.place.id]
        return done

    def _is_still(self, each: DeadRow) -> bool:
        row = self._rows.get(each.place.id)
        return row is not None and row.is_dead and row.dead_since_us == each.place.since_us

    def _row(self, queue: Queue, ids: Iterable[bytes]) -> StoredItem | None:
        found = (self._rows.get(item_id) for item_id in ids)
        return next((row for row in found if row is not None and row.queue == queue), None)

    def _waiting(self, queue: Queue) -> list[StoredItem]:
        return [row for row in self._rows.values() if row.queue == queue and not row.is_dead]

    def _item(self, row: StoredItem, now_us: int) -> Item:
        in_us = max(row.vesting_us, row.leased_until_us) - self._now_us()
        return Item(row.item_id, replace(row.record, vesting_us=now_us + in_us))

    def _dead_row(self, row: StoredItem) -> DeadRow:
        assert row.dead_letter is not None
        dead_letter = DeadLetter(*row.queue, row.item_id, row.dead_letter)
        return DeadRow(DeadLetterPlace(row.dead_since_us, row.item_id), dead_letter)
