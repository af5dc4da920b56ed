"""Sessions of workers in PostgreSQL, what they claim, and the marks of items that may have killed their workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlead.zones.external.store import Queue, Start
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import DeadLetterRecord
from tests.zones.postgresql.database import ALICE, LEASE_US, NOW_US, Database, held

TERM_US = 600_000_000
SESSION = b"s" * 16
WORKER = b"a worker's life"


def claim(
    database: Database, *leased: Any, session: bytes = SESSION, begins: bool = True
) -> list[Outcome | None] | None:
    """Claim leased items."""
    items = [held(each) for each in leased]
    return database.store.sessions.claim(session, items, worker=WORKER, begins=begins, term_us=TERM_US)  # type: ignore[no-any-return]


def dead(leased: Any) -> DeadLetterRecord:
    """Return a dead letter of a leased item."""
    return DeadLetterRecord(leased.record, "error", "no", "", 0)


def next_us(database: Database) -> int | None:
    """Return in how long something of alice can be leased; 0: now; None: nothing is there."""
    ((mail,),) = database.store.outlook([Queue(ALICE, "queue")]) or ((None,),)
    return None if mail is None else 0 if mail.waits else mail.next_us


@pytest.fixture(autouse=True)
def no_sessions(database: Database) -> None:
    with database.connections.call() as call:
        call.execute("DELETE FROM fairlead.sessions")


def test_a_claim_lasts_for_its_term_and_is_named_by_heartbeats(database: Database) -> None:
    item_id = database.enqueue()
    (leased,) = database.lease()
    assert claim(database, leased) == [Outcome.DONE]
    left_us = next_us(database)
    assert left_us is not None
    assert LEASE_US < left_us <= TERM_US
    assert database.store.sessions.beat(SESSION) == {item_id: leased.record.lease_id}


def test_each_heartbeat_is_another_one(database: Database) -> None:
    database.enqueue()
    claim(database, *database.lease())
    sessions, seen = database.store.sessions, []
    for _ in range(3):
        seen.append(sessions.beats()[SESSION])
        sessions.beat(SESSION)
    assert len(set(seen)) == 3


@contextmanager
def without(database: Database, file: str, guard: str) -> Iterator[None]:
    """Take a guard, which occurs once, out of a file of functions of the schema for a while."""
    from fairlead.zones.postgresql import schema

    text = (schema._SQL / f"{file}.sql").read_text("utf-8")
    assert text.count(guard) == 1, f"{guard} is not there once"
    with database.connect() as connection:
        connection.execute(text.replace(guard, ""))
        try:
            yield
        finally:
            connection.execute(text)


def test_what_an_ended_session_claims_is_released_and_counts_an_expiry(database: Database) -> None:
    item_id = database.enqueue()
    (leased,) = database.lease()
    claim(database, leased)
    store = database.store
    seen = store.arrivals("1:1:", store.history()).seen
    assert store.sessions.release_ended(10) == 0
    assert store.sessions.end(SESSION)
    assert store.sessions.release_ended(10) == 1
    assert [each.queue.tenant for each in store.arrivals(seen, store.history()).arrivals] == [
        ALICE
    ]  # Its pointer is woken.
    (again,) = database.lease()
    assert (again.id, again.had_expired) == (item_id, True)
    assert database.complete(leased) == [Outcome.LEASE_LOST]


def test_an_ended_session_claims_nothing_and_has_no_heartbeat(database: Database) -> None:
    database.enqueue()
    (leased,) = database.lease()
    claim(database, leased)
    database.store.sessions.end(SESSION)
    assert claim(database, leased, begins=False) is None
    assert database.store.sessions.beat(SESSION) is None


def test_a_session_with_a_later_heartbeat_is_not_silent(database: Database) -> None:
    database.enqueue()
    claim(database, *database.lease())
    sessions = database.store.sessions
    seen = sessions.beats()[SESSION]
    sessions.beat(SESSION)
    assert not sessions.end(SESSION, silent_since=seen)
    assert sessions.end(SESSION, silent_since=sessions.beats()[SESSION])
    assert not sessions.end(SESSION)


def await_lock(database: Database, part: str, thread: threading.Thread) -> None:
    """Wait until a statement that holds `part` waits for a lock, or its thread has ended."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    with database.connect() as watching:
        while thread.is_alive() and watching.execute(waiting, [f"%{part}%"]).fetchone() == (0,):
            thread.join(0.01)


