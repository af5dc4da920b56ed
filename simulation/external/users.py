"""Users of an external store: processes that enqueue and cancel in transactions of their own.

A transaction may stay open for seconds, at any isolation level; be rolled back; or be prepared, and ended by somebody
else. Each also counts in a row of its tenant, for which transactions of one tenant wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from fairlead.simulation.external import statements
from fairlead.simulation.external.client import CommitUnknown, Deadlock, Session
from fairlead.simulation.external.items import Isolation, SerializationFailure, State, Transaction
from fairlead.simulation.external.server import StoreServer
from fairlead.simulation.host import SimulatedHost
from fairlead.zones.engines.api.errors import StoreUnavailable
from fairlead.zones.external.store import ItemLease, Queue
from fairlead.zones.layout import ID_BYTES, Tenant, item_id_of
from fairlead.zones.queue.items import NewItem, new_item

KINDS = {"plain": 8, "long": 1, "flaky": 3, "effect": 5, "chain": 2, "limited": 2, "slow": 1, "broken": 1, "dropped": 1}
HOLDS_US = (0, 0, 0, 1_000, 50_000, 700_000, 2_000_000)  # How long a transaction stays open once it has written.
PREPARED_US = (1_000, 300_000, 3_000_000)
TRIES = 5
AWAY_US = (100_000, 1_000_000)  # How long it waits for a server that does not answer.
CANCELLED_FRAC = 0.1
COUNTED_FRAC = 0.3  # How often a transaction also counts in a row of its tenant.
GIVEN_FRAC = 0.15  # How often an item has a given id: one of a few of its queue.
GIVEN_IDS = 3


class User:
    """One process of users; `done` once it has made its share of transactions.

    Args:
      kinds: how often each kind is enqueued.
    """

    def __init__(
        self, server: StoreServer, number: int, share: int, *, kinds: Mapping[str, int], tenants: int, trouble_us: int
    ) -> None:
        self._server = server
        self._left = share
        self._pause_us = trouble_us / max(1, share)
        self._kinds = kinds
        self._tenants = tenants
        self._random: Random = server.world.random(f"user {number}")
        self.done = share == 0

    def run(self, host: SimulatedHost) -> None:
        """Make the share of transactions. After a kill the next incarnation goes on."""
        while self._left > 0:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._pause_us)))
            size = min(self._left, self._random.choice([1, 1, 1, 4]))
            self._left -= size
            call = self._cancel if self._random.random() < CANCELLED_FRAC else partial(self._enqueue, size)
            for _ in range(TRIES):
                try:
                    call(host)
                    break
                except (SerializationFailure, Deadlock) as error:
                    host.world.note(f"tries again: {error!r}")
                except CommitUnknown:
                    host.world.note("does not know whether it has committed")
                    break
                except StoreUnavailable as error:
                    host.world.note(f"tries again: {error.reason}")
                    host.clock.sleep_us(self._random.choice(AWAY_US))
        self.done = True

    def _enqueue(self, size: int, host: SimulatedHost) -> None:
        draw, tenant = self._random, self._tenant()
        session = Session(self._server, host, draw.choice(list(Isolation)))
        try:
            if draw.random() < COUNTED_FRAC:
                session.execute(partial(add, key=f"count of {tenant.user}"))
            new = [self._item(tenant) for _ in range(size)]
            for queue, item_id, item in sorted(new, key=lambda each: each[1]):
                session.execute(partial(statements.enqueue, queue=queue, item_id=item_id, item=item))
            self._end(session, host)
        finally:
            session.roll_back()

    def _cancel(self, host: SimulatedHost) -> None:
        """Cancel an item that waits or runs, if nobody has locked it."""
        draw = self._random
        ids = [row.item_id for row in self._server.table.rows() if row.state is State.WAITS]
        if not ids:
            return
        session = Session(self._server, host, draw.choice(list(Isolation)))
        try:
            item_id = draw.choice(ids)
            session.execute(lambda tx: statements.complete(tx, [ItemLease(item_id, None)], [0]))
            self._end(session, host)
        finally:
            session.roll_back()

    def _end(self, session: Session, host: SimulatedHost) -> None:
        draw = self._random
        host.clock.sleep_us(draw.choice(HOLDS_US))
        drawn = draw.random()
        if drawn < 0.1:
            session.roll_back()
        elif drawn < 0.2:
            end = partial(self._end_prepared, commits=draw.random() < 0.8)
            session.prepare(end, draw.choice(PREPARED_US))
        else:
            session.commit()

    def _end_prepared(self, transaction: Transaction, *, commits: bool) -> None:
        if commits:
            self._server.commit("operator", transaction)
        else:
            self._server.table.roll_back(transaction)

    def _tenant(self) -> Tenant:
        number = 0 if self._random.random() < 0.3 else self._random.randrange(self._tenants)
        return Tenant("shop", f"t{number}")

    def _item(self, tenant: Tenant) -> tuple[Queue, bytes, NewItem]:
        draw = self._random
        kind = draw.choices(list(self._kinds), list(self._kinds.values()))[0]
        how: dict[str, Any] = {
            "priority": draw.choice([0, 100, 100, 100, 255]),
            "delay": draw.choice([0, 0, 0, 0.3, 2]),
        }
        queue, item_id = Queue(tenant, draw.choice(["queue", "queue", "other"])), draw.randbytes(ID_BYTES)
        if draw.random() < GIVEN_FRAC:
            kind, how["item_id"] = "plain", f"{tenant.user}/{queue.zone}/{draw.randrange(GIVEN_IDS)}"
            how["unique_for"] = draw.choice([0, 1])
            item_id = item_id_of(how["item_id"])
        return queue, item_id, new_item(kind, "", **how)


def add(tx: Transaction, key: str) -> None:
    """Count in a row of other data. Raises `Locked` while another transaction does so."""
    tx.begin_statement()
    tx.lock(key)
    before = tx.get(key)
    assert before is None or isinstance(before, int)
    tx.write(key, (before or 0) + 1)
