"""Indexes that are added and dropped while an application reads and writes its records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead import App, BadArgument
from fairlead.index_changes import ChangeFailed, ChangePending, type_home
from fairlead.record_type import Records
from fairlead.records.accesses import WriteRecord
from fairlead.records.definition import SchemaChanged, read_definition
from fairlead.records.errors import Changed, DefinitionDiffers, IndexUnavailable, Interrupted, KeyAdded, Taken
from fairlead.records.on_shards import walking
from fairlead.records.on_shards.building import Builder, BuilderStopped
from fairlead.records.on_shards.index_changes import (
    ChangeReplaced,
    ChangeState,
    Cursor,
    IndexChanging,
    IndexExists,
    NoIndex,
    view_change,
)
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.testing import drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import RECORD_TYPE, ROOT, pack_int, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.mover import Mover
from fairlead.zones.placement import home
from fairlead.zones.records import MoveState
from fairlead.zones.shard import first_shards
from tests.fairlead.live_consumers import consumer, eventually
from tests.fairlead.records_on_shards import SHARDS, data_home, found, on_three_shards
from tests.simulation.races.missing_guards import planted

Data = dict[str, Any]


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def accounts(app: App) -> Records[Data]:
    """Twenty accounts, of which one has no phone."""
    made = app.records("account", unique=("email",))
    for number in range(20):
        made.create(f"u{number}", {"email": f"{number}@x.com", "phone": f"0{number}" if number else None})
    return made


def test_an_index_of_a_field_is_built_and_finds_all_records(app: App, accounts: Records[Data]) -> None:
    change = accounts.add_index("phone", unique=True)
    with pytest.raises(IndexUnavailable) as unavailable:
        accounts.find(phone="07")
    assert unavailable.value.fields == {"field": "phone", "state": "hidden"}
    drain(app)
    view = change.result(timeout=0)
    assert (view.state, view.indexed, view.violations) == ("readable", 19, 0)
    for number in range(1, 20):
        assert found(accounts.find(phone=f"0{number}")) == accounts.get(f"u{number}")
    assert accounts.find(phone="none") is None
    with pytest.raises(Taken):
        accounts.create("other", {"phone": "07"})


def violations_if_both_are_written_meanwhile(app: App, accounts: Records[Data]) -> list[str]:
    """Build an index of phones, of which two records share one; write both before either is listed. Return the list."""
    accounts.change("u3", lambda value: {**value, "phone": "07"})
    fill_some = Builder._fill_some

    def fill_and_write(self: Builder, *arguments: Any) -> Any:
        filled = fill_some(self, *arguments)
        for key in ("u3", "u7"):
            accounts.change(key, lambda value: {**value, "visits": value.get("visits", 0) + 1})
        return filled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "_fill_some", fill_and_write)
        accounts.add_index("phone", unique=True)
        drain(app)
    return [each.key for each in accounts.violations()]


def test_a_record_that_lacks_its_value_is_listed_though_it_was_written_meanwhile(
    app: App, accounts: Records[Data]
) -> None:
    """The writer keeps the value, and so gives the record no key: nobody else would ever list it."""
    assert violations_if_both_are_written_meanwhile(app, accounts) in (["u3"], ["u7"])


def test_without_its_guard_a_build_lists_a_record_only_if_nobody_has_written_it_since(
    app: App, accounts: Records[Data]
) -> None:
    with planted("a build lists a record without its value only if nobody has written the record again"):
        assert violations_if_both_are_written_meanwhile(app, accounts) == []
    assert accounts.find(phone="07") is not None, "the index is readable, although a record is not in it"


def test_a_builder_that_stood_still_clears_nothing_of_a_later_build(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to clear the index records of a drop. Meanwhile another process has ended the drop and built anew."""
    accounts.add_index("phone", unique=True)
    drain(app)
    accounts.drop_index("phone")
    shards = app.shards
    type_shard = type_home(shards, "account")
    change = type_shard.transact(lambda attempt: view_change(attempt.tr, "account", "phone"))
    assert change is not None
    clear = Builder._clear

    def stand_still(self: Builder) -> None:
        monkeypatch.setattr(Builder, "_clear", clear)
        drain(app)
        accounts.add_index("phone", unique=True)
        drain(app)
        clear(self)

    monkeypatch.setattr(Builder, "_clear", stand_still)
    held_up = Builder(shards, type_shard, "account", "phone", locations=Locations("account"))
    with pytest.raises(ChangeReplaced):
        held_up.run(change.change_id)
    for number in range(1, 20):
        assert found(accounts.find(phone=f"0{number}")).key == f"u{number}"


