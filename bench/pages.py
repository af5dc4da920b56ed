"""The response times of the dashboard's pages and of `why`, with 1,000,000 tenants and 100,000 waiting items.

    python -m bench.pages [--json] [--quick] [--tenants N] [--waiting N] [--times N]

Every tenant has one key; each queue with work has five items. There are also a tenth as many delayed items, an hour of
rollups, and a full completion log. There are 6,000 dead letters, more than a page reads; all their errors differ.
Each page is requested by HTTP from the real server, in a process of its own, after one request to warm up. `why` runs
in a process that has the store open, for random items with and without their tenants, and for an item that does not
exist. The figures are milliseconds, median and maximum.

The target is 200 ms for every page, and 50 ms for `why`.
"""

import http.client
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from bench import harness
from bench.harness import PAYLOAD, TENANT_APP
from bench.machine import describe, scratch
from bench.report import Options, parser, percentile, say, show
from fairlead import App, new_item
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant, named_tenant
from fairlead.zones.queue import dead_letters
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import completion_log, rollups, worker_status
from fairlead.zones.reporting.completion_log import EndedItem, EndedOfZone
from fairlead.zones.reporting.rollups import INTERVAL_US, KEPT_INTERVALS, KindRollup, Rollup, interval_of
from fairlead.zones.reporting.worker_status import RUNNING_MAX, RunningItem, WorkerStatus
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

FULL_TENANTS, FULL_WAITING = 1_000_000, 100_000
QUICK_TENANTS, QUICK_WAITING = 5_000, 2_000
PER_QUEUE = 5
DEAD_LETTERS = 6_000
DEAD_LETTERS_PER_TRANSACTION = 1_000
DELAYED_SHARE = 10
WORKERS = 8
TENANTS_PER_TRANSACTION = 2_000
ENDED_PER_COMMIT = 1_500
SLOTS_PER_TRANSACTION = 30
TIMES = 25
DUE_IN_S = 3600
KINDS = ("receipt", "index", "mail")


def measure(directory: Path, *, tenants: int, waiting: int, times: int) -> dict[str, Any]:
    """Return the figures of each page and of `why`."""
    store = directory / "store"
    item_ids = harness.run_in_process(_fill, store, tenants, waiting)
    with _asking(harness.store_url(store)) as ask:
        pages = {path: _timed(lambda path=path: ask(path), times) for path in _paths(item_ids)}  # type: ignore[misc]
    why = harness.run_in_process(_why, store, item_ids, times)
    return {
        "stored": {"tenants": tenants, "waiting": waiting},
        "pages_ms": pages,
        "why_ms": why,
        "machine": describe(directory),
    }


def _paths(item_ids: dict[str, str]) -> list[str]:
    user, item_id = next(iter(item_ids.items()))
    tenant = urlencode({"app": TENANT_APP, "user": user})
    return [
        "/",
        "/tenants",
        "/tenants?sort=time",
        f"/tenant?{tenant}",
        "/kinds",
        "/kind?kind=mail",
        "/kind?kind=receipt",
        "/periodic",
        "/tenants?find=tenant-00",
        "/running",
        "/delayed",
        "/workflows",
        f"/workflows?{tenant}",
        "/workflows?state=dead+letter",
        "/dead-letters",
        "/dead-letters/items",
        f"/dead-letters/items?{tenant}",
        "/dead-letters/items?error=no+such+error",
        f"/item?{tenant}&id={item_id}",
        f"/search?{tenant}&q={item_id}",
        f"/search?q={item_id}",
        "/log",
    ]


@contextmanager
def served(url: str) -> Iterator[str]:
    """Run the dashboard of a store in a process of its own, and yield its address."""
    command = [sys.executable, "-m", "fairlead", "dashboard", "--port", "0", "--json", "--store", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@contextmanager
def _asking(url: str) -> Iterator[Callable[[str], int]]:
    """Yield a function that requests a page of the store's dashboard, and returns the page's length."""
    with served(url) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc)

        def ask(path: str) -> int:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, (path, answer.status, body)
            return len(body)

        yield ask
        connection.close()


