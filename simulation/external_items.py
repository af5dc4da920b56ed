"""A model of an external store: items in memory, transactions of users at READ COMMITTED, snapshots as PostgreSQL's.

A user's transaction gets its number when it inserts, and its items are seen once it commits: perhaps after those of
later numbers. A replica that is promoted without the last commits begins another history, and gives numbers anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.simulation.external_queues import ModelQueues, StoredItem
from fairlead.simulation.external_sessions import ModelSessions, ModelUpkeep
from fairlead.simulation.external_steps import ExternalSteps
from fairlead.zones.external.names import Queue
from fairlead.zones.external.store import (
    Arrival,
    Dequeued,
    ItemLease,
    LeasedRow,
    Outlook,
    RunningState,
    Start,
    Stop,
    Want,
)
from fairlead.zones.queue.items import NewItem, Outcome, new_record
from fairlead.zones.queue.lease_check import LeaseRef
from fairlead.zones.records import DeadLetterRecord, ItemRecord

EXPIRED_ALONE = 3  # Where a `Start` stands otherwise.
LATE_US = 1_000_000  # What has vested within this time is looked for in any case.


@dataclass(slots=True)
class UserTransaction:
    """An open transaction of a user, and what it has inserted."""

    number: int
    rows: list[StoredItem] = field(default_factory=list)


class ExternalItems:
    """See `ExternalStore`. `now_us`: the store's own clock.

    Attributes:
      entries_left: how many index entries each ended item leaves, as while a transaction of a user stays open.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.entries_left = 0
        self._ended: Counter[tuple[Queue, str, int]] = Counter()
        self._items: dict[bytes, StoredItem] = {}
        self._open: list[UserTransaction] = []
        self.sessions = ModelSessions(self._items, self.extend, self.release)
        self.upkeep = ModelUpkeep()
        self._next_number = 1
        self.queues = ModelQueues(self._items, now_us, self._take_number)
        self.steps = ExternalSteps()

    # --- Users ---

    def begin(self) -> UserTransaction:
        """Begin a user's transaction, which gets its number now."""
        begun = UserTransaction(self._take_number())
        self._open.append(begun)
        return begun

    def enqueue(self, user: UserTransaction, queue: Queue, item_id: bytes, item: NewItem) -> None:
        """Insert an item in a user's transaction."""
        now_us = self._now_us()
        record = new_record(item, item_id, vesting_us=now_us + item.delay_us, now_us=now_us)
        user.rows.append(StoredItem(queue, item_id, record, user.number, now_us + item.delay_us))

    def commit(self, user: UserTransaction) -> None:
        """Commit a user's transaction."""
        self._open.remove(user)
        self._items.update((row.item_id, row) for row in user.rows)

    def roll_back(self, user: UserTransaction) -> None:
        """End a user's transaction without what it has inserted."""
        self._open.remove(user)

    @property
    def items(self) -> Mapping[bytes, StoredItem]:
        """All rows that are committed."""
        return self._items

    # --- `ExternalStore` ---

    def dequeue(
        self, wants: Sequence[Want], rooms: Mapping[str, int], *, lease_id: bytes, lease_us: int, now_us: int
    ) -> Dequeued:
        """See `ExternalStore`."""
        here_us, left, passed = self._now_us(), dict(rooms), 0
        leased: list[LeasedRow] = []
        for want in wants:
            taken = 0
            known = {(stop.kind, stop.priority) for stop in want.stops}
            passed += sum(
                count for (queue, *pair), count in self._ended.items() if queue == want.queue and (*pair,) not in known
            )
            for row in self._waiting(want.queue, here_us, want.stops):
                if taken < want.items_max and left.get(row.record.kind, 0) > 0:
                    taken, left[row.record.kind] = taken + 1, left[row.record.kind] - 1
                    leased.append(self._lease(row, lease_id, lease_us, here_us, now_us))
        return Dequeued(leased, passed)

    def _lease(self, row: StoredItem, lease_id: bytes, lease_us: int, here_us: int, now_us: int) -> LeasedRow:
        record, had_expired = row.record, bool(row.record.lease_id)
        row.expired += had_expired
        row.deaths += had_expired and row.started in tuple(Start)
        record.ran_isolated = had_expired and row.started > 1
        row.started, row.session = EXPIRED_ALONE if record.ran_isolated else 0, b""
        record.lease_id, record.lease_us, record.lease_number = lease_id, lease_us, record.lease_number + 1
        record.expired_count, record.expiry_count = row.expired, row.deaths
        record.vesting_us = now_us + lease_us
        row.leased_until_us = here_us + lease_us
        return LeasedRow(row.queue, row.item_id, record, here_us - row.vesting_us, had_expired, row.vesting_us)

    def read(self, held: Sequence[ItemLease], *, now_us: int) -> list[LeasedRow]:
        """See `ExternalStore`."""
        rows = [row for each in held if (row := self._items.get(each.id)) and row.record.lease_id == each.lease_id]
        return [LeasedRow(row.queue, row.item_id, row.record, 0, had_expired=False) for row in rows]

    def outlook(self, queues: Sequence[Queue], stops: Sequence[Sequence[Stop]] = ()) -> list[list[Outlook]]:
        """See `ExternalStore`."""
        return [self._outlook_of(queue, some) for queue, some in zip(queues, stops or [()] * len(queues), strict=True)]

    def _outlook_of(self, queue: Queue, stops: Sequence[Stop]) -> list[Outlook]:
        here_us = self._now_us()
        rows = [
            row
            for row in self._items.values()
            if row.queue == queue and not row.is_dead and not _is_before(row, stops, here_us)
        ]
        found = []
        for kind, priority in sorted({(row.record.kind, row.record.priority) for row in rows}):
            some = [row for row in rows if (row.record.kind, row.record.priority) == (kind, priority)]
            times = [max(row.vesting_us, row.leased_until_us) - here_us for row in some]
            later = [time for time in times if time > 0]
            found.append(Outlook(kind, priority, len(later) < len(times), min(later, default=None)))
        return found

    def running(self, item_ids: Sequence[bytes]) -> list[RunningState]:
        """See `ExternalStore`. No transaction of a handler is open."""
        return [self._running_state(item_id) for item_id in item_ids]

    def _running_state(self, item_id: bytes) -> RunningState:
        row = self._items.get(item_id)
        if row is None or row.is_dead or not row.record.lease_id:
            return RunningState.ENDED
        return RunningState.RUNS if row.leased_until_us > self._now_us() else RunningState.EXPIRED

    def complete(
        self, held: Sequence[ItemLease], *, keeps_us: Sequence[int] = (), results: Sequence[bytes | None] = ()
    ) -> list[Outcome | None]:
        """See `ExternalStore`. Keeps no ids and no results."""

        def end(row: StoredItem) -> None:
            del self._items[row.item_id]
            self._ended[row.queue, row.record.kind, row.record.priority] += self.entries_left

        return [self._change(each, end) for each in held]

    def extend(
        self, held: Sequence[LeaseRef], *, lease_us: int, begins: Start | None = None, session: bytes = b""
    ) -> list[Outcome | None]:
        """See `ExternalStore`. `session`: which claims them."""
        here_us = self._now_us()

        def extend(row: StoredItem) -> Outcome:
            if row.leased_until_us <= here_us:
                return Outcome.LEASE_LOST
            if here_us + lease_us < row.leased_until_us:
                row.number = self._take_number()
            row.leased_until_us = here_us + lease_us
            row.started = row.started if begins is None else begins
            row.session = session or row.session
            return Outcome.DONE

        return [self._change(ItemLease(*each), extend) for each in held]

    def release(self, row: StoredItem) -> None:
        """Let an item vest now, whose session has ended."""
        row.leased_until_us, row.session, row.number = 0, b"", self._take_number()

    def requeue(
        self, held: Sequence[ItemLease], delays_us: Sequence[int | None], records: Sequence[ItemRecord | None]
    ) -> list[Outcome | None]:
        """See `ExternalStore`."""
        here_us = self._now_us()

        def requeue(row: StoredItem, delay_us: int | None, record: ItemRecord | None) -> None:
            if record is not None:
                row.record, row.deaths = record, record.expiry_count
            elif row.started in tuple(Start):
                row.deaths = 0
            row.started, row.session = 0, b""
            row.record.lease_id = b""
            row.leased_until_us, row.number = 0, self._take_number()
            row.vesting_us = row.vesting_us if delay_us is None else here_us + delay_us

        return [
            self._change(each, lambda row, us=us, record=record: requeue(row, us, record))  # type: ignore[misc]
            for each, us, record in zip(held, delays_us, records, strict=True)
        ]

    def dead_letter(self, held: Sequence[ItemLease], records: Sequence[DeadLetterRecord]) -> list[Outcome | None]:
        """See `ExternalStore`."""

        def make_dead(row: StoredItem, record: DeadLetterRecord) -> None:
            row.is_dead, row.dead_letter, row.dead_since_us = True, record, self._now_us()
            row.record.lease_id = b""
            row.started, row.deaths, row.session = 0, 0, b""

        return [
            self._change(each, lambda row, record=record: make_dead(row, record))  # type: ignore[misc]
            for each, record in zip(held, records, strict=True)
        ]

    def run_handler(self, held: ItemLease, body: Callable[[Any], tuple[bytes | None, int]]) -> Outcome:
        """See `ExternalStore`. The body gets no connection."""
        row = self._items.get(held.id)
        if row is None or row.record.lease_id != held.lease_id:
            return Outcome.LEASE_LOST
        body(None)
        return self.complete([held])[0] or Outcome.LEASE_LOST

    def arrivals(self, seen: str) -> tuple[str, list[Arrival]]:
        """See `ExternalStore`. A snapshot is written as PostgreSQL writes it: xmin:xmax:those that run."""
        _, xmax, running = seen.split(":")
        ran = {int(number) for number in running.split(",") if number}
        here_us = self._now_us()
        came: dict[Queue, int] = {}
        for row in self._items.values():
            if (row.number >= int(xmax) or row.number in ran) and not row.is_dead:
                in_us = row.vesting_us - here_us
                came[row.queue] = min(in_us, came.get(row.queue, in_us))
        return self._snapshot(), [Arrival(queue, in_us) for queue, in_us in came.items()]

    def snapshot(self) -> str:
        """See `ExternalStore`."""
        return self._snapshot()

    def history(self) -> str:
        """See `ExternalStore`."""
        return "1"

    def set_doorbell(self, rings: bool) -> None:
        """See `ExternalStore`. Nobody hears this bell."""

    def await_doorbell(self, timeout_s: float) -> bool:
        """See `ExternalStore`."""
        return False

    @property
    def known_id(self) -> bytes:
        """See `ExternalStore`."""
        return b"external"

    def store_id(self) -> bytes:
        """See `ExternalStore`."""
        return self.known_id

    def close(self) -> None:
        """See `ExternalStore`."""

    def queues_behind(self, queue: Queue | None, limit: int) -> list[Queue]:
        """See `ExternalStore`."""
        queues = sorted({row.queue for row in self._items.values() if not row.is_dead})
        return [each for each in queues if queue is None or each > queue][:limit]

    def _waiting(self, queue: Queue, here_us: int, stops: Sequence[Stop]) -> list[StoredItem]:
        found = [
            row
            for row in self._items.values()
            if row.queue == queue and not row.is_dead and max(row.vesting_us, row.leased_until_us) <= here_us
            if not _is_before(row, stops, here_us)
        ]
        return sorted(found, key=lambda row: (row.record.priority, row.vesting_us, row.item_id))

    def _change(self, held: ItemLease, change: Callable[[StoredItem], Outcome | None]) -> Outcome:
        row = self._items.get(held.id)
        if row is None or row.is_dead:
            return Outcome.GONE
        if held.lease_id is not None and row.record.lease_id != held.lease_id:
            return Outcome.LEASE_LOST
        return change(row) or Outcome.DONE

    def _snapshot(self) -> str:
        running = sorted(each.number for each in self._open)
        xmin = running[0] if running else self._next_number
        return f"{xmin}:{self._next_number}:{','.join(map(str, running))}"

    def _take_number(self) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        return number


def _is_before(row: StoredItem, stops: Sequence[Stop], here_us: int) -> bool:
    """Say whether a look from these stops does not find an item."""
    pair = (row.record.kind, row.record.priority)
    froms_us = [stop.from_us for stop in stops if (stop.kind, stop.priority) == pair]
    return bool(froms_us) and row.vesting_us < min(*froms_us, here_us - LATE_US)
