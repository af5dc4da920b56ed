"""`check` finds and repairs faults; a backup can be restored into any engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from fairlead.testing import drain
from fairlead.zones import engines
from tests.fairlead.shell import everything, run, run_process

STORE = ("--store", "embedded:data")
ALICE = ("--tenant", "shop", "alice")


@pytest.fixture(autouse=True)
def store(empty_directory: Path) -> Path:
    """Alice has two items in the store, one of them delayed, and a key of her own."""
    app = App("embedded:data")
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    alice.enqueue("receipt", {"order": 7}, item_id="order-7")
    alice.enqueue("receipt", delay=3600)
    app.close()
    return empty_directory


def lose_an_index_entry() -> None:
    """Break the store: an item without an index entry is never found."""
    app = App("embedded:data")
    shard = app.shards["main"]
    keys = shard.zone(app.tenant("shop", "alice").tenant).location.keys

    def clear_first(tr: Any) -> None:
        tr.clear(next(iter(tr.get_range(keys.vest_priority(0), keys.vest_end(), limit=1))).key)

    engines.transact(shard.db, clear_first)
    app.close()


def test_an_intact_store_passes_the_check() -> None:
    before = everything("embedded:data")
    answer = run("check", *STORE, "--json")
    (shard,) = answer.json["shards"]
    assert (answer.code, answer.json["healthy"], shard["items"], shard["findings"]) == (0, True, 2, [])
    assert "every invariant holds" in run("check", *STORE).out
    assert everything("embedded:data") == before


def test_a_fault_is_named_with_the_command_that_repairs_it() -> None:
    lose_an_index_entry()
    before = everything("embedded:data")
    answer = run("check", *STORE, "--json")
    (finding,) = answer.json["shards"][0]["findings"]
    assert (answer.code, answer.json["healthy"]) == (1, False)
    assert (finding["app"], finding["user"], finding["zone"], finding["repaired"]) == ("shop", "alice", "queue", False)
    shown = run("check", *STORE)
    assert (shown.code, "shop/alice" in shown.out, "fairlead check --repair" in shown.out) == (1, True, True)
    assert everything("embedded:data") == before


def test_after_a_repair_the_item_runs() -> None:
    lose_an_index_entry()
    answer = run("check", "--repair", *STORE, "--json")
    (finding,) = answer.json["shards"][0]["findings"]
    assert (answer.code, answer.json["healthy"], finding["repaired"]) == (0, True, True)
    assert run("check", *STORE).code == 0
    app = App("embedded:data")
    app.handler("receipt")(lambda job: None)
    assert drain(app).completed == {"receipt": 1}
    app.close()


def test_every_shard_is_checked() -> None:
    lose_an_index_entry()
    run("enqueue", "receipt", "--create", *ALICE, "--store", "embedded:other")
    answer = run("check", "--store", "bad=embedded:data", "--store", "good=embedded:other", "--json")
    assert (answer.code, [each["healthy"] for each in answer.json["shards"]]) == (1, [False, True])


def test_a_store_that_is_not_there_is_not_made(store: Path) -> None:
    assert run("check", "--store", "embedded:dta").code == 3
    assert not (store / "dta").exists()


def test_as_a_process_nothing_but_the_answer_is_printed() -> None:
    answer = run_process("check", *STORE, "--json")
    assert (answer.code, answer.json["healthy"], answer.err) == (0, True, "")


# --- Backups ---


def contents(url: str) -> dict[str, Any]:
    """Return what a restore must bring back."""
    app = App(url)
    alice = app.tenant("shop", "alice")
    found = {
        "order": alice.transact(lambda tr: tr.get(("order", 7))),
        "items": [(item.id, item.given_id, item.payload, item.vesting_us) for item in alice.peek()],
        "count": alice.count(),
    }
    app.close()
    return found


def test_a_backup_is_a_store_again() -> None:
    answer = run("backup", "shop.backup", *STORE, "--json")
    assert (answer.code, answer.json["shard"], answer.json["one_version"]) == (0, "main", True)
    assert answer.json["bytes"] == Path("shop.backup").stat().st_size
    restored = run("restore", "shop.backup", "--store", "embedded:new", "--json")
    assert (restored.code, restored.json["pairs"]) == (0, answer.json["pairs"])
    assert contents("embedded:new") == contents("embedded:data")
    assert run("check", "--store", "embedded:new").code == 0


def test_the_items_of_a_restored_store_run() -> None:
    run("backup", "shop.backup", *STORE)
    run("restore", "shop.backup", "--store", "embedded:new")
    app = App("embedded:new")
    app.handler("receipt")(lambda job: None)
    assert drain(app).completed == {"receipt": 1}
    app.close()


def test_a_backup_does_not_replace_a_file_unless_it_is_told_to(store: Path) -> None:
    (store / "shop.backup").write_text("mine")
    answer = run("backup", "shop.backup", *STORE)
    assert (answer.code, "it exists" in answer.err, "--force" in answer.err) == (2, True, True)
    assert (store / "shop.backup").read_text() == "mine"
    assert run("backup", "shop.backup", "--force", *STORE).code == 0
    assert run("restore", "shop.backup", "--store", "embedded:new").code == 0


def test_a_backup_that_cannot_be_written_leaves_nothing_behind(store: Path) -> None:
    for file in ("nowhere/shop.backup", "data/data.mdb/shop.backup", "data"):
        answer = run("backup", file, "--force", *STORE)
        assert (answer.code, "the file cannot be used" in answer.err, "Do: " in answer.err) == (2, True, True)
    assert run("backup", "shop.backup", "--store", "embedded:dta").code == 3
    assert {path.name for path in store.iterdir()} == {"data"}


@pytest.mark.parametrize("there", ["link", "dangling link", "fifo", "directory", "nothing but a dot"])
def test_a_backup_replaces_nothing_but_a_regular_file_even_when_forced(store: Path, there: str) -> None:
    target = store / "shop.backup"
    if there == "fifo":
        os.mkfifo(target)
    elif there == "directory":
        target.mkdir()
    elif there != "nothing but a dot":
        (store / "mine").write_text("mine")
        target.symlink_to(store / ("mine" if there == "link" else "nowhere"))
    before = {path.name: path.lstat().st_ino for path in store.iterdir()}
    answer = run("backup", "." if there == "nothing but a dot" else "shop.backup", "--force", *STORE)
    assert (answer.code, "only a regular file" in answer.err, "Do: name another" in answer.err) == (2, True, True)
    assert {path.name: path.lstat().st_ino for path in store.iterdir()} == before


def test_a_backup_touches_no_file_but_its_own(store: Path) -> None:
    (store / "shop.backup.partial").write_text("mine")
    assert run("backup", "shop.backup", *STORE).code == 0
    assert (store / "shop.backup.partial").read_text() == "mine"
    assert {path.name for path in store.iterdir()} == {"data", "shop.backup", "shop.backup.partial"}


def test_a_store_that_is_in_use_is_not_restored_over() -> None:
    run("backup", "shop.backup", *STORE)
    before = everything("embedded:data")
    answer = run("restore", "shop.backup", *STORE)
    assert (answer.code, "the store is not empty" in answer.err, "Do: " in answer.err) == (2, True, True)
    assert everything("embedded:data") == before


@pytest.mark.parametrize("damage", ["missing", "empty", "other", "cut", "changed"])
def test_a_file_that_is_no_whole_backup_is_refused_and_no_store_is_made(store: Path, damage: str) -> None:
    run("backup", "shop.backup", *STORE)
    whole = (store / "shop.backup").read_bytes()
    middle = len(whole) // 2
    contents = {"empty": b"", "other": b"PK\x03\x04" + whole, "cut": whole[:-1],
                "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]}  # fmt: skip
    if damage == "missing":
        (store / "shop.backup").unlink()
    else:
        (store / "shop.backup").write_bytes(contents[damage])
    answer = run("restore", "shop.backup", "--store", "embedded:new")
    assert (answer.code, answer.err.startswith("Error: "), "Do: " in answer.err) == (2, True, True)
    assert not (store / "new").exists()


def test_of_several_shards_one_is_named() -> None:
    stores = ("--store", "eu=embedded:data", "--store", "us=embedded:other")
    answer = run("backup", "shop.backup", *stores)
    assert (answer.code, "--shard: eu, us" in answer.err) == (2, True)
    assert run("backup", "shop.backup", "--shard", "eu", *stores).code == 0
    assert run("restore", "shop.backup", "--shard", "us", *stores).code == 0
    assert run("restore", "shop.backup", "--shard", "asia", *stores).code == 2
    assert contents("embedded:other") == contents("embedded:data")


def test_a_backup_is_readable_by_its_owner_only(store: Path) -> None:
    """It holds the data of all tenants."""
    run("backup", "shop.backup", *STORE)
    assert Path("shop.backup").stat().st_mode & 0o777 == 0o600
