"""Two accounts on two shards, and processes that act on them, in any order of their commits.

A transaction across shards stops between its reads, and before each of its commits. So a process that dies is one that
goes on last: the others have met its locks, and settled what it has prepared. A process that waits for a lock goes on
after somebody has committed; or, a few times, because it has lost patience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from fairlead.simulation.bank.keeper import forget_aborts
from fairlead.simulation.bank.model import Audit, Funds, Send, Shift, Transfer, Withdraw, allows, bank_of
from fairlead.simulation.linearizability.history import Attempt as Attempted
from fairlead.simulation.linearizability.history import RecordedAnswer, Recorder
from fairlead.simulation.linearizability.search import Verdict, is_linearizable
from fairlead.zones.engines import transact
from fairlead.zones.engines.memory.engine import MemoryDatabase
from fairlead.zones.engines.optimistic.commit import AnsweredCommit, CommitRequest
from fairlead.zones.engines.optimistic.transaction import Transaction
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.leftovers import SEEN_US, Leftovers, list_prepared
from fairlead.zones.spanning.lock_wait import PATIENCE_US
from fairlead.zones.spanning.transaction_keys import DECISION_PREFIX
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.workflows.orders.schedule import NOW_US, OrderedStore, Process, StandingClock, current_process

ACCOUNTS = (Tenant("bank", "a"), Tenant("bank", "b"))
BALANCE, VAULT = ("balance",), ("vault",)
STEPS_MAX = 100_000
FOR_EVER_US = 1 << 60


class StoppingStore(OrderedStore):
    """A store whose processes stop before each commit that writes, or declares a write.

    With `answers_late` they also stop before they get its answer.
    """

    answers_late = False

    def submit(self, request: CommitRequest) -> AnsweredCommit:
        """See `OrderedStore`."""
        process = current_process()
        if process is None:
            return super().submit(request)
        process.stop()
        answered = super().submit(request)
        if self.answers_late:
            process.stop()
        return answered


class StoppingDatabase(MemoryDatabase):
    """The database of such a store."""

    def __init__(self, name: str) -> None:
        super().__init__(f"memory:{name}", StandingClock(), Random(name))
        self.store: StoppingStore = StoppingStore(name)

    def create_transaction(self) -> Transaction:
        """See `MemoryDatabase`."""
        return Transaction(self, self.store, StandingClock(), Random(1))


class PatientClock(StandingClock):
    """The clock of one process. While it sleeps, others go on.

    It goes on after another commit, or once because of its patience, or if nobody else can: then time has passed.
    """

    def __init__(self, stores: list[OrderedStore], patience: int) -> None:
        self._stores = stores
        self._timeouts_left = patience
        self._passed_us = 0

    def now_us(self) -> int:
        """See `StandingClock`."""
        return NOW_US + self._passed_us

    def sleep_us(self, duration_us: int) -> None:
        """See `StandingClock`."""
        process = current_process()
        if process is None:
            self._passed_us += duration_us
            return
        before = self._commits()
        process.is_awake = lambda: self._timeouts_left > 0 or self._commits() != before
        process.stop()
        process.is_awake = lambda: True
        if self._commits() == before:
            self._timeouts_left -= 1
            self._passed_us += PATIENCE_US
        process.note(("slept", self._passed_us, self._timeouts_left))

    def _commits(self) -> int:
        return sum(len(store.log) for store in self._stores)


@dataclass(frozen=True)
class SpanningScene:
    """What may happen, and one run of it; see `schedule.Scene`.

    Attributes:
      across: the transactions across shards; see `_Run`.
      plain: the accounts on which there is a plain transaction.
      settles: whether housekeeping settles what is prepared on each shard, as if it had been seen for long.
      forgets: the shards on which aborts are forgotten at some time.
      patience: how often each process loses patience.
      reads_at_once: whether a body reads both accounts in one turn.
      attempts: how often each body runs before its process gives up.
      answers_late: whether anything may happen between a commit and its answer.
    """

    across: tuple[str, ...]
    plain: tuple[int, ...] = ()
    settles: tuple[int, ...] = ()
    forgets: tuple[int, ...] = ()
    patience: int = 1
    reads_at_once: bool = False
    attempts: int = 100
    answers_late: bool = False

    def begin(self) -> _Run:
        """Return a new run."""
        return _Run(self)


class _Opened:
    """Both shards, as one process has opened them; see `fairlead.zones.spanning.coordinator.ShardFinder`."""

    def __init__(
        self, name: str, databases: list[StoppingDatabase], layouts: list[ShardLayout], clock: PatientClock
    ) -> None:
        self.clock = clock
        self.random = Random(name)
        self.shards = [
            Shard(database.store.name, database, layout, clock=clock, random=Random(f"{name} {number}"))
            for number, (database, layout) in enumerate(zip(databases, layouts, strict=True))
        ]
        for shard in self.shards:
            shard.find_shard = self.with_id

    def home(self, tenant: Tenant) -> Shard:
        return self.shards[ACCOUNTS.index(tenant)]

    def note_moved(self, moved: TenantMoved) -> bool:
        return False

    def with_id(self, shard_id: bytes) -> Shard | None:
        return next((shard for shard in self.shards if shard.layout.shard_id == shard_id), None)


class _Run:
    """See `schedule.Scene`. A transaction across shards is named by what it does, and by its accounts: home first."""

    def __init__(self, scene: SpanningScene) -> None:
        self._databases = [StoppingDatabase("a"), StoppingDatabase("b")]
        self._layouts = [_layout_of(database) for database in self._databases]
        for database in self._databases:
            database.store.answers_late = scene.answers_late
        self._recorder = Recorder()
        self._last = _Opened("last", self._databases, self._layouts, PatientClock(self.stores, 0))
        self._scene = scene
        self.processes = [
            *(self._process(f"forget {n}", self._forget(n), partial(self._is_decided, n)) for n in scene.forgets),
            *(self._process(f"plain {n} {number}", self._plain(number)) for n, number in enumerate(scene.plain)),
            *(self._process(f"settle {number}", self._settle(number)) for number in scene.settles),
            *(self._process(f"{number} {what}", self._across(what)) for number, what in enumerate(scene.across)),
        ]

    @property
    def stores(self) -> list[OrderedStore]:
        """See `Scene`."""
        return [database.store for database in self._databases]

    def violation(self) -> str | None:
        """See `Scene`: nothing is left, and an order of all transactions explains what they have read."""
        for shard in self._last.shards:
            if transact(shard.db, lambda tr: list_prepared(tr, transactions_max=9)):
                return f"something is prepared on {shard.name}"
        self._across("audit 0 1")(self._last)
        history = self._recorder.history()
        if is_linearizable(history, bank_of(2), steps_max=STEPS_MAX).verdict is not Verdict.LINEARIZABLE:
            return f"no order explains {[(each.call, each.answer) for each in history]}"
        return None

    def _is_decided(self, number: int) -> bool:
        """Whether something is decided on a shard."""
        return any(key.startswith(DECISION_PREFIX) for key, _ in self.stores[number].contents)

    def _process(
        self, name: str, body: Callable[[_Opened], object], is_enabled: Callable[[], bool] = lambda: True
    ) -> Process:
        opened = _Opened(name, self._databases, self._layouts, PatientClock(self.stores, self._scene.patience))
        return Process(name, lambda: body(opened), is_enabled)

    # --- Transactions ---

    def _across(self, what: str) -> Callable[[_Opened], None]:
        name, *numbers = what.split()
        first, second = map(int, numbers)
        stop = _no_stop if self._scene.reads_at_once else _stop
        bodies: dict[str, Callable[[TenantTransaction, TenantTransaction], RecordedAnswer]] = {
            "withdraw": lambda own, other: _withdraw(own, other, Withdraw(first, second, 7), stop),
            "transfer": lambda own, other: _transfer(own, other, Transfer(first, second, 5), stop),
            "send": lambda own, other: _send(own, other, Send(first, second, 3), stop),
            "audit": lambda own, other: _audit(own, other, Audit((first, second)), stop),
        }

        def run(opened: _Opened) -> None:
            call = _RecordedCall(self._recorder, what, self._scene.attempts)

            def body(tx: SpanningTransaction) -> None:
                call.begin()
                call.answer(bodies[name](tx.on(ACCOUNTS[first]), tx.on(ACCOUNTS[second])))

            with call.recorded():
                run_across_shards(opened, body, wait_us=FOR_EVER_US, clock=opened.clock, random=opened.random)

        return run

    def _plain(self, number: int) -> Callable[[_Opened], None]:
        def run(opened: _Opened) -> None:
            shard = opened.shards[number]
            call = _RecordedCall(self._recorder, "plain", self._scene.attempts)

            def body(attempt: Attempt) -> None:
                call.begin()
                tr = ApplicationTransaction(shard, ACCOUNTS[number], attempt)
                funds = _read(tr)
                _write(tr, funds.balance - 1, funds.vault + 1)
                call.answer(RecordedAnswer(Shift(number, 1), funds))

            with call.recorded():
                shard.transact(body)

        return run

    def _settle(self, number: int) -> Callable[[_Opened], object]:
        def run(opened: _Opened) -> None:
            leftovers = Leftovers(opened.shards[number], opened.with_id)
            leftovers.settle_old(now_us=NOW_US)
            _stop()
            leftovers.settle_old(now_us=NOW_US + SEEN_US)

        return run

    def _forget(self, number: int) -> Callable[[_Opened], object]:
        return lambda opened: forget_aborts(opened.shards[number])


class _GivesUp(Exception):
    """A process gives up: its body has run often enough."""


class _RecordedCall:
    """A call in the history, and its present attempt. Those before it are known not to have happened."""

    def __init__(self, recorder: Recorder, client: str, attempts_max: int) -> None:
        self._recorder = recorder
        self._client = client
        self._left = attempts_max
        self._invoked = recorder.moment()
        self._attempt: Attempted | None = None

    def begin(self) -> None:
        """Begin an attempt."""
        self._drop()
        if not self._left:
            raise _GivesUp
        self._left -= 1
        self._attempt = self._recorder.begin(self._client)
        self._attempt.invoked = self._invoked

    def answer(self, answer: RecordedAnswer) -> None:
        """Record the answer that the attempt has if it commits."""
        assert self._attempt is not None
        self._attempt.answers = [answer]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record whether the call happens meanwhile."""
        try:
            yield
        except _GivesUp:
            return
        assert self._attempt is not None
        self._recorder.end(self._attempt)

    def _drop(self) -> None:
        if self._attempt is not None:
            self._recorder.drop(self._attempt)
            self._attempt = None


