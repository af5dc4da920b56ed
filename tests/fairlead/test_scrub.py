"""Scrubs of records: what writers that stopped have left is counted, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fairlead import App, BadArgument
from fairlead.record_repairs import SharedValue
from fairlead.record_type import Records
from fairlead.records.accesses import DeleteIndex, Op, ReadIndex, ReadRecord, WriteIndex, WriteRecord
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.scrubbing import ShardScrub
from fairlead.records.on_shards.slots import Locations
from fairlead.records.protocol import Protocol
from fairlead.records.stored import IndexRecord
from fairlead.testing import drain
from tests.fairlead.records_on_shards import SHARDS, found, on_three_shards
from tests.simulation.races.missing_guards import planted

KINDS = ("missing", "dangling", "dummies", "marked")
Data = dict[str, Any]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def accounts(app: App) -> Records[Data]:
    """Ten accounts, each with an email; the scrub of them finds nothing."""
    made = app.records("account", unique=("email",), lookup=("city",))
    for number in range(10):
        made.create(f"u{number}", {"email": key_text(number), "city": "Ulm"})
    assert faults(made.scrub()) == {}
    return made


def test_records_and_index_records_are_counted_on_each_shard(accounts: Records[Data]) -> None:
    found = accounts.scrub()
    assert [each.shard for each in found] == list(SHARDS)
    assert sum(each.records for each in found) == 10
    assert sum(each.index_records for each in found) == 20


def test_a_missing_index_record_is_found_and_written(app: App, accounts: Records[Data]) -> None:
    lose_index_record(app, accounts, 3)
    assert accounts.find(email=key_text(3)) is None
    assert faults(accounts.scrub()) == {"missing": 1}
    assert faults(accounts.scrub(repair=True)) == {"missing": 1, "repaired": 1}
    assert faults(accounts.scrub()) == {}
    assert found(accounts.find(email=key_text(3))).key == "u3"


def test_two_records_with_one_value_keep_it_until_a_user_says_who_is_to_have_it(
    app: App, accounts: Records[Data]
) -> None:
    """Before, one lost the value, and nobody gave it back: not a restore, nor the end of the other record."""
    lose_index_record(app, accounts, 3)
    accounts.create("thief", {"email": key_text(3)})
    assert faults(accounts.scrub(repair=True)) == {"missing": 1, "violations": 1}
    assert accounts.shared_values() == [SharedValue("email", key_text(3), ("thief", "u3"))]
    assert found(accounts.find(email=key_text(3))).key == "thief"
    assert accounts.delete(email=key_text(3))
    assert accounts.resolve(email=key_text(3), keep="u3") == accounts.find(email=key_text(3))
    assert faults(accounts.scrub()) == {}


def test_a_value_that_the_other_record_has_given_up_is_found_after_the_next_scrub(
    app: App, accounts: Records[Data]
) -> None:
    lose_index_record(app, accounts, 3)
    accounts.create("thief", {"email": key_text(3)})
    accounts.scrub(repair=True)
    accounts.change("thief", lambda value: {**value, "email": "another"})
    assert accounts.find(email=key_text(3)) is None
    assert faults(accounts.scrub(repair=True)) == {"marked": 1, "repaired": 1}
    assert found(accounts.find(email=key_text(3))).key == "u3"
    assert (accounts.shared_values(), accounts.marked(), faults(accounts.scrub())) == ([], 0, {})


def test_without_its_mark_nobody_lists_a_value_that_two_records_have(app: App, accounts: Records[Data]) -> None:
    lose_index_record(app, accounts, 3)
    accounts.create("thief", {"email": key_text(3)})
    with planted("a scrub does not mark a record whose value another has"):
        accounts.scrub(repair=True)
    assert accounts.shared_values() == []


def test_a_scrub_goes_on_by_the_definition_of_an_index_that_is_added_meanwhile(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_index_record(app, accounts, 3)
    accounts.create("thief", {"email": key_text(3)})
    reindex_op = Protocol.reindex_op

    def reindexed_once_added(*args: Any) -> Op[bool]:
        accounts.add_index("phone", unique=True)
        drain(app)
        return reindex_op(*args)

    monkeypatch.setattr(Protocol, "reindex_op", reindexed_once_added)
    assert faults(accounts.scrub(repair=True)) == {"missing": 1, "violations": 1}
    assert accounts.shared_values() == [SharedValue("email", key_text(3), ("thief", "u3"))]


def test_garbage_is_found_and_collected(app: App, accounts: Records[Data]) -> None:
    garbage = [key_of("gone"), key_of("dropped")]
    stored = found(accounts.get("u1")).stored
    perform(app, WriteIndex(garbage[0], None, IndexRecord("nobody", b"1" * 16, 0)))
    perform(app, WriteIndex(garbage[1], None, IndexRecord("u1", stored.generation, stored.version)))
    assert faults(accounts.scrub()) == {"dangling": 2}
    assert faults(accounts.scrub(repair=True)) == {"dangling": 2, "repaired": 2}
    assert [perform(app, ReadIndex(each)) for each in garbage] == [None, None]
    assert faults(accounts.scrub()) == {}
    assert accounts.update(found(accounts.get("u1")), {"email": "gone"}).version == 2


def test_a_dummy_is_left_to_its_cleanup_until_that_is_overdue(app: App, accounts: Records[Data]) -> None:
    stop_before_last_phase(accounts)
    assert faults(accounts.scrub(repair=True)) == {}
    app.clock.sleep_us(61_000_000)
    assert faults(accounts.scrub()) == {"dummies": 1}
    assert faults(accounts.scrub(repair=True)) == {"dummies": 1, "repaired": 1}
    assert faults(accounts.scrub()) == {}
    accounts.create("other", {"email": "new"})


def test_a_marked_record_is_counted_and_its_mark_is_removed(app: App, accounts: Records[Data]) -> None:
    stored = found(accounts.get("u4")).stored
    marked = msgspec.structs.replace(stored, version=stored.version + 1, unindexed=stored.keys)
    definition = accounts._operations().definitions.on(app.shards.home_name(Locations("account").data_tenant("u4")))
    locations = Locations("account")
    ShardRecords(app.shards, locations, definition).perform([WriteRecord("u4", stored, marked)])
    lose_index_record(app, accounts, 4)
    assert faults(accounts.scrub()) == {"marked": 1}
    assert faults(accounts.scrub(repair=True)) == {"marked": 1, "repaired": 1}
    assert faults(accounts.scrub()) == {}


def test_records_in_tenants_of_users_are_scrubbed(app: App) -> None:
    carts = app.records("cart", unique=("email",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"email": "a"})
    tenant = Locations("cart", lambda key: app.tenant(f"shop/{key}").tenant)
    [entry] = ShardRecords(app.shards, tenant, None).perform([ReadIndex(key_of("a"))])
    ShardRecords(app.shards, tenant, None).perform([DeleteIndex(key_of("a"), entry)])
    assert faults(carts.scrub(repair=True)) == {"missing": 1, "repaired": 1}
    assert found(carts.find(email="a")).key == "alice"


def test_a_scrub_reads_no_faster_than_it_is_told_to(app: App, accounts: Records[Data]) -> None:
    before_us = app.clock.now_us()
    seen: list[int] = []
    accounts.scrub(rows_per_s=10, progress=seen.append)
    assert app.clock.now_us() - before_us >= 3_000_000
    assert seen[-1] == 30
    with pytest.raises(BadArgument):
        accounts.scrub(rows_per_s=0)


def faults(found: list[ShardScrub]) -> dict[str, int]:
    """Return what was found on all shards."""
    sums = {kind: sum(getattr(each, kind) for each in found) for kind in (*KINDS, "repaired", "violations")}
    return {kind: count for kind, count in sums.items() if count}


def key_text(number: int) -> str:
    return f"{number}@x.com"


def key_of(value: str) -> bytes:
    return pack_unique(Field("email", is_unique=True), value)


def perform(app: App, access: Any) -> Any:
    return ShardRecords(app.shards, Locations("account"), None).perform([access])[0]


def lose_index_record(app: App, accounts: Records[Data], number: int) -> None:
    """Delete an index record of a record that has the key: no program does that."""
    assert perform(app, ReadRecord(f"u{number}")) is not None
    index_key = key_of(key_text(number))
    assert perform(app, DeleteIndex(index_key, perform(app, ReadIndex(index_key))))


class ProcessDied(BaseException):
    """The process dies."""


def stop_before_last_phase(accounts: Records[Data]) -> None:
    """Let a process begin to create ann, and die before the last phase."""
    real = ShardRecords.perform

    def stop(records: ShardRecords, accesses: Any) -> Any:
        if any(isinstance(each, WriteRecord) and not each.record.is_dummy for each in accesses):
            raise ProcessDied
        return real(records, accesses)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRecords, "perform", stop)
        with pytest.raises(ProcessDied):
            accounts.create("ann", {"email": "new", "city": "Ulm"})
