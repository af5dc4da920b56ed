"""A transaction across shards happens as a whole or not at all, whatever happens to its coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.engines.api.errors import (
    IO_ERROR,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_TOO_LARGE,
    ResultUnknown,
    StoreError,
    TransactionTooLong,
)
from fairlead.zones.errors import TenantBusy
from fairlead.zones.layout import Tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.open_body import NestedTransaction
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.decision import DECISION_LIFE_US
from fairlead.zones.spanning.tenant_view import NotAcrossShards
from fairlead.zones.spanning.transaction_keys import prepared_key
from fairlead.zones.tenant_transaction import ApplicationTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.zones.faults import Fault
from tests.zones.spanning.bank import ALICE, BEGINS_WITH, BOB, CAROL, Bank, balance, elsewhere, move_money, packed

TOTAL = 3 * BEGINS_WITH
MINUTE_US = 60_000_000
COMMITS_REFUSED = 1_000  # More than anybody tries within a minute.


def test_a_transfer_changes_both_tenants_and_leaves_no_lock(bank: Bank) -> None:
    bank.transfer(10)
    assert (bank.balance(ALICE), bank.balance(BOB)) == (90, 110)
    assert bank.prepared() == set()
    assert bank.locks(BOB) == ()
    assert bank.decisions() == {"east": [True]}


def test_a_transaction_on_one_shard_is_one_commit_and_prepares_nothing(bank: Bank) -> None:
    store = bank.stores["east"]
    store.results_can_be_unknown = False
    store.faults.extend([None, Fault(applied=False, code=TRANSACTION_TOO_LARGE)])  # A second commit would fail.
    bank.across(lambda tx: tx.on(ALICE).set(("balance",), packed(1)))
    store.faults.clear()
    assert bank.balance(ALICE) == 1
    assert bank.decisions() == {}


def test_reads_see_what_the_body_has_written(bank: Bank) -> None:
    def body(tx: SpanningTransaction) -> tuple[int, list[tuple[tuple[Any, ...], bytes]], bytes | None]:
        tx.on(ALICE)
        bob = tx.on(BOB)
        bob.add(("balance",), 5)
        bob.set(("note", 2), b"two")
        bob.set(("note", 1), b"one")
        bob.set(("note", 3), b"three")
        bob.clear(("note", 3))
        notes = list(bob.get_range(("note",)))
        bob.clear_prefix(("note",))
        return balance(bob), notes, bob.get(("note", 1))

    assert bank.across(body) == (105, [(("note", 1), b"one"), (("note", 2), b"two")], None)


STAGES = {
    "before it prepares": ("west", False, 100),
    "once it has prepared": ("west", True, 100),
    "before it decides": ("east", False, 100),
    "once it has decided": ("east", True, 90),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_coordinator_leaves_all_or_nothing(bank: Bank, stage: str) -> None:
    shard, applied, alice = STAGES[stage]
    bank.is_killed(bank.transfer, on=shard, applied=applied)
    assert bank.balance(BOB) == 2 * BEGINS_WITH - alice
    assert bank.balance(ALICE) == alice
    assert bank.prepared() == set()


@pytest.mark.parametrize("away", ["east", "west"])
@pytest.mark.parametrize("commits_before", [0, 1])
def test_a_shard_that_is_away_for_a_minute_at_any_stage_leaves_all_or_nothing(
    bank: Bank, away: str, commits_before: int
) -> None:
    """The home is away from before its decision, or right after it; the other one from its prepare, or its apply."""
    store = bank.stores[away]
    away_errors: tuple[type[Exception], ...] = (*store.errors, StoreError, TenantBusy)
    store.faults.extend([None] * commits_before + [Fault(applied=False, code=IO_ERROR)] * COMMITS_REFUSED)
    has_answered = True
    try:
        bank.transfer(10)
    except away_errors:
        has_answered = False
    assert has_answered is (commits_before == 1)
    bank.clock.advance_us(MINUTE_US)
    store.faults.clear()
    assert (bank.balance(ALICE), bank.balance(BOB)) == ((90, 110) if has_answered else (100, 100))
    assert bank.prepared() == set()
    assert bank.locks(BOB) == ()


def test_a_killed_coordinator_that_has_answered_is_finished_by_the_next_reader(bank: Bank) -> None:
    bank.is_killed(bank.transfer, on="west", applied=False, after_commits=1)
    assert len(bank.locks(BOB)) == 1
    began_us = bank.clock.now_us()
    assert bank.balance(BOB) == 110
    assert bank.clock.now_us() == began_us  # It is decided: nobody waits.
    assert bank.locks(BOB) == ()


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("shard", ["east", "west"])
@pytest.mark.parametrize("code", [1021, TRANSACTION_TIMED_OUT])
def test_a_commit_of_unknown_result_is_applied_once(bank: Bank, shard: str, applied: bool, code: int) -> None:
    bank.stores[shard].faults.append(Fault(applied=applied, code=code))
    bank.transfer(10)
    assert (bank.balance(ALICE), bank.balance(BOB)) == (90, 110)
    assert bank.prepared() == set()


def test_an_apply_of_unknown_result_is_done_once(bank: Bank) -> None:
    bank.stores["west"].faults.extend([None, Fault(applied=True)])
    bank.across(lambda tx: (tx.on(ALICE).add(("balance",), -10), tx.on(BOB).add(("balance",), 10)))
    assert bank.balance(BOB) == 110


def test_a_home_shard_that_does_not_say_how_a_commit_ended_makes_the_result_unknown(bank: Bank) -> None:
    bank.stores["east"].faults.extend([Fault(applied=False), Fault(applied=False, code=IO_ERROR)])
    with pytest.raises(ResultUnknown):
        bank.transfer(10)
    assert len(bank.locks(BOB)) == 1  # Only the home shard knows.
    assert bank.balance(BOB) == BEGINS_WITH
    assert bank.balance(ALICE) == BEGINS_WITH


def test_two_that_each_write_what_the_other_has_read_do_not_both_commit(bank: Bank) -> None:
    """Write skew: each withdraws from its own balance if both together hold enough."""

    def withdraw(tx: SpanningTransaction, own: Tenant, other: Tenant) -> bool:
        mine, theirs = tx.on(own), tx.on(other)
        if balance(mine) + balance(theirs) < 2 * BEGINS_WITH:
            return False
        if own == ALICE and not nested:
            nested.append(True)
            elsewhere(lambda: bank.across(lambda tx: withdraw(tx, BOB, ALICE)))
        mine.set(("balance",), packed(0))
        return True

    nested: list[bool] = []
    assert bank.across(lambda tx: withdraw(tx, ALICE, BOB)) is False
    assert (bank.balance(ALICE), bank.balance(BOB)) == (BEGINS_WITH, 0)


def test_a_tenant_that_is_only_read_is_read_and_not_written_meanwhile(bank: Bank) -> None:
    """A shared lock lets readers pass, and refuses writers."""

    def body(tx: SpanningTransaction) -> None:
        tx.on(ALICE).set(("balance",), packed(balance(tx.on(BOB))))

    bank.is_killed(lambda: bank.across(body), on="east", applied=False)
    (lock,) = bank.locks(BOB)
    assert not lock.exclusive
    began_us = bank.clock.now_us()
    assert bank.balance(BOB) == BEGINS_WITH
    assert len(bank.locks(BOB)) == 1
    assert bank.clock.now_us() == began_us
    bank.on(BOB, lambda tr: tr.set(("balance",), packed(1)))
    assert bank.clock.now_us() - began_us >= 1_000_000  # It is undecided: a writer watches it for a second.
    assert bank.locks(BOB) == ()
    assert bank.decisions() == {"east": [False]}


def test_a_transaction_that_only_reads_locks_nothing(bank: Bank) -> None:
    for store in bank.stores.values():
        store.faults.append(Fault(applied=False, code=2101))  # What writes a key would fail.
    assert bank.across(lambda tx: sum(balance(tx.on(each)) for each in (ALICE, BOB, CAROL))) == TOTAL


def test_an_error_of_the_body_counts_only_if_its_reads_are_valid(bank: Bank) -> None:
    seen: list[int] = []

    def body(tx: SpanningTransaction) -> None:
        total = balance(tx.on(ALICE))
        if not seen:
            elsewhere(bank.transfer)
        total += balance(tx.on(BOB))
        seen.append(total)
        if total != 2 * BEGINS_WITH:
            raise AssertionError("money is missing")
        raise LookupError("as the story wants")

    with pytest.raises(LookupError):
        bank.across(body)
    assert seen == [210, 200]


def test_an_error_of_the_body_changes_nothing(bank: Bank) -> None:
    def body(tx: SpanningTransaction) -> None:
        move_money(tx, ALICE, BOB, 10)
        raise LookupError

    with pytest.raises(LookupError):
        bank.across(body)
    assert (bank.balance(ALICE), bank.balance(BOB)) == (100, 100)
    assert bank.decisions() == {}


def test_items_are_enqueued_on_both_shards_or_on_none(bank: Bank) -> None:
    def body(tx: SpanningTransaction) -> list[EnqueueStatus]:
        return [
            tx.on(tenant).enqueue("mail", {"n": 1}, item_id=name).status
            for tenant, name in ((ALICE, "one"), (BOB, "one"), (BOB, "one"), (BOB, None))
        ]

    enqueued, present = EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT
    bank.is_killed(lambda: bank.across(body), on="east", applied=False)
    assert bank.balance(BOB) == BEGINS_WITH
    assert [queued(bank, each) for each in (ALICE, BOB)] == [0, 0]
    assert bank.across(body) == [enqueued, enqueued, present, enqueued]
    assert [queued(bank, each) for each in (ALICE, BOB)] == [1, 2]
    assert bank.across(body) == [present, present, present, enqueued]
    assert [queued(bank, each) for each in (ALICE, BOB)] == [1, 3]


def queued(bank: Bank, tenant: Tenant) -> int:
    shard, now_us = bank.home(tenant), bank.clock.now_us()
    return len(transact(shard.db, lambda tr: shard.zone(tenant).peek_ids(tr, items_max=10, now_us=now_us)))


def test_a_queue_is_changed_by_nothing_but_an_enqueue(bank: Bank) -> None:
    with pytest.raises(NotAcrossShards):
        bank.across(lambda tx: tx.on(BOB).cancel(b"i" * 16))


def test_a_plain_transaction_waits_for_a_second_and_aborts_what_is_undecided(bank: Bank) -> None:
    bank.is_killed(bank.transfer, on="east", applied=False)
    began_us = bank.clock.now_us()
    assert bank.balance(BOB) == BEGINS_WITH
    assert 1_000_000 <= bank.clock.now_us() - began_us < 1_001_000  # Its last sleep does not pass the second.


def test_a_raw_transaction_waits_for_a_lock_as_any_other_one(bank: Bank) -> None:
    shard = bank.home(BOB)

    def raw(attempt: Attempt) -> None:
        ApplicationTransaction(shard, BOB, attempt).raw.add_read_conflict_key(b"any")

    bank.is_killed(bank.transfer, on="east", applied=False)
    bank.away.add("east")
    with pytest.raises(TenantBusy):
        shard.transact(raw)
    bank.away.clear()
    shard.transact(raw)
    assert bank.locks(BOB) == ()


def test_a_tenant_whose_lock_nobody_can_decide_is_busy(bank: Bank) -> None:
    bank.is_killed(bank.transfer, on="east", applied=True)
    bank.away.add("east")
    began_us = bank.clock.now_us()
    with pytest.raises(TenantBusy):
        bank.balance(BOB)
    assert 5_000_000 <= bank.clock.now_us() - began_us < 5_100_000
    with pytest.raises(TenantBusy):
        bank.across(lambda tx: move_money(tx, CAROL, BOB, 1), wait_us=10_000)
    assert bank.balance(CAROL) == BEGINS_WITH
    bank.away.clear()
    assert (bank.balance(ALICE), bank.balance(BOB)) == (90, 110)


def test_an_older_transaction_aborts_a_younger_one_at_once(bank: Bank) -> None:
    began: list[int] = []

    def older(tx: SpanningTransaction) -> None:
        if not began:
            began.append(bank.clock.now_us())
            bank.clock.advance_us(1)
            elsewhere(lambda: bank.is_killed(bank.transfer, on="east", applied=False))
        move_money(tx, CAROL, BOB, 1)

    bank.across(older)
    assert bank.clock.now_us() - began[0] < 1_000
    assert (bank.balance(BOB), bank.balance(CAROL), bank.balance(ALICE)) == (101, 99, 100)


def test_a_coordinator_that_was_aborted_begins_anew(bank: Bank) -> None:
    """It was paused between its prepare and its decision, until another one lost patience."""
    bank.stores["west"].pause = lambda: bank.on(BOB, lambda tr: tr.set(("note",), b"here"))
    bank.transfer(10)
    assert (bank.balance(ALICE), bank.balance(BOB)) == (90, 110)
    assert bank.on(BOB, lambda tr: tr.get(("note",))) == b"here"


def test_what_nobody_meets_is_settled_once_it_has_been_seen_for_five_seconds(bank: Bank) -> None:
    bank.is_killed(bank.transfer, on="east", applied=True)
    leftovers = bank.leftovers("west")
    assert leftovers.settle_old(now_us=bank.clock.now_us()) == 0
    assert leftovers.settle_old(now_us=bank.clock.now_us() + 4_900_000) == 0
    assert leftovers.settle_old(now_us=bank.clock.now_us() + 5_000_000) == 1
    assert bank.prepared() == set()
    assert bank.balance(BOB) == 110


def test_a_decision_is_forgotten_after_ten_minutes_if_it_is_carried_out_everywhere(bank: Bank) -> None:
    bank.is_killed(bank.transfer, on="east", applied=True)
    home = bank.leftovers("east")
    assert home.forget_old(now_us=bank.clock.now_us() + DECISION_LIFE_US) == 0
    later_us = bank.clock.now_us() + DECISION_LIFE_US + 1
    assert home.forget_old(now_us=later_us) == 0  # Bob's shard has not applied it.
    assert bank.balance(BOB) == 110
    assert home.forget_old(now_us=later_us) == 1
    assert bank.decisions() == {}


def test_a_body_must_not_begin_another_one(bank: Bank) -> None:
    with pytest.raises(NestedTransaction):
        bank.across(lambda tx: bank.transfer())


def test_a_body_that_takes_longer_than_five_seconds_is_refused() -> None:
    bank = Bank()  # In memory: the time of a cluster is not the test's.

    def slow(tx: SpanningTransaction) -> None:
        move_money(tx, ALICE, BOB, 10)
        bank.clock.advance_us(5_100_000)

    with pytest.raises(TransactionTooLong):
        bank.across(slow)
    assert bank.total() == TOTAL
    assert bank.balance(ALICE) == BEGINS_WITH


def test_a_shard_takes_half_of_what_a_transaction_may_write(bank: Bank) -> None:
    def large(tx: SpanningTransaction) -> None:
        tx.on(ALICE).set(("balance",), packed(0))
        for number in range(60):
            tx.on(BOB).set(("page", number), b"x" * 99_000)

    with pytest.raises(StoreError) as refused:
        bank.across(large)
    assert refused.value.code == TRANSACTION_TOO_LARGE
    assert "half" in refused.value.remedy
    assert bank.balance(ALICE) == BEGINS_WITH


def test_writes_of_many_pieces_are_applied(bank: Bank) -> None:
    def large(tx: SpanningTransaction) -> None:
        tx.on(ALICE).set(("balance",), packed(0))
        for number in range(20):
            tx.on(BOB).set(("page", number), bytes([number]) * 99_000)

    bank.across(large)
    pages = bank.on(BOB, lambda tr: [value for _, value in tr.get_range(("page",))])
    assert pages == [bytes([number]) * 99_000 for number in range(20)]


def test_a_check_finds_nothing_wrong_with_a_shard_in_the_middle_of_a_transaction(bank: Bank) -> None:
    bank.is_killed(bank.transfer, on="east", applied=True)
    for shard in bank.shards.values():
        report = check_integrity(shard)
        assert not report.findings
        assert (report.unknown, report.newer) == (0, 0)
    assert bank.balance(BOB) == 110


def test_a_lock_that_nothing_stands_behind_is_dropped(bank: Bank) -> None:
    """As a backup that was taken in pieces may leave it."""
    bank.is_killed(bank.transfer, on="east", applied=False)
    ((_, transaction),) = bank.prepared()
    transact(bank.shards["west"].db, lambda tr: tr.clear(prepared_key(transaction)))
    assert bank.balance(BOB) == BEGINS_WITH
    assert bank.locks(BOB) == ()
