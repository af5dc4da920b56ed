"""Records that are written while the shards of their index records do not answer, and repaired later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fairlead import App, BadArgument
from fairlead.index_changes import type_home
from fairlead.record_repairs import SharedValue
from fairlead.record_type import Records
from fairlead.records.accesses import WriteRecord, run_op
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.errors import IndexUnavailable, NoSuchRecord
from fairlead.records.on_shards.building import Builder
from fairlead.records.on_shards.definitions import Definitions
from fairlead.records.on_shards.index_changes import list_changes
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord
from fairlead.testing import drain
from fairlead.zones.layout import Tenant
from tests.fairlead.records_on_shards import SHARDS, away, key_on, on_three_shards, value_on

Data = dict[str, Any]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def accounts(app: App) -> Records[Data]:
    return app.records("account", unique=("email", "phone"), lookup=("city",), repair=True)


def share(app: App, accounts: Records[Data]) -> tuple[str, str, str]:
    """Let two records get one email while the shard of its index record is away; return their keys, and the email."""
    email, one, two = value_on(app, "us"), key_on(app, "eu"), key_on(app, "asia")
    with away(app, "us"):
        accounts.create(one, {"email": email})
        accounts.create(two, {"email": email})
    drain(app)
    return one, two, email


def test_a_record_is_created_while_the_shard_of_its_index_record_is_away(app: App, accounts: Records[Data]) -> None:
    email, key = value_on(app, "us"), key_on(app, "eu")
    with away(app, "us"):
        made = accounts.create(key, {"email": email, "city": "Ulm"})
        assert accounts.get(key) == accounts.find(email=email) == made, "all shards are asked"
    assert accounts.marked() == 1
    assert accounts.find(email=email) is None, "that is the price"
    drain(app)
    assert accounts.marked() == 0
    assert accounts.find(email=email) == made
    assert accounts.update(made, {"email": email}).version == 2, "a repair is no user's write"


def test_a_key_is_added_while_the_shard_of_its_index_record_is_away(app: App, accounts: Records[Data]) -> None:
    key, email = key_on(app, "eu"), value_on(app, "us")
    made = accounts.create(key, {"email": value_on(app, "eu")})
    with away(app, "us"):
        made = accounts.update(made, {"email": email})
        made = accounts.update(made, {"email": email, "visits": 1})
    assert accounts.marked() == 1
    assert app.tenant(Locations("account").data_tenant(key)).count() == {"fairlead.records.repair": 1}
    drain(app)
    assert accounts.marked() == 0
    assert accounts.find(email=email) == made


def test_a_marked_record_that_is_deleted_needs_no_repair(app: App, accounts: Records[Data]) -> None:
    email, key = value_on(app, "us"), key_on(app, "eu")
    with away(app, "us"):
        accounts.create(key, {"email": email})
        assert accounts.delete(email=email)
    assert accounts.marked() == 0
    drain(app)
    assert accounts.create("other", {"email": email}).version == 1


def test_a_repair_is_tried_until_the_shard_is_back(app: App, accounts: Records[Data]) -> None:
    email, key = value_on(app, "us"), key_on(app, "eu")
    with away(app, "us"):
        accounts.create(key, {"email": email})
        with pytest.raises(IndexUnavailable):
            accounts.marked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlead.records.on_shards.performing.ShardRecords.perform", unavailable)
        drain(app, raise_errors=False)
    assert accounts.marked() == 1
    drain(app, within=120)
    assert accounts.marked() == 0


def unavailable(*_: Any) -> Any:
    raise IndexUnavailable(field="email")


@pytest.mark.parametrize("kept_is_first", [True, False])
def test_two_records_that_got_one_value_are_listed_and_one_keeps_it(
    app: App, accounts: Records[Data], kept_is_first: bool
) -> None:
    one, two, email = share(app, accounts)
    assert accounts.marked() == 1
    assert accounts.shared_values() == [SharedValue("email", email, tuple(sorted((one, two))))]
    kept, other = (one, two) if kept_is_first else (two, one)
    assert accounts.resolve(email=email, keep=kept).key == kept
    assert accounts.marked() == 0
    assert accounts.shared_values() == []
    found, lost = accounts.find(email=email), accounts.get(other)
    assert found is not None
    assert lost is not None
    assert (found.key, lost.value) == (kept, {})


def test_a_scrub_leaves_a_value_to_both_records_until_a_user_says_which_keeps_it(
    app: App, accounts: Records[Data]
) -> None:
    """Before, it took the value from one of them, as if its index record had been lost."""
    one, two, email = share(app, accounts)
    accounts.scrub(repair=True)
    assert accounts.shared_values() == [SharedValue("email", email, tuple(sorted((one, two))))]
    assert accounts.resolve(email=email, keep=two) == accounts.find(email=email)


def test_a_value_that_one_record_has_by_now_is_resolved_for_it(app: App, accounts: Records[Data]) -> None:
    one, two, email = share(app, accounts)
    indexed = accounts.find(email=email)
    assert indexed is not None
    accounts.delete(indexed)
    [left] = {one, two} - {indexed.key}
    assert accounts.shared_values() == [SharedValue("email", email, (left,))]
    assert accounts.resolve(email=email, keep=left) == accounts.find(email=email)
    assert accounts.marked() == 0


def test_a_violation_ends_when_its_record_loses_the_value(app: App, accounts: Records[Data]) -> None:
    one, two, email = share(app, accounts)
    indexed = accounts.find(email=email)
    assert indexed is not None
    [other] = {one, two} - {indexed.key}
    accounts.change(other, lambda _: {"email": "another@x.com"})
    assert accounts.marked() == 0
    assert accounts.shared_values() == []


def test_a_record_that_does_not_have_the_value_cannot_keep_it(app: App, accounts: Records[Data]) -> None:
    _, _, email = share(app, accounts)
    with pytest.raises(NoSuchRecord):
        accounts.resolve(email=email, keep="nobody")
    assert len(accounts.shared_values()) == 1


def test_the_drop_of_an_index_ends_what_records_share_by_it(app: App, accounts: Records[Data]) -> None:
    """Before, the records stayed marked for ever by a key that they did not have any more."""
    share(app, accounts)
    accounts.drop_index("email")
    drain(app)
    assert (accounts.marked(), accounts.shared_values()) == (0, [])


def test_the_drop_of_an_index_ends_marks_that_no_repair_has_come_to(app: App, accounts: Records[Data]) -> None:
    email, key = value_on(app, "us"), key_on(app, "eu")
    with away(app, "us"):
        accounts.create(key, {"email": email})
    accounts.drop_index("email")
    home = type_home(app.shards, "account")
    (change,) = home.transact(lambda attempt: [each for _, each in list_changes(attempt.tr, "account")])
    Builder(app.shards, home, "account", "email", locations=None).run(change.change_id)
    assert accounts.marked() == 0
    drain(app)
    accounts.add_index("email")
    drain(app)
    assert [each.key for each in accounts.find_all(email=email)] == [key]


class Strict(msgspec.Struct):
    email: str


class Lax(msgspec.Struct):
    email: str | None


@pytest.mark.parametrize(("type_", "is_refused"), [(Strict, True), (Lax, False)])
def test_a_field_of_a_type_becomes_none_if_it_can(app: App, type_: Any, is_refused: bool) -> None:
    accounts = app.records("account", unique=("email",), type=type_, repair=True)
    email, one, two = value_on(app, "us"), key_on(app, "eu"), key_on(app, "asia")
    with away(app, "us"):
        accounts.create(one, type_(email))
        accounts.create(two, type_(email))
    drain(app)
    if is_refused:
        with pytest.raises(BadArgument, match="may be None"):
            accounts.resolve(email=email, keep=one)
        accounts.change(two, lambda _: type_("another@x.com"))
    assert accounts.resolve(email=email, keep=one).value == type_(email)
    found = accounts.get(two)
    assert found is not None
    assert found.value == type_("another@x.com" if is_refused else None)
    assert accounts.marked() == 0


def test_a_record_in_the_tenant_of_a_user_is_repaired(app: App) -> None:
    carts = app.records("account", unique=("email",), tenant=lambda key: f"shop/{key}", repair=True)
    taken, free = value_on(app, "us"), value_on(app, "us", prefix="f")
    users = [f"u{n}" for n in range(99) if app.shards.home_name(app.tenant(f"shop/u{n}").tenant) == "eu"]
    carts.create(users[0], {"email": taken})
    with away(app, "us"):
        carts.create(users[1], {"email": taken})
        made = carts.create(users[2], {"email": free})
    declared = app.record_types.pop("account")
    drain(app, raise_errors=False)
    assert carts.marked() == 2, "a program that does not declare the type does not know where its records lie"
    app.record_types["account"] = declared
    drain(app, within=60)
    assert carts.find(email=free) == made
    assert [each.keys for each in carts.shared_values()] == [(users[0], users[1])]


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
def test_a_record_that_a_restore_brings_back_is_repaired(app: App, is_taken: bool) -> None:
    carts = app.records("account", unique=("email",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"email": "old@x.com"})
    alice = app.tenant("shop/alice")
    snapshot = alice.snapshot()
    carts.change("alice", lambda _: {"email": "other@x.com"})
    carts.change("alice", lambda _: {"email": "new@x.com"})
    if is_taken:
        carts.create("bob", {"email": "old@x.com"})
    alice.restore(snapshot)
    drain(app)
    found = carts.find(email="old@x.com")
    assert found is not None
    assert found.key == ("bob" if is_taken else "alice")
    assert carts.find(email="new@x.com") is None
    assert carts.marked() == len(carts.shared_values()) == is_taken
    restored = carts.resolve(email="old@x.com", keep="alice")
    for email in ("new@x.com", "other@x.com", "old@x.com"):
        restored = carts.update(restored, {"email": email})
        assert carts.find(email=email) == restored
    assert carts.marked() == 0
    with away(app, *(name for name in SHARDS if name != app.shards.find(alice.tenant).name)):
        assert carts.find(email="old@x.com") == restored


def test_a_restore_ends_a_creator_whose_dummy_it_brings_back(app: App) -> None:
    """Else the creator would finish, although its key has passed to another record, and nobody would mark it."""
    carts = app.records("account", unique=("email",), tenant=lambda key: f"shop/{key}")
    alice, old, email = app.tenant("shop/alice"), pack_unique(Field("email", is_unique=True), "old@x.com"), "old@x.com"
    dummy = DataRecord(bytes(16), 0, (old,), 0, b"")
    declared = [Field("email", is_unique=True)]
    definition = Definitions(app.shards, "account", declared, in_tenants=True).on(alice.shard.name)
    creator = ShardRecords(app.shards, Locations("account", lambda key: Tenant("shop", key)), definition)
    run_op(Protocol().reserve_op("alice", dummy), creator.perform)
    snapshot = alice.snapshot()
    bob = carts.create("bob", {"email": email})
    alice.restore(snapshot)
    drain(app)
    [is_finished] = creator.perform([WriteRecord("alice", dummy, DataRecord(bytes(16), 1, (old,), 1, b""))])
    assert not is_finished
    assert (carts.find(email=email), carts.get("alice")) == (bob, None)
    assert list(alice.transact(lambda tr: list(tr.get_range()))) == []


def test_coroutines_use_the_same_operations(app: App, accounts: Records[Data]) -> None:
    one, two, email = share(app, accounts)

    async def story() -> None:
        assert await accounts.amarked() == 1
        assert [each.keys for each in await accounts.ashared_values()] == [tuple(sorted((one, two)))]
        assert (await accounts.aresolve(email=email, keep=two)).key == two

    asyncio.run(story())


def test_a_transaction_on_the_tenant_keeps_the_mark(app: App) -> None:
    carts = app.records("account", unique=("email",), tenant=lambda key: f"shop/{key}", repair=True)
    email = value_on(app, "us")
    user = next(f"u{n}" for n in range(99) if app.shards.home_name(app.tenant(f"shop/u{n}").tenant) == "eu")
    with away(app, "us"):
        carts.create(user, {"email": email})
        app.tenant(f"shop/{user}").transact(lambda tr: carts.put(tr, user, {"email": email, "items": 3}))
    assert carts.marked() == 1
    drain(app)
    found = carts.find(email=email)
    assert found is not None
    assert found.value["items"] == 3
