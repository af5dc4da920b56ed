"""A queue in an external store behaves like the sequential model of a queue zone, whatever is done to it.

The model is that of the queues in shards. What differs: a dequeue takes the items in the order in which they vested
first, so one whose lease has expired stands where it stood; a lease that has expired is not extended; and deaths of
workers are not compared here. The store's clock stands still, and is another one than the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from fairlead.simulation import zone_model as model
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.simulation.zone_model import Item, Zone, ZoneOperation, item_of
from fairlead.zones.external.item_ids import id_of_given, new_id
from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import DeadRow, ItemToPut
from fairlead.zones.external.store import ExternalStore, ItemLease, Want
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import Outcome, new_item
from fairlead.zones.records import DeadLetterRecord, ItemRecord
from tests.zones.postgresql.database import Database

QUEUE = Queue(Tenant("shop", "alice"), "queue")
MS, SECOND = 1_000, 1_000_000
LEASE_US = 10 * SECOND
BEGAN_US = 1_700_000_000_000_000  # By the clock of the store.
AHEAD_US = 1_000 * SECOND  # How much the caller's clock is ahead.
NOBODYS_LEASE = b"nobody's lease. "

NAMES = st.sampled_from(["a", "b", "c", None])
KINDS = st.sampled_from(["mail", "index", "fax"])
PRIORITIES = st.sampled_from([0, 100, 255])
DELAYS_MS = st.sampled_from([0, 0, 0, 3, 40, 2_000, 20_000])
ROOMS = st.sampled_from([{"mail": 1_000, "index": 1_000}, {"mail": 1_000}, {"mail": 1_000, "fax": 0}, {}])
WHICH = st.integers(0, 10**6)


class StoppedClock(Protocol):
    """The clock of a store, which stands still until it is set."""

    def set_us(self, now_us: int) -> None:
        """Let it show this time."""
        ...


class ExternalZoneMachine(RuleBasedStateMachine):
    """One queue of a store beside its model."""

    def __init__(self, store: ExternalStore, clock: StoppedClock) -> None:
        super().__init__()
        self.store = store
        self.clock = clock
        self.random = Random(7)
        self.model = Zone()
        self.here_us = BEGAN_US
        self.leases: list[bytes] = [NOBODYS_LEASE]
        self.records: dict[bytes, ItemRecord] = {}
        self.stale: list[DeadRow] = []
        clock.set_us(self.here_us)
        for item in store.queues.peek(QUEUE, items_max=1_000, vested_only=False, now_us=0):
            store.queues.cancel(QUEUE, [item.id], force=False)
        store.queues.discard_dead_letters(store.queues.dead_letters(QUEUE, items_max=1_000))

    @property
    def now_us(self) -> int:
        """The time of the caller."""
        return self.here_us + AHEAD_US

    def expect(self, operation: ZoneOperation) -> Any:
        """Return the model's answer to an operation, and keep the state to which it leads."""
        answer, self.model = operation.on(self.model)
        return answer

    # --- Enqueue, and time ---

    @rule(
        batch=st.lists(
            st.tuples(NAMES, KINDS, PRIORITIES, DELAYS_MS, st.sampled_from([0, 5_000])), min_size=1, max_size=5
        )
    )
    def enqueue(self, batch: list[tuple[str | None, str, int, int, int]]) -> None:
        items: list[ItemToPut] = []
        expected = []
        for name, kind, priority, delay_ms, taken_ms in batch:
            taken_s = taken_ms / 1000 if name is not None else 0
            item = new_item(
                kind, len(items), item_id=name, priority=priority, delay=delay_ms / 1000, unique_for=taken_s
            )
            item_id = new_id(self.now_us, self.random) if name is None else id_of_given(*QUEUE, name)
            items.append(ItemToPut(QUEUE, item_id, item))
            expected.append(
                self.expect(
                    model.Enqueue(
                        item_id,
                        named=name is not None,
                        kind=kind,
                        payload=item.payload,
                        priority=priority,
                        delay_us=item.delay_us,
                        unique_us=item.unique_us,
                        now_us=self.now_us,
                    )
                )
            )
        assert self.store.queues.put(items) == expected

    @rule(duration_us=st.sampled_from([1, 5 * MS, SECOND, LEASE_US - 1, LEASE_US, 70 * SECOND]))
    def time_passes(self, duration_us: int) -> None:
        self.here_us += duration_us
        self.clock.set_us(self.here_us)

    # --- Leases ---

    @rule(items_max=st.integers(1, 5), rooms=ROOMS)
    def dequeue(self, items_max: int, rooms: dict[str, int]) -> None:
        lease_id = self.random.randbytes(16)
        admitted = [item for item in self.model.vested(self.now_us) if rooms.get(item.kind)]
        leased = self.store.dequeue(
            [Want(QUEUE, items_max)], rooms, lease_id=lease_id, lease_us=LEASE_US, now_us=self.now_us
        ).rows
        assert len(leased) == min(items_max, len(admitted))
        assert {row.id for row in leased} <= {item.id for item in admitted}
        first = [item.id for item in admitted if not item.lease_id][:items_max]
        assert [row.id for row in leased if row.id in first] == first[: len(leased) - _expired(leased)]
        for row in leased:
            found = self.expect(model.ObtainLease(row.id, lease_id, LEASE_US, self.now_us))
            assert self.seen(item_of(row.id, row.record, row.record.payload)) == self.seen(found)
            self.records[row.id] = row.record
        self.leases.append(lease_id)

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans())
    def complete(self, which: int, lease: int, own: bool) -> None:
        item, lease_id = self.item_and_lease(which, lease, own)
        outcomes = self.store.complete([ItemLease(item.id, lease_id)], keeps_us=[item.unique_us], results=[None])
        assert outcomes == [self.expect(model.Complete(item.id, lease_id, self.now_us))]

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        item = one_of(self.model.items, which)
        assert self.store.queues.cancel(QUEUE, [item.id], force=False)
        assert self.expect(model.Complete(item.id, None, self.now_us)) is Outcome.DONE
        assert not self.store.queues.cancel(QUEUE, [item.id], force=False)

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans(), lease_us=st.sampled_from([SECOND, LEASE_US]))
    def extend(self, which: int, lease: int, own: bool, lease_us: int) -> None:
        item, lease_id = self.item_and_lease(which, lease, own)
        if item.lease_id == lease_id and item.vesting_us <= self.now_us:
            return
        outcomes = self.store.extend([ItemLease(item.id, lease_id)], lease_us=lease_us)
        operation = model.ExtendLease(item.id, lease_id, lease_us, False, False, self.now_us)
        assert outcomes == [self.expect(operation)]

    @precondition(lambda self: self.model.items)
    @rule(which=WHICH, lease=WHICH, own=st.booleans(), delay_ms=DELAYS_MS, failed=st.booleans())
    def requeue(self, which: int, lease: int, own: bool, delay_ms: int, failed: bool) -> None:
        item, lease_id = self.item_and_lease(which, lease, own)
        record = self.records.get(item.id) if failed and item.lease_id == lease_id else None
        errors = None
        if record is not None:
            errors = record.error_count = item.error_count + 1
        outcomes = self.store.requeue([ItemLease(item.id, lease_id)], [delay_ms * MS], [record])
        assert outcomes == [self.expect(model.Requeue(item.id, lease_id, delay_ms * MS, errors, self.now_us))]

    def item_and_lease(self, which: int, lease: int, own: bool) -> tuple[Item, bytes]:
        """Choose an item, and its own lease or any other that ever was."""
        item = one_of(self.model.items, which)
        return item, item.lease_id if own and item.lease_id else self.leases[lease % len(self.leases)]

    # --- Dead letters ---

    @precondition(lambda self: any(item.lease_id for item in self.model.items))
    @rule(which=WHICH)
    def become_a_dead_letter(self, which: int) -> None:
        item = one_of([item for item in self.model.items if item.lease_id], which)
        record = self.records[item.id]
        record.error_count = item.error_count + 1
        dead_letter = DeadLetterRecord(record, "error", "boom", "", self.now_us)
        assert self.store.dead_letter([ItemLease(item.id, item.lease_id)], [dead_letter]) == [Outcome.DONE]
        assert self.expect(model.MoveToDeadLetters(item.id, item.lease_id, record.error_count)) is Outcome.DONE

    @precondition(lambda self: self.model.dead_letters)
    @rule(which=WHICH, retries=st.booleans())
    def retry_or_discard_a_dead_letter(self, which: int, retries: bool) -> None:
        item_id = one_of(self.model.dead_letters, which).id
        row = self.store.queues.find(QUEUE, [item_id], now_us=self.now_us)
        assert isinstance(row, DeadRow)
        queues = self.store.queues
        done = queues.retry_dead_letters([row], now_us=self.now_us) if retries else queues.discard_dead_letters([row])
        operation = model.RetryDeadLetter(item_id, self.now_us) if retries else model.DiscardDeadLetter(item_id)
        assert done == [row]
        assert self.expect(operation) is Outcome.DONE
        assert queues.retry_dead_letters([row], now_us=self.now_us) == queues.discard_dead_letters([row]) == []

    @precondition(lambda self: self.model.dead_letters)
    @rule(which=WHICH)
    def cancel_a_dead_letter_by_force(self, which: int) -> None:
        item_id = one_of(self.model.dead_letters, which).id
        assert not self.store.queues.cancel(QUEUE, [item_id], force=False)
        assert self.store.queues.cancel(QUEUE, [item_id], force=True)
        assert self.expect(model.DiscardDeadLetter(item_id)) is Outcome.DONE

    # --- What must hold after every step ---

    def seen(self, item: Item) -> tuple[object, ...]:
        """Return what is compared of an item."""
        return (item.id, item.priority, item.vesting_us, item.kind, item.payload, item.unique_us, item.error_count)

    @invariant()
    def peek_shows_the_items_of_the_model_in_order(self) -> None:
        for vested_only, expected in ((False, self.model.items), (True, self.model.vested(self.now_us))):
            found = self.store.queues.peek(QUEUE, items_max=1_000, vested_only=vested_only, now_us=self.now_us)
            items = [item_of(each.id, each.record, each.record.payload) for each in found]
            assert [self.seen(item) for item in items] == [self.seen(item) for item in expected]

    @invariant()
    def counts_equal_the_items(self) -> None:
        assert self.store.queues.count(QUEUE) == self.expect(model.Count())

    @invariant()
    def the_outlook_says_whether_something_waits_and_when_something_will(self) -> None:
        (outlook,) = self.store.outlook([QUEUE])
        waiting = {(item.kind, item.priority) for item in self.model.vested(self.now_us)}
        assert {(each.kind, each.priority) for each in outlook if each.waits} == waiting
        later = [item.vesting_us - self.now_us for item in self.model.items if item.vesting_us > self.now_us]
        nexts = [each.next_us for each in outlook if each.next_us is not None]
        assert min(nexts, default=None) == min(later, default=None)

    @invariant()
    def dead_letters_are_those_of_the_model(self) -> None:
        rows = self.store.queues.dead_letters(QUEUE, items_max=1_000)
        assert {row.place.id for row in rows} == {item.id for item in self.model.dead_letters}
        paged: list[DeadRow] = []
        while page := self.store.queues.dead_letters(None, items_max=2, behind=paged[-1].place if paged else None):
            paged += page
        assert paged == rows


