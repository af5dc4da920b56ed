"""A body sees its buffered writes as it would see them in a transaction of the engine."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.engines.memory.engine import MemoryDatabase
from fairlead.zones.layout import ShardLayout
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.spanning.write_buffer import BufferedTransaction, WriteBuffer
from fairlead.zones.spanning.write_set import carry_out, pack_writes, unpack_writes
from tests.clocks import ManualClock

KEYS = [bytes([letter]) for letter in b"abcdefgh"]
WRITES = 12
LAYOUT = ShardLayout(shard_id=b"s" * 16, part_count=1, settings=ZoneSettings())


def store(seed: int) -> MemoryDatabase:
    """Return a store with some of the keys."""
    db, random = MemoryDatabase("memory:", ManualClock(), Random(1)), Random(seed)

    def fill(tr: Any) -> None:
        for key in KEYS:
            if random.random() < 0.5:
                tr.set(key, random.randrange(1 << 40).to_bytes(8, "little"))

    transact(db, fill)
    return db


def write(tr: Any, random: Random) -> None:
    key, end, number = random.choice(KEYS), random.choice(KEYS), random.randrange(1 << 63).to_bytes(8, "little")
    kind = random.randrange(4)
    if kind == 0:
        tr.set(key, number)
    elif kind == 1:
        tr.clear(key)
    elif kind == 2:
        tr.add(key, number)
    else:
        tr.clear_range(min(key, end), max(key, end))


def reads(tr: Any, random: Random) -> list[Any]:
    limit, is_reverse, at = random.randrange(4), random.random() < 0.5, random.randrange(len(KEYS))
    return [
        *(tr.get(key).value for key in KEYS),
        [tuple(row) for row in tr.get_range(b"a", b"z")],
        [tuple(row) for row in tr.get_range(KEYS[at], b"h", limit=limit, reverse=is_reverse)],
        [tuple(row) for row in tr.snapshot.get_range(b"b", KEYS[at], limit=limit, reverse=is_reverse)]
        if KEYS[at] > b"b"
        else [],
    ]


@pytest.mark.parametrize("seed", range(60))
def test_reads_see_buffered_writes_as_the_engine_shows_its_own(seed: int) -> None:
    db = store(seed)
    engine, buffer = db.create_transaction(), WriteBuffer(db.limits)
    buffered = BufferedTransaction(db.create_transaction(), buffer)
    for number in range(WRITES):
        write(engine, Random(seed * 100 + number))
        write(buffered, Random(seed * 100 + number))
        assert reads(buffered, Random(number)) == reads(engine, Random(number))
    engine.cancel()
    twin = store(seed)
    unpacked = unpack_writes(pack_writes(buffer.write_set))
    assert unpacked == buffer.write_set
    transact(twin, lambda tr: carry_out(tr, LAYOUT, unpacked))
    assert transact(twin, lambda tr: [tuple(row) for row in tr.get_range(b"", b"\xff")]) == [
        tuple(row) for row in buffered.get_range(b"", b"\xff")
    ]
