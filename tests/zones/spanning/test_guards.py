"""Each guard of `tests/protocol_models/spanning.py` in the product: a story that needs it, and fails without it.

A planted bug takes the guard away. The story then ends with money lost or made, or with a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones import ownership
from fairlead.zones.engines import Transaction
from fairlead.zones.layout import Tenant
from fairlead.zones.records import DecisionRecord, TransactionId, decode, encode
from fairlead.zones.spanning import coordinator, decision, leftovers, lock_wait, participant, recovery
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.decision import DECISION_LIFE_US
from fairlead.zones.spanning.tenant_view import Branch
from fairlead.zones.spanning.transaction_keys import decision_key
from tests.protocol_models.spanning import Guard
from tests.zones.faults import Fault
from tests.zones.spanning.bank import ALICE, BEGINS_WITH, BOB, CAROL, Bank, balance, elsewhere, packed

TOTAL = 3 * BEGINS_WITH


# --- Stories: whether all is well in the end ---


def a_deposit_between_read_and_prepare(bank: Bank) -> bool:
    def deposit() -> None:
        bank.on(BOB, lambda tr: tr.set(("balance",), packed(balance(tr) + 1)))

    runs: list[int] = []

    def body(tx: SpanningTransaction) -> None:
        alice, bob = tx.on(ALICE), tx.on(BOB)
        before, other = balance(alice), balance(bob)
        if not runs:
            elsewhere(deposit)
        runs.append(1)
        alice.set(("balance",), packed(before - 10))
        bob.set(("balance",), packed(other + 10))

    bank.across(body)
    return bank.total() == TOTAL + 1


def write_skew(bank: Bank) -> bool:
    """Each of two takes all from its own tenant if both tenants together hold enough."""

    def take(tx: SpanningTransaction, own: Tenant, other: Tenant) -> None:
        mine, theirs = tx.on(own), tx.on(other)
        if balance(mine) + balance(theirs) >= 2 * BEGINS_WITH:
            mine.set(("balance",), packed(0))

    def other_one() -> None:
        """Commits at home, which is Bob's shard, between Alice's prepare there and her decision."""
        bank.across(lambda tx: take(tx, BOB, ALICE))

    bank.stores["west"].pause = other_one
    bank.across(lambda tx: take(tx, ALICE, BOB))
    return bank.balance(ALICE) + bank.balance(BOB) == BEGINS_WITH


def an_abort_before_the_decision(bank: Bank) -> bool:
    """The coordinator pauses once it has prepared, and a reader of Bob's loses patience."""
    bank.stores["west"].pause = lambda: bank.balance(BOB)
    bank.transfer(10)
    return bank.total() == TOTAL


def an_abort_that_is_forgotten_before_the_decision(bank: Bank) -> bool:
    def abort_and_forget() -> None:
        bank.balance(BOB)
        later_us = bank.clock.now_us() + DECISION_LIFE_US + 1
        assert bank.leftovers("east").forget_old(now_us=later_us) == 1

    bank.stores["west"].pause = abort_and_forget

    def body(tx: SpanningTransaction) -> None:
        tx.on(ALICE).add(("balance",), -10)
        tx.on(BOB).add(("balance",), 10)

    bank.across(body)
    return bank.total() == TOTAL


def a_withdrawal_between_decision_and_apply(bank: Bank) -> bool:
    def withdraw() -> None:
        bank.on(BOB, lambda tr: tr.set(("balance",), packed(balance(tr) - 1)))

    bank.stores["east"].pause = withdraw
    bank.transfer(10)
    return bank.total() == TOTAL - 1


def a_decision_that_is_old_and_not_carried_out(bank: Bank) -> bool:
    bank.is_killed(bank.transfer, on="east", applied=True)
    bank.leftovers("east").forget_old(now_us=bank.clock.now_us() + DECISION_LIFE_US + 1)
    return bank.total() == TOTAL


def a_commit_of_unknown_result_whose_decision_is_swept(bank: Bank) -> bool:
    def carry_out_and_sweep() -> None:
        bank.balance(BOB)
        bank.leftovers("east").forget_old(now_us=bank.clock.now_us() + 1_000_000)

    bank.stores["east"].faults.append(Fault(applied=True, then=lambda: elsewhere(carry_out_and_sweep)))
    bank.transfer(10)
    return bank.balance(ALICE) == BEGINS_WITH - 10


