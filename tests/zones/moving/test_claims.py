"""A worker's claims on items of a tenant who moves become plain leases, and leave nothing behind."""

from __future__ import annotations

from typing import Any

from fairlead.zones.engines import transact
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims, stored_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import WorkerSession, claims_of_tenant
from tests.zones.moving.town import Town

SESSION, LEASE, WORKER = b"s" * 16, b"l" * 16, b"w" * 16
LEASE_US = 10_000_000


def claim(town: Town, item_id: bytes) -> None:
    """Let a worker lease an item, and claim it."""

    def body(tr: Any, queue: Any, now_us: int) -> None:
        location = queue.location
        record = decode(ItemRecord, tr.get(location.keys.item(item_id)).value)
        assert record is not None
        record.lease_id, record.lease_us = LEASE, LEASE_US
        stored_item.move(tr, location, item_id, record, now_us + LEASE_US)
        worker_sessions.begin(tr, SESSION, WorkerSession(WORKER, now_us), beat=b"b" * 16)
        run_one(claims.claim_op(tr, location, [(item_id, LEASE)], session_id=SESSION, now_us=now_us))

    town.in_queue(body)


def test_a_claim_becomes_a_plain_lease_under_which_the_worker_completes_the_item() -> None:
    town = Town()
    item_id = town.enqueue()
    claim(town, item_id)
    town.move("west")

    def ends(tr: Any, queue: Any, now_us: int) -> tuple[bytes, int]:
        record = decode(ItemRecord, tr.get(queue.location.keys.item(item_id)).value)
        assert record is not None
        queue.complete(tr, item_id, now_us=now_us, lease_id=LEASE)
        return record.claim, record.vesting_us - now_us

    assert town.home_name() == "west"
    no_claim, left_us = town.in_queue(ends)
    assert no_claim == b""
    assert left_us > LEASE_US


def test_the_source_keeps_no_key_of_the_claim_and_the_check_finds_nothing() -> None:
    town = Town()
    item_id = town.enqueue()
    claim(town, item_id)
    town.move("west")
    east = town.shards["east"]
    found = transact(east.db, lambda tr: claims_of_tenant(tr, east.layout, town.alice, keys_max=10))
    assert found.claims == []
    assert town.findings() == {}


def test_a_claim_on_an_item_of_another_tenant_stays() -> None:
    town = Town()
    town.enqueue()
    alice, town.alice = (
        town.alice,
        next(
            each
            for number in range(100)
            if (each := town.alice._replace(user=f"b{number}")) and town.lives_on(each, "east")
        ),
    )
    claim(town, town.enqueue())
    bob, town.alice = town.alice, alice
    town.move("west")
    east = town.shards["east"]
    found = transact(east.db, lambda tr: claims_of_tenant(tr, east.layout, bob, keys_max=10))
    assert len(found.claims) == 1


def test_a_takeover_before_the_claim_ends_leaves_no_notice_for_a_session_that_is_not_there() -> None:
    """Before, the notice stayed at the destination for good: no session of that shard clears it."""
    town = Town()
    item_id = town.enqueue()
    claim(town, item_id)

    def take_over() -> None:
        """Cancel the item at its new home, which still has the claim of the old one."""
        town.alice_lives_at("west")
        town.in_queue(lambda tr, queue, now_us: queue.complete(tr, item_id, now_us=now_us))

    town.mover_that("west", _end_claims=take_over).run()
    west = town.shards["west"]
    notices = worker_sessions.notice_key(SESSION, west.layout.location(town.alice, "queue"), item_id)
    assert transact(west.db, lambda tr: tr.get(notices).value) is None
