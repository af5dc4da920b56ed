"""The retry loop: when it runs a body again, and when it raises the error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from fairlead.zones.engines import Database, Listener, transact
from fairlead.zones.engines.api.errors import error_code
from tests.contract.conftest import Space, code_of

TOO_OLD, CONFLICT, UNKNOWN, TIMED_OUT, CANCELLED, VERSION_CHANGED = 1007, 1020, 1021, 1031, 1025, 1039


class UncertainDatabase:
    """A database that answers some commits with an error, whether they were applied or not."""

    def __init__(self, db: Database, answers: list[tuple[int, bool]]) -> None:
        """Each answer is (code, whether the commit is applied); later commits are let through."""
        self.url, self.limits, self.errors = db.url, db.limits, db.errors
        self.results_can_be_unknown = True
        self._db = db
        self._answers = answers

    def create_transaction(self) -> Any:
        return _UncertainTransaction(self, self._db.create_transaction())

    def exclusive_section(self) -> AbstractContextManager[object]:
        return self._db.exclusive_section()

    def burst(self, tr: Any) -> AbstractContextManager[Any]:
        return self._db.burst(tr)

    def commit_sequence(self) -> int | None:
        return self._db.commit_sequence()

    def listener(self) -> Listener | None:
        return self._db.listener()

    def close(self) -> None:
        self._db.close()

    def commit(self, tr: Any, wrote: bool) -> Any:
        if not wrote or not self._answers:
            return tr.commit()
        code, applied = self._answers.pop(0)
        if applied:
            tr.commit().wait()
        return _Failed(self.errors[0](code))


class _UncertainTransaction:
    def __init__(self, db: UncertainDatabase, tr: Any) -> None:
        self._db = db
        self._tr = tr
        self._wrote = False

    def __getattr__(self, name: str) -> Any:
        self._wrote |= name in ("set", "add")
        return getattr(self._tr, name)

    def commit(self) -> Any:
        return self._db.commit(self._tr, self._wrote)


class _Failed:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def wait(self) -> None:
        raise self._error


def receipt(space: Space) -> Callable[[Any], bool]:
    """Return a check whether the commit was applied."""
    return lambda tr: bool(tr.get(space.key("receipt")).present())


class Body:
    """Counts its runs, adds one to a stored counter and writes a receipt."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.runs = 0

    def __call__(self, tr: Any) -> int:
        self.runs += 1
        tr.add(self._space.key("n"), b"\x01")
        tr.set(self._space.key("receipt"), b"")
        return self.runs


def test_the_result_of_the_body_is_returned_once_it_is_durable(db: Database, space: Space) -> None:
    def body(tr: Any) -> str:
        tr.set(space.key("a"), b"1")
        return "done"

    assert transact(db, body) == "done"
    assert space.all() == {"a": b"1"}


def test_after_a_conflict_the_body_runs_again_with_current_values(db: Database, space: Space) -> None:
    seen = []

    def body(tr: Any) -> None:
        seen.append(tr.get(space.key("a")).value)
        if len(seen) == 1:
            space.put(a=b"theirs")
        tr.set(space.key("a"), b"mine")

    transact(db, body)
    assert seen == [None, b"theirs"]
    assert space.all() == {"a": b"mine"}


def test_a_transaction_that_became_too_old_is_run_again(db: Database, space: Space, pass_us: Any) -> None:
    runs = []

    def body(tr: Any) -> None:
        runs.append(tr.get(space.key("a")).value)
        if len(runs) == 1:
            pass_us(7_000_000)
        tr.set(space.key("a"), b"1")

    transact(db, body)
    assert len(runs) == 2


def test_a_body_that_outlasts_the_window_runs_twice_and_its_error_has_a_remedy(
    engine: str, db: Database, space: Space, pass_us: Any
) -> None:
    runs = []

    def body(tr: Any) -> None:
        runs.append(tr.get(space.key("a")).value)
        pass_us(5_500_000)
        tr.set(space.key("a"), b"1")

    with pytest.raises(db.errors) as caught:
        transact(db, body)
    assert len(runs) == 2
    if engine == "fdb":
        assert error_code(caught.value) == TIMED_OUT
    else:
        assert error_code(caught.value) == TOO_OLD
        assert "Split it" in str(pickle.loads(pickle.dumps(caught.value)))


