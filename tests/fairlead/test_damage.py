"""A store in which something was damaged, as an operator meets it: shown, explained, and set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead import App, Config, Job, PayloadDamaged, TenantDatabase
from fairlead.testing import drain
from tests.fairlead.shell import run
from zones import engines
from zones.layout import Place
from zones.records import FORMAT, ItemRecord, decode, encode

DAMAGED = bytes([FORMAT]) + b"\xc1"
ALICE = ("--tenant", "shop", "alice")


@pytest.fixture
def shop(empty_directory: Path) -> Iterator[App]:
    """An application whose store commands find by themselves."""
    (empty_directory / "fairlead.toml").write_text('shards = "embedded:./data"\n')
    app = App(config=Config(shards={"main": f"embedded:{empty_directory / 'data'}"}))
    yield app
    app.close()


def change(database: TenantDatabase, key_of: Callable[[Place], bytes], change: Callable[[bytes], bytes]) -> None:
    """Change a value of a tenant's queue behind the queue's back."""
    shard = database.shard
    key = key_of(shard.layout.place(database.tenant, "queue"))
    engines.transact(shard.db, lambda tr: tr.set(key, change(tr.get(key).value)))


def with_damaged_payload(value: bytes) -> bytes:
    record = decode(ItemRecord, value)
    assert record is not None
    record.payload = b"\xc1"
    return encode(record)


def test_a_damaged_payload_fails_its_item_and_is_said_where_it_is_shown(shop: App) -> None:
    """It raised a decoder's error in `fairlead peek`, `fairlead buried`, and everything that lists items."""
    @shop.handler("mail", permanent=(PayloadDamaged,))
    def mail(job: Job) -> None:
        assert job.payload

    alice = shop.tenant("shop", "alice")
    item_id = alice.enqueue("mail", {"order": 7}).item_id
    change(alice, lambda place: place.keys.item(item_id), with_damaged_payload)
    (shown,) = run("peek", *ALICE, "--json").json["items"]
    assert shown["payload"].startswith("the item's payload is damaged")
    with pytest.raises(PayloadDamaged):
        drain(shop)
    (buried,) = run("buried", "--json").json["buried"]
    assert buried["payload"].startswith("the item's payload is damaged")