def _expired(leased: Sequence[Any]) -> int:
    return sum(row.had_expired for row in leased)


def one_of(items: Sequence[Item], which: int) -> Item:
    """Return one of the items, in the order of their ids."""
    return sorted(items, key=lambda item: item.id)[which % len(items)]


class DatabaseClock:
    """The clock of a database, as its functions see it."""

    def __init__(self, database: Database) -> None:
        self._connections = database.connections
        with database.connect() as connection:
            connection.execute("CREATE TABLE stopped (now_us bigint); INSERT INTO stopped VALUES (0)")
            connection.execute(
                "CREATE OR REPLACE FUNCTION fairlead.now_us() RETURNS bigint LANGUAGE sql VOLATILE"
                " SET search_path = pg_catalog, pg_temp RETURN (SELECT now_us FROM public.stopped)"
            )

    def set_us(self, now_us: int) -> None:
        """See `StoppedClock`."""
        with self._connections.call() as call:
            call.execute("UPDATE public.stopped SET now_us = %b", now_us)


class ModelClock:
    """The clock of a model."""

    now_us = 0

    def set_us(self, now_us: int) -> None:
        """See `StoppedClock`."""
        self.now_us = now_us


def test_a_queue_in_postgresql(empty_database: Database) -> None:
    empty_database.prepare()
    clock = DatabaseClock(empty_database)

    def machine() -> ExternalZoneMachine:
        empty_database.empty()
        return ExternalZoneMachine(empty_database.store, clock)

    run_state_machine_as_test(cast(Any, machine), settings=settings(max_examples=3, stateful_step_count=40))


def test_a_queue_in_the_model_of_a_store() -> None:
    def machine() -> ExternalZoneMachine:
        clock = ModelClock()
        return ExternalZoneMachine(ItemsAtOnce(lambda: clock.now_us), clock)

    run_state_machine_as_test(cast(Any, machine), settings=settings(max_examples=10, stateful_step_count=40))