def test_a_body_that_keeps_reading_past_the_window_runs_twice(db: Database, space: Space, pass_us: Any) -> None:
    runs = []

    def body(tr: Any) -> None:
        runs.append(tr.get(space.key("a")).value)
        pass_us(5_500_000)
        for _ in range(100):  # A cluster drops old versions only while it commits.
            space.put(c=b"")
            tr.get(space.key("b")).wait()
            pass_us(50_000)

    with pytest.raises(db.errors):
        transact(db, body)
    assert len(runs) == 2


def test_an_error_of_the_body_is_raised_and_nothing_is_written(db: Database, space: Space) -> None:
    transactions = []

    def body(tr: Any) -> None:
        transactions.append(tr)
        tr.set(space.key("a"), b"1")
        raise KeyError("mine")

    with pytest.raises(KeyError):
        transact(db, body)
    assert space.all() == {}
    assert code_of(transactions[0].commit()) == CANCELLED


def test_retries_end(db: Database, space: Space) -> None:
    runs = []

    def body(tr: Any) -> None:
        runs.append(tr.get(space.key("a")).value)
        space.put(a=str(len(runs)).encode())
        tr.set(space.key("b"), b"1")

    with pytest.raises(db.errors) as caught:
        transact(db, body, retries_max=3)
    assert error_code(caught.value) == CONFLICT
    assert len(runs) == 4


def test_an_error_that_must_not_be_retried_is_raised_at_once(db: Database, space: Space) -> None:
    body = Body(space)
    with pytest.raises(db.errors) as caught:
        transact(db, lambda tr: (body(tr), tr.set(b"\xff", b"")))
    assert error_code(caught.value) == 2004
    assert body.runs == 1


def test_after_an_unknown_result_a_body_runs_again(db: Database, space: Space) -> None:
    body = Body(space)
    assert transact(UncertainDatabase(db, [(UNKNOWN, True)]), body) == 2
    assert space.all()["n"] == b"\x02"  # Applied twice: such a body needs `applied`.


@pytest.mark.parametrize("code", [UNKNOWN, TIMED_OUT, CANCELLED, VERSION_CHANGED])
def test_an_applied_commit_is_not_repeated(db: Database, space: Space, code: int) -> None:
    body = Body(space)
    assert transact(UncertainDatabase(db, [(code, True)]), body, applied=receipt(space)) == 1
    assert space.all()["n"] == b"\x01"
    assert body.runs == 1


def test_the_result_is_that_of_the_attempt_that_was_committed(db: Database, space: Space) -> None:
    body = Body(space)
    database = UncertainDatabase(db, [(UNKNOWN, False), (CONFLICT, False), (UNKNOWN, True)])
    assert transact(database, body, applied=receipt(space)) == 3
    assert space.all()["n"] == b"\x01"


def test_a_commit_of_unknown_result_that_was_not_applied_is_repeated(db: Database, space: Space) -> None:
    body = Body(space)
    assert transact(UncertainDatabase(db, [(UNKNOWN, False)]), body, applied=receipt(space)) == 2
    assert space.all()["n"] == b"\x01"


@pytest.mark.parametrize("code", [TIMED_OUT, CANCELLED, VERSION_CHANGED])
@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_that_may_still_be_applied_is_not_repeated(
    db: Database, space: Space, code: int, applied: bool
) -> None:
    body = Body(space)
    with pytest.raises(db.errors) as caught:
        transact(UncertainDatabase(db, [(code, False)]), body, applied=receipt(space) if applied else None)
    assert error_code(caught.value) == code
    assert body.runs == 1


def test_a_future_that_the_body_returns_is_ready_afterwards(db: Database, space: Space) -> None:
    def body(tr: Any) -> Any:
        tr.set_versionstamped_value(space.key("a"), bytes(14))
        return tr.get_versionstamp()

    assert transact(db, body).value == space.all()["a"]
