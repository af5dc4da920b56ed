"""Random writes, snapshots, drops, restores and deaths, beside a model: a dictionary for now and for each snapshot."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.zones.engines.memory.engine import MemoryDatabase
from fairlead.zones.snapshots import merging, reading
from fairlead.zones.tenant_transaction import ApplicationTransaction, Key
from tests.clocks import ManualClock
from tests.zones.snapshots.user import User

NAMES = "abcd"
KEYS: list[Key] = [(name,) for name in NAMES] + [(name, n) for name in NAMES[:2] for n in range(3)]
PREFIXES: list[Key] = [(), ("a",), ("b",), ("c",)]

WRITES = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(KEYS), st.binary(max_size=2)),
    st.tuples(st.just("clear"), st.sampled_from(KEYS)),
    st.tuples(st.just("add"), st.sampled_from(KEYS), st.integers(-3, 3)),
    st.tuples(st.just("clear_prefix"), st.sampled_from(PREFIXES)),
    st.tuples(st.just("snapshot")),
)
EVENTS = st.one_of(
    st.tuples(st.just("transact"), st.lists(WRITES, min_size=1, max_size=4)),
    st.tuples(st.just("take")),
    st.tuples(st.just("drop"), st.integers(0, 5)),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("die in a drop"), st.integers(0, 5), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("die in a restore"), st.integers(0, 5), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("upkeep")),
)
SNAPSHOTS_MAX = 6


class Model:
    """The store and the model, and what happens to both."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.user = User(MemoryDatabase("memory:", clock, Random(1)), clock)
        self.now: dict[Key, bytes] = {}
        self.taken: dict[int, dict[Key, bytes]] = {}

    def happen(self, what: str, *how: Any) -> None:
        match what, *how:
            case "transact", writes:
                self.transact(writes)
            case "take", *_ if len(self.taken) < SNAPSHOTS_MAX:
                self.taken[self.user.take()] = dict(self.now)
            case "drop", place if self.taken:
                number = self.at(place)
                self.user.drop(number)
                del self.taken[number]
            case "restore", place if self.taken:
                number = self.at(place)
                self.user.restore(number)
                self.now = dict(self.taken[number])
            case "die in a drop", place, commits, applied if self.taken:
                number = self.at(place)
                self.user.is_killed(lambda: self.user.drop(number), after_commits=commits, applied=applied)
                del self.taken[number]
            case "die in a restore", place, commits, applied if self.taken:
                number = self.at(place)
                self.user.is_killed(lambda: self.user.restore(number), after_commits=commits, applied=applied)
                self.check_snapshots()
                while self.user.upkeep():
                    self.check_snapshots()
                self.now = dict(self.taken[number])
            case "upkeep", *_:
                self.user.upkeep()

    def at(self, place: int) -> int:
        """Return one of the snapshots."""
        return sorted(self.taken)[place % len(self.taken)]

    def transact(self, writes: list[Any]) -> None:
        def body(tr: ApplicationTransaction) -> tuple[dict[Key, bytes], dict[int, dict[Key, bytes]]]:
            now = dict(self.now)
            taken: dict[int, dict[Key, bytes]] = {}
            for what, *how in writes:
                if what == "snapshot":
                    if len(self.taken) + len(taken) < SNAPSHOTS_MAX:
                        taken[tr.snapshot()] = dict(now)
                else:
                    getattr(tr, what)(*how)
                    write(now, what, *how)
                assert dict(tr.get_range()) == now
            return now, taken

        self.now, taken = self.user.transact(body)
        self.taken.update(taken)

    def check(self) -> None:
        assert dict(self.user.transact(lambda tr: list(tr.get_range()))) == self.now
        self.check_snapshots()
        for number, then in self.taken.items():
            changed = {key for key in {*then, *self.now} if then.get(key) != self.now.get(key)}
            assert {key for key, _, _ in self.user.diff(number)} == changed

    def check_snapshots(self) -> None:
        """Compare all snapshots with the model: pair by pair, in order, in both directions, with a limit."""
        for number, then in self.taken.items():
            old = self.user.at(number)
            expected = sorted(then.items())
            assert list(old.get_range()) == expected
            assert list(old.get_range(reverse=True)) == expected[::-1]
            assert list(old.get_range(limit=2)) == expected[:2]
            assert list(old.get_range(("a",))) == [pair for pair in expected if pair[0][0] == "a" and len(pair[0]) > 1]
            assert [old.get(key) for key in KEYS] == [then.get(key) for key in KEYS]


def write(state: dict[Key, bytes], what: str, key: Key, value: Any = None) -> None:
    """Write to the model."""
    if what == "set":
        state[key] = value
    elif what == "clear":
        state.pop(key, None)
    elif what == "add":
        before = int.from_bytes(state.get(key, b"")[:8], "little")
        state[key] = ((before + value) % 2**64).to_bytes(8, "little")
    else:
        for each in [each for each in state if each[: len(key)] == key and len(each) > len(key)]:
            del state[each]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PIECE_ROWS", 2)
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)
    monkeypatch.setattr(reading, "PAGE_ROWS", 3)


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(EVENTS, min_size=1, max_size=14))
def test_each_snapshot_equals_the_state_at_its_time_whatever_happens_afterwards(events: list[Any]) -> None:
    model = Model()
    for what, *how in events:
        model.happen(what, *how)
        model.check()
    for number in sorted(model.taken):
        model.user.drop(number)
    model.user.upkeep()
    assert (model.user.copies(), model.user.listed(), model.user.work()) == ([], (), [])
    model.taken = {}
    model.check()
