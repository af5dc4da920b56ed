"""An external store as the product calls it: each call is one statement, which something carries out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from fairlead.simulation.external import statements
from fairlead.simulation.external.items import Isolation, ItemTable, Statement, StoredItem, T, Transaction
from fairlead.simulation.external.queues import Queues
from fairlead.simulation.external.sessions import Sessions, Upkeep
from fairlead.simulation.external.steps import ExternalSteps
from fairlead.zones.external.store import (
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
from fairlead.zones.queue.items import NewItem, Outcome
from fairlead.zones.records import DeadLetterRecord, ItemRecord


class Calls(ABC):
    """See `ExternalStore`. Its steps are a model apart; in worlds, workflows do none there."""

    notifies = True

    @cached_property
    def steps(self) -> ExternalSteps:
        """See `ExternalStore`."""
        return ExternalSteps()

    @cached_property
    def queues(self) -> Queues:
        """See `ExternalStore`."""
        return Queues(self.carry_out)

    @cached_property
    def sessions(self) -> Sessions:
        """See `ExternalStore`."""
        return Sessions(self.carry_out)

    @cached_property
    def upkeep(self) -> Upkeep:
        """See `ExternalStore`."""
        return Upkeep(self.carry_out)

    @abstractmethod
    def carry_out(self, statement: Statement[T], *, writes: bool) -> T:
        """Carry out a statement in a transaction of its own, and commit it; return its answer. `writes`: it may."""
        ...

    def dequeue(
        self, wants: Sequence[Want], rooms: Mapping[str, int], *, lease_id: bytes, lease_us: int, now_us: int
    ) -> Dequeued:
        """See `ExternalStore`."""
        how = {"lease_id": lease_id, "lease_us": lease_us, "now_us": now_us}
        return self.carry_out(lambda tx: statements.dequeue(tx, wants, rooms, **how), writes=True)  # type: ignore[arg-type]

    def read(self, held: Sequence[ItemLease], *, now_us: int) -> list[LeasedRow]:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: statements.read(tx, held, now_us=now_us), writes=False)

    def outlook(self, queues: Sequence[Queue], stops: Sequence[Sequence[Stop]] = ()) -> list[list[Outlook]]:
        """See `ExternalStore`."""
        wanted = list(zip(queues, stops or [()] * len(queues), strict=True))
        return self.carry_out(lambda tx: [statements.outlook(tx, *each) for each in wanted], writes=False)

    def running(self, item_ids: Sequence[bytes]) -> list[RunningState]:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: [statements.running(tx, each) for each in item_ids], writes=False)

    def complete(
        self, held: Sequence[ItemLease], *, keeps_us: Sequence[int] = (), results: Sequence[bytes | None] = ()
    ) -> list[Outcome | None]:
        """See `ExternalStore`."""
        keeps = keeps_us or [0] * len(held)
        return self.carry_out(lambda tx: statements.complete(tx, held, keeps, results), writes=True)

    def extend(self, held: Sequence[ItemLease], *, lease_us: int, begins: Start | None = None) -> list[Outcome | None]:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: statements.extend(tx, held, lease_us=lease_us, begins=begins), writes=True)

    def requeue(
        self,
        held: Sequence[ItemLease],
        delays_us: Sequence[int | None],
        records: Sequence[ItemRecord | None],
        *,
        tracebacks: Sequence[str] = (),
    ) -> list[Outcome | None]:
        """See `ExternalStore`. Nobody reads tracebacks here, so none is kept."""
        return self.carry_out(lambda tx: statements.requeue(tx, held, delays_us, records), writes=True)

    def dead_letter(self, held: Sequence[ItemLease], records: Sequence[DeadLetterRecord]) -> list[Outcome | None]:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: statements.dead_letter(tx, held, records), writes=True)

    def run_handler(self, held: ItemLease, body: Callable[[Any], tuple[bytes | None, int]]) -> Outcome:
        """See `ExternalStore`. The body gets the transaction."""

        def run(tx: Transaction) -> Outcome:
            if not statements.hold(tx, held):
                return Outcome.LEASE_LOST
            result, keep_us = body(tx)
            return statements.complete(tx, [held], [keep_us], [result])[0] or Outcome.LEASE_LOST

        return self.carry_out(run, writes=True)

    def arrivals(self, seen: str, history: str) -> Look:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: statements.arrivals(tx, seen, history), writes=False)

    def snapshot(self) -> str:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: tx.table.snapshot_now(), writes=False)

    def history(self) -> str:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: str(tx.table.timeline), writes=False)

    def set_doorbell(self, rings: bool) -> None:
        """See `ExternalStore`."""
        self.carry_out(partial(statements.set_doorbell, rings=rings), writes=True)

    def hears_doorbell(self) -> bool:
        """See `ExternalStore`."""
        return True

    def await_doorbell(self, timeout_s: float) -> int:
        """See `ExternalStore`. Nobody hears this bell."""
        return 0

    @property
    def known_id(self) -> bytes:
        """See `ExternalStore`."""
        return b"external"

    def store_id(self) -> bytes:
        """See `ExternalStore`."""
        return self.known_id

    def close(self) -> None:
        """See `ExternalStore`. The world ends all connections."""
        return

    def queues_behind(self, queue: Queue | None, limit: int) -> list[Queue]:
        """See `ExternalStore`."""
        return self.carry_out(lambda tx: statements.queues_behind(tx, queue, limit), writes=False)


class ItemsAtOnce(Calls):
    """A store that carries each statement out at once, in a transaction that commits. `now_us`: its own clock."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.table = ItemTable(now_us)

    def carry_out(self, statement: Statement[T], *, writes: bool) -> T:
        """See `Calls`."""
        tx, end = self.begin(), self.table.roll_back
        try:
            answer = statement(tx)
            end = self.table.commit  # type: ignore[assignment]
        finally:
            end(tx)
        return answer

    @property
    def items(self) -> Mapping[bytes, StoredItem]:
        """All rows that are committed."""
        return {row.item_id: row for row in self.table.rows()}

    # --- Users ---

    def begin(self, isolation: Isolation = Isolation.READ_COMMITTED) -> Transaction:
        """Begin a user's transaction."""
        return self.table.begin(isolation)

    def enqueue(self, user: Transaction, queue: Queue, item_id: bytes, item: NewItem) -> bool:
        """Enqueue an item in a user's transaction; see `statements.enqueue`."""
        return statements.enqueue(user, queue, item_id, item)

    def commit(self, user: Transaction) -> None:
        """Commit a user's transaction."""
        self.table.commit(user)

    def roll_back(self, user: Transaction) -> None:
        """Roll back a user's transaction."""
        self.table.roll_back(user)