def a_transfer_between_two_reads(bank: Bank) -> bool:
    runs: list[int] = []

    def body(tx: SpanningTransaction) -> int:
        alice = balance(tx.on(ALICE))
        if not runs:
            elsewhere(bank.transfer)
        runs.append(1)
        return alice + balance(tx.on(BOB)) + balance(tx.on(CAROL))

    return bank.across(body) == TOTAL


# --- Planted bugs ---


def prepare_in_a_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = SpanningTransaction._prepare

    def planted(self: SpanningTransaction, branch: Branch, home_id: bytes) -> None:
        branch.tr = branch.shard.db.create_transaction()
        prepare(self, branch, home_id)

    monkeypatch.setattr(SpanningTransaction, "_prepare", planted)


def lock_only_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = participant.prepare

    def planted(tr: Any, layout: Any, transaction: Any, tenants: Any, writes: Any, **home: Any) -> None:
        written = {tenant: exclusive for tenant, exclusive in tenants.items() if exclusive}
        prepare(tr, layout, transaction, written, writes, **home)

    monkeypatch.setattr(participant, "prepare", planted)


def decide_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(tr: Transaction, transaction: TransactionId, shard_ids: Any, *, now_us: int) -> None:
        tr.set(decision_key(transaction), encode(DecisionRecord(True, tuple(shard_ids), now_us)))

    monkeypatch.setattr(decision, "decide", planted)


def begin_the_home_transaction_late(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = SpanningTransaction._decide

    def planted(self: SpanningTransaction, home: Branch, others: list[Branch], result: object) -> None:
        home.tr = home.shard.db.create_transaction()
        decide(self, home, others, result)

    monkeypatch.setattr(SpanningTransaction, "_decide", planted)


def infer_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = recovery.outcome

    def planted(home: Any, shard: Any, transaction: Any, *, may_abort: bool) -> bool | None:
        found = outcome(home, shard, transaction, may_abort=False)
        return False if found is None and may_abort else found

    monkeypatch.setattr(lock_wait, "outcome", planted)


def pass_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(struct: Any, value: bytes) -> Any:
        record = decode(struct, value)
        assert record is not None
        record.locks = ()
        return record

    monkeypatch.setattr(ownership, "decode", planted)


def forget_before_all_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers.Leftovers, "_is_carried_out", lambda *_: True)


def forget_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "DECISION_LIFE_US", 0)


def validate_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator.SpanningTransaction, "_validate", lambda _: None)


STORIES: dict[Guard, tuple[Callable[[Bank], bool], Callable[[pytest.MonkeyPatch], None]]] = {
    Guard.READS_VALIDATED: (a_deposit_between_read_and_prepare, prepare_in_a_transaction_of_its_own),
    Guard.SHARED_LOCK: (write_skew, lock_only_what_is_written),
    Guard.DECISION_READ: (an_abort_before_the_decision, decide_blindly),
    Guard.HOME_FIRST: (an_abort_that_is_forgotten_before_the_decision, begin_the_home_transaction_late),
    Guard.ABORT_WRITTEN: (an_abort_before_the_decision, infer_the_abort),
    Guard.LOCK_SEEN: (a_withdrawal_between_decision_and_apply, pass_locks),
    Guard.CARRIED_OUT: (a_decision_that_is_old_and_not_carried_out, forget_before_all_is_carried_out),
    Guard.RECEIPT: (a_commit_of_unknown_result_whose_decision_is_swept, forget_at_once),
    Guard.ALL_VALIDATED: (a_transfer_between_two_reads, validate_nothing),
}
BY_CONSTRUCTION = {Guard.READ_BEFORE}  # The body has ended before anything is validated.


def test_each_guard_has_its_story() -> None:
    assert set(STORIES) | BY_CONSTRUCTION == set(Guard)


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_with_the_guard_the_story_ends_well(bank: Bank, guard: Guard) -> None:
    story, _ = STORIES[guard]
    assert story(bank)


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_without_the_guard_the_story_ends_badly(bank: Bank, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    story, plant = STORIES[guard]
    plant(monkeypatch)
    assert not story(bank)
