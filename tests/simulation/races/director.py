"""Forcing an interleaving: roles that play up to an exact point of their transactions, and wait there for a cue.

    enqueuer = scene.role("enqueuer", lambda shard: ...)
    manager = scene.role("manager", lambda shard: ...)
    commit = enqueuer.runs_until_commit()    # all it reads is read; its commit is sent and has not arrived
    manager.runs()                           # to its end
    enqueuer.runs()                          # its commit arrives now; then on to its end
    assert enqueuer.refused == [NOT_COMMITTED]

A commit that is held can arrive without an answer, and can be answered by 1021 or 1031 without having arrived:
whatever a network does to it. Nothing here waits for luck: a role that is held stays so until the story goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.store import Latencies, PendingCommit, SimulatedStore
from fairlead.simulation.world import World
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.optimistic.commit import CommitRequest
from fairlead.zones.shard import Shard

T = TypeVar("T")

WITHIN_US = 20_000_000  # A role that has not got where it should after so long never will.
TURNS_US = 500  # How far the world goes on between two looks at where a role is.


class SentCommit:
    """A commit on its way to the store, held by the story. `task`: which loop of its actor sent it."""

    def __init__(self, store: DirectedStore, request: CommitRequest, by: str, task: str) -> None:
        self.task = task
        self._store = store
        self._request = request
        self._by = by
        self._arrived = False
        self._answered = False
        self.pending = PendingCommit(store.world)

    @property
    def refusal(self) -> int | None:
        """The code by which the store refused it, None if it was carried out."""
        assert self._arrived
        return None if self._request.error is None else self._request.error.code

    def arrives(self) -> None:
        """Let the store carry it out, or refuse it; its sender is told nothing yet."""
        assert not self._arrived
        self._arrived = True
        self._store.carry_out(self._request, self._by)

    def answer_arrives(self, code: int | None = None) -> None:
        """Let an answer reach its sender: `code`, whatever became of the commit; else what became of it."""
        assert not self._answered
        self._answered = True
        self.pending.answer(self._request.error if code is None else StoreError(code), 0)

    def goes_its_way(self) -> None:
        """Do what is left of arriving and being answered."""
        if not self._answered:
            if not self._arrived:
                self.arrives()
            self.answer_arrives()


class DirectedStore(SimulatedStore):
    """A shard's store that holds a commit where a story says so; all others go their way at once."""

    def __init__(self, world: World, name: str, latencies: Latencies) -> None:
        super().__init__(world, name, latencies)
        self.refusals: list[tuple[str, int]] = []  # host name and code, in order
        self.to_hold: dict[str, Callable[[str], bool]] = {}  # host name -> whether to hold what a task sends
        self.held: dict[str, SentCommit] = {}

    def submit(self, request: CommitRequest) -> PendingCommit:  # type: ignore[override]
        """See `SimulatedStore`."""
        assert self.world.current is not None
        by, task = self.world.current.host.name, self.world.current.name
        if by not in self.to_hold or not self.to_hold[by](task):
            return super().submit(request)
        del self.to_hold[by]
        request.begin()
        self.held[by] = SentCommit(self, request, by, task)
        return self.held[by].pending

    def carry_out(self, request: CommitRequest, by: str) -> None:
        """Carry out, or refuse, a commit that was held; nobody hears of it."""
        self._apply(request, by)

    def _apply(self, request: CommitRequest, by: str) -> None:
        super()._apply(request, by)
        if request.error is not None:
            self.refusals.append((by, request.error.code))


class Role(Generic[T]):
    """A host with its own open shard, and what is played there: `body(shard)`, once, when it is first told to run."""

    def __init__(self, store: DirectedStore, host: SimulatedHost, shard: Shard, body: Callable[[Shard], T]) -> None:
        self.host = host
        self._store = store
        self._shard = shard
        self._body = body
        self._begun = False
        self._results: list[T] = []
        self._error: Exception | None = None

    @property
    def refused(self) -> list[int]:
        """The codes by which the store refused commits of this role, in order."""
        return [code for by, code in self._store.refusals if by == self.host.name]

    @property
    def is_over(self) -> bool:
        """Whether the body has ended."""
        return bool(self._results) or self._error is not None

    def runs(self) -> T:
        """Play on to the end of the body; return what it returns, or raise what it raises."""
        self._let_go()
        self._until(lambda: self.is_over)
        if self._error is not None:
            raise self._error
        return self._results[0]

    def runs_until_commit(self, of: str | None = None) -> SentCommit:
        """Play on until its next commit is on its way, and hold that. `of`: only one that this task of it sends."""
        name = self.host.name
        self._store.to_hold[name] = lambda task: of in (None, task)
        self._let_go()
        self._until(lambda: name in self._store.held)
        return self._store.held[name]

    def runs_until(self, condition: Callable[[], object]) -> None:
        """Play on until a condition holds, and hold nothing on the way."""
        self._let_go()
        self._until(condition)

    def goes_on(self, duration_us: int) -> None:
        """Play on for a while, and hold nothing on the way."""
        self._let_go()
        self.host.world.run_until(self.host.world.now_us() + duration_us)

    def _let_go(self) -> None:
        held = self._store.held.pop(self.host.name, None)
        if held is not None:
            held.goes_its_way()
        if not self._begun:
            self._begun = True
            self.host.spawn(self.host.name, self._play)

    def _play(self) -> None:
        try:
            self._results.append(self._body(self._shard))
        except Exception as error:  # noqa: BLE001 - the story looks at it
            self._error = error

    def _until(self, condition: Callable[[], object]) -> None:
        world = self.host.world
        until_us = world.now_us() + WITHIN_US
        while not condition():
            assert world.now_us() < until_us, f"{self.host.name} does not get there"
            world.run_until(world.now_us() + TURNS_US)
