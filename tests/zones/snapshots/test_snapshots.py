"""Snapshots of a tenant's own keys: what is read at them, whatever is written, dropped and restored afterwards."""

from __future__ import annotations

import pytest

from fairlead.zones.engines import StoreError, Transaction
from fairlead.zones.engines.api.errors import KEY_TOO_LARGE
from fairlead.zones.errors import (
    BadArgument,
    RangeTooLarge,
    RawRefused,
    Restoring,
    SnapshotGone,
    TooManySnapshots,
)
from fairlead.zones.keyspace import RECEIPT, ROOT, ROOT_RANGE, TenantKeys, pack_int
from fairlead.zones.snapshots import merging, reading
from fairlead.zones.snapshots.restoring import begin_restore, restore_piece
from fairlead.zones.snapshots.snapshot_keys import NONE_MARK, pack_copy, unpack_copy, work_key
from fairlead.zones.snapshots.snapshot_list import SNAPSHOTS_MAX
from fairlead.zones.tenant_transaction import ApplicationTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.zones.colliding import collides
from tests.zones.snapshots.user import User
from tests.zones.world import BOB

KEY = ("a",)


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


# --- Reading ---


def test_a_snapshot_keeps_what_is_changed_cleared_and_added_afterwards(alice: User) -> None:
    alice.set(a=b"1", b=b"2", c=b"3")
    taken = alice.take()
    alice.set(a=b"changed", b=None, d=b"new")
    assert alice.then(taken) == {"a": b"1", "b": b"2", "c": b"3"}
    assert alice.now() == {"a": b"changed", "c": b"3", "d": b"new"}
    old = alice.at(taken)
    assert [old.get((name,)) for name in "abcde"] == [b"1", b"2", b"3", None, None]


def test_each_of_several_snapshots_keeps_its_own_state(alice: User) -> None:
    states, taken = [], []
    for value in range(5):
        alice.set(**{"a": b"%d" % value, f"k{value}": b"here"})
        states.append(alice.now())
        taken.append(alice.take())
    alice.transact(lambda tr: tr.clear_prefix())
    assert [alice.then(each) for each in taken] == states


def test_a_range_at_a_snapshot_merges_in_both_orders_with_a_limit(alice: User) -> None:
    alice.set(a=b"1", c=b"3", e=b"5", g=b"7")
    first = alice.take()
    alice.set(b=b"2", c=None)
    second = alice.take()
    alice.set(a=None, e=b"changed", f=b"6")

    def names(taken: int, **how: object) -> list[str]:
        return [key[0] for key, _ in alice.at(taken).get_range(**how)]  # type: ignore[arg-type]

    assert names(first) == ["a", "c", "e", "g"]
    assert names(first, reverse=True) == ["g", "e", "c", "a"]
    assert names(first, limit=2) == ["a", "c"]
    assert names(first, limit=3, reverse=True) == ["g", "e", "c"]
    assert names(second) == ["a", "b", "e", "g"]
    assert names(second, limit=2) == ["a", "b"]


