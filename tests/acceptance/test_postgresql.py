"""Orders in PostgreSQL, and faults all the while: nothing committed is lost, and no effect in SQL is there twice.

Users commit through a pooler and directly, in transactions of many forms. Two consumers in processes of their own serve
one embedded shard. The server crashes, connections are cut, consumers are killed and stopped, the pooler is killed, and
items are locked. What an order asks for is committed together with its row, so the rows say what must have happened.

FAIRLEAD_SOAK_S is how long the long form takes; ten minutes by default.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest

from bench.peers.round_context import RoundContext
from fairlead import App, Config
from tests import pgbouncer_server, postgresql_server
from tests.acceptance.fleets import Machine, config, eventually, machine, paused, written
from tests.acceptance.loads import assert_nothing_left, lines_of
from tests.acceptance.soaking import SOAK_S
from tests.foundationdb_server import free_port
from tests.pgbouncer_server import PgBouncer
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

REFERENCE = "tests.acceptance.orders_in_sql:app"
BUYERS = 3  # Each but the last goes through the pooler, if there is one.
CONSUMERS = 2
STOP = "stop"


class Servers:
    """A PostgreSQL, and a pooler before it if pgbouncer is installed."""

    def __init__(self, postgres: TestedPostgres, pooler: PgBouncer | None) -> None:
        self.postgres = postgres
        self.pooler = pooler
        self.orders = Database(postgres, "orders")
        self.orders.prepare()
        with self.orders.connect() as connection:
            connection.execute(
                "CREATE TABLE orders (id text PRIMARY KEY, receipts int DEFAULT 0, shipments int DEFAULT 0)"
            )

    @property
    def pooled_dsn(self) -> str:
        """How users connect."""
        return self.orders.dsn if self.pooler is None else f"{self.pooler.url.rpartition('/')[0]}/orders"


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Servers of this test's own, which it may let crash."""
    if reason := postgresql_server.missing():
        pytest.skip(reason)
    with postgresql_server.started() as postgres, tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        pooler = None
        if not pgbouncer_server.missing():
            pooler = PgBouncer(RoundContext(directory=Path(directory), port=free_port()), postgres.context.port)
            pooler.start()
        made = Servers(postgres, pooler)
        try:
            yield made
        finally:
            made.orders.close()
            if pooler is not None:
                pooler.stop()


@pytest.fixture
def chosen(tmp_path: Path, servers: Servers) -> Config:
    made = config(tmp_path, lease_ms=1_500)
    return Config(shards=made.shards, external={"pg": servers.orders.dsn}, consumer=made.consumer, zones=made.zones)


class Shop:
    """Users and consumers in processes of their own, and what goes wrong for them."""

    def __init__(self, servers: Servers, on: Machine, random: Random, log: IO[str]) -> None:
        self.faults: Counter[str] = Counter()
        self._servers = servers
        self._machine = on
        self._random = random
        self._log = log
        self._buyers = [self._start_buyer(number) for number in range(BUYERS)]
        self._consumers = [self._start_consumer() for _ in range(CONSUMERS)]
        self._all = [
            self._crash_server, self._cut_connections, self._kill_consumer, self._stop_consumer, self._lock_items,
            self._lock_table, *([self._kill_pooler] if servers.pooler is not None else []),
        ]  # fmt: skip
        self._next: list[Any] = []

    def disturb(self) -> None:
        """Let one thing go wrong: each of them once, in any order, before one of them again."""
        if not self._next:
            self._next = self._random.sample(self._all, len(self._all))
        fault = self._next.pop()
        fault()
        self.faults[fault.__name__.strip("_").replace("_", " ")] += 1

    @property
    def has_seen_all(self) -> bool:
        """Whether each fault has happened."""
        return len(self.faults) == len(self._all)

    def end_buyers(self) -> None:
        """Let the users end what they do."""
        (self._machine.directory / STOP).touch()
        assert [each.wait(60) for each in self._buyers] == [0] * BUYERS

    def _start_buyer(self, number: int) -> subprocess.Popen[str]:
        pooled = number < BUYERS - 1
        dsn = self._servers.pooled_dsn if pooled else self._servers.orders.dsn
        typed = [str(number), str(self._random.random()), dsn, "pooled" if pooled else "direct"]
        return self._machine.start([sys.executable, "-m", "tests.acceptance.buyer", *typed], log=self._log)

    def _start_consumer(self) -> subprocess.Popen[str]:
        return self._machine.run("run", REFERENCE, "--runtime", "threads", log=self._log)

    def _crash_server(self) -> None:
        """As `pg_ctl stop -m immediate` does it."""
        self._servers.postgres.stop()
        time.sleep(self._random.random())
        self._servers.postgres.start()

    def _kill_pooler(self) -> None:
        assert self._servers.pooler is not None
        self._servers.pooler.stop()
        self._servers.pooler.start()

    def _cut_connections(self) -> None:
        """End a third of all connections, of users and of consumers, wherever they are."""
        self._in_a_transaction("""
            SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = 'orders' AND pid <> pg_backend_pid() AND random() < 0.33
        """)

    def _lock_items(self) -> None:
        """Hold items for a while, as a user does whose transaction cancels some."""
        self._in_a_transaction("SELECT id FROM fairlead.items LIMIT 50 FOR UPDATE SKIP LOCKED", 0.5)

    def _lock_table(self) -> None:
        """Hold all of them for longer than a statement of a consumer may take, if nobody has prepared a transaction."""
        import psycopg

        with suppress(psycopg.errors.LockNotAvailable):
            self._in_a_transaction(
                "SET LOCAL lock_timeout = '2s'; LOCK TABLE fairlead.items IN ACCESS EXCLUSIVE MODE", 2.2
            )

    def _in_a_transaction(self, statement: str, then_s: float = 0.0) -> None:
        with self._servers.orders.connect() as connection, connection.transaction():
            connection.execute(statement)
            time.sleep(then_s)

    def _kill_consumer(self) -> None:
        number = self._random.randrange(CONSUMERS)
        self._consumers[number].kill()
        self._consumers[number].wait()
        self._consumers[number] = self._start_consumer()

    def _stop_consumer(self) -> None:
        """Stop one for longer than a lease may last, or for less."""
        with paused(self._random.choice(self._consumers).pid):
            time.sleep(self._random.uniform(0.5, 2.5))


