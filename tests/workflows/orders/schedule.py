"""Every order of transactions, depth first: a process stops before each commit, and the search chooses who goes on.

The code is the product's, so a state cannot be copied: each order is run from its beginning (stateless exploration,
Godefroid, *Partial-Order Methods*). Two orders that come to the same state have the same future: the second one is cut
off there. A state is what the stores hold, what each process has read, and for each open transaction which commits came
after its reads: those decide whether it will conflict.

A process that stops for ever needs no case of its own: it is one that goes on last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

import greenlet

from fairlead.zones.engines.api.database import Future
from fairlead.zones.engines.memory import sorted_map
from fairlead.zones.engines.memory.engine import MemoryDatabase, MemorySnapshot, MemoryStore
from fairlead.zones.engines.optimistic.commit import AnsweredCommit, CommitRequest
from fairlead.zones.engines.optimistic.transaction import Transaction

NOW_US = 1_700_000_000_000_000
ORDERS_MAX = 200_000


class StandingClock:
    """A clock that stands: no lease ends by time, and a backoff takes no time."""

    def now_us(self) -> int:
        """Return the time, microseconds since the epoch."""
        return NOW_US

    def sleep_us(self, duration_us: int) -> None:
        """Return at once."""


class Process(greenlet.greenlet):  # type: ignore[misc]
    """A process that stops before each commit.

    Attributes:
      is_enabled: returns whether it may begin, before it has.
      is_awake: returns whether it may go on, once it has begun.
      seen: stands for all that it has read.
      since: the stores of its open transactions, and the positions of their reads.
    """

    def __init__(self, name: str, body: Callable[[], object], is_enabled: Callable[[], bool] = lambda: True) -> None:
        super().__init__(body)
        self.name = name
        self.is_enabled = is_enabled
        self.seen = 0
        self.commit_count = 0
        self.is_awake: Callable[[], bool] = lambda: True
        self.since: dict[OrderedStore, int] = {}
        self._is_ending = False

    def goes_on(self) -> None:
        """Run to before its next commit, or to its end."""
        self.parent = greenlet.getcurrent()
        self.switch()

    def stop(self) -> None:
        """Wait until it goes on."""
        if not self._is_ending:
            self.parent.switch()

    def note(self, what: Hashable) -> None:
        """Note what it has read."""
        self.seen = hash((self.seen, what))

    def end(self) -> None:
        """Unwind it, if it has begun and has not ended."""
        if self.is_open:
            self._is_ending = True
            self.throw(greenlet.GreenletExit)

    @property
    def is_open(self) -> bool:
        """Whether it has begun and has not ended."""
        return bool(super().__bool__())

    @property
    def state(self) -> Hashable:
        """What its future depends on, besides what the stores hold."""
        since = [(store.name, *store.log[position:]) for store, position in self.since.items()]
        return (self.name, self.is_open, bool(self.dead), self.seen, tuple(sorted(since)))

    @property
    def can_go_on(self) -> bool:
        """Whether it may have the next turn."""
        return not self.dead and (self.is_awake() if self.is_open else self.is_enabled())


def current_process() -> Process | None:
    current = greenlet.getcurrent()
    return current if isinstance(current, Process) else None


class OrderedTransaction(Transaction):
    """A transaction whose process stops before its commit."""

    __slots__ = ()

    def commit(self) -> Future:
        """See `Transaction`."""
        process = current_process()
        if process is not None:
            process.stop()
        return super().commit()


class _NotedSnapshot(MemorySnapshot):
    """A snapshot that tells the process what it has read."""

    def get(self, key: bytes) -> bytes | None:
        value = super().get(key)
        process = current_process()
        if process is not None:
            process.note((key, value))
        return value

    def scan(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        process = current_process()
        for pair in super().scan(begin, end, reverse):
            if process is not None:
                process.note(pair)
            yield pair
        if process is not None:
            process.note((begin, end))


class OrderedStore(MemoryStore):
    """A store that keeps the order of its commits: `log` has process and number of each."""

    def __init__(self, name: str) -> None:
        super().__init__(NOW_US)
        self.name = name
        self.log: list[tuple[str, int]] = []

    def snapshot(self, clock: object) -> MemorySnapshot:
        """See `MemoryStore`."""
        process = current_process()
        if process is not None:
            process.since[self] = len(self.log)
        version, root = self._newest
        return _NotedSnapshot(version, root, NOW_US)

    def submit(self, request: CommitRequest) -> AnsweredCommit:
        """See `MemoryStore`."""
        answered = super().submit(request)
        process = current_process()
        if process is not None:
            process.since.pop(self, None)
            process.commit_count += 1
            process.note(request.error is None)
            if request.error is None:
                self.log.append((process.name, process.commit_count))
        return answered

    @property
    def contents(self) -> tuple[tuple[bytes, bytes], ...]:
        """All keys and values."""
        return tuple(sorted_map.scan(self._newest[1], b"", b"\xff\xff", reverse=False))


class OrderedDatabase(MemoryDatabase):
    """A database whose transactions stop before their commits."""

    def __init__(self, name: str) -> None:
        super().__init__(f"memory:{name}", StandingClock(), Random(name))
        self.store = OrderedStore(name)

    def create_transaction(self) -> Transaction:
        """See `MemoryDatabase`."""
        return OrderedTransaction(self, self.store, StandingClock(), Random(1))


class SteppedProcess(Protocol):
    """A process that stops, and goes on when it is its turn; see `Process`."""

    name: str

    @property
    def is_open(self) -> bool:
        """Whether it has begun."""
        ...

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def state(self) -> Hashable:
        """What its future depends on, besides what the stores hold."""
        ...

    @property
    def can_go_on(self) -> bool:
        """Whether it may have the next turn."""
        ...

    def goes_on(self) -> None:
        """Run to its next stop, or to its end."""
        ...

    def end(self) -> None:
        """Unwind it, if it has begun and has not ended."""
        ...


class SteppedStore(Protocol):
    """A store that tells all that it holds."""

    @property
    def contents(self) -> Hashable:
        """All that is committed."""
        ...


class Scene(Protocol):
    """What is run in every order."""

    @property
    def processes(self) -> Sequence[SteppedProcess]:
        """All processes, in the same order in every run."""
        ...

    @property
    def stores(self) -> Sequence[SteppedStore]:
        """All stores."""
        ...

    def violation(self) -> str | None:
        """Run what is left to its end, and return what is wrong then; None: nothing is."""
        ...


class Exploration(NamedTuple):
    """What a search has found: orders that were run, states, and the first violation with its order."""

    orders: int
    states: int
    violation: str | None
    order: tuple[str, ...]


@dataclass(slots=True)
class _Search:
    """A depth-first search: the choices of the present order, and how many there were at each point."""

    choices: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def choose(self, depth: int, count: int) -> int:
        if depth == len(self.choices):
            self.choices.append(0)
            self.counts.append(count)
        return self.choices[depth]

    def advance(self) -> bool:
        """Go to the next order; return whether there is one."""
        while self.choices and self.choices[-1] + 1 == self.counts[-1]:
            self.choices.pop()
            self.counts.pop()
        if self.choices:
            self.choices[-1] += 1
        return bool(self.choices)


def explore(make: Callable[[], Scene], orders_max: int = ORDERS_MAX) -> Exploration:
    """Run a scene in every order, until one breaks an invariant.

    Raises:
      AssertionError: there are more than `orders_max` orders.
    """
    search, visited, orders = _Search(), set[int](), 0
    while True:
        orders += 1
        assert orders <= orders_max, f"more than {orders_max} orders"
        order, violation = _run_once(make(), search, visited)
        if violation is not None:
            return Exploration(orders, len(visited), violation, order)
        if not search.advance():
            return Exploration(orders, len(visited), None, ())


def _run_once(scene: Scene, search: _Search, visited: set[int]) -> tuple[tuple[str, ...], str | None]:
    """Run one order to its end, or until a state that was visited before."""
    depth = 0
    order: list[str] = []
    try:
        while True:
            enabled = [each for each in scene.processes if each.can_go_on]
            enabled = enabled or [each for each in scene.processes if each.is_open and not each.dead]  # Time passes.
            if not enabled:
                return tuple(order), scene.violation()
            if depth == len(search.choices):
                state = hash((*(store.contents for store in scene.stores), *(each.state for each in scene.processes)))
                if state in visited:
                    return tuple(order), None
                visited.add(state)
            process = enabled[search.choose(depth, len(enabled))]
            depth += 1
            order.append(process.name)
            process.goes_on()
    finally:
        for process in scene.processes:
            process.end()