def _timed(ask: Callable[[], Any], times: int) -> dict[str, float]:
    ask()
    took_ms = []
    for _ in range(times):
        started_s = time.perf_counter()
        ask()
        took_ms.append((time.perf_counter() - started_s) * 1000)
    return {"p50": round(percentile(took_ms, 50), 1), "max": round(max(took_ms), 1)}


def _why(store: Path, item_ids: dict[str, str], times: int) -> dict[str, Any]:
    app = harness.open_app(store)
    chosen = random.Random(0).choices(list(item_ids.items()), k=times + 1)
    with_tenant, without = iter(chosen), iter(chosen)

    def of_tenant() -> None:
        user, item_id = next(with_tenant)
        app.tenant(TENANT_APP, user).explain(bytes.fromhex(item_id))

    return {
        "with tenant": _timed(of_tenant, times),
        "without": _timed(lambda: app.explain(bytes.fromhex(next(without)[1])), times),
        "of nothing": _timed(lambda: app.explain("nobody's"), times),
    }


# --- The contents of the store ---


def _fill(store: Path, tenants: int, waiting: int) -> dict[str, str]:
    """Fill a store. Return some items by their tenants' users."""
    app = harness.open_app(store)
    shard = app.shards["main"]
    say(f"{tenants:,} tenants")
    for begin in range(0, tenants, TENANTS_PER_TRANSACTION):
        _store_tenants(shard, range(begin, min(begin + TENANTS_PER_TRANSACTION, tenants)))
    say(f"{waiting:,} waiting items")
    some = _enqueue(app, waiting)
    say("dead letters, rollups")
    _add_dead_letters(app, min(DEAD_LETTERS, waiting))
    _work(shard)
    app.control.pause_kind("import")
    app.close()
    return some


def _store_tenants(shard: Shard, numbers: range) -> None:
    def body(attempt: Attempt) -> None:
        for number in numbers:
            attempt.tr.set(TenantKeys(TENANT_APP, _user(number)).data + b"\x02name\x00", b"nobody")

    shard.transact(body)


def _user(number: int) -> str:
    return f"tenant-{number:07d}"


