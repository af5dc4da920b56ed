"""An application of records, and a clerk of it: a process that changes records of its own until it is killed or told.

A clerk owns primary keys, and shares the values of unique fields with all others. It writes each operation into a file
before it begins and after it has ended, so the file says what was acknowledged. Its working directory has a
`fairlead.toml`. This module shortens the product's delays, in each process that opens it. Run by `test_records`:

    python -m tests.acceptance.records_shop NUMBER SEED
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import fairlead
from fairlead.record_type import Record
from fairlead.records.errors import Interrupted, Taken
from fairlead.records.on_shards import cleanup
from tests.acceptance.clerk_values import CITIES, SHOPS, STOP, UNIQUE_KEYS, VALUES, email, people_of, shop
from tests.acceptance.shop import note

CLEANUP_DELAY_S = 3  # Instead of a minute.
Data = dict[str, Any]

cleanup.DELAY_S = CLEANUP_DELAY_S
app = fairlead.App()
people = app.records("person", unique=("email", "phone"), lookup=("city",))


@app.handler("counted", transactional=True, retry=fairlead.Retry(attempts=None, backoff=0.1))
def counted(job: fairlead.Job, tr: fairlead.TenantTransaction) -> None:
    """Count the item, and say when it ran, and which attempt counted."""
    token = os.urandom(8).hex()
    words = (job.payload["key"], job.id.hex(), token)
    note(job.payload["path"], "begin", *words, time.monotonic_ns())
    time.sleep(0.005)
    tr.add(("done", job.id.hex()), 1)
    tr.set(("token", job.id.hex()), token.encode())
    note(job.payload["path"], "end", *words, time.monotonic_ns())


class Clerk:
    """Changes, finds and deletes records, and enqueues unique items."""

    def __init__(self, number: int, random: Random) -> None:
        self._keys = people_of(number)
        self._path = Path(f"clerk-{number}")
        self._random = random
        self._count = 0

    def run(self) -> None:
        """Work until a file says to stop."""
        read = {key: people.get(key) for key in self._keys}
        for key, record in read.items():
            self._note("saw", key, record)
        while not Path(STOP).exists():
            if self._random.random() < 0.2:
                self._enqueue()
                continue
            key = self._random.choice(self._keys)
            read[key] = self._work_on(key, read[key])

    def _work_on(self, key: str, record: Record[Data] | None) -> Record[Data] | None:
        draw = self._random.random()
        if record is not None and draw < 0.3:
            self._find(record)
            return record
        value = None if record is not None and draw < 0.5 else self._value()
        self._note("begin", key, value)
        try:
            if value is None:
                assert record is not None
                people.delete(record)
                written = None
            else:
                written = people.create(key, value) if record is None else people.update(record, value)
        except (Taken, Interrupted) as error:
            self._note("refused", key, type(error).__name__)
            return record
        self._note("done", key, written)
        return written

    def _find(self, record: Record[Data]) -> None:
        for name in ("email", "phone"):
            if record.value[name] is not None:
                found = people.find(**{name: record.value[name]})
                if found != record:
                    self._note("wrong", record.key, f"{record} is not found by {name}, but {found}")
        if record.key not in [each.key for each in people.find_all(city=record.value["city"])]:
            self._note("wrong", record.key, f"{record} is not found by its city")

    def _enqueue(self) -> None:
        key, tenant = self._random.randrange(UNIQUE_KEYS), shop(self._random.randrange(SHOPS))
        payload = {"key": key, "path": str(Path("counted").absolute())}
        try:
            handle = app.tenant(tenant).enqueue("counted", payload, unique_key=("count", key))
        except (Taken, Interrupted) as error:
            self._note("refused", "item", type(error).__name__)
            return
        self._note("enqueued", tenant, handle.item_id.hex())

    def _value(self) -> Data:
        self._count += 1
        phone = self._random.randrange(2 * VALUES)
        return {
            "email": email(self._random.randrange(VALUES)),
            "phone": phone if phone < VALUES else None,
            "city": self._random.choice(CITIES),
            "count": f"{os.getpid()} {self._count}",
        }

    def _note(self, what: str, key: str, result: Any) -> None:
        generation = ""
        if isinstance(result, Record):
            generation, result = result.stored.generation.hex(), result.value
        note(str(self._path), json.dumps([what, key, result, generation]))


if __name__ == "__main__":
    try:
        Clerk(int(sys.argv[1]), Random(sys.argv[2])).run()
    except Exception as error:
        note(f"clerk-{sys.argv[1]}", json.dumps(["wrong", "", repr(error), ""]))
        raise
