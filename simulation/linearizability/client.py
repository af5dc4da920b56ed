"""One client of a queue zone: draws operations, calls the product's own, and records their answers.

One transaction is one operation. When `transact` runs a body again after an unknown result, the attempt before may have
happened, and both are in the history. Only an enqueue is guaranteed to happen once, after any number of attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fairlead.simulation import zone_model as model
from fairlead.simulation.linearizability.history import Attempt as Attempted
from fairlead.simulation.linearizability.history import RecordedAnswer, Recorder
from fairlead.simulation.world import START_US
from fairlead.simulation.zone_model import Item, Refusal, item_of
from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemGone, NotVested
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import Outcome, unpack_payload
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

ALICE = Tenant("shop", "alice")
NAMES = ("first", "second")  # ids that several clients give
NAMED = frozenset(map(item_id_of, NAMES))
KINDS = ("mail", "image")
LATER_THAN_ALL_US = 1 << 50
LATEST = 4  # Clients choose among the latest items and leases.


@dataclass(slots=True)
class Known:
    """The knowledge that clients share: ids of items and of dead letters, and leases."""

    ids: list[bytes] = field(default_factory=lambda: sorted(NAMED))
    dead_lettered: list[bytes] = field(default_factory=lambda: sorted(NAMED))
    leases: list[tuple[bytes, bytes]] = field(default_factory=list)


class Client:
    """One incarnation of a client, on an open shard. Each public method draws and calls one operation."""

    def __init__(
        self, name: str, shard: Shard, random: Random, recorder: Recorder, known: Known, *, commits_can_be_late: bool
    ) -> None:
        self._name = name
        self._commits_can_be_late = commits_can_be_late
        self._shard = shard
        self._zone = shard.zone(ALICE)
        self._draw = random
        self._recorder = recorder
        self._known = known

    def call_one(self) -> None:
        """Call a drawn operation."""
        weights: dict[Callable[[], None], int] = {
            self.enqueue: 7, self.dequeue: 5, self.obtain_lease: 2, self.complete: 3, self.follow: 2, self.cancel: 2,
            self.extend: 3, self.requeue: 3, self.move_to_dead_letters: 1, self.retry_dead_letter: 1, self.peek: 1,
            self.count: 1, self.is_empty: 1, self.min_vesting: 1,
        }  # fmt: skip
        (operation,) = self._draw.choices(list(weights), list(weights.values()))
        operation()

    # --- Operations that change the zone ---

    def enqueue(self) -> None:
        """Enqueue an item, with an id that other clients use, too, or with a random id."""
        enqueue_in = self._new_item()
        self._transact(lambda attempt: [enqueue_in(attempt)], happens_once=True)

    def follow(self) -> None:
        """Complete an item under a lease and enqueue another, in one transaction."""
        item_id, lease_id = self._a_lease()
        enqueue_in = self._new_item()

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            completed, enqueued = self._complete_in(attempt, item_id, lease_id), enqueue_in(attempt)
            both = model.InOneTransaction((completed.call, enqueued.call))
            return [RecordedAnswer(both, (completed.answer, enqueued.answer))]

        self._transact(once, happens_once=True)

    def _new_item(self) -> Callable[[Attempt], RecordedAnswer]:
        """Draw an item, and return a function that enqueues it. It shares the id before the commit."""
        draw = self._draw
        name = draw.choice([None, *NAMES])
        taken_ms = 0 if name is None else draw.choice([0, 100])
        kind, priority, delay_ms = draw.choice(KINDS), draw.choice([0, 100, 100]), draw.choice([0, 0, 0, 10, 200])
        payload = draw.randrange(1 << 20)  # distinguishes the items with the same id

        def enqueue_in(attempt: Attempt) -> RecordedAnswer:
            item_id, status = TenantTransaction(self._shard, ALICE, attempt).enqueue(
                kind, payload, item_id=name, priority=priority, delay=delay_ms / 1000, unique_for=taken_ms / 1000
            )
            if item_id not in self._known.ids[-LATEST:]:
                self._known.ids.append(item_id)
            call = model.Enqueue(
                item_id,
                named=name is not None,
                kind=kind,
                payload=payload,
                priority=priority,
                delay_us=delay_ms * 1000,
                unique_us=taken_ms * 1000,
                now_us=_since_start(attempt.now_us),
            )
            return RecordedAnswer(call, status)

        return enqueue_in

    def dequeue(self) -> None:
        """Lease the items for which there is capacity, in order."""
        items_max = self._draw.choice([1, 2, 4])
        kinds = {kind: self._draw.choice([1, 4]) for kind in self._draw.choice([KINDS, KINDS, KINDS[:1]])}
        lease_us = self._lease_us()
        expiries, poison_candidates = (
            self._shard.layout.settings.expiries_before_isolation,
            self._draw.choice([0, 1, 1]),
        )

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            number, lease_id = self._recorder.moment(), attempt.new_id()
            items = self._zone.dequeue(
                attempt.tr,
                capacity=Capacity(items_max, kinds, poison_candidates=poison_candidates),
                lease_id=lease_id,
                lease_us=lease_us,
                now_us=attempt.now_us,
            )
            now_us = _since_start(attempt.now_us)
            look = model.PlanDequeue(
                number, items_max, tuple(kinds.items()), poison_candidates, expiries, lease_id, lease_us, now_us
            )
            leased = tuple(_item(each.id, each.record) for each in items)
            return [
                RecordedAnswer(look, leased, over=self._recorder.moment()),
                RecordedAnswer(model.CommitDequeue(number), Outcome.DONE),
            ]

        (look, _), _ = self._transact(once)
        self._known.leases += [(item.id, item.lease_id) for item in look.answer]

    def obtain_lease(self) -> None:
        """Lease one item."""
        item_id, lease_us = self._an_id(), self._lease_us()

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            lease_id = attempt.new_id()
            call = model.ObtainLease(item_id, lease_id, lease_us, _since_start(attempt.now_us))
            try:
                leased = self._zone.obtain_lease(
                    attempt.tr, item_id, lease_id=lease_id, lease_us=lease_us, now_us=attempt.now_us
                )
            except ItemGone:
                return [RecordedAnswer(call, Outcome.GONE)]
            except NotVested as error:
                return [RecordedAnswer(call, model.NotVested(int(str(error.fields["vests_in_ms"]))))]
            return [RecordedAnswer(call, _item(item_id, leased.record))]

        (answered,), _ = self._transact(once)
        if isinstance(answered.answer, Item):
            self._known.leases.append((item_id, answered.answer.lease_id))

    def complete(self) -> None:
        """Complete an item under a lease."""
        self._complete(*self._a_lease())

    def cancel(self) -> None:
        """Delete an item under any lease."""
        self._complete(self._an_id(), None)

    def _complete(self, item_id: bytes, lease_id: bytes | None) -> None:
        """Delete an item. After an unknown result this succeeds if the item is gone.

        If the answer is that the item was gone before, none of the attempts happened. This does not hold for items with
        a chosen id, which may be enqueued and deleted again in between, nor if a commit can be late.
        """

        def was_applied(tr: Transaction) -> bool:
            asking = self._recorder.begin(self._name)
            gone = is_gone(tr, self._zone.location.keys.item(item_id))
            asking.answers = [RecordedAnswer(model.IsGone(item_id), gone)]
            self._recorder.end(asking)
            return gone

        (answered,), unknown = self._transact(
            lambda attempt: [self._complete_in(attempt, item_id, lease_id)], applied=was_applied
        )
        if answered.answer is Outcome.GONE and item_id not in NAMED and not self._commits_can_be_late:
            for attempted in unknown:
                self._recorder.drop(attempted)

    def _complete_in(self, attempt: Attempt, item_id: bytes, lease_id: bytes | None) -> RecordedAnswer:
        call = model.Complete(item_id, lease_id, _since_start(attempt.now_us))
        held = [(item_id, lease_id)]
        (outcome,) = run_one(self._zone.complete_op(attempt.tr, held, now_us=attempt.now_us, ended=[]))
        return RecordedAnswer(call, outcome)

    def extend(self) -> None:
        """Extend a lease."""
        item_id, lease_id = self._a_lease()
        lease_us, ran_isolated = self._lease_us(), self._draw.random() < 0.5
        started = ran_isolated or self._draw.random() < 0.5

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            call = model.ExtendLease(item_id, lease_id, lease_us, started, ran_isolated, _since_start(attempt.now_us))
            operation = self._zone.extend_op(
                attempt.tr,
                [(item_id, lease_id)],
                lease_us=lease_us,
                now_us=attempt.now_us,
                started=started,
                ran_isolated=ran_isolated,
            )
            return [RecordedAnswer(call, run_one(operation)[0])]

        self._transact(once)

    def requeue(self) -> None:
        """Requeue a leased item, sometimes because it failed."""
        item_id, lease_id = self._a_lease()
        held_under = self._draw.choice([lease_id, lease_id, None])
        delay_us, error_count = self._draw.choice([0, 10_000, 200_000]), self._draw.choice([None, 1])

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            call = model.Requeue(item_id, held_under, delay_us, error_count, _since_start(attempt.now_us))
            operation = self._zone.requeue_op(
                attempt.tr, item_id, held_under, delay_us=delay_us, now_us=attempt.now_us, error_count=error_count
            )
            return [RecordedAnswer(call, run_one(operation))]

        self._transact(once)

    def move_to_dead_letters(self) -> None:
        """Make a leased item a dead letter, as a worker does after a permanent error."""
        item_id, lease_id = self._a_lease()

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            call = model.MoveToDeadLetters(item_id, lease_id)
            value = attempt.tr.get(self._zone.location.keys.item(item_id)).value
            record = None if value is None else decode(ItemRecord, value)
            if record is None:
                return [RecordedAnswer(call, Outcome.GONE)]
            if record.lease_id != lease_id:
                return [RecordedAnswer(call, Outcome.LEASE_LOST)]
            move_to_dead_letters(
                attempt.tr, self._zone.location, item_id, record,
                reason="error", error="drawn", traceback="", now_us=attempt.now_us,
            )  # fmt: skip
            return [RecordedAnswer(call, Outcome.DONE)]

        self._transact(once)
        self._known.dead_lettered.append(item_id)

    def retry_dead_letter(self) -> None:
        """Put an item back into the queue, if it is a dead letter."""
        item_id = self._draw.choice(self._known.dead_lettered[-LATEST:])

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            call = model.RetryDeadLetter(item_id, _since_start(attempt.now_us))
            record = read(attempt.tr, self._zone.location, item_id)
            if record is None:
                return [RecordedAnswer(call, Refusal.NOT_A_DEAD_LETTER)]
            retry_dead_letter(attempt.tr, self._zone.location, item_id, record, now_us=attempt.now_us)
            run_one(self._zone.wake_op(attempt.tr, earliest_us=attempt.now_us, now_us=attempt.now_us))
            return [RecordedAnswer(call, Outcome.DONE)]

        self._transact(once)

    # --- Operations that only read ---

    def peek(self) -> None:
        """Peek at the items that have vested."""
        items_max = self._draw.choice([1, 3, 100])
        self._peek(items_max, lambda now_us: now_us)

    def peek_all(self) -> None:
        """Peek at all items, vested or not."""
        self._peek(100, lambda _: START_US + LATER_THAN_ALL_US)

    def _peek(self, items_max: int, until_us: Callable[[int], int]) -> None:
        def once(attempt: Attempt) -> list[RecordedAnswer]:
            now_us = until_us(attempt.now_us)
            items = self._zone.peek(attempt.tr, items_max=items_max, now_us=now_us)
            call = model.Peek(items_max, _since_start(now_us))
            return [RecordedAnswer(call, tuple(_item(each.id, each.record) for each in items))]

        self._transact(once)

    def count(self) -> None:
        """Count the items."""
        self._transact(lambda attempt: [RecordedAnswer(model.Count(), self._zone.count(attempt.tr))])

    def is_empty(self) -> None:
        """Read whether there are items."""
        self._transact(lambda attempt: [RecordedAnswer(model.IsEmpty(), self._zone.is_empty(attempt.tr))])

    def min_vesting(self) -> None:
        """Read the earliest vesting time."""

        def once(attempt: Attempt) -> list[RecordedAnswer]:
            earliest_us = self._zone.min_vesting_us(attempt.tr)
            return [RecordedAnswer(model.MinVesting(), None if earliest_us is None else _since_start(earliest_us))]

        self._transact(once)

    # --- Draws and records ---

    def _an_id(self) -> bytes:
        return self._draw.choice(self._known.ids[-LATEST:])

    def _a_lease(self) -> tuple[bytes, bytes]:
        """Return an item and a client's lease of it, if there was one."""
        return self._draw.choice(self._known.leases[-LATEST:] or [(self._an_id(), bytes(16))])

    def _lease_us(self) -> int:
        return self._draw.choice([5_000, 50_000, 1_000_000])

    def _transact(
        self,
        once: Callable[[Attempt], list[RecordedAnswer]],
        *,
        happens_once: bool = False,
        applied: Callable[[Any], bool] = lambda tr: False,
    ) -> tuple[list[RecordedAnswer], list[Attempted]]:
        """Run `once` in transactions until one commits. Return its answers, and the attempts of unknown result.

        Args:
          once: one attempt: calls the operation, and returns the model's operation with the answer.
          happens_once: whether the product guarantees that all attempts together happen once.
          applied: see `Shard.transact`.

        Raises:
          StoreError: the client gives up. Its attempts may have happened.
        """
        recorder = self._recorder
        attempts: list[Attempted] = []
        unknown: list[Attempted] = []

        def body(attempt: Attempt) -> Attempted:
            if attempts and happens_once:
                self._lose(attempts[-1])
            elif attempts and attempts[-1] not in unknown:
                recorder.drop(attempts[-1])  # It was refused.
            attempts.append(recorder.begin(self._name))
            attempts[-1].answers = once(attempt)
            return attempts[-1]

        def was_applied(tr: Transaction) -> bool:
            unknown.append(attempts[-1])
            self._lose(attempts[-1])
            return applied(tr)

        committed = self._shard.transact(body, applied=was_applied)
        if happens_once:
            committed.invoked = attempts[0].invoked
            for other in attempts:
                if other is not committed:
                    recorder.drop(other)
        if happens_once or committed not in unknown:
            recorder.end(committed)
        return committed.answers, unknown

    def _lose(self, attempted: Attempted) -> None:
        """Record that an attempt may have happened. Unless commits can be late, it cannot happen after this."""
        if not self._commits_can_be_late:
            self._recorder.lose(attempted)


def is_gone(tr: Transaction, item_key: bytes) -> bool:
    """Whether no item is stored under a key. Reads the key with conflict."""
    return not tr.get(item_key).present()


def _since_start(time_us: int) -> int:
    return time_us - START_US


def _item(item_id: bytes, record: ItemRecord) -> Item:
    return item_of(item_id, record, unpack_payload(record.payload), epoch_us=START_US)
