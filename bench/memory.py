"""The memory of each Ray actor with a long queue, and its growth with the number of completed items.

    python -m bench.memory [--json] [--quick]

100,000 no-op items are enqueued. A fleet starts and drains them, and then twice as many again. Per actor:

    above_empty_mb   the maximum of RssAnon during the first 100,000, above an empty Ray actor of the same run
    mapped_mb        resident pages of files at that time, with the store's map, above the empty actor's
    growth_mb        RssAnon after 200,000 items more, less RssAnon after the first 100,000
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import harness, ray_cluster
from bench.drain import DRAIN_S_MAX, NotDrained, depth
from bench.enqueueing import fill
from bench.fleets import running
from bench.harness import tenants_of
from bench.machine import describe, scratch
from bench.process_cost import Memory, memory
from bench.report import options, say, show

FULL_ITEMS = 100_000
QUICK_ITEMS = 10_000
EMPTY_ACTORS = 2
LOOK_EVERY_S = 0.2

Look = tuple[int, dict[str, Memory]]  # The number of items that remained, and the memory of each actor.


def measure(directory: Path, items: int) -> dict[str, Any]:
    """Return megabytes by actor: during the first `items`, and the growth over twice as many more."""
    store = directory / "store"
    with ray_cluster.cluster() as address, ray_cluster.empty_actors(EMPTY_ACTORS) as empties:
        say(f"queueing {items:,} items")
        harness.run_in_process(_fill, store, items)
        with running(harness.config_of(store), runtime="ray", address=address) as fleet:
            pids = fleet.pids()
            say("draining them")
            first = _drain(store, pids, items)
            for _ in range(2):
                say("and as many again")
                harness.run_in_process(_fill, store, items)
                later = _drain(store, pids, items)
            empty = memory(max(empties, key=lambda pid: memory(pid).anon_mb))
    return {
        "items": items,
        "empty": {"anon_mb": round(empty.anon_mb, 1), "mapped_mb": round(empty.mapped_mb, 1)},
        **{role: _figures(role, first, later, empty) for role in pids},
        "machine": describe(directory),
    }


def _figures(role: str, first: Sequence[Look], later: Sequence[Look], empty: Memory) -> dict[str, float]:
    peak = max((looks[role] for _, looks in first), key=lambda look: look.anon_mb)
    warm, last = first[-1][1][role], later[-1][1][role]
    return {
        "above_empty_mb": round(peak.anon_mb - empty.anon_mb, 1),
        "mapped_mb": round(max(looks[role].mapped_mb for _, looks in first) - empty.mapped_mb, 1),
        "growth_mb": round(last.anon_mb - warm.anon_mb, 1),
    }


def _drain(store: Path, pids: dict[str, int], items: int) -> list[Look]:
    """Read the memory of the actors until the store is empty."""
    app = harness.open_app(store)
    looks: list[Look] = []
    until_s = time.monotonic() + DRAIN_S_MAX
    try:
        while time.monotonic() < until_s:
            left = depth(app.shards["main"])
            looks.append((left, {role: memory(pid) for role, pid in pids.items()}))
            if not left:
                return looks
            time.sleep(LOOK_EVERY_S)
    finally:
        app.close()
    raise NotDrained(f"{left} of {items} items are left after {DRAIN_S_MAX:g} s")


def _fill(store: Path, items: int) -> None:
    fill(harness.open_app(store), 0, items, tenants_of(items))


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        result = measure(directory, QUICK_ITEMS if opts.quick else FULL_ITEMS)
    show(result, opts, "Memory of a fleet of Ray actors, MB")


if __name__ == "__main__":
    main()
