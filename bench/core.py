"""What the queue does per second, how late it starts an item, and what it holds in memory: one page.

    python -m bench.core            a table, after some minutes
    python -m bench.core --json     one JSON object
    python -m bench.core --quick    smaller sizes, within 45 seconds

Everything runs on the embedded engine, durable, in a temporary directory on the disk of the current one. Rates are
medians of repetitions and each is also given as a ratio to the floor (`bench.floor`) of the same repetition:
`enqueue_one` and `enqueue_four` to its writing one by one, `enqueue_bulk` to its writing by 100, drains to its leasing
and completing. `drain_ray_cpu_us` is the processor time of each process of the fleet, in microseconds per item.
"""

from pathlib import Path
from statistics import median
from typing import Any

from bench import clusters, light_tenants, loads
from bench.actor_cost import memory
from bench.drain import Drained, drain
from bench.enqueueing import Filled, Turns, four_at_once, in_bulk, one_by_one
from bench.fleets import running
from bench.latency import paced
from bench.loads import tenants_of
from bench.machine import describe, scratch
from bench.report import latency, options, plain, rate, say, show
from bench.sizes import FULL, QUICK, Sizes


def measure(directory: Path, sizes: Sizes) -> dict[str, Any]:
    """Return the object that is printed: figures by name, and under `floor` and `machine` what to judge them by."""
    before = describe(directory)
    enqueued = _enqueue(directory, sizes)
    with clusters.cluster() as address:
        drained = _drain(directory, sizes, address)
        late = _latency(directory, sizes, address)
    return {**enqueued, **drained, **late, "machine": {"before": before, "after": describe(directory)}}


def _enqueue(directory: Path, sizes: Sizes) -> dict[str, Any]:
    ones: list[Turns] = []
    fours: list[tuple[float, float]] = []
    for number in range(sizes.repetitions):
        say(f"enqueue one by one, {number + 1} of {sizes.repetitions}")
        ones.append(loads.alone(one_by_one, directory / f"one-{number}", sizes.one_s))
        fours.append((four_at_once(directory / f"four-{number}", sizes.four_s), ones[-1].floor_per_s))
    return {"enqueue_one": plain(rate(ones)), "enqueue_four": plain(rate(fours))}


def _drain(directory: Path, sizes: Sizes, address: str) -> dict[str, Any]:
    """Fill and drain a store per host and repetition; a floor beside each filling, drained right after it."""
    items = sizes.bulk_items
    filled: list[Filled] = []
    drains: dict[str, list[Drained]] = {"threads": [], "ray": []}
    with clusters.empty_actors(1) as (empty,):
        for number in range(sizes.repetitions):
            for host, done in drains.items():
                say(f"enqueue by 100 and drain, {host}, {number + 1} of {sizes.repetitions}")
                store = directory / f"drain-{host}-{number}"
                filled.append(loads.alone(in_bulk, store, items, tenants_of(items)))
                done.append(drain(store, items, host=host, address=address if host == "ray" else None))
        anon_mb = {"empty": memory(empty).anon_mb}
    for role in drains["ray"][0].anon_mb:
        anon_mb[role] = median(one.anon_mb[role] for one in drains["ray"])
    floors = [(a.floor_drain_per_s + b.floor_drain_per_s) / 2 for a, b in zip(filled[::2], filled[1::2], strict=True)]
    return {
        "enqueue_bulk": plain(rate([each.turns for each in filled])),
        **{
            f"drain_{host}": plain(rate([(one.per_s, floor) for one, floor in zip(done, floors, strict=True)]))
            for host, done in drains.items()
        },
        "rss_anon_mb": {role: round(megabytes, 1) for role, megabytes in anon_mb.items()},
        "drain_ray_cpu_us": {
            role: round(median(one.cpu_us[role] for one in drains["ray"]), 1) for role in drains["ray"][0].cpu_us
        },
    }


def _latency(directory: Path, sizes: Sizes, address: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for host in ("threads", "ray"):
        say(f"latency, {host}")
        store = directory / f"latency-{host}"
        config = loads.config_of(store, **light_tenants.SETTINGS)
        with running(config, host=host, address=address if host == "ray" else None):
            figures[f"latency_{host}"] = plain(
                latency(paced(store, sizes.latency_s, runs=sizes.latency_runs, warm_s=sizes.warm_s))
            )
            if host == "ray":
                say("light tenants beside a heavy one, ray")
                shares = light_tenants.flood(store, sizes.light_s, warm_s=sizes.warm_s)
    figures["light_tenants"] = {
        **plain(shares.light),
        "heavy_share": shares.heavy_share,
        "heavy_napped": shares.heavy_napped,
        "heavy_per_s": shares.heavy_per_s,
    }
    return figures


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        result = measure(directory, QUICK if opts.quick else FULL)
    show(result, opts, "Fairlead on the embedded engine, durable")


if __name__ == "__main__":
    main()
