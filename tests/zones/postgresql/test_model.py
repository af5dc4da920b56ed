"""The simulator's model of an external store answers as PostgreSQL: a random walk over both, with open transactions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fairlead.simulation.external import statements
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.simulation.external.items import Isolation, Locked, SerializationFailure, Transaction
from fairlead.zones.external.store import ItemLease, Queue, Want
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import NewItem, new_item
from fairlead.zones.records import DeadLetterRecord, ItemRecord
from tests.clocks import ManualClock
from tests.zones.postgresql.database import NOW_US, Database

QUEUES = [Queue(Tenant("shop", user), zone) for user in ("alice", "bob") for zone in ("queue", "other")]
KINDS = ("mail", "index")
HOUR_US = 3_600_000_000
STEPS = 150
OPEN_MAX = 2
LEVELS = (Isolation.READ_COMMITTED, Isolation.READ_COMMITTED, Isolation.REPEATABLE_READ)


class Walk:
    """The same calls to the model and to a server. Every answer is the same, but for times."""

    def __init__(self, database: Database, seed: int) -> None:
        self.draw = Random(seed)
        self.clock = ManualClock()
        self.model = ItemsAtOnce(self.clock.now_us)
        self.database, self.real = database, database.store
        self.users: list[tuple[Transaction, Any]] = []
        self.leases: list[ItemLease] = []
        self.ids: list[bytes] = []
        self.seen = (self.model.snapshot(), self.real.snapshot())
        self.happened: set[str] = set()

    def step(self) -> None:
        often = [self.enqueue, self.enqueue, self.enqueue, self.dequeue, self.dequeue]
        self.draw.choice([*often, self.begin, self.end, self.change, self.cancel, self.look])()
        self.clock.advance_us(1_000)

    def begin(self) -> None:
        if len(self.users) < OPEN_MAX:
            level = self.draw.choice(LEVELS)
            connection = self.database.connect(autocommit=False)
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level.value}")
            connection.execute("SET LOCAL lock_timeout = '30ms'")
            connection.execute("SELECT 1 FROM fairlead.store")  # Its snapshot is taken now.
            user = self.model.begin(level)
            user.begin_statement()
            self.users.append((user, connection))

    def enqueue(self) -> None:
        """Enqueue in an open transaction, or in one of its own; an id that another one inserts ends the transaction."""
        queue, item = self.draw.choice(QUEUES), self._item()
        if not self.users or self.draw.random() < 0.3:
            self.begin()
        if self.users:
            user, connection = self.draw.choice(self.users)
            answers = self._enqueue_in(user, connection, queue, item)
            assert answers[0] == answers[1], answers
            if isinstance(answers[0], str):
                self.happened.add(answers[0])
                self._close(user, connection, commits=False)

    def _enqueue_in(self, user: Transaction, connection: Any, queue: Queue, item: NewItem) -> tuple[Any, Any]:
        import psycopg

        from fairlead.zones.external.item_ids import id_of_given, new_id
        from fairlead.zones.external.queue_operations import ItemToPut
        from fairlead.zones.postgresql.queue_operations import put_op
        from fairlead.zones.postgresql.statements import run_op
        from fairlead.zones.queue.items import EnqueueStatus

        given = item.given_id
        item_id = new_id(NOW_US, self.draw) if given is None else id_of_given(queue.tenant, queue.zone, given)
        self.ids.append(item_id)
        try:
            modelled: Any = statements.enqueue(user, queue, item_id, item)
        except (Locked, SerializationFailure) as error:
            modelled = type(error).__name__
        try:
            (status,) = run_op(connection, put_op([ItemToPut(queue, item_id, item)]))
            found: Any = status is EnqueueStatus.ENQUEUED
        except psycopg.errors.LockNotAvailable:
            found = "Locked"
        except psycopg.errors.SerializationFailure:
            found = "SerializationFailure"
        return modelled, found

    def end(self) -> None:
        if self.users:
            user, connection = self.draw.choice(self.users)
            self._close(user, connection, commits=self.draw.random() < 0.8)

    def _close(self, user: Transaction, connection: Any, *, commits: bool) -> None:
        self.users.remove((user, connection))
        if commits:
            self.model.commit(user)
            connection.commit()
        else:
            self.model.roll_back(user)
            connection.rollback()
        connection.close()

    def cancel(self) -> None:
        """Lock an item in an open transaction at READ COMMITTED, so that others pass it over."""
        users = [each for each in self.users if each[0].isolation is Isolation.READ_COMMITTED]
        if users and self.ids:
            user, connection = self.draw.choice(users)
            item_id = self.draw.choice(self.ids)
            (modelled,) = statements.complete(user, [ItemLease(item_id, None)], [0])
            from uuid import UUID

            sent = (
                "SELECT outcome FROM fairlead.complete(%s::uuid[], ARRAY[NULL]::uuid[], ARRAY[0], ARRAY[NULL]::bytea[])"
            )
            (found,) = connection.execute(sent, [[UUID(bytes=item_id)]]).fetchone()
            assert [modelled] == self._outcomes([found])
            self.happened.add(f"cancel: {modelled}")

    def dequeue(self) -> None:
        wants = [Want(queue, self.draw.randint(1, 3)) for queue in self.draw.sample(QUEUES, self.draw.randint(1, 4))]
        rooms = {kind: self.draw.randint(0, 4) for kind in KINDS}
        how: dict[str, Any] = {"lease_id": self.draw.randbytes(16), "lease_us": self.draw.choice([1, HOUR_US])}
        modelled = self.model.dequeue(wants, rooms, now_us=NOW_US, **how).rows
        found = self.real.dequeue(wants, rooms, now_us=NOW_US, **how).rows
        assert [_shown(each) for each in modelled] == [_shown(each) for each in found]
        self.leases += [ItemLease(each.id, how["lease_id"]) for each in found]
        held = {each.id: each.record for each in found}
        if held and self.draw.random() < 0.3:
            records = [held[item_id] for item_id in held]
            self._compare("requeue", [ItemLease(each, how["lease_id"]) for each in held], [*range(len(held))], records)

    def change(self) -> None:
        held = self.draw.sample(self.leases, min(len(self.leases), self.draw.randint(1, 3)))
        held = list({each.id: each for each in held}.values())
        if held:
            which = self.draw.choice(["complete", "extend", "requeue", "dead_letter", "read"])
            if which == "extend":
                self._compare(which, held, lease_us=self.draw.choice([1, HOUR_US]))
            elif which == "requeue":
                # Not two at one time: PostgreSQL says nothing about their order.
                delays = [self.draw.choice([None, number, HOUR_US + number]) for number, _ in enumerate(held)]
                self._compare(which, held, delays, [None] * len(held))
            elif which == "dead_letter":
                record = DeadLetterRecord(ItemRecord("mail", b"", 1, 0, 0), "error", "", "", NOW_US)
                self._compare(which, held, [record] * len(held))
            elif which == "complete":
                self._compare(which, held, keeps_us=[self.draw.choice([0, 1, HOUR_US]) for _ in held])
            else:
                modelled, found = (each.read(held, now_us=NOW_US) for each in (self.model, self.real))
                assert {each.id for each in modelled} == {each.id for each in found}

    def _compare(self, which: str, held: list[ItemLease], *arguments: Any, **named: Any) -> None:
        modelled = getattr(self.model, which)(held, *arguments, **named)
        found = getattr(self.real, which)(held, *arguments, **named)
        assert modelled == found, which
        self.happened.update(f"{which}: {each}" for each in found)

    def look(self) -> None:
        """Look at what is left, and at what has arrived since the last look."""
        modelled, found = self.model.outlook(QUEUES), self.real.outlook(QUEUES)
        assert [_shown_left(each) for each in modelled] == [_shown_left(each) for each in found]
        assert self.model.running(self.ids) == self.real.running(self.ids)
        assert self.model.queues_behind(None, 9) == self.real.queues_behind(None, 9)
        came = self.model.arrivals(self.seen[0], self.model.history())
        found_to_come = self.real.arrivals(self.seen[1], self.real.history())
        assert {each.queue for each in came.arrivals} == {each.queue for each in found_to_come.arrivals}
        self.seen = (came.seen, found_to_come.seen)

    def _item(self) -> NewItem:
        draw = self.draw
        how: dict[str, Any] = {"priority": draw.choice([1, 100]), "delay": draw.choice([0, 0, 3_600])}
        if draw.random() < 0.4:
            how |= {"item_id": f"named {draw.randrange(3)}", "unique_for": draw.choice([0, 50])}
        return new_item(draw.choice(KINDS), **how)

    def _outcomes(self, codes: list[int]) -> list[Any]:
        from fairlead.zones.postgresql.arguments import OUTCOMES

        return [OUTCOMES[code] for code in codes]


def _shown(row: Any) -> tuple[Any, ...]:
    record = row.record
    return (
        row.queue,
        row.id,
        row.had_expired,
        record.lease_number,
        record.expired_count,
        record.expiry_count,
        record.kind,
    )


def _shown_left(queue: Any) -> list[Any]:
    return sorted((each.kind, each.priority, each.waits, each.next_us is not None) for each in queue)


@pytest.mark.parametrize("seed", range(4))
def test_the_model_answers_as_the_server(database: Database, seed: int) -> None:
    walk = Walk(database, seed)
    try:
        for _ in range(STEPS):
            walk.step()
    finally:
        for user, connection in list(walk.users):
            walk._close(user, connection, commits=False)
    assert len(walk.happened) > 4, walk.happened
