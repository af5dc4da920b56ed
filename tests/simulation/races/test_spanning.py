"""Transactions across shards: coordinators that die or stand still, helpers, plain transactions, and unknown results.

In most stories Alice pays Bob ten. Her shard is the home shard, Bob's the participant.
"""

from __future__ import annotations

import pytest

from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED
from fairlead.zones.layout import Tenant
from fairlead.zones.spanning.coordinator import SpanningTransaction
from fairlead.zones.spanning.decision import DECISION_LIFE_US
from fairlead.zones.spanning.lock_wait import PATIENCE_US
from tests.simulation.races.bank_scene import BOB, BankScene, OpenShards, balance, pays, put, sends
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import planted
from tests.simulation.stage import ALICE, SECOND

PAID, UNPAID = [90, 110], [100, 100]


def prepared(scene: BankScene) -> Role[None]:
    """Return a clerk who has prepared at Bob's, and whose decision is on its way."""
    clerk = scene.clerk("payer", pays())
    clerk.runs_until_commit()
    assert [lock.exclusive for lock in scene.locks(BOB)] == [True]
    return clerk


def decided(scene: BankScene) -> Role[None]:
    """Return a clerk who has decided, and whose commit that applies it at Bob's is on its way."""
    clerk = prepared(scene)
    clerk.runs_until_commit(at=scene.far)
    return clerk


def reads_bob(shards: OpenShards) -> int:
    return shards.on(BOB, balance)


# --- The coordinator dies ---


def test_a_coordinator_that_dies_after_it_has_prepared_is_aborted_once_others_lose_patience() -> None:
    scene = BankScene()
    clerk, began_us = prepared(scene), scene.now_us
    clerk.host.kill()
    assert scene.does(reads_bob) == 100
    assert PATIENCE_US <= scene.now_us - began_us < 2 * PATIENCE_US
    assert (scene.balances(), scene.locks(BOB)) == (UNPAID, ())


def test_a_coordinator_that_dies_after_its_decision_has_paid_and_who_meets_its_lock_applies_it_at_once() -> None:
    scene = BankScene()
    clerk, began_us = decided(scene), scene.now_us
    clerk.host.kill()
    assert scene.does(reads_bob) == 110
    assert scene.now_us - began_us < PATIENCE_US // 2
    assert (scene.balances(), scene.locks(BOB)) == (PAID, ())


def test_a_coordinator_that_goes_on_after_it_was_aborted_pays_once_by_a_new_attempt() -> None:
    scene = BankScene()
    clerk = prepared(scene)
    assert scene.does(reads_bob) == 100
    clerk.runs()
    assert clerk.refused == [NOT_COMMITTED]
    assert scene.balances() == PAID


# --- An abort, and a decision that comes ---


def decision_after_an_abort(scene: BankScene) -> list[int]:
    """A helper finds no decision, and releases Bob. Then the decision arrives."""
    clerk = prepared(scene)
    scene.does(reads_bob)
    clerk.runs()
    return scene.balances()


@pytest.mark.parametrize(
    "bug",
    [
        "who finds no decision infers the abort, and does not write it",
        "a coordinator decides without reading that there is no decision",
    ],
)
def test_without_an_abort_that_is_written_and_read_alice_pays_and_bob_gets_nothing(bug: str) -> None:
    assert decision_after_an_abort(BankScene()) == PAID
    with planted(bug):
        assert decision_after_an_abort(BankScene()) == [90, 100]


def test_an_abort_that_arrives_after_the_decision_is_refused_and_its_helper_applies() -> None:
    scene = BankScene()
    clerk = prepared(scene)
    helper = scene.clerk("helper", reads_bob)
    abort = helper.runs_until_commit()
    clerk.runs_until_commit(at=scene.far)
    abort.goes_its_way()
    assert abort.refusal == NOT_COMMITTED
    assert helper.runs() == 110
    clerk.runs()
    assert scene.balances() == PAID


def abort_that_is_forgotten_before_the_decision(scene: BankScene) -> list[int]:
    """The abort is written and forgotten while the coordinator waits for the answer to its prepare."""
    clerk = scene.clerk("sender", sends())
    prepare = clerk.runs_until_commit(at=scene.far)
    prepare.arrives()
    assert scene.does(reads_bob) == 100
    scene.does(OpenShards.forgets_aborts)
    clerk.runs()
    return scene.balances()


def test_without_the_read_version_of_the_home_an_abort_that_was_forgotten_is_missed() -> None:
    assert abort_that_is_forgotten_before_the_decision(BankScene()) == PAID
    with planted("a coordinator takes the home's read version after it has prepared"):
        assert abort_that_is_forgotten_before_the_decision(BankScene()) == [90, 100]


# --- Two transactions across shards ---


def test_an_older_transaction_aborts_a_younger_one_at_once() -> None:
    scene = BankScene()
    older = scene.clerk("older", pays(1))
    older.runs_until_commit(at=scene.far)
    younger, began_us = prepared(scene), scene.now_us
    older.runs()
    assert scene.now_us - began_us < PATIENCE_US // 2
    assert scene.balances() == [99, 101]
    younger.runs()
    assert younger.refused == [NOT_COMMITTED]
    assert scene.balances() == [89, 111]