def test_an_index_that_is_not_unique_is_built(app: App, accounts: Records[Data]) -> None:
    for key in ("u3", "u5", "u9"):
        accounts.change(key, lambda value: {**value, "city": "Ulm"})
    accounts.add_index("city")
    drain(app)
    assert [each.key for each in accounts.find_all(city="Ulm")] == ["u3", "u5", "u9"]


def test_a_build_changes_no_version_that_users_see(app: App, accounts: Records[Data]) -> None:
    before = found(accounts.get("u7"))
    accounts.add_index("phone", unique=True)
    drain(app)
    assert accounts.get("u7") == before
    assert accounts.update(before, {**before.value, "phone": "new"}).version == 2
    assert accounts.find(phone="07") is None


def test_values_are_compared_as_the_index_says(app: App, accounts: Records[Data]) -> None:
    accounts.change("u1", lambda value: {**value, "name": "Ann"})
    accounts.change("u2", lambda value: {**value, "name": "ANN"})
    change = accounts.add_index("name", unique=True, normalize="casefold")
    drain(app)
    assert change.result(timeout=0).violations == 1


def test_duplicates_are_violations_and_are_listed(app: App, accounts: Records[Data]) -> None:
    for key in ("u3", "u4", "u5"):
        accounts.change(key, lambda value: {**value, "phone": "same"})
    change = accounts.add_index("phone", unique=True)
    drain(app)
    assert (change.result(timeout=0).state, change.result().violations) == ("pending", 2)
    with pytest.raises(IndexUnavailable) as unavailable:
        accounts.find(phone="07")
    assert unavailable.value.fields == {"field": "phone", "state": "pending", "violations": 2}
    listed = accounts.violations()
    assert {each.value for each in listed} == {"same"}
    assert len({each.key for each in listed} & {"u3", "u4", "u5"}) == 2


def test_an_index_with_violations_is_readable_once_they_are_resolved(app: App, accounts: Records[Data]) -> None:
    for key in ("u3", "u4", "u5"):
        accounts.change(key, lambda value: {**value, "phone": "same"})
    accounts.add_index("phone", unique=True)
    drain(app)
    first, second = accounts.violations()
    accounts.change(first.key, lambda value: {**value, "phone": "own"})
    again = accounts.add_index("phone", unique=True)
    drain(app)
    assert (again.result().state, again.result().violations) == ("pending", 1)
    assert [each.key for each in accounts.violations()] == [second.key]
    accounts.delete(found(accounts.get(second.key)))
    accounts.add_index("phone", unique=True)
    drain(app)
    assert accounts.violations() == []
    assert found(accounts.find(phone="own")).key == first.key


def test_a_builder_that_was_held_up_gives_no_record_a_key_of_an_index_that_is_dropped(
    app: App, accounts: Records[Data]
) -> None:
    """Before, only writes of users stated by which definition they are made."""
    accounts.add_index("phone", unique=True)
    drain(app)
    record, locations = found(accounts.get("u3")), Locations("account")
    late = ShardRecords(app.shards, locations, accounts._operations().definitions.on(data_home(app, "u3")))
    accounts.drop_index("phone")
    drain(app)
    stripped = found(accounts.get("u3")).stored
    keys = (*stripped.keys, *(each for each in record.stored.keys if each not in stripped.keys))
    again = msgspec.structs.replace(stripped, version=stripped.version + 1, keys=keys)
    assert again.keys != stripped.keys
    with pytest.raises(SchemaChanged):
        late.perform([WriteRecord("u3", stripped, again)])


def test_a_listed_record_is_updated_while_it_keeps_the_value_that_another_one_has(
    app: App, accounts: Records[Data]
) -> None:
    for key in ("u3", "u4"):
        accounts.change(key, lambda value: {**value, "phone": "same"})
    accounts.add_index("phone", unique=True)
    drain(app)
    [listed] = accounts.violations()
    accounts.change(listed.key, lambda value: {**value, "city": "Ulm"})
    [first] = {"u3", "u4"} - {listed.key}
    accounts.change(first, lambda value: {**value, "phone": "own"})
    accounts.add_index("phone", unique=True)
    drain(app)
    record = found(accounts.find(phone="same"))
    assert (record.key, record.value["city"]) == (listed.key, "Ulm")
    with pytest.raises(Taken):
        accounts.change(first, lambda value: {**value, "phone": "same"})


