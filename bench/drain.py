"""Draining a store that was filled before: items per second from the first observed completion to the last.

    python -m bench.drain [--json] [--quick] [--store fdb:CLUSTER_FILE]

The command fills and drains a store with each runtime, beside the floor, several times. It is a part of `bench.core`.

The start of a fleet, which takes seconds on Ray, is not measured. A process beside the fleet reads the depth from the
store's own counters, so an item counts when its completion is durable.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import harness, ray_cluster
from bench.enqueueing import Filled, in_bulk
from bench.fleets import RunningFleet, running
from bench.handlers import APP
from bench.process_cost import cpu_s, memory
from bench.report import plain, rate, say, show
from bench.sizes import FULL, QUICK, Sizes
from bench.stores import Stores, options_with_store, prepared_stores
from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

POLL_S = 0.02
MEMORY_EVERY_S = 0.5
DRAIN_S_MAX = 600.0


class NotDrained(Exception):
    """The fleet did not finish in time."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain.

    Attributes:
      anon_mb: the maximum of each actor's RssAnon, by role, in MB.
      cpu_us: the processor time of each actor, by role, in microseconds per item.
    """

    per_s: float
    anon_mb: dict[str, float]
    cpu_us: dict[str, float]


def fill_and_drain(stores: Stores, sizes: Sizes, address: str) -> tuple[dict[str, Any], dict[str, list[Drained]]]:
    """Fill and drain a store per runtime and repetition, with a floor that is filled beside it and drained after it.

    Returns the rates of bulk enqueues and of drains by runtime, as they are printed; and the result of each drain.
    """
    items = sizes.bulk_items
    filled: list[Filled] = []
    drains: dict[str, list[Drained]] = {"threads": [], "ray": []}
    for number in range(sizes.repetitions):
        for runtime, done in drains.items():
            say(f"enqueue by 100 and drain, {runtime}, {number + 1} of {sizes.repetitions}")
            store = stores.new(f"drain-{runtime}-{number}")
            filled.append(harness.run_in_process(in_bulk, store, items, harness.tenants_of(items)))
            done.append(drain(store, items, runtime=runtime, address=address if runtime == "ray" else None))
    floors = [(a.floor_drain_per_s + b.floor_drain_per_s) / 2 for a, b in zip(filled[::2], filled[1::2], strict=True)]
    rates = {
        "enqueue_bulk": plain(rate([each.rates for each in filled])),
        **{
            f"drain_{runtime}": plain(rate([(one.per_s, floor) for one, floor in zip(done, floors, strict=True)]))
            for runtime, done in drains.items()
        },
    }
    return rates, drains


def drain(
    store: Path,
    items: int,
    *,
    runtime: str,
    address: str | None = None,
    shards: int = 1,
    reference: str = APP,
    metrics_port: int = 0,
) -> Drained:
    """Let a fleet with default settings complete the `items` no-op items in `store` and in the shards beside it.

    Raises:
      NotDrained: items remain after ten minutes.
    """
    app = harness.open_app(store, shards=shards)
    try:
        config = replace(harness.config_of(store, shards=shards), metrics_port=metrics_port)
        with running(config, runtime=runtime, address=address, reference=reference) as fleet:
            return _watch([app.shards[name] for name in app.shards], items, fleet)
    finally:
        app.close()


def depth(shard: Shard) -> int:
    """Return the number of items of all kinds in a shard, with delayed and leased ones. Snapshot reads."""

    def body(attempt: Attempt) -> int:
        ranges = [attempt.tr.snapshot.get_range(range_begin(part.depth_prefix), range_end(part.depth_prefix))
                  for part in shard.layout.parts]  # fmt: skip
        return sum(int.from_bytes(row.value, "little", signed=True) for rows in ranges for row in rows)

    return shard.transact(body)


def _watch(shards: Sequence[Shard], items: int, fleet: RunningFleet) -> Drained:
    first_s, left_at_first = 0.0, items
    until_s = time.monotonic() + DRAIN_S_MAX
    anon_mb: dict[str, float] = {}
    pids: dict[str, int] = {}
    cpu_at_first_s: dict[str, float] = {}
    next_look_s = 0.0
    while (now_s := time.monotonic()) < until_s:
        left = sum(map(depth, shards))
        if left < items and left_at_first == items:
            first_s, left_at_first = now_s, left
            pids = fleet.pids()
            cpu_at_first_s = {role: cpu_s(pid) for role, pid in pids.items()}
        if left == 0 or now_s >= next_look_s:
            next_look_s = now_s + MEMORY_EVERY_S
            for role, pid in pids.items():
                anon_mb[role] = max(anon_mb.get(role, 0.0), memory(pid).anon_mb)
        if left == 0:
            spent_s = {role: cpu_s(pid) - cpu_at_first_s[role] for role, pid in pids.items()}
            cpu_us = {role: seconds * 1e6 / max(1, left_at_first) for role, seconds in spent_s.items()}
            return Drained(left_at_first / (now_s - first_s), anon_mb, cpu_us)
        time.sleep(POLL_S)
    raise NotDrained(f"{sum(map(depth, shards))} of {items} items are left after {DRAIN_S_MAX:g} s")


def measure(stores: Stores, sizes: Sizes) -> dict[str, Any]:
    """Return the object that is printed."""
    before = stores.describe()
    with ray_cluster.cluster() as address:
        rates, _ = fill_and_drain(stores, sizes, address)
    return {**rates, "machine": {"before": before, "after": stores.describe()}}


def main() -> None:
    """Measure and print."""
    opts, cluster_file = options_with_store(__doc__)
    with prepared_stores(cluster_file) as stores:
        result = measure(stores, QUICK if opts.quick else FULL)
    show(result, opts, "Filling and draining, items per second")


if __name__ == "__main__":
    main()
