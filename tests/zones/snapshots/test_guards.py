"""Each guard of snapshots: a story that needs it, and fails without it.

A planted bug takes the guard away. The story then ends with a snapshot that is not what it was, or a torn tenant. That
copies are read with conflict is a second line: a transaction that finds no copy has read the value of the snapshot, so
two of them would write the same copy.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fairlead.zones.engines.memory.engine import MemoryDatabase
from fairlead.zones.errors import Restoring
from fairlead.zones.keyspace import FENCE, STEP_LOG, pack_bytes, pack_int
from fairlead.zones.records import TenantSnapshots
from fairlead.zones.snapshots import copying, merging, reading, restoring, snapshot_list
from fairlead.zones.snapshots.copying import CopyingWriter
from fairlead.zones.snapshots.restoring import begin_restore, restore_piece
from fairlead.zones.snapshots.snapshot_keys import copies_prefix
from fairlead.zones.snapshots.snapshot_list import kept, snapshots_of
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from tests.clocks import ManualClock
from tests.zones.colliding import collides
from tests.zones.snapshots.user import User

Plant = Callable[[pytest.MonkeyPatch], None]


def new_user() -> User:
    clock = ManualClock()
    return User(MemoryDatabase("memory:", clock, Random(1)), clock)


# --- Stories: whether all is well in the end ---


def a_transaction_that_began_before_the_snapshot(alice: User) -> bool:
    alice.set(a=b"1")
    taken: list[int] = []

    def body(tr: ApplicationTransaction) -> None:
        tr.set(("a",), b"2")
        if not taken:
            taken.append(alice.take())

    alice.transact(body)
    return alice.then(taken[0]) == {"a": b"1"}


def a_snapshot_within_a_transaction(alice: User) -> bool:
    def body(tr: ApplicationTransaction) -> int:
        tr.set(("a",), b"1")
        taken = tr.snapshot()
        tr.set(("a",), b"2")
        return taken

    return alice.then(alice.transact(body)) == {"a": b"1"}


def an_enqueue_before_a_write(alice: User) -> bool:
    alice.set(a=b"1")
    taken = alice.take()
    alice.transact(lambda tr: (tr.enqueue("mail"), tr.set(("a",), b"2")))
    return alice.then(taken) == {"a": b"1"}


def a_range_that_is_cleared(alice: User) -> bool:
    alice.set(a=b"1", b=b"2")
    taken = alice.take()
    alice.transact(lambda tr: tr.clear_prefix())
    return alice.then(taken) == {"a": b"1", "b": b"2"}


def two_snapshots_the_later_one_half_dropped(alice: User) -> int:
    """Return the first of two snapshots. The second one has a copy of "a", and is dropped and not merged."""
    alice.set(a=b"1")
    first = alice.take()
    second = alice.take()
    alice.set(a=b"2")
    assert alice.is_killed(lambda: alice.drop(second), after_commits=1, applied=False)
    return first


def a_write_while_the_latest_snapshot_is_dropped(alice: User) -> bool:
    first = two_snapshots_the_later_one_half_dropped(alice)
    alice.set(a=b"3")
    return alice.then(first) == {"a": b"1"}


def a_read_while_a_snapshot_is_dropped(alice: User) -> bool:
    first = two_snapshots_the_later_one_half_dropped(alice)
    return alice.then(first) == {"a": b"1"}


def a_drop_of_a_snapshot_whose_elder_has_the_copy(alice: User) -> bool:
    alice.set(a=b"1")
    first = alice.take()
    alice.set(a=b"2")
    second = alice.take()
    alice.set(a=b"3")
    alice.drop(second)
    return alice.then(first) == {"a": b"1"}


def two_drops_that_were_left(alice: User) -> bool:
    alice.set(a=b"1")
    first, second = alice.take(), alice.take()
    alice.set(a=b"2")
    third = alice.take()
    alice.set(a=b"3")
    alice.is_killed(lambda: alice.drop(third), after_commits=1, applied=False)
    alice.is_killed(lambda: alice.drop(second), after_commits=1, applied=False)
    alice.upkeep()
    return alice.then(first) == {"a": b"1"}


def a_restore_to_an_earlier_snapshot(alice: User) -> bool:
    alice.set(a=b"1")
    first = alice.take()
    alice.set(a=b"2")
    second = alice.take()
    alice.restore(first)
    return (alice.now(), alice.then(second)) == ({"a": b"1"}, {"a": b"2"})


def half_restored(alice: User) -> int:
    """Begin to restore four keys, and leave it after the first two; return the snapshot."""
    alice.set(a=b"1", b=b"1", c=b"1", d=b"1")
    taken = alice.take()
    alice.set(a=b"2", b=b"2", c=b"2", d=b"2")
    assert alice.is_killed(lambda: alice.restore(taken), after_commits=2, applied=False)
    return taken


def a_read_during_a_restore(alice: User) -> bool:
    half_restored(alice)
    try:
        return len(set(alice.now().values())) == 1
    except Restoring:
        return True


def a_slow_process_that_goes_on_with_an_earlier_restore(alice: User) -> bool:
    taken = half_restored(alice)
    layout, limits = alice.world.layout, alice.store.limits
    earlier = alice.world.run(lambda tr: begin_restore(tr, layout, alice.keys, taken, now_us=1))
    alice.upkeep()
    alice.set(a=b"3", d=b"3")
    alice.world.run(lambda tr: begin_restore(tr, layout, alice.keys, taken, now_us=1))
    last_keys = alice.keys.data + b"\x02c\x00\x00"
    alice.world.run(lambda tr: restore_piece(tr, layout, alice.keys, earlier.id, last_keys, limits=limits))
    return a_read_is_refused_or(alice, dict.fromkeys("abcd", b"1"))


def a_read_is_refused_or(alice: User, expected: dict[str, bytes]) -> bool:
    try:
        return alice.now() == expected
    except Restoring:
        return True


def a_step_at_the_same_time_as_the_begin_of_a_restore(alice: User) -> bool:
    taken = alice.take()
    log = alice.keys.step_log(b"run") + b"\x02x\x00"

    def step(tr: Any) -> None:
        tr.get(alice.keys.owner).wait()
        tr.set(log, b"")

    def begin(tr: Any) -> None:
        begin_restore(tr, alice.world.layout, alice.keys, taken, now_us=1)

    return collides(alice.store, step, begin)


# --- Planted bugs ---


def read_the_owner_without_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        def __init__(self, tr: Any, owner: bytes) -> None:
            self._blind_tr, self._blind_owner = tr, owner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._blind_tr, name)

        def get(self, key: bytes) -> Any:
            return (self._blind_tr.snapshot if key == self._blind_owner else self._blind_tr).get(key)

    made = TenantTransaction.__init__

    def planted(self: TenantTransaction, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self._tr = Blind(self._tr, self._keys.owner)

    monkeypatch.setattr(TenantTransaction, "__init__", planted)


def go_on_plainly_after_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TenantTransaction, "_copy_for", lambda self, snapshots: None)


def take_the_queues_word_for_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = TenantTransaction._enqueue

    def planted(self: TenantTransaction, *args: Any) -> Any:
        self._owner_is_checked = self._owner_is_known = True
        return enqueue(self, *args)

    monkeypatch.setattr(TenantTransaction, "_enqueue", planted)


def clear_ranges_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CopyingWriter, "_keep_range", lambda self, begin, end: None)


def look_for_copies_at_the_newest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "copied_to", lambda snapshots: [kept(snapshots)[-1].number])


def read_past_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(keys: object, snapshots: TenantSnapshots | None, number: int) -> list[int]:
        return [each.number for each in kept(snapshots) if each.number >= number]

    monkeypatch.setattr(reading, "numbers_from", planted)


def merge_over_the_elders_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Any, rows: Any, source: bytes, target: bytes) -> None:
        for row in rows:
            tr.set(target + row.key[len(source) :], row.value)

    monkeypatch.setattr(merging, "_move", planted)


def merge_past_a_dropped_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge the newest of the dropped snapshots first, into the newest that is kept."""

    def planted(tr: Any, layout: Any, keys: Any) -> bool:
        owner = snapshot_list.owner_to_change(tr, layout, keys, tr.get(keys.owner))
        assert owner.snapshots is not None
        dropped = [each.number for each in owner.snapshots.listed if each.dropped_us]
        if not dropped:
            return False
        number, elder = dropped[-1], kept(owner.snapshots)[-1].number
        rows, _ = merging._rows(tr, keys, number)
        merging._move(tr, rows, copies_prefix(keys, number), copies_prefix(keys, elder))
        for row in rows:
            tr.clear(row.key)
        snapshot_list.write_list(tr, keys, owner, snapshot_list.without(owner.snapshots, number))
        return True

    monkeypatch.setattr("fairlead.zones.snapshots.upkeep.merge_piece", planted)


