"""A transaction conflicts exactly if another commit has changed its reads since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.engines import Database, StreamingMode
from fairlead.zones.engines.api.errors import error_code
from tests.contract.conftest import Space, code_of

CONFLICT = 1020


class Race:
    """A transaction that reads and then writes another key, while other transactions commit in between."""

    def __init__(self, db: Database, space: Space) -> None:
        self._db = db
        self._space = space

    def outcome(self, read: Callable[[Any, Callable[[str], bytes]], object], others: Callable[..., object]) -> int:
        """Return the code of the commit of a transaction that does `read` before others commit `others`."""
        key = self._space.key
        tr = self._db.create_transaction()
        tr.get_read_version().wait()
        read(tr, key)
        tr.set(key("zz"), b"mine")
        other = self._db.create_transaction()
        others(other, key)
        assert code_of(other.commit()) == 0
        return code_of(tr.commit())


@pytest.fixture
def race(db: Database, space: Space) -> Race:
    space.put(a=b"1", b=b"2", c=b"3", d=b"4")
    return Race(db, space)


def test_write_skew_is_caught(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"1")
    one, two = db.create_transaction(), db.create_transaction()
    assert one.get(space.key("a")).value == two.get(space.key("b")).value == b"1"
    one.set(space.key("b"), b"0")
    two.set(space.key("a"), b"0")
    assert [code_of(one.commit()), code_of(two.commit())] == [0, CONFLICT]


def test_a_lost_update_is_caught(race: Race) -> None:
    assert race.outcome(lambda tr, k: tr.get(k("a")).value, lambda tr, k: tr.set(k("a"), b"5")) == CONFLICT


def test_the_same_value_written_again_is_a_conflict(race: Race) -> None:
    assert race.outcome(lambda tr, k: tr.get(k("a")).value, lambda tr, k: tr.set(k("a"), b"1")) == CONFLICT


@pytest.mark.parametrize(
    "write",
    [
        lambda tr, k: tr.clear(k("a")),
        lambda tr, k: tr.clear_range(k("a"), k("b")),
        lambda tr, k: tr.add(k("a"), b"\x01"),
        lambda tr, k: tr.compare_and_clear(k("a"), b"something else"),
        lambda tr, k: tr.add_write_conflict_key(k("a")),
        lambda tr, k: tr.add_write_conflict_range(k("A"), k("aa")),
        lambda tr, k: tr.set_versionstamped_value(k("a"), bytes(14)),
    ],
)
def test_every_kind_of_write_conflicts_with_a_read_of_its_key(race: Race, write: Callable[..., object]) -> None:
    assert race.outcome(lambda tr, k: tr.get(k("a")).value, write) == CONFLICT


@pytest.mark.parametrize(
    "read",
    [
        lambda tr, k: tr.get(k("b")).value,
        lambda tr, k: tr.get(k("aa")).value,
        lambda tr, k: list(tr.get_range(k("aa"), k("b"))),
        lambda tr, k: list(tr.get_range(k("A"), k("a"))),
        lambda tr, k: tr.add_read_conflict_key(k("a") + b"\x00"),
    ],
)
def test_a_write_to_an_unread_key_is_no_conflict(race: Race, read: Callable[..., object]) -> None:
    assert race.outcome(read, lambda tr, k: tr.set(k("a"), b"5")) == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda tr, k: tr.snapshot.get(k("a")).value,
        lambda tr, k: list(tr.snapshot.get_range(k("a"), k("z"))),
        lambda tr, k: (tr.set(k("a"), b"mine"), tr.get(k("a")).value),
        lambda tr, k: (tr.clear(k("a")), tr.get(k("a")).value),
        lambda tr, k: (tr.clear_range(k("a"), k("b")), list(tr.get_range(k("a"), k("b")))),
        lambda tr, k: tr.add(k("a"), b"\x01"),
        lambda tr, k: tr.set(k("a"), b"mine"),
    ],
)
def test_snapshot_reads_own_writes_and_blind_writes_cause_no_conflict(race: Race, read: Callable[..., object]) -> None:
    assert race.outcome(read, lambda tr, k: tr.set(k("a"), b"5")) == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda tr, k: (tr.add(k("a"), b"\x01"), tr.get(k("a")).value),
        lambda tr, k: (tr.get(k("a")).value, tr.set(k("a"), b"mine")),
        lambda tr, k: tr.add_read_conflict_key(k("a")),
        lambda tr, k: tr.add_read_conflict_range(k("A"), k("b")),
        lambda tr, k: list(tr.get_range(k("A"), k("b"))),
        lambda tr, k: list(tr.get_range(k("A"), k("b"), reverse=True)),
        lambda tr, k: (tr.set(k("b"), b"mine"), list(tr.get_range(k("a"), k("c")))),
    ],
)
def test_every_read_that_depends_on_the_store_can_conflict(race: Race, read: Callable[..., object]) -> None:
    assert race.outcome(read, lambda tr, k: tr.set(k("a"), b"5")) == CONFLICT


def test_a_key_that_appears_in_a_range_that_was_read_is_a_conflict(race: Race) -> None:
    outcome = race.outcome(lambda tr, k: list(tr.get_range(k("a"), k("c"))), lambda tr, k: tr.set(k("bb"), b""))
    assert outcome == CONFLICT


@pytest.mark.parametrize(("written", "code"), [("A", 0), ("a", CONFLICT), ("aa", CONFLICT), ("b", CONFLICT), ("bb", 0)])
def test_a_limited_range_conflicts_up_to_the_last_key_it_returned(race: Race, written: str, code: int) -> None:
    found = race.outcome(
        lambda tr, k: list(tr.get_range(k("a"), k("z"), limit=2)), lambda tr, k: tr.set(k(written), b"5")
    )
    assert found == code


@pytest.mark.parametrize(("written", "code"), [("b", 0), ("bb", 0), ("c", CONFLICT), ("cc", CONFLICT), ("e", 0)])
def test_a_limited_range_read_backwards_conflicts_down_to_the_last_key(race: Race, written: str, code: int) -> None:
    found = race.outcome(
        lambda tr, k: list(tr.get_range(k("a"), k("e"), limit=2, reverse=True)),
        lambda tr, k: tr.set(k(written), b"5"),
    )
    assert found == code


def test_a_range_conflicts_only_where_it_was_fetched(db: Database, space: Space) -> None:
    space.put(**{f"{number:04}": bytes(100) for number in range(200)})
    tr = db.create_transaction()
    rows = iter(tr.get_range(space.prefix, space.end(), streaming_mode=StreamingMode.small))
    next(rows)
    tr.set(space.key("zz"), b"mine")
    space.put(**{"0199": b"changed"})
    assert code_of(tr.commit()) == 0


def test_a_transaction_without_writes_never_conflicts(db: Database, space: Space) -> None:
    space.put(a=b"1")
    tr = db.create_transaction()
    assert tr.get(space.key("a")).value == b"1"
    tr.add_read_conflict_key(space.key("b"))
    space.put(a=b"2", b=b"2")
    assert code_of(tr.commit()) == 0


def test_a_declared_write_conflict_alone_is_checked_and_causes_conflicts(db: Database, space: Space) -> None:
    """QuiCK section 6.1 needs a conflict without a write."""
    one, two = db.create_transaction(), db.create_transaction()
    for tr in (one, two):
        assert tr.get(space.key("a")).value is None
        tr.add_write_conflict_key(space.key("a"))
    assert [code_of(one.commit()), code_of(two.commit())] == [0, CONFLICT]
    assert one.get_committed_version() > 0
    assert space.all() == {}


def test_a_read_at_the_version_before_a_commit_conflicts_with_all_that_was_committed_behind_it(
    db: Database, space: Space
) -> None:
    """A read at the version of the commit does not: FoundationDB gives all commits of a batch one version."""
    for _ in range(10):  # A cluster may commit them in the other order.
        one, two = db.create_transaction(), db.create_transaction()
        for tr, key in ((one, "b"), (two, "a")):
            tr.get(space.key("a")).wait()
            tr.set(space.key(key), b"1")
        if [code_of(future) for future in (one.commit(), two.commit())] == [0, 0]:
            break
    late = db.create_transaction()
    late.set_read_version(one.get_committed_version() - 1)
    late.add_read_conflict_key(space.key("a"))
    late.set(space.key("c"), b"1")
    assert code_of(late.commit()) == CONFLICT


def test_a_read_conflict_declared_before_any_read_counts_from_the_commit(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.add_read_conflict_key(space.key("a"))
    tr.set(space.key("b"), b"1")
    space.put(a=b"1")
    assert code_of(tr.commit()) == 0


def test_two_adds_never_conflict_and_both_count(db: Database, space: Space) -> None:
    one, two = db.create_transaction(), db.create_transaction()
    for tr in (one, two):
        tr.get_read_version().wait()
        tr.add(space.key("n"), (1).to_bytes(8, "little"))
    assert [code_of(one.commit()), code_of(two.commit())] == [0, 0]
    assert space.all() == {"n": (2).to_bytes(8, "little")}


def test_an_option_lets_a_write_cause_no_conflict(race: Race) -> None:
    def without_conflict(tr: Any, k: Callable[[str], bytes]) -> None:
        tr.options.set_next_write_no_write_conflict_range()
        tr.set(k("a"), b"5")

    assert race.outcome(lambda tr, k: tr.get(k("a")).value, without_conflict) == 0


def test_that_option_holds_for_the_next_write_only(race: Race) -> None:
    def without_conflict(tr: Any, k: Callable[[str], bytes]) -> None:
        tr.options.set_next_write_no_write_conflict_range()
        tr.set(k("b"), b"5")
        tr.set(k("a"), b"5")

    assert race.outcome(lambda tr, k: tr.get(k("a")).value, without_conflict) == CONFLICT


def test_a_write_still_conflicts_when_a_range_without_conflict_covers_it(race: Race) -> None:
    def without_conflict(tr: Any, k: Callable[[str], bytes]) -> None:
        tr.set(k("a"), b"5")
        tr.options.set_next_write_no_write_conflict_range()
        tr.clear_range(k("a"), k("c"))

    assert race.outcome(lambda tr, k: tr.get(k("a")).value, without_conflict) == CONFLICT
    assert race.outcome(lambda tr, k: tr.get(k("b")).value, without_conflict) == 0


def test_an_inverted_conflict_range_is_refused_at_once_and_an_empty_one_has_no_effect(race: Race) -> None:
    def read(tr: Any, k: Callable[[str], bytes]) -> None:
        for add in (tr.add_read_conflict_range, tr.add_write_conflict_range):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is the engine's
                add(k("b"), k("a"))
            assert error_code(caught.value) == 2005
            add(k("a"), k("a"))

    assert race.outcome(read, lambda tr, k: tr.set(k("a"), b"5")) == 0


def test_of_several_transactions_that_read_and_write_a_key_one_commits(db: Database, space: Space) -> None:
    trs = [db.create_transaction() for _ in range(5)]
    for tr in trs:
        assert tr.get(space.key("leader")).value is None
        tr.set(space.key("leader"), b"me")
    assert sorted(code_of(tr.commit()) for tr in trs) == [0, CONFLICT, CONFLICT, CONFLICT, CONFLICT]
