"""Each guard of `tests/protocol_models/spanning.py` in the product: a story that needs it, and fails without it.

A planted bug (`tests/simulation/mutations/spanning.py`) takes the guard away. The story then ends with money lost or
made, or with a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.layout import Tenant
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.decision import DECISION_LIFE_US
from tests.protocol_models.spanning import Guard
from tests.simulation.mutations.spanning import GUARDS
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


STORIES: dict[Guard, Callable[[Bank], bool]] = {
    Guard.READS_VALIDATED: a_deposit_between_read_and_prepare,
    Guard.SHARED_LOCK: write_skew,
    Guard.DECISION_READ: an_abort_before_the_decision,
    Guard.HOME_FIRST: an_abort_that_is_forgotten_before_the_decision,
    Guard.ABORT_WRITTEN: an_abort_before_the_decision,
    Guard.LOCK_SEEN: a_withdrawal_between_decision_and_apply,
    Guard.CARRIED_OUT: a_decision_that_is_old_and_not_carried_out,
    Guard.RECEIPT: a_commit_of_unknown_result_whose_decision_is_swept,
    Guard.ALL_VALIDATED: a_transfer_between_two_reads,
}
BY_CONSTRUCTION = {Guard.READ_BEFORE}  # The body has ended before anything is validated.


def test_each_guard_has_its_story_and_its_bug() -> None:
    assert set(STORIES) | BY_CONSTRUCTION == set(Guard)
    assert set(GUARDS) == set(STORIES)


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_with_the_guard_the_story_ends_well(bank: Bank, guard: Guard) -> None:
    assert STORIES[guard](bank)


@pytest.mark.parametrize("guard", STORIES, ids=lambda guard: guard.name)
def test_without_the_guard_the_story_ends_badly(bank: Bank, guard: Guard) -> None:
    with GUARDS[guard].planted():
        assert not STORIES[guard](bank)