@dataclass
class Outcome:
    """What there is at the end.

    Attributes:
      placed: the orders whose commit was acknowledged.
      rows: how often each order has got its receipt, and was shipped.
      mails: how often each mail was sent.
      forms: what users did, how often.
    """

    placed: set[str]
    rows: dict[str, tuple[int, int]]
    mails: Counter[str]
    forms: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """See that all that was asked for has happened: in SQL once, elsewhere at least once; and nothing else."""
        assert self.placed - self.rows.keys() == set(), "orders whose commit was acknowledged are lost"
        wrong = {order: counts for order, counts in self.rows.items() if counts != (1, 1)}
        assert wrong == {}, "effects in SQL are missing, or there twice"
        asked = {*self.rows, *(f"{order} by SQL" for order in self.rows)}
        assert set(self.mails) - asked == set(), "mails of orders that were never committed"
        assert asked - set(self.mails) == set(), "mails that were never sent"


def outcome(servers: Servers, directory: Path) -> Outcome:
    """Return what there is, as users, rows and mails say."""
    placed: set[str] = set()
    forms: Counter[str] = Counter()
    for number in range(BUYERS):
        for line in lines_of(directory / f"buyer-{number}"):
            what, *form_and_order = line.split()
            forms[" ".join([what, *form_and_order[:1]])] += 1
            if what == "placed" and form_and_order[0] != "_roll_back":
                placed.add(form_and_order[1])
    with servers.orders.connect() as connection:
        rows = connection.execute("SELECT id, receipts, shipments FROM orders").fetchall()
    counts = {order: (receipts, shipments) for order, receipts, shipments in rows}
    return Outcome(placed, counts, Counter(lines_of(directory / "mails")), forms)


def waiting(servers: Servers) -> dict[int, int]:
    """Return how many items wait or run (0), and how many are dead letters (2)."""
    with servers.orders.connect() as connection:
        rows = connection.execute("SELECT state, count(*) FROM fairlead.items WHERE state <> 1 GROUP BY 1").fetchall()
    return dict(rows)


@contextmanager
def held_snapshot(servers: Servers) -> Iterator[None]:
    """A user's transaction that sees what was there at its beginning, until the end, or until a fault cuts it off."""
    connection = servers.orders.connect(autocommit=False)
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT count(*) FROM orders")
    try:
        yield
    finally:
        connection.close()


@pytest.mark.timeout(SOAK_S + 300)
@pytest.mark.parametrize("duration_s", [0, pytest.param(SOAK_S, marks=pytest.mark.long)], ids=["once", "soak"])
def test_orders_ask_for_each_effect_once_whatever_crashes(
    app: App, chosen: Config, servers: Servers, tmp_path: Path, duration_s: float, record_property: Any
) -> None:
    """Each fault happens once, or all of them again and again."""
    seed = time.time_ns() % 10_000
    random, begun = Random(seed), time.monotonic()
    written(chosen, tmp_path)
    with machine(tmp_path) as here, (tmp_path / "log").open("w") as log, held_snapshot(servers):
        shop = Shop(servers, here, random, log)
        eventually(lambda: len(lines_of(tmp_path / "mails")) > 50, otherwise=(tmp_path / "log").read_text)
        while time.monotonic() - begun < duration_s or not shop.has_seen_all:
            time.sleep(random.uniform(0.2, 1.0))
            shop.disturb()
        shop.end_buyers()
        eventually(lambda: waiting(servers) == {}, otherwise=lambda: f"seed {seed}: {waiting(servers)} are left")
        found = outcome(servers, tmp_path)
        found.check()
        assert_nothing_left(app)
    pooler = "a pooler" if servers.pooler is not None else f"no pooler: {pgbouncer_server.missing()}"
    record_property(
        f"orders in SQL for {time.monotonic() - begun:.0f} s, seed {seed}, with {pooler}",
        f"{len(found.rows)} orders, {sum(found.mails.values()) - len(found.mails)} mails sent again; "
        f"faults {dict(shop.faults)}; users {dict(sorted(found.forms.items()))}",
    )


# --- That it would notice ---

MAILS = Counter(["0.1", "0.1 by SQL", "0.1"])


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Outcome({"0.1", "0.2"}, {"0.1": (1, 1)}, MAILS), "acknowledged are lost"),
        (Outcome({"0.1"}, {"0.1": (1, 2)}, MAILS), "there twice"),
        (Outcome({"0.1"}, {"0.1": (0, 0)}, MAILS), "effects in SQL are missing"),
        (Outcome({"0.1"}, {"0.1": (1, 1)}, Counter(["0.1"])), "never sent"),
        (Outcome({"0.1"}, {"0.1": (1, 1)}, MAILS + Counter(["never 0.2"])), "never committed"),
    ],
)
def test_what_is_lost_or_there_twice_is_found(found: Outcome, wrong: str) -> None:
    Outcome({"0.1"}, {"0.1": (1, 1)}, MAILS).check()
    with pytest.raises(AssertionError, match=wrong):
        found.check()
