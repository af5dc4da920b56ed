"""Records of an application: found by any key, unique across shards, whatever moves, dies, or is away."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead import App, BadArgument
from fairlead.record_type import Records
from fairlead.records.accesses import WriteRecord
from fairlead.records.definition import SchemaChanged
from fairlead.records.errors import (
    Changed,
    DefinitionDiffers,
    Exists,
    IndexUnavailable,
    Interrupted,
    KeyAdded,
    NoSuchRecord,
    Taken,
)
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.slots import INDEX, Locations
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.open_body import NestedTransaction
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.fairlead.live_consumers import consumer, eventually
from tests.fairlead.records_on_shards import SHARDS, found, index_tenant, on_three_shards

ANN = {"email": "ann@x.com", "phone": "1", "city": "Ulm"}
BOB = {"email": "bob@x.com", "phone": "2", "city": "Ulm"}

Data = dict[str, Any]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def accounts(app: App) -> Records[Data]:
    return app.records("account", unique=("email", "phone"), lookup=("city",))


def test_a_record_is_found_by_each_of_its_keys(accounts: Records[Data]) -> None:
    ann = accounts.create("ann", ANN)
    assert ann == accounts.get("ann") == accounts.find(email="ann@x.com") == accounts.find(phone="1")
    assert ann.version == 1
    assert accounts.find(email="bob@x.com") is None


def test_records_and_index_records_lie_on_all_shards(app: App) -> None:
    locations = Locations("account")
    assert {app.shards.home_name(locations.data_tenant(str(n))) for n in range(40)} == set(SHARDS)


def test_no_two_records_share_a_value_of_a_unique_field(accounts: Records[Data]) -> None:
    accounts.create("ann", ANN)
    with pytest.raises(Taken) as taken:
        accounts.create("bob", {**BOB, "email": "ann@x.com"})
    assert taken.value.fields == {"field": "email", "value": "ann@x.com"}
    assert accounts.get("bob") is None
    assert accounts.create("bob", BOB).version == 1, "what the refused create has begun is in nobody's way"


def test_a_primary_key_is_created_once(accounts: Records[Data]) -> None:
    accounts.create("ann", ANN)
    with pytest.raises(Exists):
        accounts.create("ann", BOB)


def test_a_key_that_was_given_up_is_free_at_once(accounts: Records[Data]) -> None:
    ann = accounts.create("ann", ANN)
    accounts.update(ann, {**ANN, "email": "new@x.com"})
    assert accounts.find(email="ann@x.com") is None
    assert accounts.create("other", {"email": "ann@x.com"}) == accounts.find(email="ann@x.com")


def test_a_deleted_record_frees_its_keys(accounts: Records[Data]) -> None:
    accounts.delete(accounts.create("ann", ANN))
    assert accounts.get("ann") is None
    assert accounts.find(email="ann@x.com") is None
    accounts.create("bob", ANN)
    assert accounts.delete(email="ann@x.com")
    assert not accounts.delete(email="ann@x.com")


def test_a_record_on_one_shard_is_deleted_with_its_index_records_in_one_transaction() -> None:
    """Before, a second transaction in the background deleted them, beside the next request."""
    app = App("memory:")
    accounts = app.records("account", unique=("email", "phone"))
    ann = accounts.create("ann", ANN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.shards.calls, "start", None)
        assert accounts.delete(ann)
    assert rows(app, "account") == {}
    app.close()


def test_a_damaged_index_record_holds_up_no_delete_and_no_update_that_drops_its_key() -> None:
    app = App("memory:")
    accounts = app.records("account", unique=("email", "phone"))
    for key, value in (("ann", ANN), ("bob", BOB)):
        accounts.create(key, value)
        tenant = app.tenant(index_tenant("email", value["email"]))
        tenant.transact(lambda tr: [tr.set(row, b"\xc1") for row, _ in tr.get_range() if row[-2] == INDEX])
    assert accounts.delete(found(accounts.get("ann")))
    assert accounts.update(found(accounts.get("bob")), {}).version == 2
    app.close()


def test_an_update_of_an_old_version_is_refused(accounts: Records[Data]) -> None:
    ann = accounts.create("ann", ANN)
    accounts.update(ann, {**ANN, "city": "Bonn"})
    with pytest.raises(Changed) as changed:
        accounts.update(ann, ANN)
    assert changed.value.fields == {"key": "ann", "expected": 1, "found": 2}
    with pytest.raises(Changed):
        accounts.delete(ann)


def test_an_update_does_not_fail_because_a_collection_has_changed_the_version(accounts: Records[Data]) -> None:
    ann = accounts.create("ann", ANN)
    later = accounts.update(ann, {**ANN, "email": "new@x.com"})
    accounts.create("thief", {"email": "ann@x.com"})
    assert accounts.update(later, {**ANN, "email": "newer@x.com"}).version == 3


def test_change_reads_changes_and_tries_again(accounts: Records[Data]) -> None:
    accounts.create("ann", {**ANN, "visits": 0})
    tries = 0

    def visit(value: Data) -> Data:
        nonlocal tries
        tries += 1
        if tries == 1:
            accounts.change("ann", lambda other: {**other, "visits": 10})
        return {**value, "visits": value["visits"] + 1}

    assert accounts.change("ann", visit).value["visits"] == 11
    with pytest.raises(NoSuchRecord):
        accounts.change("bob", visit)


def test_records_are_listed_by_a_field_that_is_not_unique(accounts: Records[Data]) -> None:
    for number in range(7):
        accounts.create(f"u{number}", {"city": "Ulm"})
    accounts.update(found(accounts.get("u3")), {"city": "Bonn"})
    assert [each.key for each in accounts.find_all(city="Ulm")] == ["u0", "u1", "u2", "u4", "u5", "u6"]
    assert [each.key for each in accounts.find_all(city="Ulm", limit=4)] == ["u0", "u1", "u2", "u4"]
    assert [each.key for each in accounts.find_all(city="Bonn")] == ["u3"]


def test_a_field_is_compared_as_it_is_declared_to_be(app: App) -> None:
    accounts = app.records("folded", unique=("email",), normalize={"email": "casefold"})
    accounts.create("ann", {"email": "Ann@X.com"})
    with pytest.raises(Taken):
        accounts.create("bob", {"email": "ann@x.COM"})
    assert found(accounts.find(email="ANN@x.com")).value == {"email": "Ann@X.com"}


@pytest.mark.parametrize("value", ["x" * 5_000, b"\x00" * 300, -(2**60), "a\x00b"], ids=["long", "bytes", "int", "NUL"])
def test_keys_of_every_kind_are_found(accounts: Records[Data], value: Any) -> None:
    accounts.create("ann", {"email": value})
    assert found(accounts.find(email=value)).key == "ann"
    with pytest.raises(Taken):
        accounts.create("bob", {"email": value})


class Person(msgspec.Struct):
    email: str
    age: int = 0


@dataclasses.dataclass
class Town:
    name: str


def test_values_have_a_type(app: App) -> None:
    people = app.records("person", unique=("email",), type=Person)
    people.create("ann", Person("ann@x.com", 40))
    assert found(people.find(email="ann@x.com")).value == Person("ann@x.com", 40)
    places = app.records("place", unique=("name",), type=Town)
    assert places.create("1", Town("Ulm")).value == Town("Ulm")
    with pytest.raises(BadArgument):
        people.create("bob", {"email": "bob@x.com"})  # type: ignore[arg-type]


def test_records_may_lie_in_the_tenants_of_users(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"code": "X1"})
    kept = app.tenant("shop/alice").transact(lambda tr: [key for key, _ in tr.get_range()])
    assert kept == [("fairlead.records", "cart", 1, "alice")]
    assert found(carts.find(code="X1")).key == "alice"


def test_a_record_is_written_with_other_data_of_its_tenant(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"code": "X1", "items": 0})
    alice = app.tenant("shop/alice")

    def add(tr: TenantTransaction) -> None:
        tr.set(("seen",), b"1")
        carts.put(tr, "alice", {"code": "X1", "items": 3})

    alice.transact(add)
    assert found(carts.find(code="X1")).value["items"] == 3
    with pytest.raises(KeyAdded):
        alice.transact(lambda tr: carts.put(tr, "alice", {"code": "X2"}))
    with pytest.raises(BadArgument):
        app.tenant("shop/bob").transact(lambda tr: carts.put(tr, "alice", {"code": "X1"}))


def test_keys_that_a_transaction_drops_are_free_and_their_index_records_are_deleted(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"code": "X1"})
    app.tenant("shop/alice").transact(lambda tr: carts.put(tr, "alice", {}))
    assert carts.find(code="X1") is None
    drain(app)
    assert app.tenant(index_tenant("code", "X1", "cart")).transact(lambda tr: dict(tr.get_range())) == {}
    carts.create("bob", {"code": "X1"})
    assert app.tenant("shop/bob").transact(lambda tr: carts.remove(tr, "bob"))
    assert not app.tenant("shop/bob").transact(lambda tr: carts.remove(tr, "bob"))
    assert carts.find(code="X1") is None


@pytest.mark.parametrize("engine", ["memory", "embedded"])
def test_a_transaction_writes_the_first_record_of_a_shard(engine: str, tmp_path: Path) -> None:
    app = App({name: f"embedded:{tmp_path / name}" if engine == "embedded" else "memory:" for name in SHARDS})
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    alice = app.tenant("shop/alice")
    assert not alice.transact(lambda tr: carts.remove(tr, "alice"))
    alice.transact(lambda tr: carts.put(tr, "alice", {"items": 1}))
    bob = next(f"bob{n}" for n in range(99) if app.tenant(f"shop/bob{n}").shard.name != alice.shard.name)
    app.tenant(f"shop/{bob}").transact(lambda tr: carts.put(tr, bob, {"items": 2}))
    assert (found(carts.get("alice")).value, found(carts.get(bob)).value) == ({"items": 1}, {"items": 2})
    app.close()


def test_coroutines_use_the_same_operations(accounts: Records[Data]) -> None:
    async def story() -> None:
        ann = await accounts.acreate("ann", ANN)
        assert await accounts.afind(email="ann@x.com") == await accounts.aget("ann") == ann
        later = await accounts.aupdate(ann, {**ANN, "city": "Bonn"})
        assert [each.key for each in await accounts.afind_all(city="Bonn")] == ["ann"]
        assert (await accounts.achange("ann", lambda value: {**value, "city": "Kiel"})).version == later.version + 1
        assert await accounts.adelete(email="ann@x.com")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", ANN),
        ("x" * 129, ANN),
        ("a\x00b", ANN),
        (7, ANN),
        ("ann", {"email": ""}),
        ("ann", {"email": 1.5}),
        ("ann", {"email": True}),
        ("ann", {"email": "x" * 10_001}),
        ("ann", {"email": "\ud800"}),
        ("ann", "no dict"),
        ("ann", {"email": "e", "what": object()}),
        ("ann", {"email": "e", "what": "x" * 100_000}),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(
    accounts: Records[Data], key: Any, value: Any
) -> None:
    with pytest.raises(BadArgument):
        accounts.create(key, value)
    assert accounts.create("ann", ANN).version == 1


def test_a_value_that_is_too_long_with_its_keys_is_refused_before_anything_is_written(app: App) -> None:
    names = [f"field {number}" for number in range(100)]
    wide = app.records("wide", lookup=names)
    with pytest.raises(BadArgument, match="with 100 alternate keys"):
        wide.create("k" * 128, {"what": "x" * 80_000, **dict.fromkeys(names, "v" * 64)})
    assert rows(app, "wide") == {}


def test_no_type_of_records_has_the_name_of_unique_items(app: App) -> None:
    with pytest.raises(BadArgument, match="reserved"):
        app.records("fairlead.items", unique=("unique_key",))


def test_a_field_that_is_not_indexed_is_named_with_those_that_are(accounts: Records[Data]) -> None:
    with pytest.raises(BadArgument, match="email, phone"):
        accounts.find(city="Ulm")
    with pytest.raises(BadArgument, match="city"):
        accounts.find_all(email="ann@x.com")
    with pytest.raises(BadArgument, match="exactly one"):
        accounts.find()
    with pytest.raises(BadArgument, match="exactly one"):
        accounts.find(email="a", phone="b")


def test_a_program_that_declares_other_fields_is_refused(app: App, accounts: Records[Data]) -> None:
    accounts.create("ann", ANN)
    app.records("account", unique=("email",)).create("bob", BOB)
    assert found(accounts.find(phone="2")).key == "bob", "what is stored is maintained, whatever is declared"
    with pytest.raises(DefinitionDiffers):
        app.records("account", unique=("nickname",)).create("eve", {"nickname": "e"})
    with pytest.raises(DefinitionDiffers):
        app.records("account", unique=("email",), normalize={"email": "casefold"}).create("eve", {})


def test_a_record_is_not_written_in_the_body_of_a_transaction(app: App, accounts: Records[Data]) -> None:
    with pytest.raises(Exception, match="body of another"):
        app.tenant("shop/alice").transact(lambda _: accounts.create("ann", ANN))


def test_a_record_is_not_written_in_a_transaction_across_shards(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    cart = carts.create("alice", {"code": "X1"})
    with pytest.raises(NestedTransaction):
        app.transact(lambda tx: carts.put(tx.on("shop/alice"), "alice", {}))
    with pytest.raises(NestedTransaction):
        app.transact(lambda tx: carts.remove(tx.on("shop/alice"), "alice"))
    assert carts.get("alice") == cart


def test_what_a_stopped_creator_has_left_is_cleaned_up(app: App, accounts: Records[Data]) -> None:
    stop_before_last_phase(app, accounts)
    left = rows(app, "account")
    assert len(left) == 4, "a dummy, and three index records"
    drain(app, within=120)
    assert rows(app, "account") == {}


def test_a_create_that_begins_again_has_one_cleanup_item(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = ShardRecords.perform
    refused: list[str] = []

    def refuse_once(self: ShardRecords, accesses: Any) -> list[Any]:
        match accesses:
            case [WriteRecord(_, _, record)] if not record.is_dummy and not refused:
                refused.append(app.shards.home_name(Locations("account").data_tenant("ann")))
                app.clock.sleep_us(1_000_000)
                raise SchemaChanged(refused[0])
        return perform(self, accesses)

    monkeypatch.setattr(ShardRecords, "perform", refuse_once)
    accounts.create("ann", ANN)
    [shard_name] = refused
    assert check_integrity(app.shards[shard_name]).findings == []


def test_the_keys_of_a_stopped_creator_are_free_at_once(app: App, accounts: Records[Data]) -> None:
    stop_before_last_phase(app, accounts)
    assert accounts.find(email="ann@x.com") is None
    accounts.create("bob", ANN)
    drain(app, within=120)
    assert found(accounts.find(email="ann@x.com")).key == "bob"


def test_a_create_that_went_well_leaves_no_work(app: App, accounts: Records[Data]) -> None:
    accounts.create("ann", ANN)
    tenant = Locations("account").data_tenant("ann")
    assert app.tenant(tenant).count() == {}


def test_an_index_shard_that_is_away_stops_only_what_needs_it(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = accounts.create("ann", ANN)
    away = name_that_is_not_home_of(app, "ann")
    value = next(f"{n}@x.com" for n in range(99) if app.shards.home_name(index_tenant("email", f"{n}@x.com")) == away)
    real = app.shards[away].transact

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the disk is gone", remedy="Mount it.")

    monkeypatch.setattr(app.shards[away], "transact", refuse)
    with pytest.raises(IndexUnavailable) as unavailable:
        accounts.update(ann, {**ANN, "email": value})
    assert unavailable.value.fields["shard"] == away
    assert accounts.get("ann") == ann
    assert accounts.update(ann, {**ANN, "visits": 1}).version == 2
    monkeypatch.setattr(app.shards[away], "transact", real)


def test_slots_move_under_writers_and_nobody_notices(tmp_path: Path) -> None:
    app = App({name: f"embedded:{tmp_path / name}" for name in SHARDS})
    accounts = app.records("account", unique=("email",))
    done = threading.Event()

    def write(number: int) -> int:
        mine, count = f"u{number}", 0
        accounts.create(mine, {"email": f"{number}.0"})
        while not done.is_set():
            count += 1
            value = {"email": f"{number}.{count}"}
            accounts.change(mine, lambda _, value=value: value)  # type: ignore[misc]
            assert found(accounts.find(email=value["email"])).key == mine
        return count

    with ThreadPoolExecutor() as threads, consumer(app):
        writers = [threads.submit(write, number) for number in range(2)]
        try:
            eventually(lambda: accounts.get("u0") is not None)
            slot = Locations("account").data_tenant("u0")
            for to in SHARDS:
                if app.shards.find(slot).name != to:
                    app.move(slot, to=to).result(timeout=60)
                    assert app.shards.find(slot).name == to
        finally:
            done.set()
        assert all(writer.result() > 0 for writer in writers)
    app.close()


def test_slots_move_to_a_shard_that_was_added_and_records_are_found_as_before(tmp_path: Path) -> None:
    urls = {name: f"embedded:{tmp_path / name}" for name in ("main", "us2")}
    app = App({"main": urls["main"]})
    accounts = app.records("account", unique=("email",), lookup=("city",))
    before = [accounts.create(f"u{n}", {"email": f"{n}@x.com", "city": "Ulm"}) for n in range(8)]
    app.close()
    app = App(urls, clock=ManualClock())
    accounts = app.records("account", unique=("email",), lookup=("city",))
    moved = {tenant for tenant, _ in app.rebalance(to=["us2"]).moves}
    drain(app)
    assert {app.shards.find(slot).name for slot in moved} == {"us2"}
    assert moved & {Locations("account").data_tenant(record.key) for record in before}
    assert moved & {index_tenant("email", record.value["email"]) for record in before}
    for record in before:
        assert accounts.get(record.key) == accounts.find(email=record.value["email"]) == record
        with pytest.raises(Taken):
            accounts.create("other", {"email": record.value["email"]})
        later = accounts.change(record.key, lambda value: {**value, "email": f"new {value['email']}"})
        assert accounts.find(email=later.value["email"]) == later
    assert [each.key for each in accounts.find_all(city="Ulm")] == [record.key for record in before]
    app.close()


def test_many_threads_that_want_the_same_keys_get_each_once(accounts: Records[Data]) -> None:
    def take(number: int) -> list[str]:
        random, owned = Random(number), []
        for turn in range(30):
            email = str(random.randrange(40))
            with suppress(Taken, Interrupted):
                accounts.create(f"{number}.{turn}", {"email": email, "phone": email})
                owned.append(email)
        return owned

    with ThreadPoolExecutor() as threads:
        owned = [email for each in threads.map(take, range(4)) for email in each]
    assert len(owned) == len(set(owned)) > 20
    for email in owned:
        assert found(accounts.find(email=email)) == found(accounts.find(phone=email))


def name_that_is_not_home_of(app: App, key: str) -> str:
    home = app.shards.home_name(Locations("account").data_tenant(key))
    return next(name for name in SHARDS if name != home)


class ProcessDied(BaseException):
    """The process dies."""


def stop_before_last_phase(app: App, accounts: Records[Data]) -> None:
    """Let a process begin to create ann, and die before the last phase, on shards of which none holds all of it."""
    perform = ShardRecords.perform

    def stop(records: ShardRecords, accesses: Any) -> Any:
        if any(isinstance(each, WriteRecord) and not each.record.is_dummy for each in accesses):
            raise ProcessDied
        return perform(records, accesses)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRecords, "perform", stop)
        with pytest.raises(ProcessDied):
            accounts.create("ann", ANN)


def rows(app: App, type_name: str) -> dict[tuple[Any, ...], bytes]:
    """Return all rows of a type of records, of all slots that have any."""
    kept: dict[tuple[Any, ...], bytes] = {}
    locations = Locations(type_name)
    tenants = {locations.data_tenant("ann")}
    for name, value in ANN.items():
        tenants.add(index_tenant(name, value))
    for tenant in tenants:
        kept.update(app.tenant(tenant).transact(lambda tr: dict(tr.get_range())))
    return kept
