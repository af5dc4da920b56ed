"""The commands `records`, as an operator types them; and what `check`, `backup` and `restore` do with records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from fairlead.record_type import Records
from fairlead.records.accesses import DeleteIndex, ReadIndex
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.testing import drain
from fairlead.zones.keyspace import RECORD_TYPE, ROOT, pack_int, pack_text
from tests.fairlead.shell import run

STORES = ("--store", "main=embedded:main")
SHOP = ("--app", "shop_of_records:app")
MODULE = """
from fairlead import App

app = App({"main": "embedded:main"})
accounts = app.records("account", unique=("email",))
"""


@pytest.fixture(autouse=True)
def stores(empty_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a store with ten accounts, of which two have one phone, and an application that declares them."""
    (empty_directory / "shop_of_records.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(empty_directory))
    monkeypatch.delitem(__import__("sys").modules, "shop_of_records", raising=False)
    with opened() as (_, accounts):
        for number in range(10):
            accounts.create(f"u{number}", {"email": f"{number}@x.com", "phone": f"0{number % 9}"})


@contextmanager
def opened(url: str = "embedded:main") -> Iterator[tuple[App, Records[dict[str, Any]]]]:
    app = App({"main": url})
    try:
        yield app, app.records("account", unique=("email",))
    finally:
        app.close()


def carry_out() -> None:
    """Do what a fleet does."""
    with opened() as (app, _):
        drain(app)


def lose_index_record() -> None:
    with opened() as (app, _):
        performing = ShardRecords(app.shards, Locations("account"), None)
        index_key = pack_unique(Field("email", is_unique=True), "3@x.com")
        [entry] = performing.perform([ReadIndex(index_key)])
        performing.perform([DeleteIndex(index_key, entry)])


def test_types_are_listed_with_their_fields_and_states() -> None:
    answer = run("records", *STORES)
    assert answer.code == 0
    assert answer.out.splitlines()[-1].split() == ["account", "email", "unique", "readable"]
    (listed,) = run("records", *STORES, "--json").json["types"]
    assert (listed["type"], listed["home"]) == ("account", "main")
    assert listed["indexes"] == [
        {"field": "email", "is_unique": True, "normalizer": "", "state": "readable", "violations": 0}
    ]


def test_an_index_is_added_and_its_violations_are_listed_and_resolved() -> None:
    begun = run("records", "add-index", "account", "phone", "--unique", *SHOP)
    assert begun.code == 0, begun.err
    assert begun.out.startswith("building the index account.phone: telling all shards")
    assert "build" in run("records", *STORES).out
    carry_out()
    assert "pending: 1 violations" in run("records", *STORES).out
    (violation,) = run("records", "violations", "account", *STORES, "--json").json["violations"]
    assert violation["value"] == "00"
    assert violation["key"] in run("records", "violations", "account", *STORES).out
    with opened() as (_, accounts):
        accounts.change(violation["key"], lambda value: {**value, "phone": "own"})
    run("records", "add-index", "account", "phone", "--unique", *SHOP)
    carry_out()
    assert "no violations" in run("records", "violations", "account", *STORES).out
    assert run("records", *STORES).out.count("readable") == 2


def test_an_index_is_dropped() -> None:
    assert run("records", "drop-index", "account", "phone", *SHOP).code == 4
    begun = run("records", "drop-index", "account", "email", *SHOP)
    assert begun.out.startswith("dropping the index account.email")
    carry_out()
    (index,) = run("records", *STORES, "--json").json["types"][0]["indexes"]
    assert index["state"] == "dropped"


def test_a_build_is_cancelled() -> None:
    assert run("records", "add-index", "account", "phone", "--cancel", *SHOP).code == 4
    run("records", "add-index", "account", "phone", "--unique", *SHOP)
    assert run("records", "add-index", "account", "phone", "--cancel", *SHOP).code == 0
    assert run("records", "add-index", "account", "phone", "--cancel", "--wait", *SHOP).code == 2
    carry_out()
    (change,) = run("records", *STORES, "--json").json["types"][0]["changes"]
    assert (change["state"], change["reason"]) == ("cancelled", "it was cancelled")


def test_records_are_checked_and_scrubbed() -> None:
    clean = run("records", "check", "account", *SHOP)
    assert (clean.code, clean.out.splitlines()[-1]) == (0, "every record has its index records")
    lose_index_record()
    faulty = run("records", "check", "account", *SHOP)
    assert (faulty.code, faulty.out.splitlines()[-1]) == (1, "  Do: run fairlead records scrub, which repairs them")
    repaired = run("records", "scrub", "account", *SHOP, "--json")
    assert repaired.code == 0
    assert (repaired.json["shards"][0]["missing"], repaired.json["shards"][0]["repaired"]) == (1, 1)
    assert run("records", "check", "account", *SHOP).code == 0


def test_a_type_that_the_application_does_not_declare_is_refused() -> None:
    for typed in (["check", "account"], ["scrub", "account"], ["add-index", "account", "phone"]):
        answer = run("records", *typed, *STORES, "--json")
        assert (answer.code, answer.error["error"]) == (2, "the application declares no such records")
        assert "--app" in answer.error["do"]


def test_a_store_with_an_index_that_is_being_built_passes_the_check_and_is_restored_from_a_backup() -> None:
    with opened() as (_, accounts):
        accounts.add_index("phone", unique=True)
        accounts._operations().definitions.copy_to("main")
    assert run("check", *STORES).code == 0
    assert run("backup", "file", *STORES).code == 0
    assert run("restore", "file", "--store", "main=embedded:other").code == 0
    with opened("embedded:other") as (app, accounts):
        drain(app)
        assert [each.value for each in accounts.violations()] == ["00"]


def test_a_damaged_definition_is_named_by_the_check() -> None:
    with opened() as (app, _):
        key = ROOT + pack_int(RECORD_TYPE) + pack_text("account")
        app.shards["main"].transact(lambda attempt: attempt.tr.set(key, b"\x01damaged"))
    answer = run("check", *STORES)
    assert (answer.code, "a record is damaged" in answer.out) == (1, True)