def a_claim_and_then_the_end(database: Database) -> str:
    """End a session, and release its claims, while a claim for it is open; return what is wrong then."""
    database.enqueue()
    (leased,) = database.lease()
    store = database.store
    claim(database)
    ender = threading.Thread(target=lambda: store.sessions.end(SESSION) and store.sessions.release_ended(10))
    with database.connect(autocommit=False) as worker:
        worker.execute(
            "SELECT * FROM fairlead.claim(%s::uuid, '', false, ARRAY[%s::uuid], ARRAY[%s::uuid], 1000000)",
            [SESSION.hex(), leased.id.hex(), leased.record.lease_id.hex()],
        )
        ender.start()
        await_lock(database, "end_session", ender)
        worker.commit()
        ender.join(30)
    with database.connections.call() as call:
        (left,) = call.execute("SELECT count(*) FROM fairlead.items WHERE session IS NOT NULL").fetchone()
    return f"an ended session claims {left} items, and nobody looks for them now" if left else ""


def the_end_and_then_a_claim(database: Database) -> str:
    """Claim for a session while its end is open; return what is wrong then."""
    database.enqueue()
    (leased,) = database.lease()
    claim(database)
    answers: list[Any] = []
    worker = threading.Thread(target=lambda: answers.append(claim(database, leased, begins=False)))
    with database.connect(autocommit=False) as ending:
        ending.execute("SELECT fairlead.end_session(%s::uuid, NULL)", [SESSION.hex()])
        worker.start()
        await_lock(database, "fairlead.claim", worker)
        ending.commit()
        worker.join(30)
    return "" if answers == [None] else "a session that is being ended has claimed an item"


ORDERS = [a_claim_and_then_the_end, the_end_and_then_a_claim]


@pytest.mark.parametrize("order", ORDERS)
def test_a_claim_and_the_end_of_its_session_wait_for_each_other(database: Database, order: Any) -> None:
    """The claim locks the row of the session, which whoever ends it deletes, before claims are released."""
    assert order(database) == ""


@pytest.mark.parametrize("order", ORDERS)
def test_without_the_lock_on_the_session_they_do_not(database: Database, order: Any) -> None:
    with without(database, "sessions", " FOR KEY SHARE"):
        assert order(database) != ""


def test_the_claims_of_other_sessions_are_not_released(database: Database) -> None:
    other = b"o" * 16
    database.enqueue(), database.enqueue(), database.enqueue()
    first, second, third = database.lease()
    claim(database, first), claim(database, second, session=other), claim(database, third)
    database.store.sessions.end(SESSION)
    assert database.store.sessions.release_ended(1) == 1
    assert database.store.sessions.release_ended(10) == 1
    assert set(database.store.sessions.beat(other)) == {second.id}


def test_a_worker_releases_what_it_does_not_hold_any_more(database: Database) -> None:
    database.enqueue(), database.enqueue()
    first, second = database.lease()
    claim(database, first, second)
    database.store.sessions.release(SESSION, [held(first)])
    assert set(database.store.sessions.beat(SESSION)) == {second.id}
    assert [each.id for each in database.lease()] == [first.id]


def test_the_sessions_of_a_dead_worker_are_ended_together(database: Database) -> None:
    database.enqueue()
    claim(database, *database.lease())
    assert database.store.sessions.end_of_worker(b"another") == 0
    assert database.store.sessions.end_of_worker(WORKER) == 1
    assert database.store.sessions.release_ended(10) == 1


def test_a_claim_that_its_item_lost_is_no_claim(database: Database) -> None:
    database.enqueue()
    (leased,) = database.lease()
    claim(database, leased)
    database.let_pass("leased_until_us")
    (again,) = database.lease()
    assert database.store.sessions.beat(SESSION) == {}
    assert claim(database, leased) == [Outcome.LEASE_LOST]
    assert claim(database, again) == [Outcome.DONE]


@pytest.mark.parametrize("how", ["complete", "requeue", "dead letter"])
def test_the_end_of_an_item_is_the_end_of_its_claim(database: Database, how: str) -> None:
    database.enqueue()
    (leased,) = database.lease()
    claim(database, leased)
    store = database.store
    ends = {
        "complete": lambda: store.complete([held(leased)]),
        "requeue": lambda: store.requeue([held(leased)], [0], [leased.record]),
        "dead letter": lambda: store.dead_letter([held(leased)], [dead(leased)]),
    }
    assert ends[how]() == [Outcome.DONE]
    assert store.sessions.beat(SESSION) == {}


# --- Deaths ---


def expire(database: Database, *, begins: Start | None) -> Any:
    """Lease alice's item, let its handler start or not, let the lease expire; return the item as leased next."""
    (leased,) = database.lease()
    if begins is not None:
        database.store.extend([held(leased)], lease_us=LEASE_US, begins=begins)
    database.let_pass("leased_until_us")
    (again,) = database.lease()
    database.let_pass("leased_until_us")
    return again.record


def test_only_leases_whose_handlers_had_started_count_as_deaths(database: Database) -> None:
    database.enqueue()
    assert expire(database, begins=None).expiry_count == 0
    assert expire(database, begins=Start.BESIDE_OTHERS).expiry_count == 1
    assert expire(database, begins=Start.BESIDE_OTHERS).expiry_count == 2


