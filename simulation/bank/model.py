"""The bank as a sequential object: each account has a balance and a vault, and no operation changes their total.

Money moves between accounts, and between an account's balance and its vault. A balance may be negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.simulation.linearizability.history import Model, Operation

CREDIT = 30  # Two accounts together may be in debt by this much.


class Funds(NamedTuple):
    """The money of one account."""

    balance: int = 0
    vault: int = 0

    @property
    def total(self) -> int:
        """All its money."""
        return self.balance + self.vault


Accounts = tuple[Funds, ...]  # by number


class Transfer(NamedTuple):
    """Move money between two balances, which are read before; the answer: both balances, as read."""

    source: int
    target: int
    amount: int

    def on(self, state: Accounts) -> tuple[tuple[int, int], Accounts]:
        """See `Call`."""
        answer = state[self.source].balance, state[self.target].balance
        return answer, _moved(state, self.source, self.target, self.amount)


class Send(NamedTuple):
    """Move money between two balances, without a read; there is no answer."""

    source: int
    target: int
    amount: int

    def on(self, state: Accounts) -> tuple[None, Accounts]:
        """See `Call`."""
        return None, _moved(state, self.source, self.target, self.amount)


class Withdraw(NamedTuple):
    """Move money from a balance into its vault if two balances together allow it; the answer: both, as read.

    Two of these, each from the balance that the other one only reads, are the example of write skew.
    """

    own: int
    other: int
    amount: int

    def on(self, state: Accounts) -> tuple[tuple[int, int], Accounts]:
        """See `Call`."""
        own, other = state[self.own].balance, state[self.other].balance
        return (own, other), shifted(state, self.own, self.amount) if allows(own, other, self.amount) else state


class Shift(NamedTuple):
    """Move money from a balance into its vault; the answer: the account, as read."""

    number: int
    amount: int

    def on(self, state: Accounts) -> tuple[Funds, Accounts]:
        """See `Call`."""
        return state[self.number], shifted(state, self.number, self.amount)


class Audit(NamedTuple):
    """Read accounts; the answer: these accounts."""

    numbers: Sequence[int]

    def on(self, state: Accounts) -> tuple[Accounts, Accounts]:
        """See `Call`."""
        return tuple(state[number] for number in self.numbers), state


class Balances(NamedTuple):
    """Read balances; the answer: these."""

    numbers: Sequence[int]

    def on(self, state: Accounts) -> tuple[tuple[int, ...], Accounts]:
        """See `Call`."""
        return tuple(state[number].balance for number in self.numbers), state


def allows(own: int, other: int, amount: int) -> bool:
    """Whether two balances allow to withdraw from one of them."""
    return own + other + CREDIT >= amount


def shifted(state: Accounts, number: int, amount: int) -> Accounts:
    """Return the accounts after money has moved from a balance into its vault."""
    funds = state[number]
    return _with(state, number, Funds(funds.balance - amount, funds.vault + amount))


def bank_of(account_count: int) -> Model[Accounts]:
    """Return the model of a bank with so many accounts, all empty."""
    return Model((Funds(),) * account_count, changes_nothing)


def changes_nothing(operation: Operation) -> bool:
    """Whether an operation that happened has only read."""
    return isinstance(operation.call, Audit | Balances)


def _moved(state: Accounts, source: int, target: int, amount: int) -> Accounts:
    paid = _with(state, source, state[source]._replace(balance=state[source].balance - amount))
    return _with(paid, target, paid[target]._replace(balance=paid[target].balance + amount))


def _with(state: Accounts, number: int, funds: Funds) -> Accounts:
    return (*state[:number], funds, *state[number + 1 :])
