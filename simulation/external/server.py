"""The server of an external store: statements arrive, are carried out, and are answered, all with latency.

A statement that writes commits a moment later, and holds its locks until then. A connection may break before or after
that commit; or the commit comes later than its sender learns that the connection is broken. A statement that takes too
long is cancelled. A restart breaks all connections and ends all transactions but prepared ones; a promotion also loses
the last commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple

from fairlead.simulation.external.items import Change, ItemTable, Locked, State, Statement, T, Transaction
from fairlead.simulation.host import NodeClock
from fairlead.simulation.world import Task, World
from fairlead.zones.engines.api.errors import StoreUnavailable

STATEMENT_US = 2_000_000  # The timeout of a statement.
LOCK_LOOK_US = 2_000  # How often a statement looks whether what it waits for is free.
LATE_US_MIN, LATE_US_MAX = 500, 2_000_000  # How much later than its connection breaks a commit may come.
STATEMENT_MEANS_US = (50, 300, 2_000)  # Each way.
FLUSH_MEANS_US = (20, 1_000, 5_000)
ENTRIES_LEFT = (0, 0, 300)  # Index entries that an ended item leaves: with many, visits go on where they stopped.
DOWN_US = (20_000, 800_000)  # How long it takes no connections.


class Fate(Enum):
    """What becomes of a statement, or of a commit."""

    CARRIED_OUT = "carried out, and answered"
    CUT_BEFORE = "the connection breaks, and nothing is committed"
    CUT_AFTER = "it is committed, and the connection breaks"
    CUT_LATE = "the connection breaks, and it is committed later"
    CANCELLED = "it takes too long, and is cancelled"


class StoreCommit(NamedTuple):
    """A commit: the name of the host that sent it, and its changes."""

    by: str
    changes: Sequence[Change]


class Answer(Generic[T]):
    """An answer on its way. The first one counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ready_us: int | None = None
        self._result: T | None = None
        self._error: Exception | None = None
        self._waiting: list[Task] = []

    def give(self, result: T | None, error: Exception | None, back_us: int) -> None:
        """Send an answer, which arrives after `back_us`."""
        if self._ready_us is None:
            self._ready_us = self._world.now_us() + back_us
            self._result, self._error = result, error
            for task in self._waiting:
                self._world.wake(task, back_us)

    def wait(self) -> T:
        """Wait for the answer. Raises the error that it is."""
        if self._ready_us is None:
            assert self._world.current is not None
            self._waiting.append(self._world.current)
            self._world.suspend()
        elif self._ready_us > self._world.now_us():
            self._world.sleep_us(self._ready_us - self._world.now_us())
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


@dataclass(slots=True)
class _Sent(Generic[T]):
    """A statement, or a commit, on its way: by whom, and how often the server had restarted."""

    by: str
    answer: Answer[T]
    fate: Fate
    back_us: int
    restarts: int


class Listener(NamedTuple):
    """A connection that listens to the doorbell: `notify` is called when that rings, `lose` when it breaks."""

    notify: Callable[[], None]
    lose: Callable[[], None]


