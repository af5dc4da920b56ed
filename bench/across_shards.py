"""Transactions over two shards beside the same writes in transactions on one tenant; see `bench.olive`.

Alone: one transaction at a time; the bare ones take turns on the two shards. The next one begins once the last one is
carried out on both shards.

At once: threads, each with pairs of tenants of its own, one on each shard, which it takes in turns. The bare ones of a
thread commit on one shard, then on the other.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.harness import store_url
from bench.report import say
from fairlead import App, Config, SpanningTransaction, Tenant, TenantTransaction
from fairlead.zones.engines import transact
from fairlead.zones.placement import home
from fairlead.zones.spanning.leftovers import list_prepared

NAMES = ("eu", "us")
AT_ONCE = 16
PAIRS_EACH = 8  # Of a thread. With one, each transaction would meet the lock of the last one, and carry it out itself.
COMMITS_BAR, TIME_BAR, THROUGHPUT_BAR = 3, 2.3, 0.4
FULL_ROUNDS, QUICK_ROUNDS = 20, 3
ALONE_EACH, AT_ONCE_EACH = 50, 40  # Transactions of one kind in a round, alone, and of each thread at once.
VALUE = bytes(100)
POLL_S = 0.0005


class Pair(NamedTuple):
    """Two tenants, one on each shard."""

    eu: Tenant
    us: Tenant


def measure(stores: Sequence[Path], rounds: int) -> list[dict[str, Any]]:
    """Return the rows: commits, the time to the answer, and the throughput."""
    app = App(config=Config(shards=dict(zip(NAMES, map(store_url, stores), strict=True))))
    try:
        pairs = list(_pairs(AT_ONCE * PAIRS_EACH))
        for pair in pairs:
            _bare_on_both(app, pair)
            _across(app, pair)
        return [_commits(app, pairs[0]), _one_at_a_time(app, pairs[0], rounds), _at_once(app, pairs, rounds)]
    finally:
        app.close()


def _pairs(number: int) -> Iterator[Pair]:
    """Yield pairs of tenants that share no tenant."""
    of_shard = {name: _tenants_on(name) for name in NAMES}
    for _ in range(number):
        yield Pair(*(next(of_shard[name]) for name in NAMES))


def _tenants_on(name: str) -> Iterator[Tenant]:
    """Yield tenants whose home is a shard."""
    tenants = (Tenant("olive", f"{name}{number}") for number in count())
    return (each for each in tenants if home(each, NAMES) == name)


def _commits(app: App, pair: Pair) -> dict[str, Any]:
    """Count the commits of one transaction: a store's sequence of commits grows by one with each."""

    def sequences() -> int:
        return sum(app.shards[name].db.commit_sequence() or 0 for name in NAMES)

    _await_carried_out(app)
    before = sequences()
    _across(app, pair)
    _await_carried_out(app)
    return {"what": "commits of one", "bare": 1, "across": sequences() - before, "ratio": "", "bar": COMMITS_BAR}


def _one_at_a_time(app: App, pair: Pair, rounds: int) -> dict[str, Any]:
    """Compare the times to the answer, in turns."""
    bare_ms, across_ms, ratios = [], [], []
    for number in range(rounds):
        say(f"alone, round {number + 1} of {rounds}")
        mine: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * ALONE_EACH):
            is_across = turn % 2 == 1
            began_s = time.perf_counter()
            if is_across:
                _across(app, pair)
            else:
                _bare(app, pair[turn // 2 % 2])
            mine[is_across].append((time.perf_counter() - began_s) * 1000)
            _await_carried_out(app)
        bare_ms.append(median(mine[False]))
        across_ms.append(median(mine[True]))
        ratios.append(across_ms[-1] / bare_ms[-1])
    return {
        "what": "ms to the answer, alone",
        "bare": round(median(bare_ms), 3),
        "across": round(median(across_ms), 3),
        "ratio": round(median(ratios), 2),
        "bar": TIME_BAR,
    }


def _at_once(app: App, pairs: Sequence[Pair], rounds: int) -> dict[str, Any]:
    """Compare the throughput of threads, in turns: of transactions, and of pairs of bare ones."""
    bare_per_s, across_per_s = [], []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(rounds):
            say(f"{AT_ONCE} at once, round {number + 1} of {rounds}")
            bare_per_s.append(_per_second(app, pool, pairs, _bare_on_both))
            across_per_s.append(_per_second(app, pool, pairs, _across))
    ratios = [across / bare for across, bare in zip(across_per_s, bare_per_s, strict=True)]
    return {
        "what": f"a second, {AT_ONCE} at once",
        "bare": round(median(bare_per_s)),
        "across": round(median(across_per_s)),
        "ratio": round(median(ratios), 2),
        "bar": THROUGHPUT_BAR,
    }


def _per_second(
    app: App, pool: ThreadPoolExecutor, pairs: Sequence[Pair], once: Callable[[App, Pair], object]
) -> float:
    """Return how many were done a second, until all are carried out."""
    gate = threading.Barrier(AT_ONCE)

    def run(number: int) -> float:
        mine = cycle(pairs[number::AT_ONCE])
        gate.wait()
        began_s = time.perf_counter()
        for _ in range(AT_ONCE_EACH):
            once(app, next(mine))
        return began_s

    began_s = min(pool.map(run, range(AT_ONCE)))
    _await_carried_out(app)
    return AT_ONCE * AT_ONCE_EACH / (time.perf_counter() - began_s)


def _await_carried_out(app: App) -> None:
    while any(transact(app.shards[name].db, lambda tr: list_prepared(tr, transactions_max=1)) for name in NAMES):
        time.sleep(POLL_S)


def _bare(app: App, tenant: Tenant) -> None:
    app.tenant(tenant).transact(_change)


def _bare_on_both(app: App, pair: Pair) -> None:
    for tenant in pair:
        _bare(app, tenant)


def _across(app: App, pair: Pair) -> None:
    def body(tx: SpanningTransaction) -> None:
        for tenant in pair:
            _change(tx.on(tenant))

    app.transact(body)


def _change(tr: TenantTransaction) -> None:
    """Read an object, and write it."""
    tr.get(("object",))
    tr.set(("object",), VALUE)
