"""Nodes and actors: the product's classes are built here, called, killed, and restarted.

An actor has a name. At every start `factory` builds its instance anew, on a new host. The memory of the incarnation
before is lost, and every call to that incarnation is answered by `ActorDied`.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fairlead.actors.runtime.host import ActorDied
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.world import World
from fairlead.zones.engines.api.errors import StoreError

CALLS_AT_ONCE = 6  # As on the Ray host: two batches, two long polls, and capacity for other calls.

RELEASE_US_MAX = 5_000_000  # As the Ray host waits for an actor that has failed.
RECYCLE_US = 100_000  # The time that a process takes to restart.

ReplyCallback = Callable[[Any, Exception | None], None]


class Node:
    """A machine: a clock, and actors that share it.

    Attributes:
      is_stopping: whether its consumer is being stopped in good order.
      clock_is_wrong: whether its clock is further off than clocks may be.
    """

    def __init__(self, world: World, name: str, *, skew_us: int) -> None:
        self.name = name
        self.clock = NodeClock(world, skew_us)
        self.actors: list[Actor] = []
        self.is_stopping = self.clock_is_wrong = False


class Call:
    """A call that has arrived. Its arguments came as bytes, because actors share only data."""

    __slots__ = ("answer", "method", "packed")

    def __init__(self, method: str, packed: bytes, answer: ReplyCallback) -> None:
        self.method = method
        self.packed = packed
        self.answer = answer


class Actor:
    """An actor on a node.

    Args:
      factory: builds the instance that answers the calls, in a task of the new host; it may wait.
      before_recycle: is called with the instance before an incarnation ends by `Host.recycle`; it may wait.
      before_failure: the same before an incarnation ends because a loop has failed; it may stall.
    """

    def __init__(
        self,
        world: World,
        node: Node,
        name: str,
        factory: Callable[[SimulatedHost], Any],
        *,
        before_recycle: Callable[[Any], object] = lambda instance: None,
        before_failure: Callable[[Any], object] = lambda instance: None,
        yield_frac: float = 0.0,
    ) -> None:
        self.name = name
        self.node = node
        self.host: SimulatedHost | None = None
        self._world = world
        self._factory = factory
        self._before_recycle = before_recycle
        self._before_failure = before_failure
        self._yield_frac = yield_frac
        self._incarnations = 0
        self._instance: Any = None
        self._waiting: deque[Call] = deque()
        self._running: dict[Call, None] = {}
        node.actors.append(self)

    @property
    def is_up(self) -> bool:
        """Whether the actor has started and accepts calls."""
        return self._instance is not None

    def has_pending_call(self, method: str) -> bool:
        """Whether the actor has a call of `method` that is not answered yet."""
        return any(call.method == method for call in [*self._running, *self._waiting])

    def start(self) -> None:
        """Begin a new incarnation. Called between turns."""
        assert self.host is None
        self._incarnations += 1
        name = f"{self.name}#{self._incarnations}"
        host = SimulatedHost(
            self._world,
            name,
            self.node.clock,
            self._world.random(name),
            on_recycle=self._recycle,
            on_failure=self._fail,
        )
        host.yield_frac = self._yield_frac
        self.host = host
        host.spawn("construction", partial(self._construct, host))

    def kill(self, reason: str) -> None:
        """Kill the present incarnation. Called between turns."""
        host, self.host = self.host, None
        if host is None:
            return
        self._world.note(f"kill {host.name}: {reason}")
        self._instance = None
        host.kill()
        unanswered = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for call in unanswered:
            call.answer(None, ActorDied(actor=self.name, method=call.method))

    def restart(self, reason: str, delay_us: int) -> None:
        """Kill, and start again after a delay. Called between turns."""
        if self.host is not None:
            self.kill(reason)
            self._world.after(delay_us, self.start)

    def arrive(self, call: Call) -> None:
        """Accept a call, which waits while the instance is built. A dead actor answers `ActorDied`. Between turns."""
        if self.host is None:
            call.answer(None, ActorDied(actor=self.name, method=call.method))
        else:
            self._waiting.append(call)
            self._start_calls()

    def _construct(self, host: SimulatedHost) -> None:
        try:
            instance = self._factory(host)
        except StoreError as error:  # As the Ray host does: the process ends, and another takes its place.
            self._world.note(f"{host.name} cannot start: {error.code}")
            self._world.after(0, partial(self.restart, "cannot start", RECYCLE_US))
            return
        self._instance = instance
        self._start_calls()

    def _start_calls(self) -> None:
        while self._waiting and self._instance is not None and len(self._running) < CALLS_AT_ONCE:
            call = self._waiting.popleft()
            self._running[call] = None
            host = self.host
            assert host is not None
            host.spawn(call.method, partial(self._serve, host, call, self._instance))

    def _serve(self, host: SimulatedHost, call: Call, instance: Any) -> None:
        result, failed = None, None
        try:
            result = getattr(instance, call.method)(*pickle.loads(call.packed))
        except Exception as error:  # noqa: BLE001 - the caller gets any error of a method
            failed = error
        if not host.dead:  # The kill has answered the call of a dead host.
            del self._running[call]
            call.answer(result, failed)
            self._start_calls()

    def _recycle(self, reason: str) -> None:
        host, instance = self.host, self._instance
        assert host is not None

        def before_recycle() -> None:
            self._before_recycle(instance)
            self._world.after(0, partial(self.restart, f"recycles: {reason}", RECYCLE_US))

        host.spawn("before recycle", before_recycle)

    def _fail(self, reason: str) -> None:
        """End this incarnation soon because a loop has failed, even if `before_failure` stalls; as on the Ray host."""
        host, instance = self.host, self._instance
        assert host is not None
        self._world.note(f"{host.name} fails: {reason}")

        def end() -> None:
            if self.host is host:
                self.restart(f"fails: {reason}", RECYCLE_US)

        def before_failure() -> None:
            if instance is not None:
                self._before_failure(instance)
            self._world.after(0, end)

        host.spawn("before failure", before_failure)
        self._world.after(RELEASE_US_MAX, end)
