"""The cost of live moves (Olive, figure 12 and section 7.3; QuiCK section 6, "User-move").

    python -m bench.olive figure12 [--json] [--quick]
    python -m bench.olive storage [--json] [--quick]
    python -m bench.olive moves [--json] [--quick] [--store fdb:CLUSTER_FILE [--store fdb:CLUSTER_FILE]]

Two shards, embedded ones if no store is named. The mover works in a process of its own, the clients in the measuring
one.

Figure 12: latencies of reads, updates and creates of YCSB's core workloads a to d (`bench.ycsb`), in one thread. Means,
with the 95 % confidence interval; each workload in turns at rest, moving and by transactions.

    at rest           the tenant does not move
    moving            `app.move` moves it meanwhile, slowly enough to last
    by transactions   a copier moves one object after the other by `app.transact`; each operation of a client is an
                      `app.transact`, too, that looks where the object is: what one could build without `app.move`

Storage: the bytes of all keys and values of both shards, before, during (the most that was seen) and after the move of
1,000 such objects.

Moves: tenants of 1 MB, of 1 GB, and of 1,000,000 items, under load, there and back (`bench.olive_load`). Each moves as
fast as the mover can, then at the default rate of `app.move`; the small one several times. Clients run at rest, too:
before the first move, between two moves, and after the last one. With one `--store`, the tenants live on an embedded
shard and move to FoundationDB; with two, from one cluster to another one.

    longest wait      of a transaction of the moving tenant's clients
    failed            transactions of these clients that raised an error
    others' p99       of clients of another tenant of the shard where the moving tenant lives first: the median over
                      stretches of 500 transactions in a row, while a tenant moves, and at rest
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

from bench.harness import SPAWN, store_url
from bench.report import say
from bench.ycsb import MIXES, OBJECTS, OPERATIONS, VALUE, Client, Requests, fill
from fairlead import App, Config, fleet
from fairlead.actors.settings import ConsumerSettings
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import ROOT_RANGE
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home

SHARDS = ("a", "b")
NORMAL_95 = 1.96
QUICK_OBJECTS = 100
ROUNDS = 5
SLOW_MB_PER_S = 0.1
COPIER_PAUSE_S = 0.01  # One that never pauses starves the clients: each of its commits conflicts with theirs.

app = App()


def config_of(stores: Sequence[Path]) -> Config:
    """Return the configuration of both shards."""
    urls = dict(zip(SHARDS, map(store_url, stores), strict=True))
    return Config(shards=urls, consumer=ConsumerSettings(workers=1, slots=4))


def tenant_on(shard: str, number: int) -> Tenant:
    """Return one of the tenants whose first home is a shard."""
    found = (each for user in range(1_000_000) if home(each := Tenant("olive", f"user {user}"), SHARDS) == shard)
    for _ in range(number):
        next(found)
    return next(found)


def _carry_out(stores: Sequence[Path], ready: Any, stop: Any) -> None:
    """Run a fleet until it is told to stop: the other process begins moves."""
    app.configure(config_of(stores))
    running = fleet.start(app, "bench.olive_moves:app", runtime="threads")
    ready.set()
    stop.wait()
    running.stop(drain=1)
    app.close()


@contextmanager
def mover_beside(stores: Sequence[Path]) -> Iterator[None]:
    """Carry out moves in a process of its own meanwhile."""
    ready, stop = SPAWN.Event(), SPAWN.Event()
    process = SPAWN.Process(target=_carry_out, args=(stores, ready, stop))
    process.start()
    try:
        ready.wait()
        yield
    finally:
        stop.set()
        process.join()


# --- Figure 12 ---


class SpanningClient:
    """The client of two tenants, one on each shard, between which a copier moves one object after the other."""

    def __init__(self, old: TenantDatabase, new: TenantDatabase) -> None:
        self.old, self.new = old, new

    def read(self, number: int) -> None:
        app.transact(lambda tx: tx.on(self.new).get((number,)) or tx.on(self.old).get((number,)))

    def update(self, number: int) -> None:
        def body(tx: Any) -> None:
            moved = tx.on(self.new).get((number,)) is not None
            tx.on(self.new if moved else self.old).set((number,), VALUE)

        app.transact(body)

    def create(self, number: int) -> None:
        def body(tx: Any) -> None:
            if tx.on(self.new).get((number,)) is None and tx.on(self.old).get((number,)) is None:
                tx.on(self.new).set((number,), VALUE)

        app.transact(body)

    def copy_all(self, stop: threading.Event) -> None:
        """Move one object after the other, and begin again when all have moved."""
        while not stop.is_set():
            for number in range(OBJECTS):
                if stop.is_set():
                    return
                app.transact(partial(self._copy, number=number))
                time.sleep(COPIER_PAUSE_S)
            self.old, self.new = self.new, self.old

    def _copy(self, tx: Any, number: int) -> None:
        value = tx.on(self.old).get((number,))
        if value is not None:
            tx.on(self.new).set((number,), value)
            tx.on(self.old).clear((number,))


def _answer(client: Any, requests: Requests, count: int) -> dict[str, list[float]]:
    """Send requests, and return how many milliseconds each took, by operation."""
    took: dict[str, list[float]] = {what: [] for what in OPERATIONS}
    for _ in range(count):
        what, number = requests.draw()
        began_s = time.perf_counter()
        getattr(client, what)(number)
        took[what].append((time.perf_counter() - began_s) * 1000)
    return took


def figure12(stores: Sequence[Path], requests: int) -> list[dict[str, Any]]:
    """Return the rows of figure 12."""
    app.configure(config_of(stores))
    rest, moving, old = (app.tenant(tenant_on("a", number)) for number in range(3))
    new = app.tenant(tenant_on("b", 0))
    for tenant in (rest, moving, old):
        fill(tenant, OBJECTS)
    spanning = SpanningClient(old, new)
    clients = {"at rest": Client(rest), "moving": Client(moving), "by transactions": spanning}
    rows: list[dict[str, Any]] = []
    with mover_beside(stores):
        for workload in MIXES:
            say(f"workload {workload}, {requests} requests each")
            answer = {
                how: partial(_answer, client, Requests(workload, Random(1)), requests // ROUNDS)
                for how, client in clients.items()
            }
            took: dict[str, dict[str, list[float]]] = {}
            for _ in range(ROUNDS):
                _add(took, "at rest", answer["at rest"]())
                move = app.move(moving, to="b" if moving.find().name == "a" else "a", mb_per_s=SLOW_MB_PER_S)
                while not move.progress().copied_bytes:
                    time.sleep(0.001)
                _add(took, "moving", answer["moving"]())
                still = move.progress().state == "under way"
                move.cancel()
                _wait_for_end(move)
                if not still:
                    say("  the move ended before the requests did")
                _add(took, "by transactions", _beside_copier(spanning, answer["by transactions"]))
            rows += _rows12(workload, took)
    app.close()
    return rows


def _wait_for_end(move: Any) -> None:
    while move.progress().state == "under way":
        time.sleep(0.01)


def _beside_copier(client: SpanningClient, answer: Callable[[], Any]) -> Any:
    stop = threading.Event()
    copier = threading.Thread(target=client.copy_all, args=(stop,))
    copier.start()
    try:
        return answer()
    finally:
        stop.set()
        copier.join()


def _add(took: dict[str, dict[str, list[float]]], how: str, some: dict[str, list[float]]) -> None:
    for what, found in some.items():
        took.setdefault(what, {}).setdefault(how, []).extend(found)


def _rows12(workload: str, took: dict[str, dict[str, list[float]]]) -> Iterator[dict[str, Any]]:
    for what, by_how in took.items():
        at_rest = by_how["at rest"]
        for how, found in by_how.items():
            if len(found) > 1:
                yield {
                    "workload": workload,
                    "operation": what,
                    "how": how,
                    "mean_ms": round(mean(found), 3),
                    "within_ms": round(NORMAL_95 * stdev(found) / sqrt(len(found)), 3),
                    "of_rest": round(mean(found) / mean(at_rest), 2),
                }


def table12(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of figure 12."""
    names = ("workload", "operation", "how", "mean_ms", "within_ms", "of_rest")
    return [
        ["workload", "operation", "how", "ms", "±", "of rest"],
        *([str(row[each]) for each in names] for row in rows),
    ]


# --- Storage ---


def storage(stores: Sequence[Path], objects: int) -> list[dict[str, Any]]:
    """Return the bytes of both shards before, during and after a move."""
    app.configure(config_of(stores))
    tenant = app.tenant(tenant_on("a", 0))
    with mover_beside(stores):
        empty = _stored_bytes()
        fill(tenant, objects)
        before = _stored_bytes()
        move, most = app.move(tenant, to="b", mb_per_s=objects / 1_000), 0
        while move.progress().state == "under way":
            most = max(most, _stored_bytes())
        after = _stored_bytes()
    app.close()
    data = objects * len(VALUE)
    return [
        {"when": when, "bytes": size - empty, "of_data": round((size - empty) / data, 2)}
        for when, size in (("before", before), ("during, at most", most), ("after", after))
    ]


def _stored_bytes() -> int:
    size = 0
    for name in SHARDS:
        rows = transact(app.shards[name].db, lambda tr: list(tr.snapshot.get_range(*ROOT_RANGE)))
        size += sum(len(row.key) + len(row.value) for row in rows)
    return size


def table_of_storage(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of the storage."""
    return [
        ["when", "bytes", "of the data"],
        *([row["when"], f"{row['bytes']:,}", str(row["of_data"])] for row in rows),
    ]
