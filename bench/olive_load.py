"""Moves under load: what the clients of a tenant that moves see, and those of another tenant; see `bench.olive_moves`.

Clients of both tenants run all the time, also at rest: before the first move, between two moves, after the last one. So
a machine that gets slower meanwhile slows both sides of a ratio.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.flushes import Flush, watched
from bench.olive_moves import app, config_of, mover_beside, tenant_on
from bench.report import percentile, say
from bench.ycsb import FILL_BATCH, OBJECTS, fill
from fairlead import TenantTransaction, new_item
from fairlead.move_views import MoveView
from fairlead.moves import MB_PER_S
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import QueueError

FULL_MB, QUICK_MB = 1_000, 5
FULL_ITEMS, QUICK_ITEMS = 1_000_000, 2_000
SMALL_MB = 1
SMALL_TRIPS, QUICK_TRIPS = 5, 1
RATES = (1_000.0, MB_PER_S)  # In megabytes per second: as fast as the mover can, and the default.
CLIENTS = 2
CLIENT_PAUSE_S = 0.002
REST_S, QUICK_REST_S = 3.0, 0.5
DELAY_S = 86_400
STRETCH = 500  # Transactions in a row whose p99 is one value.
WAIT_MS_MAX = {"embedded": 50.0, "foundationdb": 100.0}
OTHERS_RATIO_MAX = 1.1
TO_OTHER, BACK = "b", "a"


class Request(msgspec.Struct, gc=False):
    """A transaction of a client: when it began, in seconds since the epoch, and how long it took.

    The garbage collector does not track it: a full collection stops all clients, and grows with what it tracks.
    """

    began_s: float
    took_ms: float


@dataclass
class Load:
    """Clients of a tenant, each in a thread: how long each transaction took, and which failed."""

    tenant: TenantDatabase
    requests: list[Request] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, client: int) -> None:
        """Write and read until it is stopped."""

        def body(tr: TenantTransaction) -> None:
            tr.add(("count", client), 1)
            tr.get(("count", client))

        while not self.stop.is_set():
            began_s, at_s = time.time(), time.perf_counter()
            try:
                self.tenant.transact(body)
            except (QueueError, StoreError) as error:
                self.failed.append(repr(error))
            self.requests.append(Request(began_s, (time.perf_counter() - at_s) * 1000))
            time.sleep(CLIENT_PAUSE_S)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the clients meanwhile."""
        threads = [threading.Thread(target=self.run, args=(client,)) for client in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def during(self, views: Sequence[MoveView]) -> list[float]:
        """Return how long the transactions during some moves took, in milliseconds."""
        return took_during(views, self.requests)

    def at_rest(self, views: Sequence[MoveView]) -> list[float]:
        """Return how long the transactions outside of all moves took, in milliseconds."""
        return [each.took_ms for each in self.requests if not any(overlaps(each, view) for view in views)]


def overlaps(each: Request | Flush, view: MoveView) -> bool:
    """Return whether a transaction, or a flush, was under way during a move."""
    assert view.ended is not None
    return each.began_s <= view.ended and each.began_s + each.took_ms / 1000 >= view.began


def took_during(views: Sequence[MoveView], some: Sequence[Request | Flush]) -> list[float]:
    """Return how long transactions, or flushes, during some moves took, in milliseconds."""
    return [each.took_ms for each in some if any(overlaps(each, view) for view in views)]


def usual_p99(took_ms: Sequence[float]) -> float:
    """Return the median of the p99 of each stretch; a rest that is shorter belongs to the last stretch."""
    count = max(1, len(took_ms) // STRETCH)
    ends = [*(STRETCH * number for number in range(1, count)), len(took_ms)]
    return median(percentile(took_ms[begin:end], 99) for begin, end in zip([0, *ends], ends, strict=False))


def moves(stores: Sequence[Path], megabytes: int, items: int, quick: bool) -> list[dict[str, Any]]:
    """Return two rows for each tenant and rate: there, and back."""
    app.configure(config_of(stores))
    gc.freeze()  # What was imported; see `docs/performance.md`. Each full collection took 60 to 200 ms without this.
    engine = "foundationdb" if any(store.is_file() for store in stores) else "embedded"
    other = app.tenant(tenant_on("a", 9))
    rows: list[dict[str, Any]] = []
    with mover_beside(stores):
        for number, what in enumerate((f"{SMALL_MB} MB", f"{megabytes:,} MB", f"{items:,} items")):
            tenant = app.tenant(tenant_on("a", number))
            say(f"{what}: filling")
            if what.endswith("items"):
                _enqueue(tenant, items)
            else:
                fill(tenant, OBJECTS * (SMALL_MB if number == 0 else megabytes))
            trips = SMALL_TRIPS if number == 0 and not quick else QUICK_TRIPS
            for mb_per_s in RATES:
                rest_s = QUICK_REST_S if quick else REST_S
                rows += _there_and_back(tenant, other, what, trips, mb_per_s, rest_s, stores[0].parent)
    app.close()
    gc.unfreeze()
    return [{**row, "wait_ms_max": WAIT_MS_MAX[engine]} for row in rows]


def _enqueue(tenant: TenantDatabase, items: int) -> None:
    for begin in range(0, items, FILL_BATCH):
        tenant.enqueue_many([new_item("later", begin, delay=DELAY_S)] * min(FILL_BATCH, items - begin))


def _there_and_back(
    tenant: TenantDatabase, other: TenantDatabase, what: str, trips: int, mb_per_s: float, rest_s: float, disk: Path
) -> Iterator[dict[str, Any]]:
    mine, others = Load(tenant), Load(other)
    views: dict[str, list[MoveView]] = {TO_OTHER: [], BACK: []}
    with watched(disk) as flushes, mine.running(), others.running():
        for _ in range(trips):
            for to, of_way in views.items():
                time.sleep(rest_s)
                say(f"{what}: to {to}, at most {mb_per_s:,g} MB a second")
                of_way.append(app.move(tenant, to=to, mb_per_s=mb_per_s).result())
        time.sleep(rest_s)
    _say_longest(mine, views)
    every = [view for of_way in views.values() for view in of_way]
    rest, mine_at_rest = usual_p99(others.at_rest(every)), mine.at_rest(every)
    load = round(os.getloadavg()[0], 2)
    for to, of_way in views.items():
        p99 = usual_p99(others.during(of_way))
        yield {
            "what": what,
            "to": to,
            "mb_per_s": mb_per_s,
            "moves": trips,
            "seconds": round(median(view.ended - view.began for view in of_way if view.ended is not None), 2),
            "frozen_ms": round(max(view.frozen for view in of_way) * 1000, 1),
            "longest_wait_ms": round(max(mine.during(of_way)), 1),
            "others_longest_ms": round(max(others.during(of_way)), 1),
            "longest_flush_ms": round(max(took_during(of_way, flushes)), 1),
            "longest_wait_at_rest_ms": round(max(mine_at_rest), 1),
            "failed": len(mine.failed),
            "others_failed": len(others.failed),
            "others_p99_ms": round(p99, 2),
            "others_p99_at_rest_ms": round(rest, 2),
            "others_ratio": round(p99 / rest, 2),
            "load_1m": load,
        }


def _say_longest(load: Load, views: dict[str, list[MoveView]]) -> None:
    """Print when the longest wait of each way was: a freeze is at the end of a move, before the source is cleared."""
    for to, of_way in views.items():
        longest_ms, at_s = max(
            (each.took_ms, each.began_s - view.began)
            for view in of_way
            for each in load.requests
            if overlaps(each, view)
        )
        say(f"  to {to}: longest wait {longest_ms:.1f} ms, {at_s:.2f} s after the begin of its move")


def table_of_moves(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of the moves."""
    head = [
        "tenant", "to", "MB/s", "s", "frozen ms", "longest wait ms", "bar", "longest flush ms", "at rest ms", "failed",
        "others' p99 ms", "of at rest", "bar", "load",
    ]  # fmt: skip
    return [
        head,
        *(
            [
                row["what"], row["to"], f"{row['mb_per_s']:g}", str(row["seconds"]), str(row["frozen_ms"]),
                str(row["longest_wait_ms"]), str(row["wait_ms_max"]), str(row["longest_flush_ms"]),
                str(row["longest_wait_at_rest_ms"]),
                str(row["failed"]), str(row["others_p99_ms"]), str(row["others_ratio"]), str(OTHERS_RATIO_MAX),
                str(row["load_1m"]),
            ]
            for row in rows
        ),
    ]  # fmt: skip
