"""Forcing an interleaving: roles that run up to an exact point of their transactions, and wait there.

    enqueuer = scene.role("enqueuer", lambda shard: ...)
    manager = scene.role("manager", lambda shard: ...)
    commit = enqueuer.runs_until_commit()    # its reads are done; its commit is sent and has not arrived
    manager.runs()                           # to its end
    enqueuer.runs()                          # its commit arrives now; then it runs to its end
    assert enqueuer.refused == [NOT_COMMITTED]

A held commit can arrive without an answer. It can also be answered by 1021 or 1031 without having arrived, as a network
may do. A role that is held stays held until the story goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.store import Latencies, PendingCommit, SimulatedStore
from fairlead.simulation.world import World
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.optimistic.commit import CommitRequest
from fairlead.zones.shard import Shard

T = TypeVar("T")

WITHIN_US = 20_000_000  # A role that has not reached its point after this time never will.
TURNS_US = 500  # How far the world goes on between two checks of a role.


class SentCommit:
    """A commit on its way to the store, held by the story. `task`: the loop of the actor that sent the commit."""

    def __init__(self, store: DirectedStore, request: CommitRequest, by: str, task: str) -> None:
        self.task = task
        self._store = store
        self._request = request
        self._by = by
        self._arrived = False
        self._answered = False
        self.pending = PendingCommit(store.world)

    @property
    def has_arrived(self) -> bool:
        """Whether the store has decided about the commit."""
        return self._arrived

    @property
    def refusal(self) -> int | None:
        """The code by which the store refused the commit, None if the store applied it."""
        assert self._arrived
        return None if self._request.error is None else self._request.error.code

    def arrives(self) -> None:
        """Let the store apply or refuse the commit. Its sender gets no answer yet."""
        assert not self._arrived
        self._arrived = True
        self._store.carry_out(self._request, self._by)

    def answer_arrives(self, code: int | None = None) -> None:
        """Let an answer reach the sender: `code` in any case, or the real result of the commit."""
        assert not self._answered
        self._answered = True
        self.pending.answer(self._request.error if code is None else StoreError(code), 0)

    def goes_its_way(self) -> None:
        """Let the commit arrive and be answered, unless it has."""
        if not self._answered:
            if not self._arrived:
                self.arrives()
            self.answer_arrives()


class DirectedStore(SimulatedStore):
    """A shard's store that holds the commits that a story names. All others arrive at once."""

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
        """Apply or refuse a commit that was held, without an answer."""
        self._apply(request, by)

    def put_into_one_batch(self, count: int) -> None:
        """Let the latest commits conflict as if they had one version, that of the first of them.

        None of them has read what another one has written. Nobody has read at their versions.
        """
        first, *others = list(self._log)[-count:]
        for entry in others:
            entry.version = first.version

    def _apply(self, request: CommitRequest, by: str) -> None:
        super()._apply(request, by)
        if request.error is not None:
            self.refusals.append((by, request.error.code))


class Role(Generic[T]):
    """A host with its own open shard, where `body(shard)` runs once. It begins with the first call that runs it."""

    def __init__(self, store: DirectedStore, host: SimulatedHost, shard: Shard, body: Callable[[Shard], T]) -> None:
        self.host = host
        self._store = self._held_in = store
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
        """Run to the end of the body. Return its result, or raise its error."""
        self._release()
        self._until(lambda: self.is_over)
        if self._error is not None:
            raise self._error
        return self._results[0]

    def runs_until_commit(self, of: str | None = None, *, at: DirectedStore | None = None) -> SentCommit:
        """Run until the next commit is on its way, and hold that commit.

        `of`: only a commit of this task. `at`: only a commit to this store; default: to the role's own shard.
        """
        name, store = self.host.name, at or self._store
        store.to_hold[name] = lambda task: of in (None, task)
        self._release()
        self._held_in = store
        self._until(lambda: name in store.held)
        return store.held[name]

    def runs_until_any_commit(
        self, at: Sequence[DirectedStore], of: Collection[str], end: Callable[[], bool]
    ) -> SentCommit | None:
        """Run until the next commit of these tasks to one of these stores, and hold it; None: the end came first."""
        name = self.host.name
        for store in at:
            store.to_hold[name] = lambda task: task in of
        self._release()
        self._until(lambda: end() or any(name in store.held for store in at))
        for store in at:
            store.to_hold.pop(name, None)
        holding = [store for store in at if name in store.held]
        if not holding:
            return None
        self._held_in = holding[0]
        return holding[0].held[name]

    def runs_until(self, condition: Callable[[], object]) -> None:
        """Run until a condition is true, and hold no commit on the way."""
        self._release()
        self._until(condition)

    def goes_on(self, duration_us: int) -> None:
        """Run for a while, and hold no commit on the way."""
        self._release()
        self.host.world.run_until(self.host.world.now_us() + duration_us)

    def _release(self) -> None:
        held = self._held_in.held.pop(self.host.name, None)
        if held is not None:
            held.goes_its_way()
        if not self._begun:
            self._begun = True
            self.host.spawn(self.host.name, self._play)

    def _play(self) -> None:
        try:
            self._results.append(self._body(self._shard))
        except Exception as error:  # noqa: BLE001 - the story checks the error
            self._error = error

    def _until(self, condition: Callable[[], object]) -> None:
        world = self.host.world
        until_us = world.now_us() + WITHIN_US
        while not condition():
            assert world.now_us() < until_us, f"{self.host.name} did not reach its point in time"
            world.run_until(world.now_us() + TURNS_US)
