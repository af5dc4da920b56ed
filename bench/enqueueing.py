"""Enqueueing, one by one and a hundred at a time, beside the floor that writes the same items.

Ours and the floor take turns in one process, a chunk of items each, so that what disturbs the machine disturbs both.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench import loads
from bench.floor import Floor
from bench.loads import PAYLOAD, TENANT_APP, tenant_name, tenants_of
from fairlead import App, new_item

BULK = 100
PROCESSES = 4
ONE_CHUNK = 200
BULK_CHUNK = 5_000


class ItemsLost(Exception):
    """Items that were acknowledged are not in the store."""


class Turns(NamedTuple):
    """Items per second of ours and of the floor in one repetition."""

    ours_per_s: float
    floor_per_s: float


@dataclass(frozen=True, slots=True)
class Filled:
    """A store filled in bulk beside a floor, and how fast the floor then leased and completed its own."""

    turns: Turns
    floor_drain_per_s: float


def one_by_one(store: Path, items: int) -> Turns:
    """Enqueue one item per transaction into a new store, in turns with the floor."""
    app = loads.opened(store)
    floor = Floor(store.with_name(store.name + ".floor"))
    zones = tenants_of(items)
    turns = _take_turns(
        items,
        ONE_CHUNK,
        ours=lambda first, end: enqueue_each(app, first, end, zones),
        floor=lambda first, end: floor.write(first, end, zones=zones, batch=1),
    )
    floor.close()
    return turns


def in_bulk(store: Path, items: int, tenants: int) -> Filled:
    """Enqueue a hundred items per transaction into a new store, in turns with the floor; then drain the floor."""
    app = loads.opened(store)
    floor = Floor(store.with_name(store.name + ".floor"))
    turns = _take_turns(
        items,
        BULK_CHUNK,
        ours=lambda first, end: fill(app, first, end, tenants),
        floor=lambda first, end: floor.write(first, end, zones=tenants, batch=BULK),
    )
    started_s = time.perf_counter()
    count = floor.lease_and_complete()
    drain_s = time.perf_counter() - started_s
    floor.close()
    return Filled(turns, count / drain_s)


def four_at_once(store: Path, items_each: int) -> float:
    """Enqueue one by one from four processes into one new store; return items per second, of all together.

    Raises:
      ItemsLost: not every item is there afterwards.
    """
    items = items_each * PROCESSES
    loads.alone(_make, store)
    spans = loads.together(_enqueue_share, [(store, number, items) for number in range(PROCESSES)])
    found = loads.alone(_stored_items, store, tenants_of(items))
    if found != items:
        raise ItemsLost(f"{items} enqueued, {found} found")
    return items / (max(end_s for _, end_s in spans) - min(started_s for started_s, _ in spans))


def enqueue_each(app: App, first: int, end: int, tenants: int, *, step: int = 1) -> None:
    """Enqueue no-op items, one per transaction."""
    for number in range(first, end, step):
        app.tenant(TENANT_APP, tenant_name(number % tenants)).enqueue("noop", PAYLOAD)


def fill(app: App, first: int, end: int, tenants: int) -> None:
    """Enqueue no-op items, a hundred per transaction."""
    for begin in range(first, end, BULK):
        numbers = range(begin, min(begin + BULK, end))
        app.enqueue_many(
            (app.tenant(TENANT_APP, tenant_name(number % tenants)), new_item("noop", PAYLOAD)) for number in numbers
        )


def _enqueue_share(store: Path, number: int, items: int) -> tuple[float, float]:
    app = loads.opened(store)
    app.shards["main"].db.change_token()
    loads.wait_for_all()
    started_s = time.monotonic()
    enqueue_each(app, number, items, tenants_of(items), step=PROCESSES)
    return started_s, time.monotonic()


def _make(store: Path) -> None:
    loads.opened(store).shards["main"].db.change_token()


def _stored_items(store: Path, tenants: int) -> int:
    app = loads.opened(store)
    return sum(len(app.tenant(TENANT_APP, tenant_name(number)).peek(100)) for number in range(tenants))


def _take_turns(
    items: int, chunk: int, *, ours: Callable[[int, int], None], floor: Callable[[int, int], None]
) -> Turns:
    spent_s = {ours: 0.0, floor: 0.0}
    for first in range(0, items, chunk):
        for work in (ours, floor):
            started_s = time.perf_counter()
            work(first, min(first + chunk, items))
            spent_s[work] += time.perf_counter() - started_s
    return Turns(items / spent_s[ours], items / spent_s[floor])
