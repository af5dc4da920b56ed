"""A user of `orders_in_sql`: a process that commits orders and what they ask for, in transactions of many forms.

It writes each order into a file once its commit is acknowledged. What ended in an error may have been committed, or may
not: the order's row says it. Run by `test_postgresql`, until a file says to stop:

    python -m tests.acceptance.buyer NUMBER SEED DSN POOLED
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg

import fairlead
from fairlead.zones.engines import StoreUnavailable
from tests.acceptance.shop import note

STOP = "stop"
TENANTS = 12
PAUSE_S = 0.02
UNIQUE_S = 3_600  # Longer than any test: an id that is given again changes nothing.

app = fairlead.App()


class Buyer:
    """Places one order after the other. `pooled`: its connections change between transactions."""

    def __init__(self, number: int, random: Random, dsn: str, *, pooled: bool) -> None:
        self._number = number
        self._random = random
        self._dsn = dsn
        self._path = Path(f"buyer-{number}").absolute()
        self._mails = Path("mails").absolute()
        self._mine = f"prepared order {number}."
        self._count = 0
        self._connection: Any = None
        forms: list[Callable[[str], None]] = [
            self._commit, self._commit, self._commit, self._wait_long, self._serialize, self._serialize,
            self._roll_back, self._roll_back_a_part, self._ask_again,
        ]  # fmt: skip
        self._forms = forms if pooled else [*forms, self._prepare]

    def run(self) -> None:
        """Place orders until a file says to stop."""
        while not Path(STOP).exists():
            order = f"{self._number}.{self._count}"
            self._count += 1
            form = self._random.choice(self._forms)
            try:
                self._connect()
                form(order)
            except (psycopg.Error, StoreUnavailable) as error:
                note(str(self._path), "failed", form.__name__, type(error).__name__)
                self._give_up()
            else:
                note(str(self._path), "placed", form.__name__, order)
            time.sleep(PAUSE_S * self._random.random())

    def _connect(self) -> None:
        if self._connection is None or self._connection.closed:
            # Statements that the client prepares lie in a connection of the server, which a pooler changes.
            self._connection = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None, connect_timeout=2)
            mine = self._connection.execute("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", [f"{self._mine}%"])
            for (name,) in mine.fetchall():
                self._connection.execute(f"COMMIT PREPARED '{name}'")
                note(str(self._path), "committed_later")

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        time.sleep(0.1)

    def _commit(self, order: str) -> None:
        with self._connection.transaction():
            self._place(order)

    def _wait_long(self, order: str) -> None:
        """Commit long after the enqueue: later transactions are seen before this one."""
        with self._connection.transaction():
            self._place(order)
            time.sleep(self._random.uniform(0.2, 1.5))

    def _serialize(self, order: str) -> None:
        """Do it again as often as another transaction is in the way (40001), as users above READ COMMITTED must."""
        level = self._random.choice(["SERIALIZABLE", "REPEATABLE READ"])
        while True:
            try:
                with self._connection.transaction():
                    self._connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
                    self._connection.execute("SELECT count(*) FROM orders WHERE id LIKE %s", [f"{self._number}.9%"])
                    self._place(order)
                return
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                note(str(self._path), "serialized", level.replace(" ", "_"))

    def _roll_back(self, order: str) -> None:
        with self._connection.transaction(force_rollback=True):
            self._place(f"never {order}")

    def _roll_back_a_part(self, order: str) -> None:
        with self._connection.transaction():
            with self._connection.transaction(force_rollback=True):
                self._place(f"never {order}")
            self._place(order)

    def _ask_again(self, order: str) -> None:
        """Ask for the receipt again, as a user does who knows nothing of the first commit."""
        self._commit(order)
        with self._connection.transaction():
            self._ask_for_receipt(order)

    def _prepare(self, order: str) -> None:
        """Commit in two phases, if the doorbell is off: a notification excludes that."""
        name = f"prepared order {order}"
        try:
            self._connection.execute("BEGIN")
            self._place(order)
            self._connection.execute(f"PREPARE TRANSACTION '{name}'")
        except psycopg.errors.FeatureNotSupported:
            self._connection.execute("ROLLBACK")
            note(str(self._path), "not_prepared")
            self._commit(order)
            return
        time.sleep(self._random.uniform(0.0, 1.0))
        self._connection.execute(f"COMMIT PREPARED '{name}'")

    def _place(self, order: str) -> None:
        self._connection.execute("INSERT INTO orders (id) VALUES (%s)", [order])
        mail = {"order": order, "path": str(self._mails)}
        self._ask_for_receipt(order)
        app.tenant("shop", self._user()).enqueue("mail", mail, within=self._connection)
        sent = "SELECT fairlead.enqueue('shop', %s, 'mail', jsonb_build_object('order', %s::text, 'path', %s::text))"
        self._connection.execute(sent, [self._user(), f"{order} by SQL", str(self._mails)])

    def _ask_for_receipt(self, order: str) -> None:
        tenant = app.tenant("shop", f"user {int(order.rpartition('.')[2]) % TENANTS}")
        asked, name = {"order": order}, f"receipt {order}"
        tenant.enqueue("receipt", asked, within=self._connection, item_id=name, unique_for=UNIQUE_S)

    def _user(self) -> str:
        return f"user {self._random.randrange(TENANTS)}"


if __name__ == "__main__":
    typed_number, typed_seed, typed_dsn, typed_pooled = sys.argv[1:]
    Buyer(int(typed_number), Random(typed_seed), typed_dsn, pooled=typed_pooled == "pooled").run()
