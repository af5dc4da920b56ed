"""Versionstamps: a commit writes them; they are unique and in the order of the commits."""

from __future__ import annotations

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import error_code
from tests.contract.conftest import Space, code_of, read_version


def stamped_key(space: Space, name: str) -> bytes:
    """Return the parameter of `set_versionstamped_key` for `name` followed by the stamp."""
    key = space.key(name)
    return key + bytes(10) + len(key).to_bytes(4, "little")


def test_stamped_keys_are_in_the_order_of_their_commits(db: Database, space: Space) -> None:
    for number in range(5):
        tr = db.create_transaction()
        tr.set_versionstamped_key(stamped_key(space, "log/"), str(number).encode())
        assert code_of(tr.commit()) == 0
    assert list(space.all().values()) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_transaction_gets_its_stamp_after_the_commit(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.set_versionstamped_value(space.key("a"), b"<" + bytes(10) + b">" + (1).to_bytes(4, "little"))
    stamp = tr.get_versionstamp()
    assert code_of(tr.commit()) == 0
    assert space.all() == {"a": b"<" + stamp.value + b">"}
    assert stamp.wait() is stamp
    assert int.from_bytes(stamp.value[:8], "big") == tr.get_committed_version()


def test_a_transaction_that_wrote_nothing_has_no_stamp(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    stamp = tr.get_versionstamp()
    assert tr.get(space.key("a")).value is None
    assert code_of(tr.commit()) == 0
    with pytest.raises(db.errors) as caught:
        _ = stamp.value
    assert error_code(caught.value) == 2021
    assert tr.get_committed_version() == -1


def test_unstamped_writes_cannot_be_read(db: Database, space: Space) -> None:
    for write in (
        lambda tr: tr.set_versionstamped_key(stamped_key(space, "a"), b""),
        lambda tr: tr.set_versionstamped_value(space.key("a1"), bytes(14)),
    ):
        tr = db.create_transaction()
        write(tr)
        with pytest.raises(db.errors) as caught:
            list(tr.get_range(space.key("a"), space.key("b")))
        assert error_code(caught.value) == 1036
        assert code_of(tr.commit()) == 1036
    assert space.all() == {}


def test_keys_beside_an_unstamped_write_can_be_read(db: Database, space: Space) -> None:
    space.put(b=b"1")
    tr = db.create_transaction()
    tr.set_versionstamped_value(space.key("a"), bytes(14))
    assert tr.get(space.key("b")).value == b"1"
    assert len(list(tr.get_range(space.key("b"), space.key("c")))) == 1
    assert code_of(tr.commit()) == 0


def test_a_stamp_past_the_end_fails_the_commit(db: Database, space: Space) -> None:
    for write in (
        lambda tr: tr.set_versionstamped_key(space.key("a") + (500).to_bytes(4, "little"), b""),
        lambda tr: tr.set_versionstamped_value(space.key("a"), bytes(9) + (0).to_bytes(4, "little")),
        lambda tr: tr.set_versionstamped_value(space.key("a"), b"abc"),
    ):
        tr = db.create_transaction()
        write(tr)
        assert code_of(tr.commit()) == 2000
    assert space.all() == {}


def test_versions_grow_with_every_commit(db: Database, space: Space) -> None:
    versions = []
    for number in range(5):
        tr = db.create_transaction()
        tr.set(space.key("a"), str(number).encode())
        assert code_of(tr.commit()) == 0
        versions.append(tr.get_committed_version())
    assert versions == sorted(set(versions))
    assert read_version(db) >= versions[-1]
