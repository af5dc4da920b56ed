"""Records in the hands of a program that does something wrong: an error names the fault, and no record is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from fairlead import App, BadArgument
from fairlead.record_type import Records
from fairlead.records.alternate_keys import NORMALIZERS, Field, UnknownNormalizer, pack_unique
from fairlead.records.definition import TypeRecord, read_definition, write_definition
from fairlead.records.errors import (
    Changed,
    DefinitionDiffers,
    Exists,
    IndexUnavailable,
    NoSuchRecord,
    RecordUnreadable,
    Taken,
)
from fairlead.records.on_shards.index_changes import IndexChanging, IndexExists, NoIndex
from fairlead.testing import drain
from fairlead.zones.layout import Tenant
from tests.fairlead.records_on_shards import away, found, on_three_shards

Data = dict[str, Any]
ANN = {"email": "ann@x.com", "phone": "1", "city": "Ulm"}
BOB = {"email": "bob@x.com", "phone": "2", "city": "Ulm"}


@pytest.fixture
def app() -> Iterator[App]:
    with on_three_shards() as made:
        yield made


@pytest.fixture
def accounts(app: App) -> Iterator[Records[Data]]:
    """The accounts of ann and bob, which are as they were at the end of each test, found by each key, and scrubbed."""
    made = app.records("account", unique=("email", "phone"), lookup=("city",))
    before = [made.create("ann", ANN), made.create("bob", BOB)]
    yield made
    drain(app, within=120)
    for record in before:
        assert made.get(record.key) == record
        assert made.find(email=record.value["email"]) == made.find(phone=record.value["phone"]) == record
    assert made.find_all(city="Ulm") == before
    assert not any(each.faults for each in made.scrub())


class Misuse(NamedTuple):
    """What a program does; the error that it gets, and what that says."""

    does: Callable[[Records[Data]], object]
    error: type[Exception]
    says: str


def stale(accounts: Records[Data]) -> Any:
    """Return a record as it was before somebody has changed it; it is as it was again."""
    old = accounts.create("eve", {"email": "eve@x.com"})
    accounts.change("eve", lambda value: {**value, "visits": 1})
    return old


MISUSES: dict[str, Misuse] = {
    # --- Keys ---
    "a primary key that is no text is refused by get": Misuse(
        lambda a: a.get(7),  # type: ignore[arg-type]
        BadArgument,
        "text of 1 to 128 bytes",
    ),
    "an empty primary key is refused by get": Misuse(lambda a: a.get(""), BadArgument, "text of 1 to 128 bytes"),
    "a primary key that is too long is refused by get": Misuse(lambda a: a.get("x" * 129), BadArgument, "text of 1 to"),
    "an empty primary key is refused by change": Misuse(
        lambda a: a.change("", lambda value: value), BadArgument, "text of 1 to 128 bytes"
    ),
    "a number that is no whole one is refused by find": Misuse(
        lambda a: a.find(phone=1.5),  # type: ignore[arg-type]
        BadArgument,
        "phone",
    ),
    "an empty value is refused by find": Misuse(lambda a: a.find(email=""), BadArgument, "email"),
    "no value is refused by find": Misuse(lambda a: a.find(email=None), BadArgument, "email"),  # type: ignore[arg-type]
    "a value that is too long is refused by find": Misuse(lambda a: a.find(email="x" * 10_001), BadArgument, "email"),
    "an empty value is refused by find_all": Misuse(lambda a: a.find_all(city=""), BadArgument, "city"),
    "a list is refused by delete": Misuse(lambda a: a.delete(email=["ann@x.com"]), BadArgument, "email"),  # type: ignore[arg-type]
    "a list is refused by update": Misuse(
        lambda a: a.update(found(a.get("ann")), {**ANN, "email": ["ann@x.com"]}), BadArgument, "email"
    ),
    "an empty value is refused by change": Misuse(
        lambda a: a.change("ann", lambda value: {**value, "email": ""}), BadArgument, "email"
    ),
    # --- Fields ---
    "a field that is not indexed is refused by find": Misuse(lambda a: a.find(street="x"), BadArgument, "email, phone"),
    "a field that is not unique is refused by find": Misuse(lambda a: a.find(city="Ulm"), BadArgument, "email, phone"),
    "a unique field is refused by find_all": Misuse(lambda a: a.find_all(email="ann@x.com"), BadArgument, "city"),
    "a field that is not indexed is refused by delete": Misuse(lambda a: a.delete(street="x"), BadArgument, "email"),
    "no field is refused by find": Misuse(lambda a: a.find(), BadArgument, "exactly one field"),
    "two fields are refused by delete": Misuse(
        lambda a: a.delete(email="ann@x.com", phone="1"), BadArgument, "exactly one field"
    ),
    "a record and a field are refused by delete": Misuse(
        lambda a: a.delete(found(a.get("ann")), email="ann@x.com"), BadArgument, "a record, or one field"
    ),
    "a limit of nothing is refused by find_all": Misuse(
        lambda a: a.find_all(city="Ulm", limit=0), BadArgument, "limit"
    ),
    # --- Records ---
    "a primary key is created once": Misuse(lambda a: a.create("ann", {}), Exists, "key='ann'"),
    "a value is taken once": Misuse(lambda a: a.create("eve", {"phone": "1"}), Taken, "phone"),
    "a value that another record has is refused by change": Misuse(
        lambda a: a.change("ann", lambda value: {**value, "email": "bob@x.com"}), Taken, "bob@x.com"
    ),
    "an old version is refused by update": Misuse(lambda a: a.update(stale(a), {}), Changed, "expected=1, found=2"),
    "an old version is refused by delete": Misuse(lambda a: a.delete(stale(a)), Changed, "expected=1, found=2"),
    "a record that is gone is refused by update": Misuse(
        lambda a: (gone := a.create("eve", {}), a.delete(gone), a.update(gone, {})), Changed, "found=None"
    ),
    "a record that is gone is refused by change": Misuse(
        lambda a: a.change("nobody", lambda value: value), NoSuchRecord, "key='nobody'"
    ),
    "a value in place of a record is refused by update": Misuse(
        lambda a: a.update(ANN, BOB),  # type: ignore[arg-type]
        BadArgument,
        "a Record",
    ),
    "a key in place of a record is refused by delete": Misuse(lambda a: a.delete("ann"), BadArgument, "a Record"),  # type: ignore[arg-type]
    "a function that returns nothing is refused by change": Misuse(
        lambda a: a.change("ann", lambda value: value.update(visits=1)),  # type: ignore[arg-type, return-value]
        BadArgument,
        "plain data",
    ),
    "a value whose key is no text is refused by create": Misuse(
        lambda a: a.create("eve", {1: "x"}),  # type: ignore[dict-item]
        BadArgument,
        "a dict whose keys are texts",
    ),
    "a value whose key is no text is refused by change": Misuse(
        lambda a: a.change("ann", lambda value: {**value, 7: "seven"}),  # type: ignore[dict-item]
        BadArgument,
        "a dict whose keys are texts",
    ),
    # --- Shared values ---
    "a value that nobody has is resolved for nobody": Misuse(
        lambda a: a.resolve(email="nobody@x.com", keep="ann"), NoSuchRecord, "does not have the value"
    ),
    "a value of another record is resolved for nobody": Misuse(
        lambda a: a.resolve(email="ann@x.com", keep="bob"), NoSuchRecord, "does not have the value"
    ),
    "a field that is not unique is refused by resolve": Misuse(
        lambda a: a.resolve(city="Ulm", keep="ann"), BadArgument, "email, phone"
    ),
    "an empty primary key is refused by resolve": Misuse(
        lambda a: a.resolve(email="ann@x.com", keep=""), BadArgument, "text of 1 to 128 bytes"
    ),
    # --- Indexes ---
    "an index is added once": Misuse(lambda a: a.add_index("email", unique=True), IndexExists, "stored='unique'"),
    "an index is not added in another way": Misuse(
        lambda a: a.add_index("city", unique=True), IndexExists, "stored='lookup'"
    ),
    "an index is not added while it is being built": Misuse(
        lambda a: (a.add_index("street"), a.add_index("street")), IndexChanging, "doing='build'"
    ),
    "an index is not dropped while it is being built": Misuse(
        lambda a: (a.add_index("street"), a.drop_index("street")), IndexChanging, "doing='build'"
    ),
    "an index that is being built is not asked": Misuse(
        lambda a: (a.add_index("street", unique=True), a.find(street="x")), IndexUnavailable, "state='hidden'"
    ),
    "an index that is not there is not dropped": Misuse(lambda a: a.drop_index("street"), NoIndex, "street"),
    "an index of no field is not added": Misuse(lambda a: a.add_index(""), BadArgument, "text of 1 to 32 bytes"),
    "an index of a field with a long name is not added": Misuse(
        lambda a: a.add_index("x" * 33), BadArgument, "text of 1 to 32 bytes"
    ),
    "an index of many fields at once is not added": Misuse(
        lambda a: a.add_index(("street", "name")),  # type: ignore[arg-type]
        BadArgument,
        "text of 1 to 32 bytes",
    ),
    "an unknown way to compare is not added": Misuse(
        lambda a: a.add_index("street", normalize="upper"), BadArgument, "allowed='casefold'"
    ),
    "a rate of nothing is refused by add_index": Misuse(
        lambda a: a.add_index("street", records_per_s=0), BadArgument, "1 to 10,000,000"
    ),
    "a rate of nothing is refused by drop_index": Misuse(
        lambda a: a.drop_index("city", records_per_s=0), BadArgument, "1 to 10,000,000"
    ),
    "a rate of nothing is refused by scrub": Misuse(lambda a: a.scrub(rows_per_s=0), BadArgument, "1 to 10,000,000"),
    "a limit of nothing is refused by violations": Misuse(lambda a: a.violations(limit=0), BadArgument, "limit"),
}


@pytest.mark.parametrize("sentence", MISUSES)
def test_what_a_program_does_wrong(accounts: Records[Data], sentence: str) -> None:
    does, error, says = MISUSES[sentence]
    with pytest.raises(error) as raised:
        does(accounts)
    assert says in str(raised.value)


def test_a_value_without_the_key_by_which_its_record_was_found_loses_the_key_and_not_the_record(
    accounts: Records[Data],
) -> None:
    made = accounts.create("eve", {"email": "eve@x.com"})
    kept = accounts.update(found(accounts.find(email="eve@x.com")), {"visits": 1})
    assert accounts.find(email="eve@x.com") is None
    assert accounts.get("eve") == kept
    with pytest.raises(Changed):
        accounts.delete(made)
    assert accounts.create("zoe", {"email": "eve@x.com"}).version == 1


def test_a_value_that_goes_while_its_record_is_deleted_by_it_leaves_the_record(
    accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.create("eve", {"email": "eve@x.com"})
    find = accounts.find

    def find_and_drop(**wanted: Any) -> Any:
        record = find(**wanted)
        if record is not None:
            accounts.update(record, {"visits": 1})
        return record

    monkeypatch.setattr(accounts, "find", find_and_drop)
    assert not accounts.delete(email="eve@x.com")
    assert found(accounts.get("eve")).value == {"visits": 1}


class Customer(msgspec.Struct):
    """A customer."""

    email: str
    age: int = 0


@dataclass
class Pet:
    """A pet of a customer."""

    name: str


@pytest.mark.parametrize("value", [Customer("eve@x.com", "old"), Customer(7), Pet(None)])  # type: ignore[arg-type]
def test_a_value_that_could_not_be_read_back_is_refused(app: App, value: Any) -> None:
    """Before, it was written: nobody could read, change or delete the record, and its keys stayed taken."""
    people: Records[Any] = app.records("person", unique=("email",), type=type(value))
    with pytest.raises(BadArgument, match="values of its types"):
        people.create("eve", value)
    assert people.get("eve") is None


# --- A program that declares another type of records ---


@pytest.mark.parametrize(
    "reads",
    [
        lambda a: a.records("account", unique=("email",), normalize={"email": "casefold"}).find(email="ANN@x.com"),
        lambda a: a.records("account", unique=("city",)).find(city="Ulm"),
        lambda a: a.records("account", lookup=("phone",)).find_all(phone="1"),
    ],
)
def test_a_reader_that_declares_another_field_is_refused(
    app: App, accounts: Records[Data], reads: Callable[[App], object]
) -> None:
    """Before, the answer was that there is no such record."""
    with pytest.raises(DefinitionDiffers, match="stored="):
        reads(app)


def test_a_reader_that_declares_another_field_is_refused_while_the_index_is_away(
    app: App, accounts: Records[Data]
) -> None:
    slot = accounts.locations.index_tenant(pack_unique(Field("email", is_unique=True), "ann@x.com"))
    other = app.records("account", unique=("email",), normalize={"email": "casefold"})
    with away(app, app.shards.find(slot).name), pytest.raises(DefinitionDiffers):
        other.find(email="ann@x.com")


ELSEWHERE: dict[str, Callable[[Records[Data], App], object]] = {
    "get": lambda a, _: a.get("ann"),
    "find": lambda a, _: a.find(email="ann@x.com"),
    "find_all": lambda a, _: a.find_all(city="Ulm"),
    "create": lambda a, _: a.create("eve", {"email": "ann@x.com"}),
    "add_index": lambda a, _: a.add_index("street"),
    "drop_index": lambda a, _: a.drop_index("city"),
    "scrub": lambda a, _: a.scrub(repair=True),
    "put": lambda a, app: app.tenant("shop/ann").transact(lambda tr: a.put(tr, "ann", {})),
}


@pytest.mark.parametrize("call", ELSEWHERE)
def test_a_program_that_looks_for_records_elsewhere_is_refused(app: App, accounts: Records[Data], call: str) -> None:
    """Before, it found none of them, and gave their unique values to others."""
    in_tenants = app.records("account", unique=("email", "phone"), lookup=("city",), tenant=lambda key: f"shop/{key}")
    with pytest.raises(DefinitionDiffers, match="argument='tenant'"):
        ELSEWHERE[call](in_tenants, app)


def test_a_program_that_looks_in_slots_for_records_of_tenants_is_refused(app: App) -> None:
    carts = app.records("cart", unique=("email",), tenant=lambda key: f"shop/{key}")
    carts.create("ann", {"email": "ann@x.com"})
    with pytest.raises(DefinitionDiffers, match="argument='tenant'"):
        app.records("cart", unique=("email",)).get("ann")


def test_a_definition_of_an_earlier_version_does_not_say_where_records_lie(app: App, accounts: Records[Data]) -> None:
    """It is left as it is, and refuses nobody."""
    for shard in app.shards.values():
        stored = shard.transact(lambda attempt: read_definition(attempt.tr, "account"))
        if stored is not None:
            earlier = TypeRecord(stored.fields)
            shard.transact(lambda attempt: write_definition(attempt.tr, "account", earlier))  # noqa: B023
    found(accounts.find(email="ann@x.com"))
    assert app.records("account", tenant=lambda key: f"shop/{key}").get("ann") is None
    accounts.add_index("street")
    drain(app)
    assert accounts.find_all(street="x") == []


def test_a_program_that_declares_what_is_not_stored_is_told_what_is(app: App, accounts: Records[Data]) -> None:
    other = app.records("account", unique=("email",), lookup=("phone",))
    with pytest.raises(DefinitionDiffers) as differs:
        other.create("eve", {})
    assert differs.value.fields == {"type": "account", "field": "phone", "declared": "lookup", "stored": "unique"}
    with pytest.raises(DefinitionDiffers) as differs:
        app.records("account", unique=("nickname",), normalize={"nickname": "casefold"}).create("eve", {})
    assert (differs.value.fields["declared"], differs.value.fields["stored"]) == ("unique, casefold", None)


def test_a_program_that_does_not_know_how_a_field_is_compared_writes_nothing(
    app: App, accounts: Records[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(NORMALIZERS, "digits", lambda value: value)  # What a newer program knows.
        accounts.add_index("fax", unique=True, normalize="digits")
        drain(app)
    older = app.records("account", unique=("email", "phone"), lookup=("city",))
    with pytest.raises(UnknownNormalizer) as unknown:
        older.create("eve", {"fax": "0-1"})
    assert unknown.value.fields == {"field": "fax", "normalizer": "digits"}
    with pytest.raises(UnknownNormalizer):
        older.change("ann", lambda value: {**value, "fax": "0-1"})
    assert older.get("eve") is None


class Person(msgspec.Struct):
    email: str


def test_a_value_that_is_none_of_the_type_is_named_and_stays(app: App) -> None:
    people = app.records("person", unique=("email",))
    ann = people.create("ann", {"email": 7})
    typed = app.records("person", unique=("email",), type=Person)
    for read in (
        lambda: typed.get("ann"),
        lambda: typed.find(email=7),
        lambda: typed.change("ann", lambda value: value),
    ):
        with pytest.raises(RecordUnreadable) as unreadable:
            read()
        assert unreadable.value.fields["key"] == "ann"
    assert people.get("ann") == people.find(email=7) == ann


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unique": "email"}, "a list of names"),
        ({"unique": ("email", "email")}, "each field once"),
        ({"unique": ("email",), "lookup": ("email",)}, "each field once"),
        ({"unique": ("",)}, "text of 1 to 32 bytes"),
        ({"unique": ("x" * 33,)}, "text of 1 to 32 bytes"),
        ({"normalize": {"email": "casefold"}}, "a declared field"),
        ({"unique": ("email",), "normalize": {"email": "upper"}}, "allowed='casefold'"),
    ],
)
def test_a_type_that_cannot_be_declared(app: App, options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadArgument) as raised:
        app.records("account", **options)
    assert says in str(raised.value)


@pytest.mark.parametrize("name", ["limit", "keep", "self"])
@pytest.mark.parametrize("how", ["unique", "lookup"])
def test_a_field_that_no_method_could_search_is_refused_as_it_is_declared(app: App, how: str, name: str) -> None:
    """`find_all(limit=1)` could not mean it."""
    declared: Any = {how: (name,)}
    with pytest.raises(BadArgument, match="another name") as refused:
        app.records("person", **declared)
    assert (refused.value.fields["argument"], refused.value.fields["value"]) == ("field", name)
    assert "person" not in app.record_types


@pytest.mark.parametrize("tenant", ["shop/alice", Tenant("shop", "alice")])
def test_a_tenant_of_records_that_is_no_function_is_refused_as_it_is_declared(app: App, tenant: Any) -> None:
    with pytest.raises(BadArgument, match="a function of") as refused:
        app.records("cart", unique=("code",), tenant=tenant)
    assert (refused.value.fields["argument"], refused.value.fields["value"]) == ("tenant", tenant)
    assert "cart" not in app.record_types
