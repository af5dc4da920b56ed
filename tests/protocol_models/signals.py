"""Signals and suspension: a waiting workflow is an item that is due later, and a signal makes it due now.

A workflow takes one signal or two, one after the other, and ends. Without a signal it suspends: its item is requeued as
waiting. Two senders send one signal each.

Each store transaction is begun (it reads), and commits at any later time unless a key that it read with conflict was
written meanwhile. A sender may not learn the result of its commit. A lease may expire at any instant, and an executor
may stop, or pause for any time. The item may become a dead letter, and is then retried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from tests.protocol_models.exploration import Transition

SENDERS = ("a", "b")  # Each sends one signal, which has its sender's name.
OPEN_SENDS_MAX = 2  # Of one sender: its latest attempt, and one of unknown result.

SenderStatus = Literal["idle", "begun", "unknown", "to wake", "confirmed", "refused"]


class Guard(Enum):
    """What makes the protocol safe; a model can be built without one of them."""

    SIGNALS_READ = "a suspension reads the signals with conflict"
    RECORD_READ = "a signal reads the item's record with conflict, leased or not"
    WAKE_UP = "the signal and the wake-up are one transaction"
    LEASE = "a suspension, the taking of a signal and the end compare the lease"
    STAMP = "signals are told apart by commit stamps (without: by the next number, read by snapshot)"
    RECEIPT = "a sender looks for the receipt of a signal of unknown result before it sends again"
    TAKEN_AND_RECORDED = "taking a signal and recording it are one transaction"
    REFUSED = "a signal to a workflow that has ended is refused"
    CLEARED = "the end clears the signals that nobody took"


class Item(NamedTuple):
    """The record of the workflow's item."""

    state: Literal["due", "leased", "waiting", "dead letter"]
    lease: int  # Lease number; 0 before the first.


class Signal(NamedTuple):
    """A signal that is stored."""

    number: int  # The key's number if keys are not commit stamps, else 0.
    name: str


class Executor(NamedTuple):
    """One worker's attempt to run the workflow."""

    status: Literal["idle", "running", "clearing", "stopped"]
    lease: int = 0


class Begun(NamedTuple):
    """A transaction that has read and has not committed."""

    kind: Literal["suspend", "send"]
    process: int  # Index of the executor that suspends, or of the sender.
    lease: int = 0  # Of a suspension.
    number: int = 0  # Of a signal: the next number when it was begun.
    wakes: bool = False  # Of a signal: whether the item was waiting when it was begun.
    record_unchanged: bool = True  # Whether the item's record is as the transaction has read it.
    signals_unchanged: bool = True


STOPPED = Executor("stopped")


class State(NamedTuple):
    """The workflow's item and signals, its executors, and the senders."""

    item: Item | None  # None: the workflow has ended.
    recorded: int  # Signals that the step log holds.
    signals: tuple[Signal, ...]  # In the order in which they are taken.
    receipts: frozenset[str]
    taken: tuple[str, ...]  # What the workflow has received, in order.
    senders: tuple[SenderStatus, ...]
    executors: tuple[Executor, ...]
    begun: frozenset[Begun]
    failures: int  # Times that the workflow may still fail for good.
    timeouts: int  # Times that a waiting item may still vest without a signal.

    def with_record(self, item: Item | None) -> State:
        """Return this state after a write of the item's record."""
        begun = frozenset(each._replace(record_unchanged=False) for each in self.begun)
        return self._replace(item=item, begun=begun)

    def with_signals(self, signals: tuple[Signal, ...]) -> State:
        """Return this state after a write of the signals."""
        begun = frozenset(each._replace(signals_unchanged=False) for each in self.begun)
        return self._replace(signals=signals, begun=begun)

    def with_sender(self, index: int, status: SenderStatus) -> State:
        """Return this state with one sender changed."""
        return self._replace(senders=(*self.senders[:index], status, *self.senders[index + 1 :]))

    def with_executor(self, index: int, executor: Executor) -> State:
        """Return this state with one executor changed."""
        return self._replace(executors=(*self.executors[:index], executor, *self.executors[index + 1 :]))

    def begun_by(self, kind: Literal["suspend", "send"], process: int) -> list[Begun]:
        """Return the open transactions of one process."""
        return [each for each in self.begun if (each.kind, each.process) == (kind, process)]


