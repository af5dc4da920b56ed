"""The cost of many tenants with work: 1,000,000 of them with one item each, compared with 20,000.

    python -m bench.many_tenants [--json] [--quick]

A fleet with default settings drains both through Ray from one embedded shard. It drains the few before the many, and
again after them. `of_few` is the rate of the many divided by the median rate of the few. This needs 2 GB of disk.
"""

from pathlib import Path
from statistics import median
from typing import Any

from bench import harness, ray_cluster
from bench.drain import drain
from bench.enqueueing import filled_per_s
from bench.machine import describe, scratch
from bench.report import options, say, show

FULL_FEW, FULL_MANY = 20_000, 1_000_000
QUICK_FEW, QUICK_MANY = 2_000, 20_000
FEW_RUNS = 3  # Before the many, and after them.


def measure(directory: Path, *, few: int, many: int) -> dict[str, Any]:
    """Return the rates of filling and draining, in items per second."""
    with ray_cluster.cluster() as address:
        figures = {
            name: _fill_and_drain(directory / name, tenants, address)
            for name, tenants in [
                *((f"before-{number}", few) for number in range(FEW_RUNS)),
                ("many", many),
                *((f"after-{number}", few) for number in range(FEW_RUNS)),
            ]
        }
    of_many = figures.pop("many")
    of_few = {way: median(each[way] for each in figures.values()) for way in of_many}
    return {
        "few": {"tenants": few, **_rounded(of_few)},
        "many": {"tenants": many, **_rounded(of_many)},
        "of_few": {way: round(of_many[way] / of_few[way], 3) for way in of_many},
        "machine": describe(directory),
    }


def _fill_and_drain(store: Path, tenants: int, address: str) -> dict[str, float]:
    say(f"{tenants:,} tenants with an item each")
    enqueue_per_s = harness.run_in_process(filled_per_s, store, tenants, tenants)
    return {
        "enqueue_bulk_per_s": enqueue_per_s,
        "drain_ray_per_s": drain(store, tenants, runtime="ray", address=address).per_s,
    }


def _rounded(rates: dict[str, float]) -> dict[str, int]:
    return {name: round(per_s) for name, per_s in rates.items()}


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    few, many = (QUICK_FEW, QUICK_MANY) if opts.quick else (FULL_FEW, FULL_MANY)
    with scratch() as directory:
        result = measure(directory, few=few, many=many)
    show(result, opts, "Tenants with one item each, items per second")


if __name__ == "__main__":
    main()