def test_a_record_gets_the_value_that_its_owner_has_given_up(app: App, accounts: Records[Data]) -> None:
    for key in ("u3", "u4"):
        accounts.change(key, lambda value: {**value, "phone": "same"})
    accounts.add_index("phone", unique=True)
    drain(app)
    [left] = accounts.violations()
    owner = "u3" if left.key == "u4" else "u4"
    accounts.delete(found(accounts.get(owner)))
    accounts.add_index("phone", unique=True)
    drain(app)
    assert found(accounts.find(phone="same")).key == left.key


def test_what_cannot_begin_is_refused(app: App, accounts: Records[Data]) -> None:
    with pytest.raises(IndexExists):
        accounts.add_index("email", unique=True)
    with pytest.raises(NoIndex):
        accounts.drop_index("phone")
    accounts.add_index("phone", unique=True)
    with pytest.raises(IndexChanging):
        accounts.add_index("phone", unique=True)
    with pytest.raises(IndexChanging):
        accounts.drop_index("phone")
    drain(app)
    with pytest.raises(IndexExists):
        accounts.add_index("phone")
    for arguments in ({"records_per_s": 0}, {"normalize": "other"}):
        with pytest.raises(BadArgument):
            accounts.add_index("street", **arguments)


def test_a_dropped_index_leaves_nothing_and_can_be_built_anew(app: App, accounts: Records[Data]) -> None:
    accounts.add_index("phone", unique=True)
    drain(app)
    dropping = accounts.drop_index("phone")
    drain(app)
    assert dropping.result().state == "dropped"
    assert [key for name in SHARDS for key in index_keys(app, name)] == []
    with pytest.raises(BadArgument):
        accounts.find(phone="07")
    accounts.create("other", {"phone": "07"})
    again = accounts.add_index("phone", unique=True)
    drain(app)
    assert again.result().violations == 1


def test_a_dropped_index_is_built_anew_in_another_way(app: App, accounts: Records[Data]) -> None:
    accounts.add_index("phone", unique=True)
    drain(app)
    accounts.drop_index("phone")
    drain(app)
    accounts.add_index("phone")
    drain(app)
    assert [each.key for each in accounts.find_all(phone="07")] == ["u7"]


def test_a_program_that_does_not_know_the_field_maintains_its_index(app: App, accounts: Records[Data]) -> None:
    older = app.records("account", unique=("email",))
    accounts.add_index("phone", unique=True)
    drain(app)
    older.create("new", {"phone": "new"})
    assert found(accounts.find(phone="new")).key == "new"


def test_a_program_may_declare_the_field_once_the_build_has_begun(app: App, accounts: Records[Data]) -> None:
    with pytest.raises(DefinitionDiffers):
        app.records("account", unique=("email", "phone")).create("early", {})
    accounts.add_index("phone", unique=True)
    app.records("account", unique=("email", "phone")).create("new", {"phone": "new"})
    drain(app)
    assert found(accounts.find(phone="new")).key == "new"


def test_a_value_that_cannot_be_a_key_ends_the_build_and_nothing_is_left(app: App, accounts: Records[Data]) -> None:
    accounts.change("u7", lambda value: {**value, "phone": [1, 2]})
    change = accounts.add_index("phone", unique=True)
    drain(app)
    with pytest.raises(ChangeFailed, match="record u7 cannot be found by it"):
        change.result()
    assert [key for name in SHARDS for key in index_keys(app, name)] == []
    accounts.change("u7", lambda value: {**value, "phone": "07"})
    accounts.add_index("phone", unique=True)
    drain(app)
    assert found(accounts.find(phone="07")).key == "u7"


def test_a_build_is_cancelled_and_nothing_is_left(app: App, accounts: Records[Data]) -> None:
    change = accounts.add_index("phone", unique=True)
    assert change.cancel()
    drain(app)
    with pytest.raises(ChangeFailed, match="it was cancelled"):
        change.result()
    assert change.progress().state == "cancelled"
    assert not change.cancel()
    accounts.create("other", {"phone": "07"})


def test_a_build_that_nobody_carries_out_says_so(accounts: Records[Data]) -> None:
    change = accounts.add_index("phone", unique=True)
    with pytest.raises(ChangePending, match="no live consumer"):
        change.result(timeout=0.2)


