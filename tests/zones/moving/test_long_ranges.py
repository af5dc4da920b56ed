"""A long range that is cleared and filled again while its tenant moves is read piece by piece.

A transaction of a cluster lasts five seconds at most, and a mover does not hold a tenant in memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.moving import copying, source
from fairlead.zones.records import MoveState
from tests.zones.moving.town import Town

KEYS = 60
PIECES_MAX = 3  # That `read_chunk` looks at in one transaction: one for each range that is copied.


def test_no_transaction_of_the_mover_reads_more_than_some_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK_ROWS", 5)
    read_rows, pieces, kept = copying._read_rows, Counter[int](), list[Any]()

    def counted(tr: Any, begin: bytes, end: bytes) -> Any:
        kept.append(tr)  # So that no other transaction gets its number.
        pieces[id(tr)] += 1
        return read_rows(tr, begin, end)

    monkeypatch.setattr(copying, "_read_rows", counted)
    town = Town()
    town.on(lambda tr: tr.set(("key", 0), b"old"))
    move_id = town.begin("west")
    filled = False

    def fill_anew(name: str, number: int, after: bool) -> None:
        nonlocal filled
        record = transact(town.shards["east"].db, lambda tr: source.read_move(tr, town.alice))
        if not filled and record is not None and record.stage == "copying what has changed":
            filled = True
            town.on(lambda tr: tr.clear_prefix(("key",)))
            town.on(lambda tr: [tr.set(("key", each), b"new") for each in range(KEYS)])

    town.hook = fill_anew
    assert town.mover(move_id, "west").run() is MoveState.MOVED
    town.hook = None
    assert filled
    assert town.data() == {("key", each): b"new" for each in range(KEYS)}
    assert max(pieces.values()) <= PIECES_MAX