def restore_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "CopyingWriter", lambda tr, keys, snapshots, limits: tr)


def let_others_read_during_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.zones.tenant_transaction.usable_snapshots", lambda keys, value: snapshots_of(value))


def go_on_with_any_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = restoring.restore_piece

    def planted(tr: Any, layout: Any, keys: Any, restore_id: int, cursor: Any, *, limits: Any) -> Any:
        snapshots = snapshots_of(tr.get(keys.owner).value)
        assert snapshots is not None
        assert snapshots.restore is not None
        return piece(tr, layout, keys, snapshots.restore.id, cursor, limits=limits)

    monkeypatch.setitem(globals(), "restore_piece", planted)


def look_for_runs_without_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Any, keys: Any) -> str | None:
        for sort in (STEP_LOG, FENCE):
            prefix = keys.prefix + pack_int(sort)
            for row in tr.snapshot.get_range(prefix + pack_bytes(b""), prefix + b"\xff"):
                return str(row.key)
        return None

    monkeypatch.setattr(restoring, "_run_under_way", planted)


STORIES: list[tuple[Callable[[User], bool], Plant]] = [
    (a_transaction_that_began_before_the_snapshot, read_the_owner_without_conflict),
    (a_snapshot_within_a_transaction, go_on_plainly_after_a_snapshot),
    (an_enqueue_before_a_write, take_the_queues_word_for_the_owner),
    (a_range_that_is_cleared, clear_ranges_without_copies),
    (a_write_while_the_latest_snapshot_is_dropped, look_for_copies_at_the_newest_only),
    (a_read_while_a_snapshot_is_dropped, read_past_what_is_dropped),
    (a_drop_of_a_snapshot_whose_elder_has_the_copy, merge_over_the_elders_copy),
    (two_drops_that_were_left, merge_past_a_dropped_snapshot),
    (a_restore_to_an_earlier_snapshot, restore_without_copies),
    (a_read_during_a_restore, let_others_read_during_a_restore),
    (a_slow_process_that_goes_on_with_an_earlier_restore, go_on_with_any_restore),
    (a_step_at_the_same_time_as_the_begin_of_a_restore, look_for_runs_without_conflict),
]
NAMES = [plant.__name__ for _, plant in STORIES]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)


@pytest.mark.parametrize(("story", "plant"), STORIES, ids=NAMES)
def test_with_the_guard_the_story_ends_well(story: Callable[[User], bool], plant: Plant) -> None:
    assert story(new_user())


@pytest.mark.parametrize(("story", "plant"), STORIES, ids=NAMES)
def test_without_the_guard_the_story_ends_badly(
    story: Callable[[User], bool], plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert not story(new_user())
