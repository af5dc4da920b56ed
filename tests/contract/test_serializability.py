"""Commits are serializable: in any interleaving, each could have run alone at the moment of its commit."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.zones.engines import Database, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import error_code
from fairlead.zones.engines.embedded import stored_log
from fairlead.zones.engines.optimistic import atomics
from tests.clocks import ManualClock, WallClock
from tests.contract.other_process import OtherProcess

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
        """Run one step; return the result of a read."""
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


class Local:
    """A transaction of the engine, as `check` uses it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tr = db.create_transaction()

    def run(self, op: str, *args: Any) -> Any:
        """Run the same step as `Model.run`."""
        tr = self._tr
        if op == "get":
            return tr.get(args[0]).value
        if op == "range":
            begin, end, limit, reverse = args
            return [tuple(pair) for pair in tr.get_range(begin, end, limit=limit, reverse=reverse)]
        if op == "clear_range" and args[0] > args[1]:
            return None
        if op == "atomic":
            op, *args = args  # type: ignore[assignment]
        return getattr(tr, op)(*args)

    def commit(self) -> tuple[int, int]:
        """Return the code of the error, 0 if there is none, and the committed version."""
        try:
            self._tr.commit().wait()
        except self._db.errors as error:
            return error_code(error), -1
        return 0, self._tr.get_committed_version()


class Remote:
    """A transaction in another process."""

    _open: ClassVar[dict[int, Local]] = {}  # In the other process.
    _numbers = itertools.count()

    def __init__(self, process: OtherProcess) -> None:
        self._process = process
        self._number = next(self._numbers)
        process.call(Remote.begin, self._number)

    @staticmethod
    def begin(db: Database, number: int) -> None:
        stored_log.TAIL_POINTS_MAX = 3  # type: ignore[misc] # So that old entries are decoded again.
        Remote._open[number] = Local(db)

    @staticmethod
    def step(db: Database, number: int, op: str, *args: Any) -> Any:
        return getattr(Remote._open[number], op)(*args)

    def run(self, op: str, *args: Any) -> Any:
        return self._process.call(Remote.step, self._number, "run", op, *args)

    def commit(self) -> tuple[int, int]:
        code, version = self._process.call(Remote.step, self._number, "commit")
        return code, version


def check(
    db: Database, begin: Callable[[int], Local | Remote], model: Model, steps: list[tuple[int, tuple[Any, ...]]]
) -> None:
    """Run the interleaved steps; replay each transaction on the model when it commits."""
    open_trs: dict[int, tuple[Local | Remote, list[tuple[tuple[Any, ...], Any]]]] = {}
    commits = [(number, ("commit",)) for number in range(TRANSACTIONS)]
    for number, step in [*steps, *commits]:
        if number not in open_trs:
            open_trs[number] = (begin(number), [])
        tr, history = open_trs[number]
        if step[0] != "commit":
            history.append((step, tr.run(*step)))
            continue
        del open_trs[number]
        code, version = tr.commit()
        assert code in (0, 1020)
        if code or version == -1:
            continue  # A transaction that only read belongs to the moment of its first read, not of its commit.
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
            check(db, lambda number: Local(db), Model(), steps)
        finally:
            db.close()
            place.mkdir(exist_ok=True)

    holds()
    shutil.rmtree(place)


def test_committed_transactions_of_several_processes_might_have_run_one_after_the_other(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}"
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    with OtherProcess(url) as one, OtherProcess(url) as two:

        @settings(max_examples=60)
        @given(steps=STEPS)
        def holds(steps: list[tuple[int, tuple[Any, ...]]]) -> None:
            transact(db, lambda tr: tr.clear_range(b"", b"\xff"))
            places = (lambda: Local(db), lambda: Remote(one), lambda: Remote(two))
            check(db, lambda number: places[number % 3](), Model(), steps)

        holds()
    db.close()
