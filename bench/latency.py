"""Latency: from the call of enqueue to the handler's first line, with items at a steady rate.

The enqueuer is a process of its own. It writes its clock into the payload right before the call. So the figure contains
all steps: the durable commit, the scan, the lease, the call of the worker, and the slot.
"""

import time
from pathlib import Path

from bench import harness
from bench.handlers import Start, payload, starts
from bench.harness import TENANT_APP, pace, tenant_name

PER_S = 100
TENANTS = 1_000
LAST_S_MAX = 30.0


class NotStarted(Exception):
    """Items that were enqueued did not start in time."""


def paced(store: Path, seconds: float, *, runs: int, warm_s: float) -> list[list[float]]:
    """Enqueue 100 items a second, one transaction each, for a fleet that is running on `store`.

    Returns, per run of `seconds`, the milliseconds to each start. A first run of `warm_s` does not count.
    """
    measured: list[list[float]] = []
    for number, length_s in enumerate([warm_s, *[seconds] * runs]):
        count = harness.run_in_process(_send, store, length_s, number)
        found = await_starts(store, number, count)
        measured.append([(start.started_ns - start.sent_ns) / 1e6 for start in found])
    return measured[1:]


def await_starts(store: Path, tag: int, count: int) -> list[Start]:
    """Return the starts with `tag` once there are `count` of them.

    Raises:
      NotStarted: there were fewer after half a minute.
    """
    until_s = time.monotonic() + LAST_S_MAX
    while time.monotonic() < until_s:
        found = [start for start in starts(store) if start.tag == tag]
        if len(found) >= count:
            return found
        time.sleep(0.1)
    raise NotStarted(f"{count} items enqueued, {len(found)} started within {LAST_S_MAX:g} s")


def _send(store: Path, seconds: float, tag: int) -> int:
    app = harness.open_app(store)
    sent = 0
    for number in pace(PER_S, seconds):
        app.tenant(TENANT_APP, tenant_name(number % TENANTS)).enqueue("note", payload(tag))
        sent += 1
    return sent