def _layout_of(database: StoppingDatabase) -> ShardLayout:
    name = database.store.name
    return open_shard(name, database, clock=StandingClock(), random=Random(name), part_count=1).layout


Stop = Callable[[], None]


def _no_stop() -> None:
    pass


def _stop() -> None:
    process = current_process()
    if process is not None:
        process.stop()


def _withdraw(own: TenantTransaction, other: TenantTransaction, call: Withdraw, stop: Stop) -> RecordedAnswer:
    mine = _read(own)
    stop()
    theirs = _read(other).balance
    if allows(mine.balance, theirs, call.amount):
        _write(own, mine.balance - call.amount, mine.vault + call.amount)
    return RecordedAnswer(call, (mine.balance, theirs))


def _transfer(source: TenantTransaction, target: TenantTransaction, call: Transfer, stop: Stop) -> RecordedAnswer:
    before = _read(source)
    stop()
    after = _read(target)
    _write(source, before.balance - call.amount, before.vault)
    _write(target, after.balance + call.amount, after.vault)
    return RecordedAnswer(call, (before.balance, after.balance))


def _send(source: TenantTransaction, target: TenantTransaction, call: Send, stop: Stop) -> RecordedAnswer:
    source.add(BALANCE, -call.amount)
    stop()
    target.add(BALANCE, call.amount)
    return RecordedAnswer(call, None)


def _audit(first: TenantTransaction, second: TenantTransaction, call: Audit, stop: Stop) -> RecordedAnswer:
    left = _read(first)
    stop()
    return RecordedAnswer(call, (left, _read(second)))


def _read(tr: TenantTransaction) -> Funds:
    return Funds(*(int.from_bytes(tr.get(key) or b"", "little", signed=True) for key in (BALANCE, VAULT)))


def _write(tr: TenantTransaction, balance: int, vault: int) -> None:
    for key, number in ((BALANCE, balance), (VAULT, vault)):
        tr.set(key, number.to_bytes(8, "little", signed=True))
