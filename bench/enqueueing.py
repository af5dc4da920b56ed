"""Enqueueing, one by one and a hundred at a time, beside the floor that writes the same items.

Fairlead and the floor take turns in one process, a chunk of items each, so that other load on the machine slows both.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench import harness
from bench.harness import PAYLOAD, TENANT_APP, tenant_name
from bench.stores import floor_beside
from fairlead import App, new_item

BULK = 100
PROCESSES = 4
ONE_CHUNK = 100
BULK_CHUNK = 2_500
ONE_TENANTS = 2_000
PEEK_MAX = 1_000  # Of one tenant; more than a run enqueues for it.


class ItemsLost(Exception):
    """Items that were acknowledged are not in the store."""


class PairedRates(NamedTuple):
    """Items per second of Fairlead and of the floor in one repetition."""

    ours_per_s: float
    floor_per_s: float


class Share(NamedTuple):
    """The items that one of several processes enqueued, and the times on the monotonic clock."""

    items: int
    started_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Filled:
    """A store filled in bulk beside a floor, and the rate at which the floor leased and completed its own items."""

    rates: PairedRates
    floor_drain_per_s: float


def one_by_one(store: Path, seconds: float) -> PairedRates:
    """Enqueue one item per transaction into a new store for `seconds`, in turns with the floor."""
    app = harness.open_app(store)
    floor = floor_beside(store)
    rates = _alternate(
        _chunks(ONE_CHUNK, until_s=time.monotonic() + seconds),
        ours=lambda first, end: enqueue_each(app, range(first, end)),
        floor=lambda first, end: floor.write(first, end, zones=ONE_TENANTS, batch=1),
    )
    floor.close()
    return rates


def in_bulk(store: Path, items: int, tenants: int) -> Filled:
    """Enqueue a hundred items per transaction into a new store, in turns with the floor; then drain the floor."""
    app = harness.open_app(store)
    floor = floor_beside(store)
    rates = _alternate(
        _chunks(BULK_CHUNK, items=items),
        ours=lambda first, end: fill(app, first, end, tenants),
        floor=lambda first, end: floor.write(first, end, zones=tenants, batch=BULK),
    )
    started_s = time.perf_counter()
    count = floor.lease_and_complete()
    drain_s = time.perf_counter() - started_s
    floor.close()
    return Filled(rates, count / drain_s)


def four_at_once(store: Path, seconds: float, *, shards: int = 1) -> float:
    """Enqueue one by one from four processes into new shards. Return the items per second of all processes.

    Raises:
      ItemsLost: an item is missing afterwards.
    """
    shares = harness.run_in_processes(_enqueue_share, [(store, shards, number, seconds) for number in range(PROCESSES)])
    items = sum(share.items for share in shares)
    found = harness.run_in_process(_stored_items, store, shards)
    if found != items:
        raise ItemsLost(f"{items} enqueued, {found} found")
    return items / (max(share.ended_s for share in shares) - min(share.started_s for share in shares))


def filled_per_s(store: Path, items: int, tenants: int, shards: int = 1) -> float:
    """Enqueue a hundred items per call into new shards. Return items per second."""
    app = harness.open_app(store, shards=shards)
    started_s = time.perf_counter()
    fill(app, 0, items, tenants)
    return items / (time.perf_counter() - started_s)


def enqueue_each(app: App, numbers: Iterable[int]) -> None:
    """Enqueue no-op items, one per transaction."""
    for number in numbers:
        app.tenant(TENANT_APP, tenant_name(number % ONE_TENANTS)).enqueue("noop", PAYLOAD)


def fill(app: App, first: int, end: int, tenants: int) -> None:
    """Enqueue no-op items, a hundred per transaction."""
    for begin in range(first, end, BULK):
        numbers = range(begin, min(begin + BULK, end))
        app.enqueue_many(
            (app.tenant(TENANT_APP, tenant_name(number % tenants)), new_item("noop", PAYLOAD)) for number in numbers
        )


def _enqueue_share(store: Path, shards: int, first: int, seconds: float) -> Share:
    app = harness.open_app(store, shards=shards)
    for name in app.shards:
        app.shards[name].db.commit_sequence()
    harness.wait_for_all()
    started_s = time.monotonic()
    number = first
    while time.monotonic() < started_s + seconds:
        enqueue_each(app, [number])
        number += PROCESSES
    return Share((number - first) // PROCESSES, started_s, time.monotonic())


def _stored_items(store: Path, shards: int) -> int:
    app = harness.open_app(store, shards=shards)
    return sum(len(app.tenant(TENANT_APP, tenant_name(number)).peek(PEEK_MAX)) for number in range(ONE_TENANTS))


def _chunks(size: int, *, items: int | None = None, until_s: float = math.inf) -> Iterator[tuple[int, int]]:
    """Yield the first number and the end of one chunk after the other, up to a number of items or an instant."""
    first = 0
    while (items is None or first < items) and time.monotonic() < until_s:
        end = first + size if items is None else min(first + size, items)
        yield first, end
        first = end


def _alternate(
    chunks: Iterable[tuple[int, int]], *, ours: Callable[[int, int], None], floor: Callable[[int, int], None]
) -> PairedRates:
    spent_s = {ours: 0.0, floor: 0.0}
    items = 0
    for first, end in chunks:
        for work in (ours, floor):
            started_s = time.perf_counter()
            work(first, end)
            spent_s[work] += time.perf_counter() - started_s
        items = end
    return PairedRates(items / spent_s[ours], items / spent_s[floor])
