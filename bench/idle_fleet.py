"""The cost of an idle fleet, and the latency of its first item.

    python -m bench.idle_fleet [--json] [--quick]

CPU is in percent of one core, for the fleet's own processes. The fleet's Ray actors are compared with as many empty
actors on the same cluster at the same time. Ray's own processes do not count.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import harness, ray_cluster
from bench.fleets import running
from bench.handlers import payload
from bench.harness import TENANT_APP, tenant_name
from bench.latency import await_starts
from bench.machine import describe, scratch
from bench.process_cost import cpu_s
from bench.report import options, percentile, say, show

SETTLE_S = 5.0
IDLE_S_RANGE = (1.1, 2.1)  # Between two items, so that the fleet has been idle for a long time before each.
TENANTS = 100


def measure(directory: Path, *, idle_s: float, items: int) -> dict[str, Any]:
    """Return the cost of being idle and the first starts after it, by runtime."""
    machine = describe(directory)
    say("an idle fleet of threads")
    store = directory / "threads"
    with running(harness.config_of(store), runtime="threads") as fleet:
        threads = {"cpu_percent": _cpu_percent([fleet.pids()["consumer"]], (), idle_s)[0]}
        threads |= _first_starts(store, items)
    say("an idle fleet of Ray actors")
    store = directory / "ray"
    with ray_cluster.cluster() as address, running(harness.config_of(store), runtime="ray", address=address) as fleet:
        pids = list(fleet.pids().values())
        with ray_cluster.empty_actors(len(pids)) as empties:
            actors_percent, empties_percent = _cpu_percent(pids, empties, idle_s)
        ray = {
            "cpu_percent_above_empty": round(actors_percent - empties_percent, 2),
            "cpu_percent": actors_percent,
            "empty_cpu_percent": empties_percent,
            "actors": len(pids),
        }
        ray |= _first_starts(store, items)
    return {"threads": threads, "ray": ray, "machine": machine}


def _cpu_percent(pids: Sequence[int], others: Sequence[int], idle_s: float) -> tuple[float, float]:
    """Return the CPU of two sets of idle processes over the same time."""
    time.sleep(SETTLE_S)
    before = [sum(map(cpu_s, pids)), sum(map(cpu_s, others))]
    time.sleep(idle_s)
    after = [sum(map(cpu_s, pids)), sum(map(cpu_s, others))]
    ours, theirs = (round((end - begin) / idle_s * 100, 2) for begin, end in zip(before, after, strict=True))
    return ours, theirs


def _first_starts(store: Path, items: int) -> dict[str, float]:
    sent = harness.run_in_process(_send_now_and_then, store, items)
    late_ms = [(start.started_ns - start.sent_ns) / 1e6 for start in await_starts(store, 0, sent)]
    return {
        "first_start_p50_ms": round(percentile(late_ms, 50), 2),
        "first_start_p99_ms": round(percentile(late_ms, 99), 2),
        "first_start_max_ms": round(max(late_ms), 2),
        "first_starts": len(late_ms),
    }


def _send_now_and_then(store: Path, items: int) -> int:
    app = harness.open_app(store)
    dice = random.Random(0)
    for _ in range(items):
        time.sleep(dice.uniform(*IDLE_S_RANGE))
        app.tenant(TENANT_APP, tenant_name(dice.randrange(TENANTS))).enqueue("note", payload())
    return items


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        idle_s, items = (5, 6) if opts.quick else (30, 100)
        result = measure(directory, idle_s=idle_s, items=items)
    show(result, opts, "An idle fleet on the embedded engine")


if __name__ == "__main__":
    main()
