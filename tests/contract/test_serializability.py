"""Whatever is interleaved: each committed transaction could have run alone, at the moment of its commit."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clocks import ManualClock
from zones.engines import Database, atomics
from zones.engines import open as open_database

TRANSACTIONS = 4
KEYS = st.sampled_from([bytes([letter]) for letter in b"abcdef"])
VALUES = st.sampled_from([b"", b"\x01", b"\x02\x01", b"\xff"])
ATOMICS = {
    "add": atomics.add,
    "max": atomics.maximum,
    "byte_min": atomics.byte_min,
    "append_if_fits": atomics.append_if_fits,
    "compare_and_clear": atomics.compare_and_clear,
}
STEPS = st.lists(
    st.tuples(
        st.integers(0, TRANSACTIONS - 1),
        st.one_of(
            st.tuples(st.just("get"), KEYS),
            st.tuples(st.just("range"), KEYS, KEYS, st.integers(0, 2), st.booleans()),
            st.tuples(st.just("set"), KEYS, VALUES),
            st.tuples(st.just("clear"), KEYS),
            st.tuples(st.just("clear_range"), KEYS, KEYS),
            st.tuples(st.just("atomic"), st.sampled_from(sorted(ATOMICS)), KEYS, VALUES),
            st.tuples(st.just("commit")),
        ),
    ),
    max_size=60,
)


class Model:
    """A store that runs one transaction at a time."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {}

    def run(self, op: str, *args: Any) -> Any:
        """Do one step; return what a read answers."""
        pairs = self.pairs
        if op == "get":
            return pairs.get(args[0])
        if op == "range":
            begin, end, limit, reverse = args
            rows = sorted(((k, v) for k, v in pairs.items() if begin <= k < end), reverse=reverse)
            return rows[:limit] if limit else rows
        if op == "set":
            pairs[args[0]] = args[1]
        elif op == "clear":
            pairs.pop(args[0], None)
        elif op == "clear_range":
            for key in [key for key in pairs if args[0] <= key < args[1]]:
                del pairs[key]
        else:
            name, key, param = args
            after = ATOMICS[name](pairs.pop(key, None), param)
            if after is not None:
                pairs[key] = after
        return None


def run(tr: Any, op: str, *args: Any) -> Any:
    """Do the same step in a transaction of the engine."""
    if op == "get":
        return tr.get(args[0]).value
    if op == "range":
        begin, end, limit, reverse = args
        return [tuple(pair) for pair in tr.get_range(begin, end, limit=limit, reverse=reverse)]
    if op == "clear_range" and args[0] > args[1]:
        return None
    return getattr(tr, args[0] if op == "atomic" else op)(*(args[1:] if op == "atomic" else args))


def check(db: Database, steps: list[tuple[int, tuple[Any, ...]]]) -> None:
    """Run the interleaved steps; replay each transaction on the model when it commits."""
    model = Model()
    open_trs: dict[int, tuple[Any, list[tuple[tuple[Any, ...], Any]]]] = {}
    commits = [(number, ("commit",)) for number in range(TRANSACTIONS)]
    for number, step in [*steps, *commits]:
        tr, history = open_trs.setdefault(number, (db.create_transaction(), []))
        if step[0] != "commit":
            history.append((step, run(tr, *step)))
            continue
        del open_trs[number]
        try:
            tr.commit().wait()
        except db.errors as error:
            assert error.code == 1020  # type: ignore[attr-defined]
            continue
        if tr.get_committed_version() == -1:
            continue  # It only read: it belongs to the moment of its first read, not to that of its commit.
        for done, answer in history:
            assert model.run(*done) == answer, done
    stored = db.create_transaction().get_range(b"", b"\xff")
    assert [tuple(pair) for pair in stored] == sorted(model.pairs.items())


@pytest.mark.parametrize("engine", ["memory", "embedded"])
def test_committed_transactions_might_have_run_one_after_the_other(engine: str) -> None:
    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    @settings(max_examples=300)
    @given(steps=STEPS)
    def holds(steps: list[tuple[int, tuple[Any, ...]]]) -> None:
        shutil.rmtree(place)
        url = "memory:" if engine == "memory" else f"embedded:{place}"
        db = open_database(url, clock=ManualClock(), random=random.Random(1))
        try:
            check(db, steps)
        finally:
            db.close()
            place.mkdir(exist_ok=True)

    holds()
    shutil.rmtree(place)