def test_a_younger_transaction_waits_for_an_older_one() -> None:
    scene = BankScene()
    older = prepared(scene)
    younger = scene.clerk("younger", pays(1))
    younger.goes_on(PATIENCE_US // 2)
    assert not younger.is_over
    older.runs()
    younger.runs()
    assert older.refused == []
    assert scene.balances() == [89, 111]


def write_skew(scene: BankScene) -> int:
    """Each of two takes all of its own money if both together have enough. Return what is left."""

    def takes(own: Tenant, other: Tenant) -> Role[None]:
        def body(tx: SpanningTransaction) -> None:
            mine, theirs = tx.on(own), tx.on(other)
            if balance(mine) + balance(theirs) >= 200:
                put(mine, 0)

        return scene.clerk(f"takes {own.user}", lambda shards: shards.across(body))

    left, right = takes(ALICE, BOB), takes(BOB, ALICE)
    left.runs_until_commit()  # Its decision is on its way, at Alice's.
    right.goes_on(PATIENCE_US // 2)
    left.runs()
    right.runs()
    return sum(scene.balances())


def test_without_a_lock_on_what_was_only_read_there_is_write_skew() -> None:
    assert write_skew(BankScene()) == 100
    with planted("a prepare does not lock a tenant that was only read"):
        assert write_skew(BankScene()) == 0


# --- Two that apply ---


def two_apply(scene: BankScene) -> list[int]:
    """The coordinator and a helper apply one transaction at the same moment."""
    clerk = scene.clerk("sender", sends())
    clerk.runs_until_commit()
    mine = clerk.runs_until_commit(at=scene.far)
    helper = scene.clerk("helper", reads_bob)
    other = helper.runs_until_commit(at=scene.far)
    other.goes_its_way()
    mine.goes_its_way()
    helper.runs()
    clerk.runs()
    return scene.balances()


def test_without_the_conflict_on_what_is_prepared_two_apply_it() -> None:
    assert two_apply(BankScene()) == PAID
    with planted("two processes apply a transaction across shards at once"):
        assert two_apply(BankScene()) == [90, 120]


# --- Decisions that are forgotten ---


def decision_that_is_forgotten_before_its_coordinator_asks(scene: BankScene) -> list[int]:
    """The commit of the decision is applied, and its answer is lost."""
    clerk = scene.clerk("payer", pays())
    decision = clerk.runs_until_commit()
    decision.arrives()
    assert scene.does(reads_bob) == 110
    scene.does(lambda own: own.forgets(ahead_us=SECOND))
    decision.answer_arrives(COMMIT_UNKNOWN_RESULT)
    clerk.runs()
    return scene.balances()


def test_without_the_time_of_a_decision_a_coordinator_does_not_learn_that_it_has_committed() -> None:
    assert decision_that_is_forgotten_before_its_coordinator_asks(BankScene()) == PAID
    with planted("a commit is forgotten before its coordinator knows its result"):
        assert decision_that_is_forgotten_before_its_coordinator_asks(BankScene()) == [80, 120]


def decision_that_is_old_and_not_carried_out(scene: BankScene) -> list[int]:
    decided(scene).host.kill()
    scene.does(lambda own: own.forgets(ahead_us=DECISION_LIFE_US + SECOND))
    return scene.balances()


def test_without_the_look_at_what_is_prepared_a_commit_is_forgotten_and_bob_gets_nothing() -> None:
    assert decision_that_is_old_and_not_carried_out(BankScene()) == PAID
    with planted("a commit is forgotten before it is carried out everywhere"):
        assert decision_that_is_old_and_not_carried_out(BankScene()) == [90, 100]


# --- Plain transactions ---


def deposit_between_decision_and_apply(scene: BankScene) -> list[int]:
    clerk = decided(scene)
    scene.does(lambda own: own.on(BOB, lambda tr: put(tr, balance(tr) + 1)))
    clerk.runs()
    return scene.balances()


def test_without_a_look_at_the_lock_a_deposit_is_lost() -> None:
    assert deposit_between_decision_and_apply(BankScene()) == [90, 111]
    with planted("a plain transaction passes the lock of a transaction across shards"):
        assert deposit_between_decision_and_apply(BankScene()) == PAID


def deposit_before_the_prepare(scene: BankScene) -> list[int]:
    """The body has read Bob's money. Its prepare is on its way."""
    clerk = scene.clerk("payer", pays())
    prepare = clerk.runs_until_commit(at=scene.far)
    scene.does(lambda own: own.on(BOB, lambda tr: put(tr, balance(tr) + 1)))
    prepare.goes_its_way()
    clerk.runs()
    return scene.balances()


def test_without_validation_by_the_prepare_a_deposit_after_its_read_is_lost() -> None:
    assert deposit_before_the_prepare(BankScene()) == [90, 111]
    with planted("a prepare does not validate what was read on its shard"):
        assert deposit_before_the_prepare(BankScene()) == PAID


def test_a_plain_transaction_whose_commit_comes_after_a_lock_is_refused() -> None:
    scene = BankScene()
    depositor = scene.clerk("depositor", lambda shards: shards.on(BOB, lambda tr: put(tr, balance(tr) + 1)))
    commit = depositor.runs_until_commit(at=scene.far)
    clerk = prepared(scene)
    commit.goes_its_way()
    assert commit.refusal == NOT_COMMITTED
    clerk.runs()
    depositor.runs()
    assert scene.balances() == [90, 111]


def audit_beside_a_transfer(scene: BankScene) -> int:
    """The audit has read Alice's money. Alice pays Bob, and then the audit reads Bob's."""

    def body(tx: SpanningTransaction) -> int:
        alice = balance(tx.on(ALICE))
        reader.host.clock.sleep_us(SECOND)
        return alice + balance(tx.on(BOB))

    reader = scene.clerk("reader", lambda shards: shards.across(body))
    reader.goes_on(SECOND // 2)
    scene.does(pays())
    return reader.runs()


def test_without_validation_an_audit_counts_money_twice() -> None:
    assert audit_beside_a_transfer(BankScene()) == 200
    with planted("a transaction without writes validates nothing"):
        assert audit_beside_a_transfer(BankScene()) == 210


# --- Unknown results ---


def unknown_prepare(scene: BankScene, *, arrives: bool, late: bool = False) -> list[int]:
    clerk = scene.clerk("payer", pays())
    prepare = clerk.runs_until_commit(at=scene.far)
    if arrives:
        prepare.arrives()
    prepare.answer_arrives(COMMIT_UNKNOWN_RESULT)
    if late:
        clerk.runs_until_commit()  # Of a new attempt: the decision is on its way.
        prepare.arrives()
    clerk.runs()
    return scene.balances()


def test_a_prepare_of_unknown_result_that_was_applied_is_used() -> None:
    scene = BankScene()
    assert unknown_prepare(scene, arrives=True) == PAID
    assert scene.locks(BOB) == ()


def test_a_prepare_of_unknown_result_that_was_lost_is_not_used() -> None:
    assert unknown_prepare(BankScene(), arrives=False) == PAID
    with planted("a prepare of unknown result counts as done"):
        assert unknown_prepare(BankScene(), arrives=False) == [90, 100]


def test_a_prepare_that_arrives_after_a_new_attempt_has_prepared_is_refused() -> None:
    scene = BankScene()
    assert unknown_prepare(scene, arrives=False, late=True) == PAID
    assert scene.locks(BOB) == ()


def unknown_decision(scene: BankScene, *, arrives: bool, late: bool = False) -> list[int]:
    clerk = scene.clerk("payer", pays())
    decision = clerk.runs_until_commit()
    if arrives:
        decision.arrives()
    decision.answer_arrives(COMMIT_UNKNOWN_RESULT)
    if late:
        clerk.runs_until_commit(at=scene.far)  # The release of what the attempt has prepared is on its way.
        decision.arrives()
    clerk.runs()
    return scene.balances()


def test_a_decision_of_unknown_result_that_was_applied_is_found() -> None:
    assert unknown_decision(BankScene(), arrives=True) == PAID
    with planted("a decision of unknown result counts as an abort"):
        assert unknown_decision(BankScene(), arrives=True) != PAID


def test_a_decision_of_unknown_result_that_was_lost_is_aborted_and_a_new_attempt_pays() -> None:
    assert unknown_decision(BankScene(), arrives=False) == PAID


def test_a_decision_that_arrives_after_its_coordinator_has_written_the_abort_is_refused() -> None:
    assert unknown_decision(BankScene(), arrives=False, late=True) == PAID
    with planted("a decision of unknown result counts as an abort"):
        assert unknown_decision(BankScene(), arrives=False, late=True) != PAID


@pytest.mark.parametrize("arrives", [True, False])
def test_an_apply_of_unknown_result_is_done_once(*, arrives: bool) -> None:
    scene = BankScene()
    clerk = scene.clerk("sender", sends())
    clerk.runs_until_commit()
    apply = clerk.runs_until_commit(at=scene.far)
    if arrives:
        apply.arrives()
    apply.answer_arrives(COMMIT_UNKNOWN_RESULT)
    clerk.runs()
    assert (scene.balances(), scene.locks(BOB)) == (PAID, ())


def test_a_late_apply_that_arrives_after_a_helpers_is_refused() -> None:
    scene = BankScene()
    clerk = scene.clerk("sender", sends())
    clerk.runs_until_commit()
    apply = clerk.runs_until_commit(at=scene.far)
    apply.answer_arrives(COMMIT_UNKNOWN_RESULT)
    clerk.runs()
    apply.arrives()
    assert apply.refusal == NOT_COMMITTED
    assert scene.balances() == PAID
