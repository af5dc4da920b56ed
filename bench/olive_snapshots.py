"""The cost of snapshots (Olive, figure 11): operations on a tenant that has a snapshot, beside one that has none.

    python -m bench.olive figure11 [--json] [--quick] [--store fdb:CLUSTER_FILE]

An operation is a `transact` on an object with a key of 64 bytes and a value of 1,000. Plain operations, and those of
the tenant with a snapshot, take turns, one by one, in one thread. Means, with the 95 % confidence interval.

    first update    of each object after the snapshot: it copies the object
    later update    of the same objects
    read            of the same objects
    create          of a new object: it copies that there was none
    read at it      of an object, at the snapshot, beside a plain read
    take            a snapshot of few objects, beside one of many: "of plain" is about 1 if it does not depend on them

Then each of YCSB's core workloads a to d (`bench.ycsb`): 1,000 requests to a tenant whose objects were stored before
its snapshot, and the same requests to a tenant without one, in turns. The first update of each object copies it.
"""

from collections.abc import Callable
from functools import partial
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from time import perf_counter
from typing import Any

from bench import ycsb
from bench.harness import config_of
from bench.report import say
from fairlead import App, TenantTransaction
from fairlead.tenant_database import TenantDatabase

FULL_OBJECTS, QUICK_OBJECTS = 2_000, 60
FEW_OBJECTS = 10
TAKES = 15  # A tenant has at most 16 snapshots.
VALUE, NEW_VALUE = bytes(1_000), b"x" * 1_000
BATCH = 500
NORMAL_95 = 1.96
BARS = {"first update": 1.3, "later update": 1.1}

Call = Callable[[], object]


def key_of(number: int) -> bytes:
    """Return the key of an object."""
    return b"%064d" % number


def update(tenant: TenantDatabase, number: int) -> None:
    """Update or create an object."""
    tenant.transact(lambda tr: tr.set((key_of(number),), NEW_VALUE))


def read(tenant: TenantDatabase, number: int) -> None:
    """Read an object."""
    tenant.transact(lambda tr: tr.get((key_of(number),)))


def fill(tenant: TenantDatabase, objects: int) -> None:
    """Create objects."""

    def body(tr: TenantTransaction, begin: int) -> None:
        for number in range(begin, min(begin + BATCH, objects)):
            tr.set((key_of(number),), VALUE)

    for begin in range(0, objects, BATCH):
        tenant.transact(partial(body, begin=begin))


def figure11(store: Path, quick: bool) -> list[dict[str, Any]]:
    """Return the rows of figure 11: each operation plain, and with a snapshot; alone, and in each workload."""
    app = App(config=config_of(store, workers=1, slots=1))
    try:
        rows = _by_operation(app, QUICK_OBJECTS if quick else FULL_OBJECTS)
        for workload in ycsb.MIXES:
            rows += _of_workload(app, workload, ycsb.QUICK_REQUESTS if quick else ycsb.FULL_REQUESTS)
        return rows
    finally:
        app.close()


def _by_operation(app: App, objects: int) -> list[dict[str, Any]]:
    """Return a row for each operation, which is sent many times in a row."""
    plain, copied, small = (app.tenant("olive", name) for name in ("plain", "copied", "small"))
    for tenant, size in ((plain, objects), (copied, objects), (small, FEW_OBJECTS)):
        fill(tenant, size)
        update(tenant, 0)
    snapshot = copied.snapshot()
    update(copied, 0)
    old = copied.at(snapshot)
    pairs: dict[str, Callable[[int], tuple[Call, Call]]] = {
        "first update": lambda n: (partial(update, plain, n), partial(update, copied, n)),
        "later update": lambda n: (partial(update, plain, n), partial(update, copied, n)),
        "read": lambda n: (partial(read, plain, n), partial(read, copied, n)),
        "create": lambda n: (partial(update, plain, objects + n), partial(update, copied, objects + n)),
        "read at it": lambda n: (partial(read, plain, n), partial(old.get, (key_of(n),))),
    }
    rows = []
    for what, calls_of in pairs.items():
        say(f"{what}, {objects} times")
        rows.append(_row(None, what, [_in_turns(*calls_of(number), number) for number in range(1, objects)]))
    say(f"take, {TAKES} times")
    rows.append(_row(None, "take", [_in_turns(small.snapshot, copied.snapshot, number) for number in range(TAKES)]))
    return rows


def _of_workload(app: App, workload: str, requests: int) -> list[dict[str, Any]]:
    """Return a row for each operation of a workload that was sent more than once."""
    say(f"workload {workload}, {requests} requests")
    plain, copied = (app.tenant("olive", f"{name} {workload}") for name in ("plain", "copied"))
    for tenant in (plain, copied):
        ycsb.fill(tenant, ycsb.OBJECTS)
    copied.snapshot()
    pairs: dict[str, list[tuple[float, float]]] = {what: [] for what in ycsb.OPERATIONS}
    drawn = ycsb.Requests(workload, Random(1))
    for number in range(requests):
        what, place = drawn.draw()
        plain_call, copied_call = (partial(getattr(ycsb.Client(tenant), what), place) for tenant in (plain, copied))
        pairs[what].append(_in_turns(plain_call, copied_call, number))
    return [_row(workload, what, found) for what, found in pairs.items() if len(found) > 1]


def _in_turns(plain: Call, copied: Call, number: int) -> tuple[float, float]:
    """Return how many milliseconds each of two calls takes; the one that comes first alternates."""
    if number % 2:
        return _ms(plain), _ms(copied)
    copied_ms = _ms(copied)
    return _ms(plain), copied_ms


def _ms(call: Call) -> float:
    began_s = perf_counter()
    call()
    return (perf_counter() - began_s) * 1000


def _row(workload: str | None, what: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    plain, copied = [each for each, _ in pairs], [each for _, each in pairs]
    return {
        "workload": workload,
        "operation": what,
        "plain_ms": round(mean(plain), 3),
        "plain_within_ms": round(NORMAL_95 * stdev(plain) / sqrt(len(plain)), 3),
        "copied_ms": round(mean(copied), 3),
        "copied_within_ms": round(NORMAL_95 * stdev(copied) / sqrt(len(copied)), 3),
        "of_plain": round(mean(copied) / mean(plain), 2),
        "bar": BARS.get(what),
    }


def table11(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of figure 11."""
    head = ["workload", "operation", "plain ms", "±", "with a snapshot ms", "±", "of plain", "bar"]
    names = ("workload", "operation", "plain_ms", "plain_within_ms", "copied_ms", "copied_within_ms", "of_plain", "bar")
    return [head, *(["" if row[name] is None else str(row[name]) for name in names] for row in rows)]
