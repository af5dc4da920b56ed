"""A process that drops or restores dies between any two of its transactions, or in one: any other one goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.errors import Restoring, SnapshotGone
from fairlead.zones.snapshots import merging, reading
from tests.zones.snapshots.user import User

COMMITS_MAX = 20


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PIECE_ROWS", 2)
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)


def with_three_snapshots(alice: User) -> dict[int, dict[str, bytes]]:
    """Write seven keys, and take snapshots between; return what each of them holds."""
    states = {}
    for value in range(3):
        alice.set(**{f"k{n}": b"%d" % value for n in range(7) if n % (value + 2)}, **{f"n{value}": b"new"})
        states[alice.take()] = alice.now()
    alice.set(**{f"k{n}": None if n % 2 else b"now" for n in range(7)})
    return states


def by_the_same_call(alice: User, call: Callable[[], None]) -> None:
    try:
        call()
    except SnapshotGone:  # It was dropped, and all its copies were merged.
        assert not alice.work()


def by_the_next_drop(alice: User, call: Callable[[], None]) -> None:
    alice.drop(alice.take())


def by_housekeeping(alice: User, call: Callable[[], None]) -> None:
    while alice.upkeep():
        pass


@pytest.mark.parametrize("go_on", [by_the_same_call, by_the_next_drop, by_housekeeping])
@pytest.mark.parametrize("dropped", [1, 2, 3])
@pytest.mark.parametrize("applied", [False, True])
def test_a_killed_drop_is_finished_and_no_snapshot_differs_meanwhile(
    alice: User, dropped: int, applied: bool, go_on: Callable[[User, Callable[[], None]], None]
) -> None:
    for commits in range(COMMITS_MAX):
        alice.transact(lambda tr: tr.clear_prefix())
        states = with_three_snapshots(alice)
        number = list(states)[dropped - 1]

        def drop(number: int = number) -> None:
            alice.drop(number)

        killed = alice.is_killed(drop, after_commits=commits, applied=applied)
        if killed and commits + applied == 0:
            assert alice.then(number) == states[number]  # Nothing has happened.
            drop()
        del states[number]
        assert {each: alice.then(each) for each in states} == states
        alice.set(k0=b"later", k1=b"later", new=b"later")
        assert {each: alice.then(each) for each in states} == states
        go_on(alice, drop)
        assert {each: alice.then(each) for each in states} == states
        assert {each.number for each in alice.listed()} == set(states)
        assert alice.work() == []
        for each in states:
            alice.drop(each)
        assert alice.copies() == []
        if not killed:
            assert commits > 1
            return
    raise AssertionError("a drop takes more commits than were tried")


@pytest.mark.parametrize("go_on", [by_the_same_call, by_housekeeping])
@pytest.mark.parametrize("to", [1, 2, 3])
@pytest.mark.parametrize("applied", [False, True])
def test_a_killed_restore_is_finished_and_nobody_reads_what_is_between(
    alice: User, to: int, applied: bool, go_on: Callable[[User, Callable[[], None]], None]
) -> None:
    for commits in range(COMMITS_MAX):
        alice.transact(lambda tr: tr.clear_prefix())
        states, before = with_three_snapshots(alice), alice.now()
        number = list(states)[to - 1]

        def restore(number: int = number) -> None:
            alice.restore(number)

        killed = alice.is_killed(restore, after_commits=commits, applied=applied)
        assert {each: alice.then(each) for each in states} == states
        try:
            assert alice.now() in (before if commits + applied == 0 else states[number], states[number])
        except Restoring:
            assert killed
        if killed and commits + applied == 0:
            restore()
        go_on(alice, restore)
        assert alice.now() == states[number]
        assert {each: alice.then(each) for each in states} == states
        for each in states:
            alice.drop(each)
        assert (alice.copies(), alice.work(), alice.now()) == ([], [], states[number])
        if not killed:
            assert commits > 1
            return
    raise AssertionError("a restore takes more commits than were tried")