@pytest.mark.parametrize("stops", [1, 4, 30])
def test_a_build_that_was_stopped_is_carried_on_by_another_process(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch, stops: int
) -> None:
    """Each process ends for ever after so many looks whether it is to stop."""
    monkeypatch.setattr("fairlead.records.on_shards.walking.ROWS_MAX", 3)
    monkeypatch.setattr("fairlead.records.on_shards.building.NOTE_US", 0)
    change = accounts.add_index("phone", unique=True)
    home = app.shards[change.progress().home]
    ended: ChangeState | None = None
    for _ in range(200):
        left = iter(range(stops))
        builder = Builder(
            app.shards,
            home,
            "account",
            "phone",
            locations=None,
            should_stop=lambda: next(left, None) is None,  # noqa: B023
        )
        with suppress(BuilderStopped):
            ended = builder.run(change.id)
            break
        stops += 1  # Who is stopped again and again at the same point comes no further.
    assert ended is ChangeState.READABLE
    assert all(accounts.find(phone=f"0{number}") for number in range(1, 20))


def test_a_shard_that_is_away_holds_the_build_up_and_is_named(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = accounts.add_index("phone", unique=True)
    away = next(name for name in SHARDS if name != change.progress().home)

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the disk is gone", remedy="Mount it.")

    with monkeypatch.context() as patch:
        patch.setattr(app.shards[away], "transact", refuse)
        builder = Builder(app.shards, app.shards[change.progress().home], "account", "phone", locations=None)
        with pytest.raises(StoreUnavailable):
            builder.run(change.id)
    assert change.progress().is_under_way
    definition = app.shards[away].transact(lambda attempt: read_definition(attempt.tr, "account"))
    assert definition is not None
    assert definition.named("phone") is None
    with pytest.raises(IndexUnavailable):
        accounts.find(phone="07")
    drain(app)
    assert change.result().state == "readable"


def test_records_in_tenants_of_users_are_indexed(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    for number in range(10):
        carts.create(f"u{number}", {"code": f"c{number}", "phone": f"0{number % 9}"})
    app.tenant("shop/zoe").transact(lambda tr: tr.set(("other",), b"1"))
    change = carts.add_index("phone", unique=True)
    drain(app)
    assert change.result().violations == 1
    [left] = carts.violations()
    carts.delete(found(carts.get(left.key)))
    carts.add_index("phone", unique=True)
    drain(app)
    assert {found(carts.find(phone=f"0{number}")).key[0] for number in range(9)} == {"u"}


def test_a_write_within_a_transaction_is_not_refused_because_the_build_has_not_come_to_its_record(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"code": "1", "phone": "07"})
    change = carts.add_index("phone", unique=True)
    change_everywhere = partial(Builder, app.shards, app.shards[change.progress().home], "cart", "phone")
    looks = iter(range(3))
    with pytest.raises(BuilderStopped):
        change_everywhere(locations=carts.locations, should_stop=lambda: next(looks, None) is None).run(change.id)
    app.tenant("shop/alice").transact(lambda tr: carts.put(tr, "alice", {"code": "1", "phone": "07", "items": 3}))
    with pytest.raises(KeyAdded):
        app.tenant("shop/alice").transact(lambda tr: carts.put(tr, "alice", {"code": "1", "phone": "08"}))
    drain(app)
    assert found(carts.find(phone="07")).value["items"] == 3


def test_the_build_waits_for_a_fleet_that_declares_where_records_lie(app: App) -> None:
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    carts.create("alice", {"code": "1", "phone": "07"})
    change = carts.add_index("phone", unique=True)
    del app.record_types["cart"]
    outcome = drain(app, raise_errors=False)
    assert "does not declare it" in str(outcome.errors[0])
    app.record_types["cart"] = carts
    drain(app, within=10)
    assert change.result().state == "readable"


def test_a_tenant_that_moves_while_the_build_goes_on_is_not_missed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves from the last shard to the first one, once the walk has left that."""
    carts = app.records("cart", unique=("code",), tenant=lambda key: f"shop/{key}")
    shop = app.tenant("shop/0")
    users = (f"u{number}" for number in range(99))
    key = next(user for user in users if app.shards.home_name(shop.tenant._replace(user=user)) == max(SHARDS))
    carts.create(key, {"code": "1", "phone": "07"})
    change = carts.add_index("phone", unique=True)
    turns: list[int] = []
    next_shard = walking.Walk._next_shard

    def move_first(walk: walking.Walk) -> Cursor | None:
        following = next_shard(walk)
        if following is not None and following.shard == max(SHARDS) and not turns:
            turns.append(following.turn)
            move(app, app.tenant(f"shop/{key}").tenant, to=min(SHARDS))
        return following

    monkeypatch.setattr(walking.Walk, "_next_shard", move_first)
    drain(app)
    assert (change.result().state, change.result().indexed, turns) == ("readable", 1, [0])
    assert found(carts.find(phone="07")).key == key


class Person(msgspec.Struct, array_like=True, tag=True):
    email: str
    phone: str


class Renamed(msgspec.Struct, rename="upper"):
    email: str
    phone: str


@pytest.mark.parametrize("kind", [Person, Renamed])
def test_the_field_of_a_type_is_found_however_its_values_are_packed(app: App, kind: Any) -> None:
    people = app.records("person", unique=("email",), type=kind)
    people.create("ann", kind("ann@x.com", "07"))
    people.add_index("phone", unique=True)
    drain(app)
    assert found(people.find(phone="07")).key == "ann"
    with pytest.raises(BadArgument):
        people.add_index("street")


def test_a_shard_without_a_definition_maintains_the_index_from_its_first_record_on(app: App) -> None:
    """As one that was added meanwhile: slots come to it by moves, before anybody has written records there."""
    accounts = app.records("account", unique=("email",))
    keys = [f"u{number}" for number in range(60) if data_home(app, f"u{number}") == "asia"]
    for key in keys:
        accounts.create(key, {"email": key, "phone": f"p{key}"})
    type_home = accounts.add_index("phone", unique=True).progress().home
    drain(app)
    new = next(name for name in ("us", "eu") if name != type_home)
    app.shards[new].transact(lambda attempt: attempt.tr.clear_range(*records_range()))
    move(app, Locations("account").data_tenant(keys[0]), to=new)
    accounts = app.records("account", unique=("email", "phone"))
    with pytest.raises(Taken):
        accounts.change(keys[0], lambda value: {**value, "phone": f"p{keys[1]}"})
    accounts.change(keys[0], lambda value: {**value, "phone": "new"})
    assert found(accounts.find(phone="new")).key == keys[0]


def test_a_build_beside_writers_misses_no_record_and_lets_no_two_share_a_value(tmp_path: Path) -> None:
    app = App({name: f"embedded:{tmp_path / name}" for name in SHARDS})
    accounts = app.records("account", unique=("email",))
    for number in range(200):
        accounts.create(f"u{number}", {"email": f"{number}", "phone": f"p{number}"})
    done = threading.Event()

    def write(worker: int) -> None:
        random = Random(worker)
        while not done.is_set():
            key = f"u{random.randrange(200)}"
            phone = f"p{random.randrange(300)}"
            with suppress(Taken, Interrupted, Changed):
                accounts.change(key, lambda value, phone=phone: {**value, "phone": phone})  # type: ignore[misc]

    with ThreadPoolExecutor() as threads, consumer(app):
        writers = [threads.submit(write, number) for number in range(2)]
        try:
            change = accounts.add_index("phone", unique=True)
            eventually(lambda: not change.progress().is_under_way)
        finally:
            done.set()
        for writer in writers:
            writer.result()
        for _ in range(20):
            for each in accounts.violations():
                accounts.change(each.key, lambda value, key=each.key: {**value, "phone": f"own {key}"})  # type: ignore[misc]
            if change.result(timeout=60).state == "readable":
                break
            change = accounts.add_index("phone", unique=True)
    for number in range(200):
        record = found(accounts.get(f"u{number}"))
        assert accounts.find(phone=record.value["phone"]) == record
    app.close()


def move(app: App, tenant: Tenant, *, to: str) -> None:
    """Move a tenant at once."""
    begun = app.move(tenant, to=to)
    view = begun.progress()
    source, destination = app.shards[view.source], app.shards[view.destination]
    first = app.shards[home(tenant, first_shards(app.shards))]
    assert Mover(source, destination, first, tenant, begun.id).run() is MoveState.MOVED


def records_range() -> tuple[bytes, bytes]:
    """Return the range of all definitions of a shard."""
    prefix = ROOT + pack_int(RECORD_TYPE)
    return range_begin(prefix), range_end(prefix)


def index_keys(app: App, shard: str) -> list[bytes]:
    """Return the keys of a shard that belong to the index of the field phone."""
    begin, end = records_range()
    rows = app.shards[shard].transact(lambda attempt: list(attempt.tr.get_range(ROOT, range_end(ROOT))))
    in_keys = [row.key for row in rows if b"\x02phone\x00" in row.key.replace(b"\x00\xff", b"\x00")]
    return [key for key in in_keys if not begin <= key < end]