def test_a_range_of_many_pages_is_whole_in_both_orders(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_ROWS", 3)
    alice.set(**{f"k{n:02}": b"old" for n in range(10)})
    taken = alice.take()
    alice.set(**{f"k{n:02}": None if n % 2 else b"new" for n in range(20)})
    expected = [((f"k{n:02}",), b"old") for n in range(10)]
    assert list(alice.at(taken).get_range()) == expected
    assert list(alice.at(taken).get_range(reverse=True)) == expected[::-1]
    assert list(alice.at(taken).get_range(limit=7)) == expected[:7]
    assert list(alice.at(taken).get_range(("k01",))) == []


def test_a_prefix_at_a_snapshot_leaves_out_its_neighbours(alice: User) -> None:
    alice.transact(lambda tr: [tr.set(key, b"") for key in (("a",), ("a", 1), ("a", 2), ("b", 1))])
    taken = alice.take()
    alice.transact(lambda tr: tr.clear_prefix())
    assert [key for key, _ in alice.at(taken).get_range(("a",))] == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("value", [b"", b"\x00", NONE_MARK, NONE_MARK * 2, NONE_MARK + b"\x00", b"x" * 100_000])
def test_every_value_comes_back_as_it_was(alice: User, value: bytes) -> None:
    alice.set(a=value)
    taken = alice.take()
    alice.set(a=b"other")
    assert alice.then(taken) == {"a": value}


def test_a_copy_tells_a_value_from_none() -> None:
    values = [None, b"", NONE_MARK, NONE_MARK * 2, NONE_MARK[:-1], b"value"]
    assert [unpack_copy(pack_copy(each)) for each in values] == values
    assert len({pack_copy(each) for each in values}) == len(values)


def test_a_snapshot_is_of_one_tenant(alice: User) -> None:
    bob = User.__new__(User)
    bob.__dict__.update(alice.__dict__, tenant=BOB, keys=TenantKeys(*BOB))
    alice.set(a=b"hers")
    bob.set(a=b"his")
    taken = alice.take()
    bob.set(a=b"changed")
    assert bob.copies() == []
    with pytest.raises(SnapshotGone):
        bob.then(taken)


def test_reading_at_a_snapshot_that_is_gone_is_refused(alice: User) -> None:
    taken = alice.take()
    old = alice.at(taken)
    alice.drop(taken)
    for call in (lambda: old.get(KEY), lambda: list(old.get_range()), old.__enter__, lambda: alice.diff(taken)):
        with pytest.raises(SnapshotGone, match="snapshot=1"):
            call()
    with pytest.raises(SnapshotGone):
        alice.drop(taken)
    with pytest.raises(SnapshotGone):
        alice.restore(taken)


@pytest.mark.parametrize("key", ["a", (), None])
def test_a_key_at_a_snapshot_that_is_none_is_refused(alice: User, key: object) -> None:
    with pytest.raises(BadArgument):
        alice.at(alice.take()).get(key)  # type: ignore[arg-type]


def test_the_difference_names_what_has_changed_and_nothing_else(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)
    alice.set(a=b"1", b=b"2", c=b"3", d=b"4")
    taken = alice.take()
    alice.set(a=b"changed", b=None, c=b"there and", e=b"new")
    alice.take()
    alice.set(c=b"3")  # Back.
    assert alice.diff(taken) == [(("a",), b"1", b"changed"), (("b",), b"2", None), (("e",), None, b"new")]


# --- Writing ---


def test_only_the_first_write_of_a_key_copies_it(alice: User) -> None:
    alice.set(a=b"1")
    alice.take()
    assert alice.copies() == []
    for value in (b"2", b"3", None, b"4"):
        alice.set(a=value)
    assert len(alice.copies()) == 1


def test_a_transaction_that_writes_a_key_twice_copies_what_it_was_before(alice: User) -> None:
    alice.set(a=b"1")
    taken = alice.take()
    alice.transact(lambda tr: (tr.set(KEY, b"2"), tr.clear(KEY), tr.set(KEY, b"3")))
    assert alice.then(taken) == {"a": b"1"}


def test_a_snapshot_within_a_transaction_has_what_was_written_before_it(alice: User) -> None:
    alice.set(a=b"1", b=b"1", c=b"1")

    def body(tr: ApplicationTransaction) -> int:
        tr.set(("a",), b"2")
        tr.clear(("b",))
        taken = tr.snapshot()
        tr.set(("a",), b"3")
        tr.set(("b",), b"3")
        tr.set(("c",), b"3")
        return taken

    taken = alice.transact(body)
    assert alice.then(taken) == {"a": b"2", "c": b"1"}
    assert alice.now() == {"a": b"3", "b": b"3", "c": b"3"}


def test_two_snapshots_within_a_transaction_differ(alice: User) -> None:
    def body(tr: ApplicationTransaction) -> list[int]:
        found = []
        for value in (b"1", b"2", b"3"):
            tr.set(KEY, value)
            found.append(tr.snapshot())
        return found

    assert [alice.then(each)["a"] for each in alice.transact(body)] == [b"1", b"2", b"3"]


def test_a_transaction_that_fails_takes_no_snapshot(alice: User) -> None:
    def body(tr: ApplicationTransaction) -> None:
        tr.snapshot()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        alice.transact(body)
    assert alice.listed() == ()


def test_an_enqueue_before_a_write_changes_nothing(alice: User) -> None:
    alice.set(a=b"1")
    taken = alice.take()
    alice.transact(lambda tr: (tr.enqueue("mail"), tr.set(KEY, b"2")))
    assert alice.then(taken) == {"a": b"1"}


def test_a_snapshot_keeps_a_counter_and_later_additions_do_not_conflict(alice: User) -> None:
    alice.transact(lambda tr: tr.add(KEY, 5))
    taken = alice.take()
    alice.transact(lambda tr: tr.add(KEY, 1))
    assert alice.at(taken).get(KEY) == number(5)

    assert not collides(alice.store, lambda tr: add_one(alice, tr), lambda tr: add_one(alice, tr))
    assert alice.at(taken).get(KEY) == number(5)
    assert alice.now() == {"a": number(8)}


def add_one(alice: User, tr: Transaction) -> None:
    """Add to the counter in an open transaction of the engine."""
    attempt = Attempt(tr, b"", 1)
    ApplicationTransaction(alice.world.shard, alice.tenant, attempt).add(KEY, 1)


def test_two_first_writes_of_a_key_conflict(alice: User) -> None:
    alice.transact(lambda tr: tr.add(KEY, 5))
    alice.take()
    assert collides(alice.store, lambda tr: add_one(alice, tr), lambda tr: add_one(alice, tr))


def test_clearing_a_range_copies_what_has_no_copy(alice: User) -> None:
    alice.set(a=b"1", b=b"2", c=b"3")
    taken = alice.take()
    alice.set(b=b"changed", c=None, d=b"4")
    alice.transact(lambda tr: tr.clear_prefix())
    assert alice.now() == {}
    assert alice.then(taken) == {"a": b"1", "b": b"2", "c": b"3"}


def test_a_range_whose_copies_do_not_fit_a_transaction_is_not_cleared(alice: User) -> None:
    for begin in range(0, 60, 20):
        alice.set(**{f"k{n}": b"x" * 99_000 for n in range(begin, begin + 20)})
    taken = alice.take()
    with pytest.raises(RangeTooLarge, match="bytes_max"):
        alice.transact(lambda tr: tr.clear_prefix())
    assert len(alice.now()) == 60
    alice.drop(taken)
    alice.transact(lambda tr: tr.clear_prefix())
    assert alice.now() == {}


def test_a_key_whose_copy_would_be_too_long_is_refused_with_what_to_do(alice: User) -> None:
    longest = alice.store.limits.key_bytes_max - len(alice.keys.data) - 2
    alice.transact(lambda tr: tr.set(("x" * longest,), b"1"))
    alice.take()
    with pytest.raises(StoreError, match="The tenant has snapshots") as refused:
        alice.transact(lambda tr: tr.set(("x" * longest,), b"2"))
    assert refused.value.code == KEY_TOO_LARGE
    alice.transact(lambda tr: tr.set(("x" * (longest - 3),), b"2"))


def test_raw_is_refused_on_a_tenant_that_has_snapshots(alice: User) -> None:
    taken = alice.take()
    with pytest.raises(RawRefused, match="shop/alice"):
        alice.transact(lambda tr: tr.raw)
    alice.drop(taken)
    alice.transact(lambda tr: tr.raw.set(alice.keys.data + b"\x15\x01", b""))


def test_a_transaction_that_has_used_raw_takes_no_snapshot(alice: User) -> None:
    with pytest.raises(RawRefused):
        alice.transact(lambda tr: (tr.raw, tr.snapshot()))


def test_a_transaction_that_began_before_a_snapshot_and_commits_after_it_is_repeated(alice: User) -> None:
    alice.set(a=b"1")
    taken: list[int] = []

    def body(tr: ApplicationTransaction) -> None:
        tr.set(KEY, b"2")
        if not taken:
            taken.append(alice.take())

    alice.transact(body)
    assert alice.then(taken[0]) == {"a": b"1"}


# --- Taking ---


def test_a_tenant_without_snapshots_has_no_record(alice: User) -> None:
    alice.set(a=b"1")
    assert not alice.has_owner_record()
    alice.drop(alice.take())
    assert not alice.has_owner_record()
    assert alice.work() == []


def test_numbers_are_not_used_again(alice: User) -> None:
    first = alice.take()
    alice.drop(first)
    assert alice.take() == first + 1


def test_more_snapshots_than_a_tenant_may_have_are_refused(alice: User) -> None:
    taken = [alice.take() for _ in range(SNAPSHOTS_MAX)]
    with pytest.raises(TooManySnapshots, match="snapshots_max=16"):
        alice.take()
    alice.drop(taken[3])
    alice.take()


def test_dropped_snapshots_that_were_left_make_room_for_new_ones(alice: User) -> None:
    taken = [alice.take() for _ in range(SNAPSHOTS_MAX)]
    assert alice.is_killed(lambda: alice.drop(taken[3]), after_commits=1, applied=False)
    assert len(alice.listed()) == SNAPSHOTS_MAX
    alice.take()
    assert [each.number for each in alice.listed()] == [*taken[:3], *taken[4:], taken[-1] + 1]


def test_taking_a_snapshot_reads_and_writes_as_much_whatever_the_tenant_holds(alice: User) -> None:
    alice.set(**{f"k{n}": b"x" * 1_000 for n in range(200)})
    before = set(alice.world.stored(*ROOT_RANGE))
    alice.take()
    new = {key for key, _ in set(alice.world.stored(*ROOT_RANGE)) - before}
    receipts = {key for key in new if key.startswith(ROOT + pack_int(RECEIPT))}
    assert new - receipts == {alice.keys.owner, alice.keys.snapshots}


# --- Dropping ---


def test_dropping_the_oldest_deletes_its_copies_and_changes_no_other(alice: User) -> None:
    alice.set(a=b"1")
    first = alice.take()
    alice.set(a=b"2")
    second = alice.take()
    alice.set(a=b"3", b=b"new")
    alice.drop(first)
    assert alice.then(second) == {"a": b"2"}
    assert len(alice.copies()) == 2
    alice.drop(second)
    assert alice.copies() == []


@pytest.mark.parametrize("dropped", [[1], [2], [3], [2, 3], [3, 2], [1, 3], [1, 2], [2, 1]])
def test_dropping_any_of_three_leaves_the_others_as_they_were(
    alice: User, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "PIECE_ROWS", 2)
    states = {}
    for value in range(1, 4):
        alice.set(**{f"k{n}": b"%d" % value for n in range(7) if n % (value + 1)}, **{f"new{value}": b""})
        states[alice.take()] = alice.now()
    alice.set(**{f"k{n}": None if n % 2 else b"now" for n in range(7)})
    for each in dropped:
        alice.drop(each)
        del states[each]
        assert {taken: alice.then(taken) for taken in states} == states
    assert {each.number for each in alice.listed()} == set(states)


def test_after_the_latest_is_dropped_writes_are_copied_to_the_one_before(alice: User) -> None:
    alice.set(a=b"1", b=b"1")
    first = alice.take()
    second = alice.take()
    alice.set(a=b"2")
    assert alice.is_killed(lambda: alice.drop(second), after_commits=1, applied=False)  # Marked, and nothing merged.
    alice.set(a=b"3", b=b"3", c=b"3")
    assert alice.then(first) == {"a": b"1", "b": b"1"}
    alice.upkeep()
    assert alice.then(first) == {"a": b"1", "b": b"1"}
    assert [each.number for each in alice.listed()] == [first]


def test_while_no_snapshot_is_kept_nothing_is_copied(alice: User) -> None:
    alice.set(a=b"1")
    taken = alice.take()
    assert alice.is_killed(lambda: alice.drop(taken), after_commits=1, applied=False)
    alice.set(a=b"2")
    assert alice.copies() == []


# --- Expiry ---


def test_a_snapshot_that_has_expired_is_dropped_by_housekeeping(alice: User) -> None:
    alice.set(a=b"1")
    kept = alice.take()
    expiring = alice.take(kept_us=10_000_000)
    alice.set(a=b"2")
    assert alice.upkeep(in_us=9_999_999) == 0
    assert alice.then(expiring) == {"a": b"1"}
    assert alice.upkeep(in_us=10_000_000) == 1
    assert [each.number for each in alice.listed()] == [kept]
    assert alice.then(kept) == {"a": b"1"}
    assert alice.work() == []


def test_snapshots_expire_one_after_the_other(alice: User) -> None:
    for seconds in (30, 10, 20):
        alice.take(kept_us=seconds * 1_000_000)
    assert [alice.upkeep(in_us=seconds * 1_000_000) for seconds in (5, 10, 15, 20, 25, 30)] == [0, 1, 0, 1, 0, 1]
    assert alice.listed() == ()
    assert not alice.has_owner_record()


def test_housekeeping_clears_a_wrong_entry_of_its_list(alice: User) -> None:
    alice.world.run(lambda tr: tr.set(work_key(5, alice.keys), b""))
    assert alice.upkeep() == 1
    assert alice.work() == []


# --- Restoring ---


def test_a_restored_tenant_is_as_it_was(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)
    alice.set(a=b"1", b=b"2", c=b"3")
    first = alice.take()
    alice.set(a=b"changed", d=b"new")
    second = alice.take()
    alice.set(b=None, e=b"new")
    before = {taken: alice.then(taken) for taken in (first, second)}
    alice.restore(first)
    assert alice.now() == before[first]
    assert {taken: alice.then(taken) for taken in (first, second)} == before
    assert alice.diff(first) == []
    alice.restore(second)
    assert alice.now() == before[second]
    assert {taken: alice.then(taken) for taken in (first, second)} == before


def test_queues_stay_as_they_are_when_a_tenant_is_restored(alice: User) -> None:
    taken = alice.take()
    item = alice.world.enqueue()
    alice.set(a=b"1")
    alice.restore(taken)
    assert alice.world.vested_ids() == [item]


def test_while_a_tenant_is_restored_its_keys_are_neither_read_nor_written(alice: User) -> None:
    alice.set(a=b"1")
    taken = alice.take()
    alice.set(a=b"2")
    begin(alice, taken)
    bodies = [
        lambda tr: tr.get(KEY),
        lambda tr: tr.get(KEY, snapshot=True),
        lambda tr: list(tr.get_range()),
        lambda tr: tr.set(KEY, b""),
        lambda tr: tr.clear(KEY),
        lambda tr: tr.clear_prefix(),
        lambda tr: tr.add(KEY, 1),
        lambda tr: tr.snapshot(),
        lambda tr: tr.raw,
        lambda tr: (tr.enqueue("mail"), tr.get(KEY)),
        lambda tr: (tr.enqueue("mail"), tr.set(KEY, b"")),
    ]
    for body in bodies:
        with pytest.raises(Restoring, match="snapshot=1"):
            alice.transact(body)
    with pytest.raises(Restoring):
        alice.drop(taken)
    assert alice.world.vested_ids() == []
    alice.transact(lambda tr: tr.enqueue("mail"))  # Queues go on.
    assert alice.then(taken) == {"a": b"1"}


def begin(alice: User, taken: int) -> None:
    """Begin a restore, and leave it."""
    alice.world.run(lambda tr: begin_restore(tr, alice.world.layout, alice.keys, taken, now_us=alice.world.now_us))


def test_a_restore_to_another_snapshot_is_refused_meanwhile(alice: User) -> None:
    first, second = alice.take(), alice.take()
    begin(alice, first)
    with pytest.raises(Restoring):
        alice.restore(second)
    alice.restore(first)
    alice.restore(second)


def test_a_slow_process_does_not_go_on_with_a_restore_that_another_one_has_ended(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHANGES_ROWS", 2)
    alice.set(a=b"1", b=b"1", c=b"1", d=b"1")
    taken = alice.take()
    alice.set(a=b"2", b=b"2", c=b"2", d=b"2")
    assert alice.is_killed(lambda: alice.restore(taken), after_commits=2, applied=False)
    restore = alice.world.run(lambda tr: begin_restore(tr, alice.world.layout, alice.keys, taken, now_us=1))
    cursor = alice.keys.data + b"\x02b\x00\x00"

    def slow(tr: Transaction) -> bytes | None:
        return restore_piece(tr, alice.world.layout, alice.keys, restore.id, cursor, limits=alice.store.limits)

    alice.upkeep()
    alice.set(c=b"3", d=b"3")
    begin(alice, taken)  # The same restore again, but another one: the slow process has not seen its first keys.
    assert alice.world.run(slow) is None
    alice.restore(taken)
    assert alice.now() == dict.fromkeys("abcd", b"1")
