"""An external store as a process has it open: its connections, and the transactions of its handlers.

A connection that the server has broken is noticed by the call that uses it. A transaction whose process dies is rolled
back once the server notices that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.simulation.external import statements
from fairlead.simulation.external.calls import Calls
from fairlead.simulation.external.items import Isolation, Locked, SerializationFailure, Statement, T, Transaction
from fairlead.simulation.external.server import LOCK_LOOK_US, Listener, StoreServer
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.world import Task
from fairlead.zones.engines.api.errors import StoreUnavailable
from fairlead.zones.external.store import HEARD_S, ItemLease
from fairlead.zones.queue.items import Outcome

LOCK_WAIT_US = 1_000_000  # Then it is taken for a deadlock.
NOTICED_US_MAX = 2_000_000  # How long the server takes to notice that a process has died.


class Deadlock(Exception):
    """A statement has waited for another transaction for too long (40P01). Its user tries again."""


class CommitUnknown(StoreUnavailable):
    """The connection broke during a commit: it may have been made, or may still be."""

    def __init__(self) -> None:
        super().__init__("the connection broke during a commit", remedy="Read whether it was made.", store="pg")


class Session:
    """A connection with an open transaction.

    Raises, in all methods:
      StoreUnavailable: the connection broke, or cannot be made.
    """

    def __init__(self, server: StoreServer, host: SimulatedHost, isolation: Isolation) -> None:
        server.world.sleep_us(server.wait_us())
        if server.is_down:
            raise server.down()
        self._server = server
        self._host = host
        self._restarts = server.restarts
        self.transaction: Transaction = server.table.begin(isolation)
        host.close_at_end(self)

    def execute(self, statement: Statement[T]) -> T:
        """Execute a statement; wait for what another transaction has locked.

        Raises:
          SerializationFailure, Deadlock: the transaction cannot go on.
        """
        world = self._server.world
        world.sleep_us(self._server.wait_us())
        until_us = world.now_us() + LOCK_WAIT_US
        while True:
            self._check_open()
            try:
                answer = statement(self.transaction)
                break
            except Locked:
                if world.now_us() > until_us:
                    raise Deadlock from None
                world.sleep_us(LOCK_LOOK_US)
        world.sleep_us(self._server.wait_us())
        return answer

    def commit(self) -> None:
        """Commit.

        Raises:
          CommitUnknown: it may have been committed, or may still be.
        """
        self._check_open()
        self._host.forget_closed(self)
        try:
            self._server.send_commit(self._host.name, self.transaction, self._restarts).wait()
        except StoreUnavailable as error:
            raise CommitUnknown from error

    def roll_back(self) -> None:
        """Roll back, if the transaction is open still, and the process lives. Does not wait."""
        if not self._host.dead:
            self._host.forget_closed(self)
            self._roll_back_now()

    def prepare(self, end: Callable[[Transaction], None], delay_us: int) -> None:
        """Prepare the transaction, which somebody else ends after a while. One that rings the doorbell is rolled back.

        Args:
          end: is called between turns, with the transaction, if it is still there.
        """
        self._check_open()
        if self.transaction.rings:
            self.roll_back()
            return
        self._host.forget_closed(self)
        self.transaction.is_prepared = True
        self._server.world.after(delay_us, lambda: self._end_prepared(end))

    def close(self) -> None:
        """See `Closable`. The process has died."""
        self._server.world.after(self._host.random.randrange(NOTICED_US_MAX), self._roll_back_now)

    def _end_prepared(self, end: Callable[[Transaction], None]) -> None:
        if self._server.is_down:
            self._server.world.after(LOCK_WAIT_US, lambda: self._end_prepared(end))
        elif self.transaction in self._server.table.open:
            end(self.transaction)

    def _roll_back_now(self) -> None:
        if self.transaction in self._server.table.open:
            self._server.table.roll_back(self.transaction)

    def _check_open(self) -> None:
        if self.transaction not in self._server.table.open:
            self._host.forget_closed(self)
            raise self._server.broken()


class SimulatedItemStore(Calls):
    """See `ExternalStore`. One process has it open."""

    def __init__(self, server: StoreServer, host: SimulatedHost) -> None:
        self._server = server
        self._host = host
        self._listens = False
        self._rung = 0
        self._waiting: Task | None = None

    def carry_out(self, statement: Statement[T], *, writes: bool) -> T:
        """See `Calls`."""
        if self._server.is_down:
            self._server.world.sleep_us(self._server.wait_us())
            raise self._server.down()
        return self._server.send(self._host.name, statement, writes=writes).wait()

    def run_handler(self, held: ItemLease, body: Callable[[Any], tuple[bytes | None, int]]) -> Outcome:
        """See `ExternalStore`. The body gets the session."""
        session = Session(self._server, self._host, Isolation.READ_COMMITTED)
        try:
            if not session.execute(lambda tx: statements.hold(tx, held)):
                return Outcome.LEASE_LOST
            _, keep_us = body(session)
            session.execute(lambda tx: statements.complete(tx, [held], [keep_us]))
            session.commit()
        except CommitUnknown:
            return self._ended_after_all(held)
        except (Deadlock, SerializationFailure) as error:
            refused = StoreUnavailable("PostgreSQL refused", remedy="See `error`.", error=repr(error), store="pg")
            raise refused from error
        finally:
            session.roll_back()
        return Outcome.DONE

    def _ended_after_all(self, held: ItemLease) -> Outcome:
        """Return what became of an item if its commit was cut; wait for that transaction, as it holds the row."""
        session = Session(self._server, self._host, Isolation.READ_COMMITTED)
        try:
            lease_id = session.execute(lambda tx: statements.holder(tx, held.id))
            if lease_id == held.lease_id:
                raise self._server.broken()
        except Deadlock as error:
            raise self._server.broken() from error
        finally:
            session.roll_back()
        return Outcome.DONE if lease_id is None else Outcome.LEASE_LOST

    def await_doorbell(self, timeout_s: float) -> int:
        """See `ExternalStore`. The first call returns at once."""
        if not self._listens:
            self._server.world.sleep_us(self._server.wait_us())
            if self._server.is_down:
                raise self._server.down()
            self._listens = True
            self._server.listeners.append(Listener(self._note_ring, self._lose))
            return 1
        if not self._rung:
            self._waiting = self._server.world.current
            try:
                self._server.world.suspend(round(timeout_s * 1e6))
            finally:
                self._waiting = None
        if not self._listens:
            raise self._server.broken()
        rung, self._rung = self._rung, 0
        return rung

    def hears_doorbell(self) -> bool:
        """See `ExternalStore`."""
        if not self._listens:
            self.await_doorbell(0)
        self.carry_out(statements.force_notify, writes=True)
        return self.await_doorbell(HEARD_S) > 0

    def _note_ring(self) -> None:
        self._rung += 1
        self._wake()

    def _lose(self) -> None:
        self._listens = False
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._host.dead:
            waiting, self._waiting = self._waiting, None
            self._server.world.wake(waiting)
