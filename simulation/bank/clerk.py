"""One clerk of the bank: draws operations, runs them by the product's own code, and records their answers.

A transaction across shards runs its body until it is committed. Each run of the body is an attempt of its own in the
history. The attempt before it did not happen, because the coordinator knows how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fairlead.simulation.bank.model import Audit, Balances, Funds, Send, Shift, Transfer, Withdraw, allows
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.history import Attempt as Attempted
from fairlead.simulation.linearizability.history import RecordedAnswer, Recorder
from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.engines.api.errors import ResultUnknown, StoreError
from fairlead.zones.errors import QueueError, TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.transaction_runner import Attempt

AMOUNT_MAX = 20
NUMBER_BYTES = 8
BALANCE, VAULT = ("money", "balance"), ("money", "vault")
DUE = ("statements due",)  # How many statements the committed transfers to a tenant have enqueued.
STATEMENT = "statement"
STATEMENTS_MAX = 6  # Numbers of statements, which several transfers use.


class Habits(NamedTuple):
    """What the plan of a run has drawn for its clerks.

    Attributes:
      pauses_frac: how often a body pauses between two operations.
      applies_later: whether what is committed is applied after the answer, in a task of its own.
      wait_us: how long a transaction waits for locks.
      weights: how often each operation is drawn, by its name.
    """

    pauses_frac: float
    applies_later: bool
    wait_us: int
    weights: Mapping[str, int]


OPERATIONS = ("transfer", "send", "withdraw", "audit", "shift", "look")


class Clerk:
    """One incarnation of a clerk, on its open shards.

    `report`: is called with the accounts of each audit of the whole bank.
    """

    def __init__(
        self,
        host: SimulatedHost,
        shards: OpenShards,
        accounts: Sequence[Tenant],
        random: Random,
        recorder: Recorder,
        habits: Habits,
        report: Callable[[Sequence[Funds]], None],
    ) -> None:
        self._host = host
        self._shards = shards
        self._accounts = accounts
        self._draw = random
        self._recorder = recorder
        self._habits = habits
        self._report = report

    def call_one(self) -> None:
        """Run a drawn operation. It may give up."""
        weights = self._habits.weights
        (name,) = self._draw.choices(list(weights), list(weights.values()))
        operations: Sequence[Callable[[], None]] = (
            self.transfer, self.send, self.withdraw, self.audit, self.shift, self.look
        )  # fmt: skip
        try:
            operations[OPERATIONS.index(name)]()
        except (StoreError, TenantBusy, TenantMoved) as error:
            self._host.world.note(f"gives up: {error!r}")

    # --- Across shards ---

    def transfer(self) -> None:
        """Move money by reads and writes; now and then, enqueue a statement, or raise an error."""
        source, target = self._two()
        call = Transfer(source, target, self._draw.randint(1, AMOUNT_MAX))
        statement = self._draw.randrange(STATEMENTS_MAX) if self._draw.random() < 0.3 else None
        refuses, first = self._draw.random() < 0.1, self._draw.choice([source, target])

        def body(tx: SpanningTransaction) -> RecordedAnswer:
            tx.on(self._accounts[first])
            left, right = tx.on(self._accounts[source]), tx.on(self._accounts[target])
            before = _number(left.get(BALANCE))
            self._pause()
            other = _number(right.get(BALANCE))
            left.set(BALANCE, _packed(before - call.amount))
            right.set(BALANCE, _packed(other + call.amount))
            if statement is not None:
                enqueued = right.enqueue(STATEMENT, item_id=f"statement {statement}")
                if enqueued.status is EnqueueStatus.ENQUEUED:
                    right.add(DUE, 1)
            if refuses:
                raise _Refused(RecordedAnswer(Balances((source, target)), (before, other)))
            return RecordedAnswer(call, (before, other))

        self._across(body)

    def send(self) -> None:
        """Move money without a read."""
        source, target = self._two()
        call = Send(source, target, self._draw.randint(1, AMOUNT_MAX))

        def body(tx: SpanningTransaction) -> RecordedAnswer:
            tx.on(self._accounts[source]).add(BALANCE, -call.amount)
            self._pause()
            tx.on(self._accounts[target]).add(BALANCE, call.amount)
            return RecordedAnswer(call, None)

        self._across(body)

    def withdraw(self) -> None:
        """Move money into a vault if two balances together allow it."""
        own, other = self._two()
        call, first = Withdraw(own, other, self._draw.randint(1, AMOUNT_MAX)), self._draw.choice([own, own, other])
        read = _carelessly if self._draw.random() < 0.2 else _number_at

        def body(tx: SpanningTransaction) -> RecordedAnswer:
            tx.on(self._accounts[first])
            mine, theirs = tx.on(self._accounts[own]), tx.on(self._accounts[other])
            funds, balance = _funds(mine), read(theirs)
            self._pause()
            if allows(funds.balance, balance, call.amount):
                _write(mine, Funds(funds.balance - call.amount, funds.vault + call.amount))
            return RecordedAnswer(call, (funds.balance, balance))

        self._across(body)

    def audit(self) -> None:
        """Read some accounts, or all; now and then, end by an error, whose message is right if the reads were."""
        if self._draw.random() < 0.6:
            self.audit_all()
            return
        self._audit(self._draw.sample(range(len(self._accounts)), 2), refuses=self._draw.random() < 0.3)

    def audit_all(self) -> None:
        """Read all accounts."""
        numbers = list(range(len(self._accounts)))
        self._draw.shuffle(numbers)
        self._report(self._audit(numbers, refuses=False))

    def _audit(self, numbers: Sequence[int], *, refuses: bool) -> Sequence[Funds]:
        read: list[Funds] = []

        def body(tx: SpanningTransaction) -> RecordedAnswer:
            read.clear()
            for number in numbers:
                read.append(_funds(tx.on(self._accounts[number])))
                self._pause()
            answer = RecordedAnswer(Audit(tuple(numbers)), tuple(read))
            if refuses:
                raise _Refused(answer)
            return answer

        self._across(body)
        return read

    def _across(self, body: Callable[[SpanningTransaction], RecordedAnswer]) -> None:
        attempts: list[Attempted] = []

        def run(tx: SpanningTransaction) -> None:
            if attempts:
                self._recorder.drop(attempts.pop())
            attempts.append(self._recorder.begin(self._host.name))
            try:
                attempts[0].answers = [body(tx)]
            except _Refused as refused:
                attempts[0].answers = [refused.answer]
                raise

        try:
            run_across_shards(
                self._shards,
                run,
                wait_us=self._habits.wait_us,
                clock=self._host.clock,
                random=self._host.random,
                apply_later=self._apply,
            )
        except _Refused:
            self._host.world.note("a body is refused")
        except ResultUnknown:
            raise  # The attempt may have happened, or may still happen.
        except (StoreError, TenantBusy, TenantMoved):
            for attempted in attempts:
                self._recorder.drop(attempted)
            raise
        self._recorder.end(attempts[0])

    def _apply(self, apply: Callable[[], None]) -> None:
        if self._habits.applies_later:
            self._host.spawn("apply", apply)
        else:
            apply()

    # --- On one tenant ---

    def shift(self) -> None:
        """Move money from a balance into its vault, by a plain transaction."""
        number, amount = self._draw.randrange(len(self._accounts)), self._draw.randint(-AMOUNT_MAX, AMOUNT_MAX)

        def body(tr: TenantTransaction) -> RecordedAnswer:
            funds = _funds(tr)
            self._pause()
            _write(tr, Funds(funds.balance - amount, funds.vault + amount))
            return RecordedAnswer(Shift(number, amount), funds)

        self._plain(number, body)

    def look(self) -> None:
        """Read an account, by a plain transaction."""
        number = self._draw.randrange(len(self._accounts))
        self._plain(number, lambda tr: RecordedAnswer(Audit((number,)), (_funds(tr),)))

    def _plain(self, number: int, body: Callable[[TenantTransaction], RecordedAnswer]) -> None:
        """Run a plain transaction, which has a receipt if it writes: all its attempts together happen at most once.

        A shard that says that the tenant has moved says, too, that no attempt there has happened.
        """
        tenant = self._accounts[number]
        attempts: list[Attempted] = []

        def once(shard: Shard, attempt: Attempt) -> Attempted:
            attempted = self._recorder.begin(self._host.name)
            attempts.append(attempted)
            attempted.answers = [body(ApplicationTransaction(shard, tenant, attempt))]
            return attempted

        committed = self._shards.at_home(tenant, lambda shard: shard.transact(partial(once, shard)))
        committed.invoked = attempts[0].invoked
        for attempted in attempts:
            if attempted is not committed:
                self._recorder.drop(attempted)
        self._recorder.end(committed)

    # --- Draws ---

    def _two(self) -> list[int]:
        return self._draw.sample(range(len(self._accounts)), 2)

    def _pause(self) -> None:
        if self._host.random.random() < self._habits.pauses_frac:
            self._host.clock.sleep_us(self._host.random.choice([1_000, 20_000, 300_000]))


class _Refused(Exception):
    """What a body raises after it has read, and perhaps written. `answer`: what it has read."""

    def __init__(self, answer: RecordedAnswer) -> None:
        super().__init__("as drawn")
        self.answer = answer


def _number_at(tr: TenantTransaction) -> int:
    return _number(tr.get(BALANCE))


def _carelessly(tr: TenantTransaction) -> int:
    """Read a balance, and take an error for an empty account, as careless code does."""
    try:
        return _number_at(tr)
    except QueueError:
        return 0


def _funds(tr: TenantTransaction) -> Funds:
    found: dict[Any, bytes] = dict(tr.get_range(BALANCE[:1]))
    return Funds(_number(found.get(BALANCE)), _number(found.get(VAULT)))


def _write(tr: TenantTransaction, funds: Funds) -> None:
    tr.set(BALANCE, _packed(funds.balance))
    tr.set(VAULT, _packed(funds.vault))


def _number(stored: bytes | None) -> int:
    return int.from_bytes(stored or b"", "little", signed=True)


def _packed(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "little", signed=True)
