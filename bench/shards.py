"""The rates of several embedded shards on one machine: one, two and four of them behind one application.

    python -m bench.shards [--json] [--quick]

The same items as in `bench.core`, 2.5 to a tenant; tenants are spread over the shards by their names. Items per second:

    enqueue_four    four processes, one item per transaction
    enqueue_bulk    one process, a hundred items per call; a call is one transaction per shard
    drain_threads, drain_ray   a fleet with default settings, from the first completion to the last

Each repetition measures all numbers of shards in turn; the command prints medians. Each shard is a file with its own
write lock and fsyncs. All shards share the processors and the disk.
"""

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from bench import harness, ray_cluster
from bench.drain import drain
from bench.enqueueing import filled_per_s, four_at_once
from bench.harness import tenants_of
from bench.machine import describe, scratch
from bench.report import options, say, show

SHARDS = (1, 2, 4)
FULL_REPETITIONS, FULL_ITEMS, FULL_S = 5, 50_000, 4.0
QUICK_REPETITIONS, QUICK_ITEMS, QUICK_S = 1, 3_000, 0.5


def measure(directory: Path, *, repetitions: int, items: int, seconds: float) -> dict[str, Any]:
    """Return items per second by number of shards and operation."""
    rates: dict[int, dict[str, list[float]]] = {count: defaultdict(list) for count in SHARDS}
    with ray_cluster.cluster() as address:
        for repetition in range(repetitions):
            for count, found in rates.items():
                say(f"{count} shards, {repetition + 1} of {repetitions}")
                base = directory / f"{repetition}-{count}"
                base.mkdir()
                found["enqueue_four"].append(four_at_once(base / "four", seconds, shards=count))
                for runtime in ("threads", "ray"):
                    store = base / runtime
                    found["enqueue_bulk"].append(
                        harness.run_in_process(filled_per_s, store, items, tenants_of(items), count)
                    )
                    drained = drain(
                        store, items, runtime=runtime, address=address if runtime == "ray" else None, shards=count
                    )
                    found[f"drain_{runtime}"].append(drained.per_s)
    return {
        **{f"{count}": {name: round(median(each)) for name, each in found.items()} for count, found in rates.items()},
        "machine": describe(directory),
    }


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    repetitions, items, seconds = (
        (QUICK_REPETITIONS, QUICK_ITEMS, QUICK_S) if opts.quick else (FULL_REPETITIONS, FULL_ITEMS, FULL_S)
    )
    with scratch() as directory:
        result = measure(directory, repetitions=repetitions, items=items, seconds=seconds)
    show(result, opts, "Items per second by number of embedded shards")


if __name__ == "__main__":
    main()
