"""Handlers in transactions of an external store: what holds the item is the lock of its row, not the lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.messages import ItemRef
from fairlead.simulation.external import statements
from fairlead.simulation.external.client import Session, SimulatedItemStore
from fairlead.simulation.external.items import Change
from fairlead.simulation.external.server import StoreCommit, StoreServer
from fairlead.simulation.external.users import add
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.oracles.external import LeasesInStoreAreRespected
from fairlead.simulation.oracles.oracle import HandlerRun
from fairlead.simulation.replica import ItemName
from fairlead.simulation.world import Violation, World
from fairlead.zones.engines.api.errors import StoreUnavailable
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import ItemLease, LeasedRow, Queue, Want
from fairlead.zones.queue.items import Outcome, new_item
from tests.simulation.mutations.mutation import mutation
from tests.simulation.stage import ALICE

QUEUE, ITEM_ID, LEASE_ID, LEASE_US = Queue(ALICE, "queue"), b"i" * 16, b"l" * 16, 500_000
EFFECT = "effect"


class LateHandler:
    """A handler in a transaction of the store whose worker stands still, as it starts, until its lease has ended."""

    def __init__(self) -> None:
        self.world = World(1)
        self.server = StoreServer(self.world)
        self.clock = NodeClock(self.world, 0)
        self.oracle = LeasesInStoreAreRespected(
            self.world, self.server, lambda _: self.clock.highest_us(), is_consumer=lambda by: by != "user"
        )
        self.oracle.attach(self.server)
        self.effects: list[object] = []
        self.server.on_commit.append(
            lambda commit: self.effects.extend(each.after for each in commit.changes if each.key == EFFECT)
        )
        transaction = self.server.table.begin()
        statements.enqueue(transaction, QUEUE, ITEM_ID, new_item("mail"))
        self.server.commit("user", transaction)
        self.outcomes: list[object] = []
        self.leased_by_others = 0

    def runs(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Let a worker run its item, and another one look for items. `meanwhile` happens while the handler starts."""
        self._do("w0", lambda store: self._run(store, meanwhile))
        self._do("w1", self._look_for_items)

    def _run(self, store: SimulatedItemStore, meanwhile: Callable[[], object]) -> None:
        (row,) = self._dequeue(store, LEASE_ID)
        ref = ItemRef("s0", ALICE, pointer_zone("pg", "queue"), ITEM_ID, LEASE_ID, "mail", False, b"")

        def body(session: Session) -> tuple[None, int]:
            meanwhile()
            self.world.sleep_us(2 * LEASE_US)
            job = Job(None, ref, row.record, b"")
            item, now_us = ItemName("s0", ALICE, ref.zone, ITEM_ID), self.clock.now_us()
            self.oracle.on_start(HandlerRun(item, job, "w0", now_us, may_drop=False, connection=session))
            self._do("w2", self._look_for_items)
            self.world.sleep_us(LEASE_US)
            session.execute(partial(add, key=EFFECT))
            return None, 0

        try:
            self.outcomes.append(store.run_handler(ItemLease(ITEM_ID, LEASE_ID), body))
        except StoreUnavailable as error:
            self.outcomes.append(error)

    def _look_for_items(self, store: SimulatedItemStore) -> None:
        self.leased_by_others += len(self._dequeue(store, store._host.random.randbytes(16)))

    def _dequeue(self, store: SimulatedItemStore, lease_id: bytes) -> list[LeasedRow]:
        how = {"lease_us": LEASE_US, "now_us": self.clock.now_us()}
        return store.dequeue([Want(QUEUE, 1)], {"mail": 1}, lease_id=lease_id, **how).rows

    def _do(self, name: str, body: Callable[[SimulatedItemStore], object]) -> None:
        host = SimulatedHost(self.world, name, self.clock, self.world.random(name), on_recycle=print, on_failure=print)

        def run() -> None:
            body(SimulatedItemStore(self.server, host))

        host.spawn("body", run)
        if self.world.current is None:
            self.world.run_until(self.world.now_us() + 10 * LEASE_US)


def test_a_handler_in_the_store_may_start_late_because_nobody_leases_what_it_has_locked() -> None:
    late = LateHandler()
    late.runs()
    assert (late.outcomes, late.effects, late.leased_by_others) == ([Outcome.DONE], [1], 0)
    assert late.world.violation is None


def test_a_handler_that_starts_late_behind_a_broken_connection_commits_nothing() -> None:
    """Seed 29000747: it cannot know that the server has restarted. Another worker has the item meanwhile."""
    late = LateHandler()

    def restart() -> None:
        late.server.restart()
        late.server.heal()

    late.runs(restart)
    assert isinstance(late.outcomes[0], StoreUnavailable)
    assert late.effects == []
    assert late.leased_by_others
    assert late.world.violation is None


def test_a_handler_that_starts_without_a_lock_on_its_item_is_found() -> None:
    blind = mutation("a handler does not lock its item", (statements.hold, "tx.lock(held.id)", "pass"), found_by=())
    late = LateHandler()
    with blind.planted(), pytest.raises(Violation, match="has not locked under its lease"):
        late.runs()


def violation_after_a_step(step_us: int, *, late_us: int) -> Violation | None:
    """Return the violation if the store's clock steps before a lease is committed, and its handler starts so late."""
    late = LateHandler()
    (waiting,) = late.server.table.rows()
    leased = replace(waiting, lease_id=LEASE_ID, leased_until_us=late.server.clock.now_us() + LEASE_US)
    late.server.clock.jump(step_us)
    late.oracle.on_store_commit(StoreCommit("w0", [Change(ITEM_ID, waiting, leased)]))
    ref = ItemRef("s0", ALICE, pointer_zone("pg", "queue"), ITEM_ID, LEASE_ID, "mail", False, b"")
    item, job = ItemName("s0", ALICE, ref.zone, ITEM_ID), Job(None, ref, leased.record, b"")
    late.oracle.on_start(HandlerRun(item, job, "w0", late.clock.now_us() + late_us, may_drop=False))
    return late.world.violation


def test_a_handler_may_start_although_the_clock_of_the_store_has_stepped_past_its_lease() -> None:
    """Seed 33000103: nobody but the store knows of the step."""
    assert violation_after_a_step(2 * LEASE_US, late_us=LEASE_US // 2) is None


def test_a_handler_that_starts_after_its_lease_by_its_own_clock_is_a_violation() -> None:
    for step_us in (0, 2 * LEASE_US):
        assert violation_after_a_step(step_us, late_us=2 * LEASE_US) is not None
