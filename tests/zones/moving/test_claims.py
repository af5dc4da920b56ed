"""A worker's claims on items of a tenant who moves become plain leases, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.zones.engines import transact
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims, stored_item
from fairlead.zones.records import ItemRecord, MoveState, decode
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import WorkerSession, claims_of_tenant
from tests.simulation.races.missing_guards import planted
from tests.zones.moving.test_guards import run_until
from tests.zones.moving.town import Town, before

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


def takes_over(town: Town, item_id: bytes) -> None:
    """Cancel the item at its new home, which still has the claim of the old one."""
    town.alice_lives_at("west")
    town.in_queue(lambda tr, queue, now_us: queue.complete(tr, item_id, now_us=now_us))


def is_notified(town: Town, item_id: bytes) -> bool:
    """Say whether the new home has a notice for the session of the old one."""
    west = town.shards["west"]
    notice = worker_sessions.notice_key(SESSION, west.layout.location(town.alice, "queue"), item_id)
    return transact(west.db, lambda tr: tr.get(notice).value) is not None


def test_a_takeover_before_the_claim_ends_leaves_no_notice_for_a_session_that_is_not_there() -> None:
    """Before, the notice stayed at the destination for good: no session of that shard clears it."""
    town = Town()
    item_id = town.enqueue()
    claim(town, item_id)

    town.mover_that("west", _end_claims=lambda: takes_over(town, item_id)).run()
    assert not is_notified(town, item_id)


def session_ends_before_the_claims_do(town: Town) -> bytes:
    """Let the session end at the old home, while the mover of its item stands still; return the item's id."""
    item_id = town.enqueue()
    claim(town, item_id)

    def end_session() -> None:
        takes_over(town, item_id)
        east = town.shards["east"]
        transact(east.db, lambda tr: run_one(worker_sessions.end_session_op(tr, SESSION)))
        claims.release_all(east.layout, east.transact, SESSION, now_us=town.clock.now_us())

    town.mover_that("west", _end_claims=end_session).run()
    return item_id


def test_a_session_that_ends_leaves_its_claims_to_the_mover() -> None:
    """Before, it cleared their keys, so that the mover did not know whose notices to clear at the new home."""
    town = Town()
    item_id = session_ends_before_the_claims_do(town)
    assert not is_notified(town, item_id)
    east = town.shards["east"]
    assert claims.release_all(east.layout, east.transact, SESSION, now_us=town.clock.now_us()) == 0
    assert transact(east.db, lambda tr: run_one(worker_sessions.look_op(tr))).over == []


def test_a_claim_ends_at_the_new_home_although_its_session_has_ended_before() -> None:
    town = Town()
    item_id = town.enqueue()
    claim(town, item_id)

    def end_session() -> None:
        east = town.shards["east"]
        transact(east.db, lambda tr: run_one(worker_sessions.end_session_op(tr, SESSION)))
        claims.release_all(east.layout, east.transact, SESSION, now_us=town.clock.now_us())

    town.mover_that("west", _end_claims=end_session).run()
    assert town.findings() == {}


def test_without_that_the_new_home_keeps_a_notice_for_good() -> None:
    town = Town()
    with planted("a session that ends forgets its claims on items that have moved"):
        assert is_notified(town, session_ends_before_the_claims_do(town))


# --- A mover of an earlier move comes late, while a later move from the same shard has not ended its claims ---


def later_move_beside_a_late_mover(
    town: Town, item_id: bytes, *, stands: str, until: str, then: Callable[[], object] = lambda: None
) -> bytes:
    """Let a mover stand still before a method, while the tenant comes back, and moves to the same shard once more.

    A worker claims the item before the later move. Its mover dies before `until`; then the first mover goes on. Return
    the id of the later move.
    """
    first = town.begin("west")
    later: list[bytes] = []

    def others() -> None:
        assert town.mover(first, "west", at="east").run() is MoveState.MOVED
        assert town.move("east") is MoveState.MOVED
        town.alice_lives_at("east")
        claim(town, item_id)
        later.append(town.begin("west"))
        run_until(town, later[0], "west", until, at="east")
        then()

    before(town.mover(first, "west", at="east"), **{stands: others}).run()
    return later[0]


def a_late_mover_meets_claims_of_a_later_move(*, taken_over: bool) -> tuple[Town, bytes]:
    """Let a mover stand still before it ends claims, until the tenant was back, and moves away again; return the item.

    `taken_over`: the item is cancelled at the new home meanwhile.
    """
    town = Town()
    item_id = town.enqueue()

    def meanwhile() -> None:
        if taken_over:
            takes_over(town, item_id)

    later = later_move_beside_a_late_mover(town, item_id, stands="_end_claims", until="_end_claims", then=meanwhile)
    assert town.mover(later, "west", at="east").run() is MoveState.MOVED
    town.alice_lives_at("west")
    return town, item_id


def claim_of(town: Town, item_id: bytes) -> bytes:
    """Return by which session an item is claimed."""

    def read(tr: Any, queue: Any, now_us: int) -> bytes:
        record = decode(ItemRecord, tr.get(queue.location.keys.item(item_id)).value)
        assert record is not None
        return record.claim

    return town.in_queue(read)


def test_a_late_mover_leaves_the_claims_of_a_later_move_to_the_movers_of_that_move() -> None:
    """Before, it cleared their keys, and ended none of them: the item stayed claimed by a session of another shard."""
    town, item_id = a_late_mover_meets_claims_of_a_later_move(taken_over=False)
    assert claim_of(town, item_id) == b""
    assert town.findings() == {}


def test_a_late_mover_leaves_no_notice_of_a_later_move() -> None:
    town, item_id = a_late_mover_meets_claims_of_a_later_move(taken_over=True)
    assert not is_notified(town, item_id)
    assert town.findings() == {}


def test_without_a_look_at_the_epoch_it_clears_keys_of_claims_that_nobody_has_ended() -> None:
    with planted("a late mover clears the keys of the claims that a later move is to end"):
        town, item_id = a_late_mover_meets_claims_of_a_later_move(taken_over=False)
    assert claim_of(town, item_id) == SESSION
