"""Items per second, the latency of their starts, and the memory of the actors: one page.

    python -m bench.core            a table, after some minutes
    python -m bench.core --json     one JSON object
    python -m bench.core --quick    smaller sizes, within 45 seconds
    python -m bench.core --store fdb:CLUSTER_FILE    on FoundationDB

Everything runs on the embedded engine, durable, in a temporary directory on the disk of the current directory. With
`--store` everything runs on a FoundationDB cluster, which must not hold a store: the command empties it repeatedly.

Rates are medians of repetitions. Each is also given as a ratio to the floor of the same repetition (`bench.floor`, on
FoundationDB `bench.floor_foundationdb`). The floor of `enqueue_one` and `enqueue_four` writes items one by one, that of
`enqueue_bulk` by 100; the floor of the drains leases and completes. `drain_ray_cpu_us` is the processor time of each
process of the fleet, in microseconds per item.
"""

from statistics import median
from typing import Any

from bench import harness, quiet_tenants, ray_cluster
from bench.drain import fill_and_drain
from bench.enqueueing import PairedRates, four_at_once, one_by_one
from bench.fleets import running
from bench.latency import paced
from bench.process_cost import memory
from bench.report import latency, plain, rate, say, show
from bench.sizes import FULL, QUICK, Sizes
from bench.stores import Stores, options_with_store, prepared_stores


def measure(stores: Stores, sizes: Sizes) -> dict[str, Any]:
    """Return the object that is printed: figures by name, and the floor and the machine to compare them with."""
    before = stores.describe()
    enqueued = _enqueue(stores, sizes)
    with ray_cluster.cluster() as address:
        drained = _drain(stores, sizes, address)
        late = _latency(stores, sizes, address)
    return {**enqueued, **drained, **late, "machine": {"before": before, "after": stores.describe()}}


def _enqueue(stores: Stores, sizes: Sizes) -> dict[str, Any]:
    ones: list[PairedRates] = []
    fours: list[tuple[float, float]] = []
    for number in range(sizes.repetitions):
        say(f"enqueue one by one, {number + 1} of {sizes.repetitions}")
        ones.append(harness.run_in_process(one_by_one, stores.new(f"one-{number}"), sizes.one_s))
        fours.append((four_at_once(stores.new(f"four-{number}"), sizes.four_s), ones[-1].floor_per_s))
    return {"enqueue_one": plain(rate(ones)), "enqueue_four": plain(rate(fours))}


def _drain(stores: Stores, sizes: Sizes, address: str) -> dict[str, Any]:
    with ray_cluster.empty_actors(1) as (empty,):
        rates, drains = fill_and_drain(stores, sizes, address)
        anon_mb = {"empty": memory(empty).anon_mb}
    for role in drains["ray"][0].anon_mb:
        anon_mb[role] = median(one.anon_mb[role] for one in drains["ray"])
    return {
        **rates,
        "rss_anon_mb": {role: round(megabytes, 1) for role, megabytes in anon_mb.items()},
        "drain_ray_cpu_us": {
            role: round(median(one.cpu_us[role] for one in drains["ray"]), 1) for role in drains["ray"][0].cpu_us
        },
    }


def _latency(stores: Stores, sizes: Sizes, address: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for runtime in ("threads", "ray"):
        say(f"latency, {runtime}")
        store = stores.new(f"latency-{runtime}")
        config = harness.config_of(store, **quiet_tenants.SETTINGS)
        with running(config, runtime=runtime, address=address if runtime == "ray" else None):
            figures[f"latency_{runtime}"] = plain(
                latency(paced(store, sizes.latency_s, runs=sizes.latency_runs, warm_s=sizes.warm_s))
            )
            if runtime == "ray":
                say("quiet tenants beside a heavy one, ray")
                shares = quiet_tenants.flood(store, sizes.quiet_s, warm_s=sizes.warm_s)
    figures["quiet_tenants"] = {
        **plain(shares.quiet),
        "heavy_share": shares.heavy_share,
        "heavy_napped": shares.heavy_napped,
        "heavy_per_s": shares.heavy_per_s,
    }
    return figures


def main() -> None:
    """Measure and print."""
    opts, cluster_file = options_with_store(__doc__)
    with prepared_stores(cluster_file) as stores:
        result = measure(stores, QUICK if opts.quick else FULL)
    show(result, opts, f"Fairlead on {'FoundationDB' if cluster_file else 'the embedded engine'}, durable")


if __name__ == "__main__":
    main()
