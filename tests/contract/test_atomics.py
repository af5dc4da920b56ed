"""Atomic operations, on stored values and on values of their own transaction."""

from __future__ import annotations

import pytest

from fairlead.zones.engines import Database
from tests.contract.conftest import Space, code_of

# operation, value before (None: no key), parameter, value after; from FoundationDB's `Atomic.h` and recorded answers.
TABLE = [
    ("add", None, b"\x05\x00", b"\x05\x00"),
    ("add", b"\xff", b"\x01\x00", b"\x00\x01"),
    ("add", b"\xff\x01\x02", b"\x01\x00", b"\x00\x02"),
    ("add", b"\xff\xff", b"\x01\x00", b"\x00\x00"),
    ("add", b"12", b"", b""),
    ("bit_and", None, b"\x0f", b"\x0f"),
    ("bit_and", b"\x3c", b"\x0f\xff", b"\x0c\x00"),
    ("bit_or", None, b"\x0f", b"\x0f"),
    ("bit_or", b"\x30\x01", b"\x03", b"\x33"),
    ("bit_xor", None, b"\x0f", b"\x0f"),
    ("bit_xor", b"\xff", b"\x0f\x01", b"\xf0\x01"),
    ("max", None, b"\x05", b"\x05"),
    ("max", b"\x01\x02", b"\x05\x01", b"\x01\x02"),
    ("max", b"\x09\x01", b"\x05", b"\x09"),
    ("min", None, b"\x05", b"\x05"),
    ("min", b"\x01", b"\x05\x01", b"\x01\x00"),
    ("min", b"\x09", b"\x05", b"\x05"),
    ("byte_max", None, b"a", b"a"),
    ("byte_max", b"b", b"ab", b"b"),
    ("byte_min", None, b"a", b"a"),
    ("byte_min", b"b", b"ab", b"ab"),
    ("append_if_fits", None, b"a", b"a"),
    ("append_if_fits", b"a", b"bc", b"abc"),
    ("append_if_fits", bytes(99_999), b"ab", bytes(99_999)),
    ("compare_and_clear", None, b"a", None),
    ("compare_and_clear", b"a", b"a", None),
    ("compare_and_clear", b"a", b"b", b"a"),
]


@pytest.mark.parametrize(("operation", "before", "param", "after"), TABLE)
def test_an_operation_changes_a_stored_value_as_in_the_table(
    db: Database, space: Space, operation: str, before: bytes | None, param: bytes, after: bytes | None
) -> None:
    if before is not None:
        space.put(a=before)
    tr = db.create_transaction()
    getattr(tr, operation)(space.key("a"), param)
    assert tr.snapshot.get(space.key("a")).value == after
    assert code_of(tr.commit()) == 0
    assert space.all().get("a") == after


@pytest.mark.parametrize(("operation", "before", "param", "after"), TABLE)
def test_an_operation_changes_a_value_of_its_own_transaction_as_in_the_table(
    db: Database, space: Space, operation: str, before: bytes | None, param: bytes, after: bytes | None
) -> None:
    space.put(a=b"something else")
    tr = db.create_transaction()
    if before is None:
        tr.clear_range(space.key("a"), space.key("b"))
    else:
        tr.set(space.key("a"), before)
    getattr(tr, operation)(space.key("a"), param)
    assert tr.get(space.key("a")).value == after
    assert code_of(tr.commit()) == 0
    assert space.all().get("a") == after


@pytest.mark.parametrize("operation", ["add", "bit_and", "bit_or", "bit_xor", "max", "min", "byte_max", "byte_min"])
def test_operations_have_the_same_result_in_one_transaction_and_in_several(
    db: Database, space: Space, operation: str
) -> None:
    params = [b"\x07\x01", b"\x03\x02", b"\x03", b"\x05\x00\x01", b"\x01\x00\x00"]
    space.put(one=b"\x11\x02", several=b"\x11\x02")
    tr = db.create_transaction()
    for param in params:
        getattr(tr, operation)(space.key("one"), param)
    assert code_of(tr.commit()) == 0
    for param in params:
        tr = db.create_transaction()
        getattr(tr, operation)(space.key("several"), param)
        assert code_of(tr.commit()) == 0
    found = space.all()
    assert found["one"] == found["several"]


def test_different_operations_on_one_key_apply_in_order(db: Database, space: Space) -> None:
    space.put(a=b"\x01")
    tr = db.create_transaction()
    tr.add(space.key("a"), b"\x04")
    tr.bit_or(space.key("a"), b"\x02")
    tr.append_if_fits(space.key("a"), b"x")
    tr.compare_and_clear(space.key("a"), b"\x07x")
    tr.add(space.key("a"), b"\x09")
    assert code_of(tr.commit()) == 0
    assert space.all() == {"a": b"\x09"}
