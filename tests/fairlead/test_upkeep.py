"""check finds what is broken and mends it; a backup is a store again, in any engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from fairlead.testing import drain
from tests.fairlead.shell import everything, run, run_process
from zones import engines

STORE = ("--store", "embedded:data")
ALICE = ("--tenant", "shop", "alice")


@pytest.fixture(autouse=True)
def store(empty_directory: Path) -> Path:
    """Alice has two items in the store, one of them delayed, and a key of her own."""
    app = App("embedded:data")
    alice = app.tenant("shop", "alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    alice.enqueue("receipt", {"order": 7}, item_id="order-7")
    alice.enqueue("receipt", delay_ms=3_600_000)
    app.close()
    return empty_directory


def lose_an_index_entry() -> None:
    """Break the store: an item that no index names is never found."""
    app = App("embedded:data")
    shard = app.shards["main"]
    keys = shard.zone(app.tenant("shop", "alice").tenant).place.keys

    def clear_first(tr: Any) -> None:
        tr.clear(next(iter(tr.get_range(keys.vest_priority(0), keys.vest_end(), limit=1))).key)

    engines.transact(shard.db, clear_first)
    app.close()


def test_a_store_in_order_is_found_in_order() -> None:
    before = everything("embedded:data")
    answer = run("check", *STORE, "--json")
    (shard,) = answer.json["shards"]
    assert (answer.code, answer.json["healthy"], shard["items"], shard["findings"]) == (0, True, 2, [])
    assert "every invariant holds" in run("check", *STORE).out
    assert everything("embedded:data") == before


def test_what_is_broken_is_named_with_what_to_type() -> None:
    lose_an_index_entry()
    before = everything("embedded:data")
    answer = run("check", *STORE, "--json")
    (finding,) = answer.json["shards"][0]["findings"]
    assert (answer.code, answer.json["healthy"]) == (1, False)
    assert (finding["app"], finding["user"], finding["zone"], finding["repaired"]) == ("shop", "alice", "queue", False)
    shown = run("check", *STORE)
    assert (shown.code, "shop/alice" in shown.out, "fairlead check --repair" in shown.out) == (1, True, True)
    assert everything("embedded:data") == before


def test_what_is_broken_is_mended_and_its_item_runs() -> None:
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
    run("enqueue", "receipt", *ALICE, "--store", "embedded:other")
    answer = run("check", "--store", "bad=embedded:data", "--store", "good=embedded:other", "--json")
    assert (answer.code, [each["healthy"] for each in answer.json["shards"]]) == (1, [False, True])


def test_a_store_that_is_not_there_is_not_made(store: Path) -> None:
    assert run("check", "--store", "embedded:dta").code == 3
    assert not (store / "dta").exists()


def test_as_a_process_nothing_but_the_answer_is_printed() -> None:
    answer = run_process("check", *STORE, "--json")
    assert (answer.code, answer.json["healthy"], answer.err) == (0, True, "")