@dataclass(frozen=True)
class Signals:
    """The model; its fields bound what may happen.

    Args:
      without: the guards that are removed.
      takes: number of signals that the workflow takes before it ends.
      executors: number of attempts, which are leases at most.
      unknown_results: whether a sender may not learn the result of its commit.
      failures: how often the workflow may fail for good, which makes its item a dead letter.
    """

    without: tuple[Guard, ...] = ()
    takes: int = 2
    executors: int = 2
    unknown_results: bool = True
    failures: int = 1

    def initial(self) -> State:
        """Return a due item, and senders that have sent nothing."""
        idle: SenderStatus = "idle"
        return State(
            item=Item("due", 0),
            recorded=0,
            signals=(),
            receipts=frozenset(),
            taken=(),
            senders=(idle,) * len(SENDERS),
            executors=(Executor("idle"),) * self.executors,
            begun=frozenset(),
            failures=self.failures,
            timeouts=1,
        )

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield what each process may do next, and which begun transactions may commit."""
        for index, executor in enumerate(state.executors):
            yield from self._execute(state, index, executor)
        item = state.item
        if item is not None and item.state == "dead letter":
            yield Transition("the dead letter is retried", state.with_record(Item("due", item.lease)))
        if item is not None and item.state == "waiting" and state.timeouts:
            after = state.with_record(Item("due", item.lease))._replace(timeouts=state.timeouts - 1)
            yield Transition("the waiting item vests", after)
        for index, status in enumerate(state.senders):
            yield from self._send(state, index, status)
        for begun in sorted(state.begun):
            rest = state._replace(begun=state.begun - {begun})
            if begun.kind == "send":
                yield self._commit_signal(rest, begun)
            else:
                yield from self._commit_suspension(rest, begun)

    def violation(self, state: State) -> str | None:
        """Require that no signal is missed, lost, or left in the store."""
        if state.item is None:
            return "signals are left in the store" if state.signals else None
        if state.item.state == "waiting" and state.signals:
            return "the workflow waits although its signal is stored"
        stored = {signal.name for signal in state.signals}
        for name, status in zip(SENDERS, state.senders, strict=True):
            if status == "confirmed" and name not in stored and name not in state.taken:
                return "a confirmed signal is lost"
        return None

    # --- The workflow ---

    def _execute(self, state: State, index: int, executor: Executor) -> Iterator[Transition[State]]:
        """Lease the item; then take a signal, begin to suspend, end, or fail for good."""
        item = state.item
        if executor.status == "idle":
            if item is not None and item.state in ("due", "leased"):
                lease = item.lease + 1
                after = state.with_record(Item("leased", lease)).with_executor(index, Executor("running", lease))
                yield Transition(f"executor {index} leases the item", after)
        elif executor.status == "clearing":
            after = state.with_signals(state.signals[1:]).with_executor(index, Executor("running", executor.lease))
            yield Transition(f"executor {index} clears the signal", after)
        elif executor.status == "running":
            if item is None or (self._has(Guard.LEASE) and item != Item("leased", executor.lease)):
                yield Transition(f"executor {index} finds its lease lost", state.with_executor(index, STOPPED))
                return
            if state.recorded == self.takes:
                after = state.with_record(None).with_executor(index, STOPPED)
                yield Transition(
                    f"executor {index} ends the workflow", after.with_signals(()) if self._has(Guard.CLEARED) else after
                )
            elif state.signals:
                yield self._take(state, index, executor)
            elif not state.begun_by("suspend", index):
                suspension = Begun("suspend", index, lease=executor.lease)
                after = state._replace(begun=state.begun | {suspension})
                yield Transition(f"executor {index} begins to suspend", after)
            if state.failures:
                after = state.with_record(Item("dead letter", item.lease)).with_executor(index, STOPPED)
                yield Transition(f"executor {index} fails for good", after._replace(failures=state.failures - 1))

    def _take(self, state: State, index: int, executor: Executor) -> Transition[State]:
        """Record the first signal in the step log, and clear it in the same transaction."""
        name = state.signals[0].name
        after = state._replace(recorded=state.recorded + 1, taken=(*state.taken, name))
        if self._has(Guard.TAKEN_AND_RECORDED):
            after = after.with_signals(state.signals[1:])
        else:
            after = after.with_executor(index, Executor("clearing", executor.lease))
        violation = "a signal is received twice" if name in state.taken else None
        return Transition(f"executor {index} takes signal {name}", after, violation)

    def _commit_suspension(self, rest: State, begun: Begun) -> Iterator[Transition[State]]:
        """Requeue the item as waiting; `rest` is the state without the begun transaction."""
        item = rest.item
        record_conflict = not begun.record_unchanged and self._has(Guard.LEASE)
        signals_conflict = not begun.signals_unchanged and self._has(Guard.SIGNALS_READ)
        if record_conflict or signals_conflict:
            yield Transition(f"executor {begun.process} conflicts and does not suspend", rest)
        elif item is not None:
            after = rest.with_record(Item("waiting", item.lease)).with_executor(begun.process, STOPPED)
            violation = None if item == Item("leased", begun.lease) else "the item is suspended without its lease"
            yield Transition(f"executor {begun.process} suspends the workflow", after, violation)

    # --- Senders ---

    def _send(self, state: State, index: int, status: SenderStatus) -> Iterator[Transition[State]]:
        """Begin to send; after an unknown result, look for the receipt first."""
        name, item = SENDERS[index], state.item
        if status in ("idle", "unknown"):
            if status == "unknown" and self._has(Guard.RECEIPT):
                if name in state.receipts:
                    yield Transition(f"sender {name} finds its receipt", state.with_sender(index, "confirmed"))
                    return
                # The receipt was read with conflict, so at most one of the two attempts commits.
                state = state._replace(begun=state.begun - frozenset(state.begun_by("send", index)))
            if item is None and self._has(Guard.REFUSED):
                yield Transition(f"signal {name} is refused", state.with_sender(index, "refused"))
            elif len(state.begun_by("send", index)) < OPEN_SENDS_MAX:
                waiting = item is not None and item.state == "waiting"
                number = max((signal.number for signal in state.signals), default=0) + 1
                send = Begun("send", index, number=number, wakes=waiting)
                after = state.with_sender(index, "begun")._replace(begun=state.begun | {send})
                yield Transition(f"sender {name} begins", after)
        elif status == "to wake":
            after = state.with_sender(index, "confirmed")
            if item is not None and item.state == "waiting":
                yield Transition(f"sender {name} wakes the item", after.with_record(Item("due", item.lease)))
            else:
                yield Transition(f"sender {name} finds no waiting item", after)
        elif status == "begun" and self.unknown_results:
            yield Transition(f"sender {name} does not learn its result", state.with_sender(index, "unknown"))

    def _commit_signal(self, rest: State, begun: Begun) -> Transition[State]:
        """Write the signal and its receipt, and wake a waiting item; `rest` is the state without the transaction."""
        name, item = SENDERS[begun.process], rest.item
        learns = rest.senders[begun.process] == "begun"
        if not begun.record_unchanged and (self._has(Guard.RECORD_READ) or begun.wakes):
            after = rest.with_sender(begun.process, "idle") if learns else rest
            return Transition(f"signal {name} conflicts", after)
        if self._has(Guard.STAMP):
            signals = (*rest.signals, Signal(0, name))
        else:
            others = [signal for signal in rest.signals if signal.number != begun.number]
            signals = tuple(sorted([*others, Signal(begun.number, name)]))
        after = rest.with_signals(signals)._replace(receipts=rest.receipts | {name})
        if begun.wakes and self._has(Guard.WAKE_UP):
            assert item is not None  # The record is as it was when the item was waiting.
            after = after.with_record(Item("due", item.lease))
        if learns:
            wake_up_open = begun.wakes and not self._has(Guard.WAKE_UP)
            after = after.with_sender(begun.process, "to wake" if wake_up_open else "confirmed")
        return Transition(f"signal {name} is sent", after)

    def _has(self, guard: Guard) -> bool:
        return guard not in self.without


SCENES = {
    "two signals": Signals(),
    "one signal": Signals(takes=1),
    "three executors": Signals(executors=3, unknown_results=False, failures=0),
}
