"""The calls that `bench.olive_owner` times in a checkout, with what every checkout has: nothing of `bench`.

    python -c "import owner_calls; owner_calls.main()" URL CALLS ITEMS

Prints one JSON object: microseconds of the wall and of the processor for each call, and for each item that a fleet of
threads drains in this process.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import fairlead
from fairlead import fleet

BATCHES = 20
WARM_BATCHES = 2
ITEMS_AT_ONCE = 100
ITEMS_PER_TENANT = 2.5
DRAIN_S_MAX = 300.0
POLL_S = 0.01
VALUE = bytes(100)

app = fairlead.App()


@app.handler("noop")
def noop(job: fairlead.Job) -> None:
    """Do nothing."""


def _read(tr: Any) -> None:
    tr.get(("object", 1))


def _write(tr: Any) -> None:
    tr.set(("object", 1), VALUE)


def _read_and_write(tr: Any) -> None:
    tr.get(("object", 1))
    tr.set(("object", 1), VALUE)


BODIES = {"reads": _read, "writes": _write, "reads and then writes": _read_and_write}


def timed(call: Callable[[], object], times: int) -> dict[str, float]:
    """Return microseconds for each call: the median over batches, of the wall and of the processor."""
    wall_us, cpu_us = [], []
    for number in range(BATCHES + WARM_BATCHES):
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for _ in range(times):
            call()
        if number >= WARM_BATCHES:
            wall_us.append((time.perf_counter() - began_s) / times * 1e6)
            cpu_us.append((time.process_time() - began_cpu_s) / times * 1e6)
    return {"us": median(wall_us), "cpu_us": median(cpu_us)}


def drained(items: int) -> dict[str, float]:
    """Enqueue items and let a fleet of threads complete them; return microseconds for each, after the first ones."""
    tenants = max(1, int(items / ITEMS_PER_TENANT))
    for begin in range(0, items, ITEMS_AT_ONCE):
        app.enqueue_many(
            (app.tenant("bench", f"tenant-{number % tenants}"), fairlead.new_item("noop", b"x" * 200))
            for number in range(begin, begin + ITEMS_AT_ONCE)
        )
    running = fleet.start(app, "owner_calls:app", runtime="threads")
    try:
        until_s = time.monotonic() + DRAIN_S_MAX
        first: tuple[int, float, float] | None = None
        while (done := running.counts().get("completed", 0)) < items:
            if first is None and done:
                first = done, time.perf_counter(), time.process_time()
            if time.monotonic() > until_s:
                raise TimeoutError(f"{done} of {items} items are completed")
            time.sleep(POLL_S)
        if first is None:
            raise TimeoutError("all items were completed before they were counted")
        begun, at_s, at_cpu_s = first
        left = items - begun
        return {
            "us": (time.perf_counter() - at_s) / left * 1e6,
            "cpu_us": (time.process_time() - at_cpu_s) / left * 1e6,
        }
    finally:
        running.stop(drain=1)


def main() -> None:
    """Time the calls, and print them. `CALLS`: writes in a batch; there are as many reads as take a similar time."""
    url, calls, items = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    app.configure(fairlead.Config(shards={"main": url}))
    tenant = app.tenant("bench", "owner")
    tenant.transact(_write)
    reads = calls * 20 if url.startswith("embedded:") else calls
    took = {
        name: timed(lambda body=body: tenant.transact(body), reads if name == "reads" else calls)  # type: ignore[misc]
        for name, body in BODIES.items()
    }
    numbers = iter(range(10**9))
    took["enqueue"] = timed(lambda: app.tenant("bench", f"one-{next(numbers) % 500}").enqueue("later", VALUE), calls)
    took["drain"] = drained(items)
    app.close()
    print(json.dumps({"file": fairlead.__file__, "took": took}))


if __name__ == "__main__":
    main()