def _enqueue(app: App, waiting: int) -> dict[str, str]:
    queues = waiting // PER_QUEUE
    order = [number for number in range(queues) for _ in range(PER_QUEUE)]
    made = app.enqueue_many(
        (app.tenant(TENANT_APP, _user(number)), new_item(KINDS[number % len(KINDS)], PAYLOAD)) for number in order
    )
    app.enqueue_many(
        (app.tenant(TENANT_APP, _user(queues + number)), new_item("later", PAYLOAD, delay=DUE_IN_S + number / 1000))
        for number in range(waiting // DELAYED_SHARE)
    )
    return {_user(number): each.item_id.hex() for number, each in zip(order, made, strict=True)}


def _add_dead_letters(app: App, count: int) -> None:
    """Add dead letters of one tenant."""
    tenant = app.tenant(TENANT_APP, "unlucky")
    made = tenant.enqueue_many(new_item("receipt", PAYLOAD) for _ in range(count))
    location = app.shards["main"].layout.location(tenant.tenant, "queue")
    trace = "Traceback (most recent call last):\n" * 20
    steps = ("charge the card", "reserve the goods", "print the label", "send the mail")

    def body(attempt: Attempt, begin: int) -> None:
        for number, each in enumerate(made[begin : begin + DEAD_LETTERS_PER_TRANSACTION], start=begin):
            record = decode(ItemRecord, attempt.tr.get(location.keys.item(each.item_id)).value or b"")
            assert record is not None
            dead_letters.move_to_dead_letters(
                attempt.tr,
                location,
                each.item_id,
                record,
                reason="error",
                error=f"ValueError: cannot {steps[number % 4]} of order {number}: 'customer {number}' is gone",
                traceback=trace,
                now_us=attempt.now_us,
            )

    for begin in range(0, count, DEAD_LETTERS_PER_TRANSACTION):
        app.shards["main"].transact(lambda attempt, begin=begin: body(attempt, begin))  # type: ignore[misc]


def _work(shard: Shard) -> None:
    """Write an hour of a fleet's work, its running items, and its latest completions."""
    now_us = shard.clock.now_us()
    first = interval_of(now_us) - KEPT_INTERVALS
    for begin in range(first, interval_of(now_us), SLOTS_PER_TRANSACTION):
        shard.transact(lambda attempt, begin=begin: _write_slots(attempt, shard, begin))  # type: ignore[misc]
    shard.transact(lambda attempt: _write_worker_statuses(attempt, now_us))
    of_one = [EndedItem(bytes(16), "receipt", 0, 1, 5)] * ENDED_PER_COMMIT
    commits = completion_log.PACKED_BYTES_MAX // (ENDED_PER_COMMIT * 30)
    for number in range(commits):
        ended = [EndedOfZone(TENANT_APP, _user(number), "queue", of_one)]
        shard.transact(partial(_note, shard, ended, now_us - 9_000_000))
    for _ in range(commits // 10):
        shard.transact(partial(_tidy, shard))


def _write_slots(attempt: Attempt, shard: Shard, begin: int) -> None:
    for interval in range(begin, begin + SLOTS_PER_TRANSACTION):
        rollup = Rollup(
            {kind: KindRollup(completed=1_000, retried=10, run_us=9_000_000) for kind in KINDS},
            {TENANT_APP: {_user(20 * interval % 997 + number): 100_000 * number for number in range(20)}},
        )
        rollups.write(attempt.tr, b"a worker", interval, rollup)
        rollups.sum_up(attempt.tr, shard.layout, now_us=(interval + 2) * INTERVAL_US)


def _write_worker_statuses(attempt: Attempt, now_us: int) -> None:
    tenant: Tenant = named_tenant(TENANT_APP, "busy")
    far_us = 600_000_000  # So the sessions stay live during the measurement.
    for worker in range(WORKERS):
        running = [
            RunningItem(*tenant, "queue", bytes([worker, number, *bytes(14)]), "receipt", 1, now_us, now_us + far_us)
            for number in range(RUNNING_MAX)
        ]
        status = WorkerStatus(bytes([worker]), "host", worker, RUNNING_MAX, RUNNING_MAX, now_us + far_us, running)
        worker_status.write(attempt.tr, bytes([worker]), status)


def _note(shard: Shard, ended: list[EndedOfZone], ended_us: int, attempt: Attempt) -> None:
    completion_log.append(attempt.tr, shard.layout, ended, now_us=ended_us)


def _tidy(shard: Shard, attempt: Attempt) -> None:
    completion_log.compact(attempt.tr, range(shard.layout.part_count), now_us=attempt.now_us)


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--tenants", type=int, help=f"default {FULL_TENANTS:,}; {QUICK_TENANTS:,} if quick")
    made.add_argument("--waiting", type=int, help=f"default {FULL_WAITING:,}; {QUICK_WAITING:,} if quick")
    made.add_argument("--times", type=int, default=TIMES, help=f"the number of requests of each page; default {TIMES}")
    typed = made.parse_args()
    opts = Options(as_json=typed.json, quick=typed.quick)
    tenants = typed.tenants or (QUICK_TENANTS if opts.quick else FULL_TENANTS)
    waiting = typed.waiting or (QUICK_WAITING if opts.quick else FULL_WAITING)
    with scratch() as directory:
        result = measure(directory, tenants=tenants, waiting=waiting, times=typed.times)
    show(result, opts, "Response times of pages and of why, milliseconds")


if __name__ == "__main__":
    main()