class StoreServer:
    """The server.

    Attributes:
      restarts: how many there were: a connection from before the last one is broken.
      draw_fate: functions of faults that decide what becomes of a statement; the first other one counts.
      loses_ring: functions of faults that decide whether a notification is lost.
      on_commit, on_lost: are called with each commit, and with the changes that a promotion has lost.
      on_read: is called with each transaction that has written nothing, and its sender, as the answer goes out.
    """

    def __init__(self, world: World) -> None:
        draw = world.random("external store")
        self.world = world
        self.clock = NodeClock(world, 0)
        self.table = ItemTable(self.clock.now_us)
        self.table.entries_left = draw.choice(ENTRIES_LEFT)
        self.restarts = 0
        self.draw_fate: list[Callable[[], Fate]] = []
        self.loses_ring: list[Callable[[], bool]] = []
        self.on_commit: list[Callable[[StoreCommit], None]] = []
        self.on_lost: list[Callable[[Sequence[Change]], None]] = []
        self.on_read: list[Callable[[str, Transaction], None]] = []
        self.listeners: list[Listener] = []
        self._down_until_us = 0
        self._random = draw
        self._statement_us = draw.choice(STATEMENT_MEANS_US)
        self._flush_us = draw.choice(FLUSH_MEANS_US)
        self._committed_us: deque[int] = deque(maxlen=500)  # When the latest commits were made.

    @property
    def is_down(self) -> bool:
        """Whether it takes no connections now."""
        return self._down_until_us > self.world.now_us()

    def waiting(self) -> list[str]:
        """Return what waits or runs, for a report."""
        here_us = self.clock.now_us()
        return [
            f"{'/'.join(row.queue.tenant)}/{row.queue.zone}/{row.item_id.hex()}, {row.record.kind}, "
            f"vests in {row.vesting_us - here_us} us, leased for {row.leased_until_us - here_us} us"
            for row in self.table.rows()
            if row.state is State.WAITS
        ]

    def wait_us(self) -> int:
        """Draw how long a message takes."""
        return 1 + int(self._statement_us * (0.5 + self._random.expovariate(2.0)))

    def down(self) -> StoreUnavailable:
        """Return the error of a connection that cannot be made."""
        return StoreUnavailable("no PostgreSQL that takes writes answers", remedy="Try again.", store="pg")

    def broken(self) -> StoreUnavailable:
        """Return the error of a connection that broke."""
        return StoreUnavailable("the connection broke", remedy="Try again.", store="pg")

    # --- Statements that are transactions of their own ---

    def send(self, by: str, statement: Statement[T], *, writes: bool) -> Answer[T]:
        """Send a statement. It is carried out even if its sender is killed now."""
        answer: Answer[T] = Answer(self.world)
        sent = _Sent(by, answer, self._draw_fate(writes=writes), self.wait_us(), self.restarts)
        until_us = self.world.now_us() + STATEMENT_US
        self.world.after(self.wait_us(), partial(self._arrive, sent, statement, until_us))
        return answer

    def _arrive(self, sent: _Sent[T], statement: Statement[T], until_us: int) -> None:
        """Carry out a statement, once what it must change is free."""
        if sent.restarts != self.restarts or sent.fate is Fate.CUT_BEFORE:
            self._break(sent)
            return
        transaction = self.table.begin()
        try:
            result = statement(transaction)
        except Locked:
            if self.world.now_us() > until_us:
                self._cancel(sent, transaction)
                return
            self.table.roll_back(transaction)
            self.world.after(LOCK_LOOK_US, partial(self._arrive, sent, statement, until_us))
            return
        if sent.fate is Fate.CANCELLED:
            self.world.note(f"pg cancels a statement of {sent.by}")
            self.world.after(STATEMENT_US, partial(self._cancel, sent, transaction))
        else:
            self.begin_commit(sent, transaction, result)

    def _cancel(self, sent: _Sent[T], transaction: Transaction) -> None:
        if transaction in self.table.open:
            self.table.roll_back(transaction)
        refused = StoreUnavailable("PostgreSQL refused", remedy="See `error`.", error="statement timeout", store="pg")
        sent.answer.give(None, refused, sent.back_us)

    # --- Commits ---

    def send_commit(self, by: str, transaction: Transaction, restarts: int) -> Answer[None]:
        """Send the commit of a transaction."""
        answer: Answer[None] = Answer(self.world)
        sent = _Sent(by, answer, self._draw_fate(writes=transaction.writes), self.wait_us(), restarts)
        self.world.after(self.wait_us(), partial(self._arrive_commit, sent, transaction))
        return answer

    def _arrive_commit(self, sent: _Sent[None], transaction: Transaction) -> None:
        if transaction not in self.table.open:
            self._break(sent)
        elif sent.fate in (Fate.CUT_BEFORE, Fate.CANCELLED):
            self.table.roll_back(transaction)
            self._break(sent)
        else:
            self.begin_commit(sent, transaction, None)

    def begin_commit(self, sent: _Sent[T], transaction: Transaction, result: T | None) -> None:
        """Make a transaction durable, which takes a moment if it has written."""
        late_us = int(LATE_US_MIN * (LATE_US_MAX / LATE_US_MIN) ** self._random.random())
        if sent.fate is Fate.CUT_LATE:
            self._break(sent)
        if not transaction.writes:
            self._finish(sent, transaction, result)
            for show in self.on_read:
                show(sent.by, transaction)
            return
        flush_us = 1 + int(self._random.expovariate(1 / self._flush_us))
        delay_us = late_us if sent.fate is Fate.CUT_LATE else flush_us
        self.world.after(delay_us, partial(self._finish, sent, transaction, result))

    def _finish(self, sent: _Sent[T], transaction: Transaction, result: T | None) -> None:
        if transaction not in self.table.open:
            self._break(sent)
            return
        self.commit(sent.by, transaction)
        if sent.fate is Fate.CUT_AFTER:
            self._break(sent)
        else:
            sent.answer.give(result, None, sent.back_us)

    def commit(self, by: str, transaction: Transaction) -> None:
        """Commit a transaction now, tell the oracles, and ring the doorbell."""
        changes = self.table.commit(transaction)
        if changes:
            self._committed_us.append(self.world.now_us())
            self.world.note(f"pg commits {by}: {transaction.number} {len(changes)}")
            for show in self.on_commit:
                show(StoreCommit(by, changes))
        if transaction.rings:
            for listener in list(self.listeners):
                if not any(loses() for loses in self.loses_ring):
                    self.world.after(self.wait_us(), listener.notify)

    def _break(self, sent: _Sent[Any]) -> None:
        self.world.note(f"pg loses the connection of {sent.by}: {sent.fate.name.lower()}")
        sent.answer.give(None, self.broken(), sent.back_us)

    def _draw_fate(self, *, writes: bool) -> Fate:
        for draw in self.draw_fate:
            fate = draw()
            if fate is not Fate.CARRIED_OUT:
                return fate if writes or fate is Fate.CANCELLED else Fate.CUT_BEFORE
        return Fate.CARRIED_OUT

    # --- The whole server ---

    def restart(self) -> None:
        """Stop at once, and take connections again after a while."""
        self.world.note("pg restarts")
        self.table.restart()
        self._go_down()

    def promote(self, lost_us: int) -> None:
        """Let a replica take over that has not got the commits of the last `lost_us`."""
        since_us = self.world.now_us() - lost_us
        lost = 0
        while self._committed_us and self._committed_us[-1] > since_us:
            self._committed_us.pop()
            lost += 1
        self.world.note(f"pg is replaced by a replica, without the last {lost} commits")
        changes = self.table.promote(lost)
        for show in self.on_lost:
            show(changes)
        self._go_down()

    def heal(self) -> None:
        """Take connections from now on."""
        self._down_until_us = 0

    def _go_down(self) -> None:
        self.restarts += 1
        self._down_until_us = self.world.now_us() + self._random.randint(*DOWN_US)
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.lose()
