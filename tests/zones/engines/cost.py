"""What a transaction costs above LMDB itself: `python -m tests.zones.engines.cost [directory]`.

Each group is what an enqueue does that makes its pointer: three point reads, four sets, two adds. `raw` writes the same
keys to a bare LMDB, fsync included. Figures are the best of three runs, in microseconds per group.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lmdb

from fairlead.zones.engines import Database
from fairlead.zones.engines import open as open_database
from tests.clocks import WallClock

ONE = (1).to_bytes(8, "little")


class Group(NamedTuple):
    reads: list[bytes]
    sets: list[tuple[bytes, bytes]]
    adds: list[bytes]


class Cost(NamedTuple):
    wall_us: float
    cpu_us: float


def group(number: int) -> Group:
    tenant = b"\x15db\x02shop\x00\x02user%06d\x00" % (number % 20_000)
    item = random.Random(number).randbytes(16)
    vesting = number.to_bytes(8, "big")
    return Group(
        reads=[tenant + b"owner", tenant + b"item" + item, tenant + b"pointer"],
        sets=[
            (tenant + b"item" + item, bytes(300)),
            (tenant + b"vest\x15\x64" + vesting + item, b"kind"),
            (tenant + b"pointer", bytes(31)),
            (b"\x15top vest" + vesting + tenant, b""),
        ],
        adds=[tenant + b"count", tenant + b"count kind"],
    )


def engine(db: Database, batch: list[Group]) -> None:
    tr = db.create_transaction()
    for reads, sets, adds in batch:
        for key in reads:
            tr.get(key).present()
        for key, value in sets:
            tr.set(key, value)
        for key in adds:
            tr.add(key, ONE)
    tr.commit().wait()


def raw(env: lmdb.Environment, batch: list[Group]) -> None:
    with env.begin(write=True) as txn:
        for _, sets, adds in batch:
            for key, value in sets:
                txn.put(key, value)
            for key in adds:
                count = int.from_bytes(txn.get(key) or b"", "little") + 1
                txn.put(key, count.to_bytes(8, "little"))


def measured(batches: list[list[Group]], run: Callable[[list[Group]], None]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        run(batch)
    groups = sum(map(len, batches))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Cost(wall * 1e6 / groups, cpu * 1e6 / groups)


def cost_of_engine(url: str, batches: list[list[Group]]) -> Cost:
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    try:
        return measured(batches, lambda batch: engine(db, batch))
    finally:
        db.close()


def cost_of_raw(path: Path, batches: list[list[Group]]) -> Cost:
    with lmdb.open(str(path), map_size=64 << 30) as env:
        return measured(batches, lambda batch: raw(env, batch))


def best(place: Path, run: Callable[[Path], Cost]) -> Cost:
    costs = []
    for _ in range(3):
        directory = Path(tempfile.mkdtemp(dir=place))
        costs.append(run(directory))
        shutil.rmtree(directory)
    return min(costs, key=lambda cost: cost.cpu_us)


def main() -> None:
    place = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    for commits, size in ((2_000, 1), (200, 100)):
        batches = [[group(start * size + each) for each in range(size)] for start in range(commits)]
        floor = best(place, lambda path, batches=batches: cost_of_raw(path, batches))  # type: ignore[misc]
        embedded = best(place, lambda path, batches=batches: cost_of_engine(f"embedded:{path}", batches))  # type: ignore[misc]
        memory = best(place, lambda path, batches=batches: cost_of_engine("memory:", batches))  # type: ignore[misc]
        print(  # noqa: T201
            f"{size:3} a commit: raw {floor.wall_us:.0f} us ({floor.cpu_us:.0f} CPU),"
            f" embedded {embedded.wall_us:.0f} us ({embedded.cpu_us:.0f} CPU,"
            f" {embedded.cpu_us - floor.cpu_us:.0f} above raw), memory {memory.cpu_us:.0f} us CPU"
        )


if __name__ == "__main__":
    main()
