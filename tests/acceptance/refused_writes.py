"""Commit while the kernel refuses some writes and syncs, and afterwards; then open the store anew and look.

Run by `test_outage` under strace, which injects the error. Prints one JSON object: how many commits were acknowledged,
and what was said of those that were not.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from functools import partial

from fairlead.zones.engines import StoreError, StoreUnavailable, Transaction, transact
from fairlead.zones.engines import open as open_database
from tests.clocks import WallClock

TIMES = 60


def value_of(number: int) -> bytes:
    return str(number).encode() * 200


def put(tr: Transaction, *, number: int) -> None:
    tr.set(b"%03d" % number, value_of(number))


def main() -> None:
    url = sys.argv[1]
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    acknowledged, said = set(), Counter[str]()
    for number in range(TIMES):
        try:
            transact(db, partial(put, number=number))
        except StoreUnavailable as error:
            said[f"{error.reason}. {error.remedy}"] += 1
        except StoreError as error:
            said[error.description] += 1
        else:
            acknowledged.add(number)
    assert TIMES - 1 in acknowledged, "it goes on when the disk does"
    db.close()
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    rows = {int(row.key): row.value for row in db.create_transaction().get_range(None, None)}
    assert acknowledged <= set(rows), "an acknowledged commit is lost"
    assert all(value == value_of(number) for number, value in rows.items()), "a commit is there in part"
    unsure = set(rows) - acknowledged
    sys.stdout.write(json.dumps({"acknowledged": len(acknowledged), "said": said, "unsure": len(unsure)}))


if __name__ == "__main__":
    main()
