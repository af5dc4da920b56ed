"""The commands `records`, as an operator types them; and what `check`, `backup` and `restore` do with records."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from fairlead.cli.records import GOES_ON, MAY_GO_ON
from fairlead.index_changes import IndexChange
from fairlead.record_type import Records
from fairlead.records.accesses import DeleteIndex, ReadIndex
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.on_shards.performing import Outcome, ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.testing import drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import RECORD_TYPE, ROOT, pack_int, pack_text
from tests.fairlead.shell import everything, run

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


@pytest.mark.parametrize(("of", "said"), [("result", GOES_ON), ("__init__", MAY_GO_ON)])
def test_an_interrupted_wait_ends_with_130_and_the_build_goes_on(
    monkeypatch: pytest.MonkeyPatch, of: str, said: str
) -> None:
    def interrupted(*args: Any, **named: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(IndexChange, of, interrupted)
        answer = run("records", "add-index", "account", "phone", "--wait", *SHOP)
    assert (answer.code, answer.err) == (130, f"the build of account.phone {said}\n")
    carry_out()
    assert "account  phone  lookup" in run("records", *STORES).out


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


def test_a_scrub_that_meets_an_index_shard_which_is_away_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it exited with 2, which says that nothing was changed."""
    error = StoreUnavailable("the disk is gone", remedy="Mount it.")
    monkeypatch.setattr(ShardRecords, "_on_shard", lambda *_: Outcome([], error))
    answer = run("records", "scrub", "account", *SHOP)
    assert answer.code == 3
    assert "shard: main" in answer.err
    assert "  Do: try again once the shard is back." in answer.err


def test_a_type_that_the_application_does_not_declare_is_refused() -> None:
    for typed in (["check", "account"], ["scrub", "account"], ["add-index", "account", "phone"]):
        answer = run("records", *typed, *STORES, "--json")
        assert (answer.code, answer.error["error"]) == (2, "the application declares no such records")
        assert "--app" in answer.error["do"]


@pytest.mark.parametrize(
    ("typed", "code", "says"),
    [
        (["check", "account", "--rate", "0", *SHOP], 2, "Invalid value for '--rate': 0 is not in the range"),
        (["scrub", "account", "--rate", "fast", *SHOP], 2, "Invalid value for '--rate'"),
        (["scrub", *SHOP], 2, "Missing argument 'TYPE'"),
        (["violations", "acount", *SHOP], 4, "there are no such records, type: acount, types: account"),
        (["violations", "", *SHOP], 4, "there are no such records"),
        (["add-index", "account", "", *SHOP], 2, "text of 1 to 32 bytes"),
        (["add-index", "account", "x" * 33, *SHOP], 2, "text of 1 to 32 bytes"),
        (["add-index", "account", "phone", "--normalize", "upper", *SHOP], 2, "allowed: casefold"),
        (["add-index", "account", "phone", "--rate", "-1", *SHOP], 2, "Invalid value for '--rate'"),
        (["add-index", "account", "email", *SHOP], 2, "the field has an index already"),
        (["add-index", "account", "phone", "--cancel", "--unique", *SHOP], 2, "Give --cancel alone"),
        (["add-index", "acount", "phone", "--cancel", *SHOP], 4, "no build of this index is under way"),
        (["drop-index", "account", "street", *SHOP], 4, "the field has no index"),
        (["drop-index", "acount", "email", *SHOP], 2, "the application declares no such records"),
        (["drop-index", "account", "email", "--rate", "0", *SHOP], 2, "Invalid value for '--rate'"),
        (["check", "account", "--app", "nothing_of_records:app"], 2, "no module nothing_of_records"),
        (["list"], 2, "No such command 'list'"),
    ],
    ids=lambda typed: " ".join(typed)[:40] if isinstance(typed, list) else None,
)
def test_what_is_typed_wrongly_is_refused_with_a_remedy_and_changes_nothing(
    typed: list[str], code: int, says: str
) -> None:
    before = everything("embedded:main")
    answer = run("records", *typed)
    assert answer.code == code
    assert says in answer.err
    assert "Do: " in answer.err or "Try 'fairlead" in answer.err
    assert everything("embedded:main") == before


def test_an_index_that_is_being_changed_is_not_changed_by_another_command() -> None:
    run("records", "add-index", "account", "phone", *SHOP)
    before = everything("embedded:main")
    for typed in (["add-index", "account", "phone"], ["add-index", "account", "phone", "--unique"]):
        assert "is being built or dropped" in run("records", *typed, *SHOP).err
    assert "is being built or dropped" in run("records", "drop-index", "account", "phone", *SHOP).err
    assert everything("embedded:main") == before
    carry_out()
    assert "readable" in run("records", *STORES).out


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
