"""What is committed is carried out in batches, and what cannot be carried out holds up nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.engines.api.errors import TRANSACTION_TOO_LARGE
from fairlead.zones.layout import Tenant
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.placement import home
from fairlead.zones.records import TransactionId
from fairlead.zones.spanning import committed, recovery
from fairlead.zones.spanning.coordinator import run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.spanning.transaction_keys import prepared_key
from tests.zones.faults import Fault
from tests.zones.spanning.bank import ALICE, BEGINS_WITH, BOB, NAMES, Bank, move_money, packed

DAVE = next(
    each for number in range(1_000) if home(each := Tenant("bank", f"d{number}"), NAMES) == "west" and each != BOB
)
Later = list[Callable[[], None]]


def pay_later(bank: Bank, later: Later) -> None:
    """Move money from Alice to Bob and from Alice to Dave; what carries it out is in `later`."""
    for target in (BOB, DAVE):
        run_across_shards(
            bank,
            lambda tx, target=target: move_money(tx, ALICE, target, 10),  # type: ignore[misc]
            wait_us=WAIT_US,
            clock=bank.clock,
            random=bank.random,
            apply_later=later.append,
        )


def test_one_commit_carries_out_all_that_waits_on_a_shard(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []

    def counted(shard: OpenShard, transactions: list[TransactionId]) -> None:
        batches.append(len(transactions))
        recovery.apply_all(shard, transactions)

    monkeypatch.setattr(committed, "apply_all", counted)
    later: Later = []
    bank.on(DAVE, lambda tr: tr.set(("balance",), packed(BEGINS_WITH)))
    pay_later(bank, later)
    assert len(bank.prepared()) == 2
    for carry_out in later:
        carry_out()
    assert (batches, bank.prepared()) == ([2], set())
    assert (bank.balance(BOB), bank.balance(DAVE)) == (110, 110)


def test_a_batch_that_one_transaction_spoils_is_carried_out_one_by_one(bank: Bank) -> None:
    bank.on(DAVE, lambda tr: tr.set(("balance",), packed(BEGINS_WITH)))
    later: Later = []
    pay_later(bank, later)
    damaged = min(transaction for _, transaction in bank.prepared())
    transact(bank.shards["west"].db, lambda tr: tr.set(prepared_key(damaged), b"\xff"))
    for carry_out in later:
        carry_out()
    assert {transaction for _, transaction in bank.prepared()} <= {damaged}
    assert bank.balance(DAVE) == 110


def test_a_batch_that_a_store_refuses_is_carried_out_one_by_one(bank: Bank) -> None:
    bank.on(DAVE, lambda tr: tr.set(("balance",), packed(BEGINS_WITH)))
    later: Later = []
    pay_later(bank, later)
    bank.stores["west"].faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))
    for carry_out in later:
        carry_out()
    assert bank.prepared() == set()
    assert (bank.balance(BOB), bank.balance(DAVE)) == (110, 110)
