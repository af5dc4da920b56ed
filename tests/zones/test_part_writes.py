"""What many operations of one transaction write to the keys of parts is written once for each key."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from fairlead import App, new_item
from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.pipelining import run_one
from fairlead.zones.top_level.part_writes import PartWrites
from tests.clocks import ManualClock
from tests.zones.counting import CountingTransaction
from tests.zones.test_store_calls import calls
from tests.zones.world import World

KEY, OTHER = b"a count", b"another"


@pytest.fixture
def db(clock: ManualClock) -> Database:
    return engines.open("memory:", clock=clock, random=Random(1))


def number(db: Database, key: bytes) -> int | None:
    value = db.create_transaction().get(key).value
    return None if value is None else int.from_bytes(value, "little", signed=True)


def write(db: Database, *changes: tuple[bytes, int]) -> Counter[str]:
    """Gather changes, write them, and return the store calls."""
    parts = PartWrites()
    for key, change in changes:
        parts.count(key, change)
    tr = db.create_transaction()
    counting = CountingTransaction(tr)
    parts.write(counting)
    tr.commit().wait()
    return counting.calls


def test_changes_of_one_count_are_one_write(db: Database) -> None:
    assert write(db, *[(KEY, 1)] * 100, (OTHER, 3)) == {"add": 2}
    assert (number(db, KEY), number(db, OTHER)) == (100, 3)


def test_changes_that_come_to_nothing_write_nothing(db: Database) -> None:
    assert write(db, (KEY, 2), (KEY, -2)) == {}


def test_a_count_that_reaches_zero_goes(db: Database) -> None:
    write(db, (KEY, 2))
    assert write(db, (KEY, -1), (KEY, -1)) == {"add": 1, "compare_and_clear": 1}
    assert number(db, KEY) is None


def test_a_key_is_reported_once(db: Database) -> None:
    parts = PartWrites()
    for _ in range(3):
        parts.wake_watchers(KEY)
    counting = CountingTransaction(db.create_transaction())
    parts.write(counting)
    assert counting.calls == {"add": 1}


def test_operations_of_many_zones_leave_the_parts_keys_to_the_caller(world: World) -> None:
    parts = PartWrites()
    batch = [(world.new_id(), new_item("mail"))]
    called = calls(world, lambda tr: run_one(world.zone.enqueue_op(tr, batch, now_us=world.now_us, parts=parts)))
    assert called["add"] == 1, "the zone's own count"


def test_a_bulk_of_many_tenants_counts_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write_all = PartWrites.write

    def watched(self: PartWrites, tr: object) -> None:
        counting = CountingTransaction(tr)
        write_all(self, counting)
        written.append(counting.calls["add"])

    monkeypatch.setattr(PartWrites, "write", watched)
    app = App("memory:")
    app.enqueue_many([(app.tenant("shop", f"tenant-{each}"), new_item("mail")) for each in range(200)])
    assert written == [app.shards["main"].layout.part_count]
    assert sum(app.tenant("shop", f"tenant-{each}").count()["mail"] for each in range(200)) == 200
