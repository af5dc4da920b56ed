"""Fairness: fifty tenants with one item each per second, beside one tenant that floods the queue.

The heavy tenant's items sleep 5 ms, and thousands of them always wait; there are 16 slots. Two figures are measured:
how long the quiet tenants' items wait for their start, and the heavy tenant's part of the slot time that the quiet
tenants do not use. A slot's time is used from a handler's first line to its last.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

from bench import harness
from bench.handlers import NAP_S, Start, payload, starts
from bench.harness import SPAWN, TENANT_APP, pace, tenant_name
from bench.latency import await_starts
from bench.report import Latency, latency
from fairlead import new_item

QUIET_TENANTS = 50
SLOTS = 16
WORKERS = 2
BACKLOG = 3_000  # About one second of work for all slots.
TOP_UP = 500
HEAVY, WARM, QUIET = 0, 1, 2  # Tags of items.

SETTINGS = {"workers": WORKERS, "slots": SLOTS // WORKERS}


@dataclass(frozen=True, slots=True)
class Shares:
    """What each side got of the slot time in the window.

    Attributes:
      quiet: start latency of the quiet tenants' items.
      heavy_share: the heavy tenant's part of the slot time that the quiet tenants did not use.
      heavy_napped: the same with 5 ms counted per item, however late the machine woke it.
      heavy_per_s: its items per second.
    """

    quiet: Latency
    heavy_share: float
    heavy_napped: float
    heavy_per_s: float


def flood(store: Path, seconds: float, *, warm_s: float) -> Shares:
    """Put a fleet that runs on `store` with `SETTINGS` under the load for `seconds`, after `warm_s`."""
    ended = SPAWN.Event()
    heavy = SPAWN.Process(target=_keep_topped_up, args=(store, ended), name="heavy")
    heavy.start()
    try:
        harness.run_in_process(_send_quiet, store, warm_s, WARM)
        sent, from_ns, until_ns = harness.run_in_process(_send_quiet, store, seconds, QUIET)
        quiet = await_starts(store, QUIET, sent)
    finally:
        ended.set()
        heavy.join(30)
        heavy.kill()
    return shares(starts(store), quiet, from_ns=from_ns, until_ns=until_ns)


def shares(all_starts: Iterable[Start], quiet: Iterable[Start], *, from_ns: int, until_ns: int) -> Shares:
    """Return what each side got of 16 slots between two instants."""
    used_ns = {True: 0, False: 0}
    heavy_items = 0
    for start in all_starts:
        within_ns = max(0, min(start.ended_ns, until_ns) - max(start.started_ns, from_ns))
        used_ns[start.tag == HEAVY] += within_ns
        heavy_items += start.tag == HEAVY and from_ns <= start.started_ns < until_ns
    left_ns = SLOTS * (until_ns - from_ns) - used_ns[False]
    return Shares(
        quiet=latency([[(start.started_ns - start.sent_ns) / 1e6 for start in quiet]]),
        heavy_share=round(used_ns[True] / left_ns, 3),
        heavy_napped=round(heavy_items * NAP_S * 1e9 / left_ns, 3),
        heavy_per_s=round(heavy_items / (until_ns - from_ns) * 1e9, 1),
    )


def _keep_topped_up(store: Path, ended: Event) -> None:
    """Keep thousands of the heavy tenant's items waiting."""
    tenant = harness.open_app(store).tenant(TENANT_APP, "heavy")
    zone = tenant.shard.zone(tenant.tenant)
    while not ended.wait(0.02):
        waiting = sum(tenant.shard.transact(lambda attempt: zone.count(attempt.tr)).values())
        for _ in range(waiting, BACKLOG, TOP_UP):
            tenant.enqueue_many([new_item("nap", payload(HEAVY)) for _ in range(TOP_UP)])


def _send_quiet(store: Path, seconds: float, tag: int) -> tuple[int, int, int]:
    app = harness.open_app(store)
    sent = 0
    from_ns = time.monotonic_ns()
    for number in pace(QUIET_TENANTS, seconds):
        app.tenant(TENANT_APP, tenant_name(number % QUIET_TENANTS)).enqueue("nap", payload(tag))
        sent += 1
    return sent, from_ns, time.monotonic_ns()