def test_an_end_of_the_item_begins_the_count_of_deaths_anew(database: Database) -> None:
    database.enqueue()
    expire(database, begins=Start.BESIDE_OTHERS)
    (leased,) = database.lease()
    leased.record.expiry_count = 0  # As a failed attempt does.
    database.store.requeue([held(leased)], [0], [leased.record])
    (again,) = database.lease()
    assert again.record.expiry_count == 0


@pytest.mark.parametrize(("starts", "deaths"), [(False, 1), (True, 0)])
def test_a_return_does_so_only_after_the_handler_has_started(database: Database, starts: bool, deaths: int) -> None:
    database.enqueue()
    expire(database, begins=Start.BESIDE_OTHERS)
    (leased,) = database.lease()
    if starts:
        database.store.extend([held(leased)], lease_us=LEASE_US, begins=Start.BESIDE_OTHERS)
    database.store.requeue([held(leased)], [None], [None])
    (again,) = database.lease()
    assert again.record.expiry_count == deaths


def test_a_return_of_a_poison_candidate_that_nobody_can_run_keeps_its_deaths(database: Database) -> None:
    database.enqueue()
    expire(database, begins=Start.BESIDE_OTHERS)
    (leased,) = database.lease()
    database.store.requeue([held(leased)], [0], [leased.record])
    (again,) = database.lease()
    assert (again.record.expiry_count, again.had_expired) == (1, False)


def test_a_dead_letter_that_is_tried_again_begins_without_deaths(database: Database) -> None:
    database.enqueue()
    expire(database, begins=Start.ISOLATED)
    (leased,) = database.lease()
    store = database.store
    store.dead_letter([held(leased)], [dead(leased)])
    store.queues.retry_dead_letters(store.queues.dead_letters(None, items_max=1), now_us=NOW_US)
    (again,) = database.lease()
    assert (again.record.expiry_count, again.record.ran_isolated) == (0, False)


def test_what_is_shown_of_an_item_tells_its_deaths(database: Database) -> None:
    item_id = database.enqueue()
    expire(database, begins=Start.BESIDE_OTHERS)
    (leased,) = database.lease()
    database.store.extend([held(leased)], lease_us=LEASE_US, begins=Start.ISOLATED)
    shown = database.store.queues.find(Queue(ALICE, "queue"), [item_id], now_us=NOW_US).record
    assert (shown.expiry_count, shown.started, shown.ran_isolated) == (1, True, True)


def test_a_lease_that_expired_while_its_item_ran_isolated_is_told(database: Database) -> None:
    database.enqueue()
    assert not expire(database, begins=Start.BESIDE_OTHERS).ran_isolated
    assert expire(database, begins=Start.ISOLATED).ran_isolated
    (leased,) = database.lease()
    assert leased.record.ran_isolated  # Whoever leased it then was to make it a dead letter, and died.


# --- Upkeep ---


def test_ids_and_results_are_deleted_when_they_are_kept_no_longer(database: Database) -> None:
    for _ in range(3):
        database.enqueue()
    leased = database.lease()
    database.complete(*leased, keeps_us=[1, 1, 3_600_000_000])
    upkeep = database.store.upkeep
    assert upkeep.expire(1) == 1
    assert upkeep.expire(10) == 1
    with database.connections.call() as call:
        assert call.execute("SELECT count(*) FROM fairlead.items").fetchone() == (1,)


def test_waiting_items_and_dead_letters_are_kept(database: Database) -> None:
    database.enqueue(), database.enqueue()
    (leased,) = database.lease(items_max=1)
    database.store.dead_letter([held(leased)], [dead(leased)])
    assert database.store.upkeep.expire(10) == 0


def test_an_ended_item_that_is_locked_is_deleted_later(database: Database) -> None:
    database.enqueue()
    (leased,) = database.lease()
    database.complete(leased, keeps_us=[1])
    with database.connect(autocommit=False) as user:
        user.execute("SELECT 1 FROM fairlead.items FOR UPDATE")
        assert database.store.upkeep.expire(10) == 0
    assert database.store.upkeep.expire(10) == 1


def test_two_that_expire_at_once_delete_different_items(database: Database) -> None:
    for _ in range(4):
        database.enqueue()
    database.complete(*database.lease(), keeps_us=[1] * 4)
    with database.connect(autocommit=False) as other:
        assert other.execute("SELECT fairlead.expire(3)").fetchone() == (3,)
        assert database.store.upkeep.expire(3) == 1


def test_a_vacuum_frees_dead_rows(database: Database) -> None:
    for _ in range(50):
        database.enqueue()
    database.complete(*database.lease(items_max=50))
    database.store.upkeep.vacuum()
    assert database.store.upkeep.dead_rows() == 0
