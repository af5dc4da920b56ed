"""The cost of idle tenants: 10, 10,000 and 1,000,000 of them, stored in one embedded shard.

    python -m bench.idle_tenants [--json] [--quick]

There are two cases. In `with_data` each tenant has one key and no item. In `with_delayed_item` each tenant has, too, an
item that vests in 30 days, and so a pointer in the top-level queue; this is the most expensive case. Per number of
tenants:

    scan_us          one scan that finds nothing: the oldest vested pointers, and the next vesting time (median)
    cpu_percent      of one core, an idle fleet of threads
    scans_per_s      the scans of that fleet per second
    start_p50_ms     from enqueue to start, for items of one busy tenant among the idle; and the 99th percentile
"""

import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench import harness
from bench.fleets import running
from bench.handlers import payload
from bench.harness import PAYLOAD, TENANT_APP, pace
from bench.latency import await_starts
from bench.machine import describe, scratch
from bench.process_cost import cpu_s
from bench.report import options, percentile, say, show
from fairlead import TenantTransaction, new_item
from fairlead.actors.scanning.partitioned import PartitionedSelection
from fairlead.actors.scanning.partitioning import Session, divide
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.layout import named_tenant
from fairlead.zones.top_level.sessions import LIVE_US
from fairlead.zones.transaction_runner import Attempt

FULL_TENANTS = (10, 10_000, 1_000_000)
QUICK_TENANTS = (10, 2_000)
TENANTS_PER_TRANSACTION = 500
DUE_IN_S = 30 * 24 * 3600
SCANS = 500
SETTLE_S = 2.0
STARTS_PER_S = 20


def measure(directory: Path, tenant_counts: tuple[int, ...], *, idle_s: float, load_s: float) -> dict[str, Any]:
    """Return the figures by case and number of tenants."""
    machine = describe(directory)
    ways: dict[str, Any] = {"with_data": {}, "with_delayed_item": {}}
    for way, figures in ways.items():
        for count in tenant_counts:
            say(f"{count:,} idle tenants {way.replace('_', ' ')}")
            store = directory / f"{way}-{count}"
            harness.run_in_process(_store_idle, store, count, way == "with_delayed_item")
            figures[f"{count}"] = _figures(store, idle_s, load_s)
            shutil.rmtree(store)
    return {**ways, "machine": machine}


def _figures(store: Path, idle_s: float, load_s: float) -> dict[str, float]:
    scan_us = harness.run_in_process(_scan_us, store)
    with running(harness.config_of(store), runtime="threads") as fleet:
        cpu_percent, scans_per_s = _idle(fleet.pids()["consumer"], fleet.counts, idle_s)
        sent = harness.run_in_process(_send, store, load_s)
        late_ms = [(start.started_ns - start.sent_ns) / 1e6 for start in await_starts(store, 0, sent)]
    return {
        "scan_us": round(scan_us, 1),
        "cpu_percent": round(cpu_percent, 2),
        "scans_per_s": round(scans_per_s, 1),
        "start_p50_ms": round(percentile(late_ms, 50), 2),
        "start_p99_ms": round(percentile(late_ms, 99), 2),
    }


def _idle(pid: int, counts: Any, idle_s: float) -> tuple[float, float]:
    """Return the CPU of an idle fleet, in percent of a core, and its scans per second."""
    time.sleep(SETTLE_S)
    cpu_before_s, scans_before = cpu_s(pid), counts().get("scans", 0)
    time.sleep(idle_s)
    return (cpu_s(pid) - cpu_before_s) / idle_s * 100, (counts().get("scans", 0) - scans_before) / idle_s


def _store_idle(store: Path, count: int, delayed_item: bool) -> None:
    """Store tenants with a key each, and with a delayed item if requested, many per transaction."""
    shard = harness.open_app(store).shards["main"]
    item = new_item("noop", PAYLOAD, delay=DUE_IN_S)
    for begin in range(0, count, TENANTS_PER_TRANSACTION):

        def body(attempt: Attempt, begin: int = begin) -> None:
            for number in range(begin, min(begin + TENANTS_PER_TRANSACTION, count)):
                tenant = named_tenant(TENANT_APP, f"tenant-{number:07d}")
                tr = TenantTransaction(shard, tenant, attempt)
                tr.set(("name",), b"nobody")
                if delayed_item:
                    tr.enqueue_item(item)

        shard.transact(body)


def _scan_us(store: Path) -> float:
    """Return the median time of a scanner's scan that finds nothing, in microseconds."""
    shard = harness.open_app(store).shards["main"]
    selection = PartitionedSelection(shard.layout, ConsumerSettings(), random.Random(0))
    everything = divide({b"": ()}, shard.layout.part_count)[b""]

    parts = shard.layout.parts

    def body(attempt: Attempt) -> int:
        selection.set_session(Session(everything, attempt.now_us + LIVE_US))
        selection.begin(attempt.now_us)
        refs = selection.select(attempt.tr, lambda ref: True, now_us=attempt.now_us, parts=parts)
        selection.due_us(attempt.tr, parts, after_us=0)
        return len(refs)

    took_s = []
    for _ in range(SCANS):
        started_s = time.perf_counter()
        found = shard.transact(body)
        took_s.append(time.perf_counter() - started_s)
        assert found == 0
    return statistics.median(took_s) * 1e6


def _send(store: Path, seconds: float) -> int:
    tenant = harness.open_app(store).tenant(TENANT_APP, "busy")
    sent = 0
    for _ in pace(STARTS_PER_S, seconds):
        tenant.enqueue("note", payload())
        sent += 1
    return sent


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        if opts.quick:
            result = measure(directory, QUICK_TENANTS, idle_s=2, load_s=1)
        else:
            result = measure(directory, FULL_TENANTS, idle_s=20, load_s=15)
    show(result, opts, "Idle tenants on the embedded engine, threads runtime")


if __name__ == "__main__":
    main()
