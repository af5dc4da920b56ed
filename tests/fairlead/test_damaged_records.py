"""Damaged records from the operator's side: shown, explained, and set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead import App, Config, Job, PayloadDamaged, TenantDatabase
from fairlead.queries.summary import summarize
from fairlead.testing import drain
from fairlead.zones import engines
from fairlead.zones.keyspace import META_KEY
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.records import FORMAT, ItemRecord, decode, encode
from tests.fairlead.shell import run

DAMAGED = bytes([FORMAT]) + b"\xc1"
ALICE = ("--tenant", "shop", "alice")


@pytest.fixture
def shop(empty_directory: Path) -> Iterator[App]:
    """An application whose store the commands find in `fairlead.toml`."""
    (empty_directory / "fairlead.toml").write_text('shards = "embedded:./data"\n')
    app = App(config=Config(shards={"main": f"embedded:{empty_directory / 'data'}"}))
    yield app
    app.close()


def change(database: TenantDatabase, key_of: Callable[[ZoneLocation], bytes], change: Callable[[bytes], bytes]) -> None:
    """Change a stored value of a tenant's queue directly."""
    shard = database.shard
    key = key_of(shard.layout.location(database.tenant, "queue"))
    engines.transact(shard.db, lambda tr: tr.set(key, change(tr.get(key).value or b"")))


def with_damaged_payload(value: bytes) -> bytes:
    record = decode(ItemRecord, value)
    assert record is not None
    record.payload = b"\xc1"
    return encode(record)


def test_a_damaged_payload_fails_its_item_and_is_reported_where_it_is_shown(shop: App) -> None:
    """Before, every command that lists items raised a decoder's error."""

    @shop.handler("mail", permanent=(PayloadDamaged,))
    def mail(job: Job) -> None:
        assert job.payload

    alice = shop.tenant("shop", "alice")
    item_id = alice.enqueue("mail", {"order": 7}).item_id
    change(alice, lambda location: location.keys.item(item_id), with_damaged_payload)
    (shown,) = run("peek", *ALICE, "--json").json["items"]
    assert shown["payload"].startswith("the item's payload is damaged")
    with pytest.raises(PayloadDamaged):
        drain(shop)
    (dead,) = run("dead-letters", "list", "--json").json["dead_letters"]
    assert dead["payload"].startswith("the item's payload is damaged")


def test_a_damaged_item_is_explained_set_aside_and_discarded(shop: App) -> None:
    alice = shop.tenant("shop", "alice")
    damaged, whole = alice.enqueue("mail").item_id, alice.enqueue("mail").item_id
    change(alice, lambda location: location.keys.item(damaged), lambda _: DAMAGED)
    assert run("why", damaged.hex(), *ALICE, "--json").json["cause"] == "damaged"
    found = run("check")
    assert (found.code, "--quarantine sets it aside" in found.out) == (1, True)
    assert run("check", "--repair").code == 1
    done = run("check", "--quarantine", "--json")
    assert (done.code, done.json["shards"][0]["findings"][0]["set_aside"]) == (0, True)
    assert run("check").code == 0
    assert run("why", damaged.hex(), *ALICE, "--json").json["cause"] == "set aside"
    (kept,) = run("quarantine", "--json").json["set_aside"]
    assert (kept["user"], kept["item"], bytes.fromhex(kept["value"])) == ("alice", damaged.hex(), DAMAGED)
    assert damaged.hex() in run("quarantine").out
    assert run("quarantine", "--discard", kept["id"]).code == 0
    assert run("quarantine", "--discard", kept["id"], "--json").error["error"] == "no record with this id was set aside"
    assert [item["item"] for item in run("peek", *ALICE, "--json").json["items"]] == [whole.hex()]


def test_status_names_queues_with_unreadable_records_and_counts_the_quarantine(shop: App) -> None:
    @shop.handler("mail")
    def mail(job: Job) -> None:
        pass

    alice = shop.tenant("shop", "alice")
    damaged = alice.enqueue("mail").item_id
    alice.enqueue("mail")
    shop.tenant("shop", "bob").enqueue("mail")
    change(alice, lambda location: location.keys.item(damaged), lambda _: DAMAGED)
    drain(shop)
    (status,) = run("status", "--json").json["shards"]
    assert (status["unreadable_queues"], status["set_aside"], status["depth"]) == (1, 0, {"mail": 1})
    assert "1 queues hold records that cannot be read" in run("status").out
    said = [each.message for each in summarize(shop).concerns]
    assert "1 queue holds records on shard main that cannot be read; consumers skip them" in said
    run("check", "--quarantine")
    drain(shop)
    assert "1 damaged pairs were set aside" in run("status").out
    assert "1 damaged pair was set aside on shard main" in [each.message for each in summarize(shop).concerns]
    assert run("status", "--json").json["shards"][0]["depth"] == {}


def test_a_store_whose_own_record_is_damaged_is_refused_with_what_to_do(shop: App) -> None:
    """Before, the error claimed that a newer version had made the store, and advised an upgrade."""
    alice = shop.tenant("shop", "alice")
    alice.enqueue("mail")
    change(alice, lambda _: META_KEY, lambda _: DAMAGED)
    refused = run("status")
    assert (refused.code, "restore a backup" in refused.out) == (3, True)
