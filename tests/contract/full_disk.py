"""Fill a small disk through a store, and use the store again once there is space. Run by `test_embedded_store`."""

from __future__ import annotations

import random
import resource
import sys
from functools import partial
from pathlib import Path

from fairlead.zones.engines import Database, StoreUnavailable, Transaction, transact
from fairlead.zones.engines import open as open_database
from tests.clocks import WallClock

VALUE_BYTES = 50_000
BALLAST_BYTES = 1 << 20


def number_key(number: int) -> bytes:
    return f"{number:05}".encode()


def _put(tr: Transaction, *, number: int) -> None:
    tr.set(number_key(number), bytes(VALUE_BYTES))


def put_until_full(db: Database, start: int) -> int:
    """Commit values until the disk is full; return the number of the first that failed."""
    number = start
    while True:
        try:
            transact(db, partial(_put, number=number))
        except StoreUnavailable as error:
            if error.reason != "the disk is full" or not error.remedy:
                raise
            return number
        number += 1
        assert number < 1_000, "the disk is not small"


def check(db: Database, committed: int) -> None:
    rows = list(db.create_transaction().get_range(None, None))
    assert [row.key for row in rows] == [number_key(number) for number in range(committed)], len(rows)
    assert all(row.value == bytes(VALUE_BYTES) for row in rows)


def main() -> None:
    place = Path(sys.argv[1])
    ballast = place / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    url = f"embedded:{place / 'store'}"
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    committed = put_until_full(db, 0)
    assert committed > 10
    check(db, committed)
    # Of several commits in one group, each fails by itself.
    trs = [db.create_transaction() for _ in range(3)]
    for tr in trs:
        tr.set(b"too much", bytes(VALUE_BYTES * 2))
    futures = [tr.commit() for tr in trs]
    for future in futures:
        try:
            future.wait()
        except StoreUnavailable:
            continue
        raise AssertionError("there was space after all")
    check(db, committed)
    ballast.unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft + BALLAST_BYTES, hard))
    more = put_until_full(db, committed)
    assert more > committed + 3
    check(db, more)
    db.close()
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    check(db, more)
    print("all is there")  # noqa: T201


if __name__ == "__main__":
    main()
