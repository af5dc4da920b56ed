"""Lookups while the shard of an index record does not answer: all shards are asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import App
from fairlead.actors.telemetry.metrics import SCATTERS
from fairlead.actors.telemetry.record_counts import RECORD_COUNTS
from fairlead.record_type import Record, Records
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.definition import IndexState, read_definition, write_definition
from fairlead.records.errors import IndexAway, IndexUnavailable, RecordUnreadable
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.transaction import local_index as entry_name
from fairlead.testing import drain
from fairlead.zones import local_index, local_index_search
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import TenantKeys
from tests.fairlead.records_on_shards import away, data_home, index_home, key_on, on_three_shards, value_on

Data = dict[str, Any]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def accounts(app: App) -> Records[Data]:
    return app.records("account", unique=("email", "phone"), lookup=("city",))


def elsewhere(app: App, accounts: Records[Data]) -> tuple[Record[Data], str]:
    """Return a record, and the shard of the index record of its email, which is another one than the record's."""
    email = value_on(app, "us")
    record = accounts.create(key_on(app, "eu"), {"email": email, "city": "Ulm"})
    assert data_home(app, record.key) != index_home(app, "email", email) == "us"
    return record, email


def test_a_record_is_found_and_deleted_while_the_shard_of_its_index_record_is_away(
    app: App, accounts: Records[Data]
) -> None:
    record, email = elsewhere(app, accounts)
    with away(app, "us"):
        assert accounts.find(email=email) == record
        assert accounts.delete(email=email)
    assert accounts.find(email=email) is None
    assert accounts.create("anew", {"email": email}).version == 1


def test_a_record_whose_slot_has_moved_is_found(app: App, accounts: Records[Data]) -> None:
    record, email = elsewhere(app, accounts)
    slot = Locations("account").data_tenant(record.key)
    app.move(slot, to="asia")
    drain(app, within=60)
    assert app.shards.find(slot).name == "asia"
    with away(app, "us"):
        assert accounts.find(email=email) == record


def test_a_damaged_record_is_named_and_not_passed_over(app: App, accounts: Records[Data]) -> None:
    """Before, all records of its shard were passed over that were read with it."""
    record, email = elsewhere(app, accounts)
    locations = Locations("account")
    app.tenant(locations.data_tenant(record.key)).transact(lambda tr: tr.set(locations.data_key(record.key), b"\xc1"))
    with away(app, "us"):
        with pytest.raises(RecordUnreadable, match=record.key):
            accounts.find(email=email)
        with pytest.raises(RecordUnreadable, match=record.key):
            accounts.find_all(city="Ulm")


def test_nobody_is_an_answer_only_if_every_shard_has_answered(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    email = value_on(app, "us")
    with away(app, "us"), pytest.raises(IndexUnavailable) as unavailable:
        accounts.find(email=email)
    assert unavailable.value.fields["shards"] == ["us"]
    with monkeypatch.context() as patch:  # Data is read there, and index records are not.
        patch.setattr(type(app.shards["us"]), "transact", refuse_us(app))
        assert accounts.find(email=email) is None


def refuse_us(app: App) -> Any:
    real = type(app.shards["us"]).transact

    def transact(shard: Any, *args: Any, **options: Any) -> Any:
        if shard.name == "us":
            raise StoreUnavailable("too slow", remedy="Wait.")
        return real(shard, *args, **options)

    return transact


def test_records_are_listed_only_if_every_shard_has_answered(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [key_on(app, name) for name in ("eu", "asia")] + [key_on(app, "eu", prefix="z")]
    home = index_home(app, "city", "Ulm")
    for name in names:
        accounts.create(name, {"city": "Ulm"})
    with away(app, home), pytest.raises(IndexUnavailable):
        accounts.find_all(city="Ulm")
    assert len(accounts.find_all(city="Ulm")) == 3
    with monkeypatch.context() as patch:
        patch.setattr("fairlead.records.protocol.Protocol.find_all_op", without_index(home))
        assert [each.key for each in accounts.find_all(city="Ulm")] == sorted(names)
        assert [each.key for each in accounts.find_all(city="Ulm", limit=2)] == sorted(names)[:2]
        assert accounts.find_all(city="Bonn") == []


def without_index(shard: str) -> Any:
    def find_all_op(*_: Any) -> Any:
        raise IndexAway(field="city", shard=shard)
        yield

    return find_all_op


@pytest.mark.parametrize("state", [IndexState.HIDDEN, IndexState.PENDING])
def test_an_index_that_is_not_readable_is_not_asked_for_by_all_shards_either(
    app: App, accounts: Records[Data], state: IndexState
) -> None:
    _, email = elsewhere(app, accounts)
    shard = app.shards["eu"]

    def hide(attempt: Any) -> None:
        found = read_definition(attempt.tr, "account")
        assert found is not None
        fields = tuple(type(each)(each.name, each.is_unique, each.normalizer, 1, state) for each in found.fields)
        write_definition(attempt.tr, "account", type(found)(fields))

    shard.transact(hide)
    with away(app, "us"), pytest.raises(IndexUnavailable) as unavailable:
        accounts.find(email=email)
    assert unavailable.value.fields["state"] == state.name.lower()


def test_an_entry_that_is_left_over_finds_nobody(app: App, accounts: Records[Data]) -> None:
    record, email = elsewhere(app, accounts)
    shard = app.shards["asia"]
    accounts.delete(record)
    other = accounts.create(record.key, {"email": "other@x.com"})
    tenant = TenantKeys(*Locations("account").data_tenant(record.key))
    index = entry_name("account", pack_unique(Field("email", is_unique=True), email))
    shard.transact(lambda attempt: local_index.add(attempt.tr, tenant, index, record.key.encode()))
    with away(app, "us"), pytest.raises(IndexUnavailable):
        accounts.find(email=email)
    assert accounts.get(record.key) == other


def test_a_lookup_that_meets_moves_in_each_round_says_so(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    email, counts = value_on(app, "us"), iter(range(999))
    monkeypatch.setattr(local_index_search, "_count", lambda _: next(counts))
    monkeypatch.setattr(type(app.shards["us"]), "transact", refuse_us(app))
    with pytest.raises(IndexUnavailable, match="keep moving"):
        accounts.find(email=email)
    assert next(counts) > 20, "all shards were asked five times, and their counts read again"


def test_lookups_that_ask_all_shards_are_counted_and_logged_once(
    app: App, accounts: Records[Data], caplog: pytest.LogCaptureFixture
) -> None:
    record, email = elsewhere(app, accounts)
    series = (SCATTERS.name, ("us",))
    before = RECORD_COUNTS.read().numbers.get(series, 0)
    with away(app, "us"), caplog.at_level(logging.WARNING, logger="fairlead.records"):
        for _ in range(3):
            assert accounts.find(email=email) == record
    assert RECORD_COUNTS.read().numbers[series] == before + 3
    assert len(caplog.records) == 1
    assert "shard us does not answer" in caplog.text


def test_a_taken_key_stays_taken_while_the_record_that_has_it_is_away(app: App, accounts: Records[Data]) -> None:
    email = value_on(app, "asia")
    accounts.create(key_on(app, "us"), {"email": email})
    with away(app, "us"), pytest.raises(IndexUnavailable) as unavailable:
        accounts.create(key_on(app, "eu"), {"email": email})
    assert unavailable.value.fields["shard"] == "us"
    assert accounts.get(key_on(app, "eu")) is None
