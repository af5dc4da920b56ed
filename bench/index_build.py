"""The online build of an index beside users: how fast it is, and what users' p99 becomes.

    python -m bench.index_build [--json] [--quick]

Two embedded shards hold records of some 300 bytes. A build runs in a process of its own; the measuring process reads a
record and updates it, without a change of keys, at a fixed rate. Rounds alternate: users alone, then users beside a
build of 10,000 records a second at most. Each round builds another field. At last one build runs alone, unthrottled.

    alone        the records of each second that a build alone indexes without a throttle
    throttled    the same beside users, at most 10,000
    users' p99   of a read and an update together, beside a build, as a ratio to the round before it; the median
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.harness import SPAWN, pace, store_url
from bench.machine import scratch
from bench.report import options, percentile, say, show
from fairlead import App, Config
from fairlead.index_changes import RECORDS_PER_S, type_home
from fairlead.record_type import Records
from fairlead.records.accesses import WriteRecord
from fairlead.records.on_shards.building import Builder
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.records.stored import GENERATION_BYTES, DataRecord

NAMES = ("a", "b")
TYPE = "account"
FULL_RECORDS, QUICK_RECORDS = 50_000, 3_000
FULL_ROUNDS, QUICK_ROUNDS = 5, 2
USERS_PER_S = 100
AT_ONCE = 500  # Records that one commit writes while the store is filled.
RATE_BAR, P99_BAR = 10_000, 1.1
UNTHROTTLED = 10_000_000


def sizes(*, quick: bool) -> tuple[int, int]:
    """Return how many records there are, and how many rounds."""
    return (QUICK_RECORDS, QUICK_ROUNDS) if quick else (FULL_RECORDS, FULL_ROUNDS)


def config_of(directory: Path) -> Config:
    """Return the configuration of the two shards."""
    return Config(shards={name: store_url(directory / name) for name in NAMES})


def fill(app: App, count: int, fields: Sequence[str]) -> None:
    """Write records that are found by no field; each has a value of its own in each of `fields`."""
    accounts = app.records(TYPE)
    accounts.create("first", dict.fromkeys(fields))
    performing = {name: ShardRecords(app.shards, Locations(TYPE), _definition(accounts, name)) for name in NAMES}
    encoder = msgspec.msgpack.Encoder()
    by_home: dict[str, list[WriteRecord]] = {name: [] for name in NAMES}
    for number in range(count):
        key = key_of(number)
        value = encoder.encode({"visits": 0, "about": "x" * 200, **{field: f"{field} {number:09}" for field in fields}})
        record = DataRecord(app.random.randbytes(GENERATION_BYTES), 1, (), 1, value)
        by_home[app.shards.home_name(Locations(TYPE).data_tenant(key))].append(WriteRecord(key, None, record))
    for name, writes in by_home.items():
        for at in range(0, len(writes), AT_ONCE):
            performing[name].perform(writes[at : at + AT_ONCE])


def key_of(number: int) -> str:
    """Return the primary key of a record."""
    return f"u{number:09}"


def build(directory: Path, field: str, change_id: bytes) -> float:
    """Carry out a build in this process; return the seconds that it took."""
    app = App(config=config_of(directory))
    try:
        home = type_home(app.shards, TYPE)
        began_s = time.perf_counter()
        Builder(app.shards, home, TYPE, field, locations=None, run_all=app.shards.parallel.run_all).run(change_id)
        return time.perf_counter() - began_s
    finally:
        app.close()


def measure(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    """Return the figures."""
    fields = [f"f{number}" for number in range(rounds + 1)]
    app = App(config=config_of(directory))
    try:
        say(f"writing {count:,} records")
        fill(app, count, fields)
        accounts = app.records(TYPE)
        rates, ratios, before_ms, beside_ms = [], [], [], []
        with ProcessPoolExecutor(1, SPAWN) as pool:
            pool.submit(time.sleep, 0).result()
            seconds = max(3.0, count / RECORDS_PER_S)
            list(users(accounts, count, 1.0))
            for field in fields[1:]:
                before = list(users(accounts, count, seconds))
                change = accounts.add_index(field, unique=True)
                building = pool.submit(build, directory, field, change.id)
                beside = list(users(accounts, count, seconds * 50, until=building.done))
                rates.append(count / building.result())
                before_ms.append(percentile(before, 99))
                beside_ms.append(percentile(beside, 99))
                ratios.append(beside_ms[-1] / before_ms[-1])
                say(f"{field}: {rates[-1]:,.0f}/s; p99 {before_ms[-1]:.2f} ms, beside it {beside_ms[-1]:.2f} ms")
            alone = accounts.add_index(fields[0], unique=True, records_per_s=UNTHROTTLED)
            alone_s = pool.submit(build, directory, fields[0], alone.id).result()
    finally:
        app.close()
    return {
        "records": count,
        "alone": {"per_s": round(count / alone_s), "bar": RATE_BAR},
        "throttled": {"per_s": round(median(rates)), "bar": RATE_BAR},
        "users' p99": {
            "before_ms": round(median(before_ms), 2),
            "beside_ms": round(median(beside_ms), 2),
            "ratio": round(median(ratios), 2),
            "min": round(min(ratios), 2),
            "max": round(max(ratios), 2),
            "bar": P99_BAR,
        },
    }


def users(
    accounts: Records[dict[str, Any]], count: int, seconds: float, *, until: Any = lambda: False
) -> Iterator[float]:
    """Read records and update them at a fixed rate; yield the milliseconds of each."""
    for number in pace(USERS_PER_S, seconds):
        if until():
            return
        key = key_of(number * 7919 % count)
        began_s = time.perf_counter()
        accounts.change(key, lambda value: {**value, "visits": value["visits"] + 1})
        yield (time.perf_counter() - began_s) * 1_000


def _definition(accounts: Records[dict[str, Any]], name: str) -> Any:
    return accounts._operations().definitions.on(name)


def main() -> None:
    """Measure and print."""
    opts = options(__doc__)
    with scratch() as directory:
        show(
            measure(directory, *sizes(quick=opts.quick)),
            opts,
            "An index that is built beside users, on two embedded shards",
        )


if __name__ == "__main__":
    main()
