"""The operator: a client outside the cluster that calls its actors and opens its shards, as an administrator does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.simulation.actor import Actor
from fairlead.simulation.host import NodeClock, SimulatedHost, SimulatedTask
from fairlead.simulation.network import Network
from fairlead.simulation.world import World

CallResult = tuple[Any, Exception | None]


class Operator:
    """A host with a right clock, which no fault disturbs."""

    def __init__(self, world: World, network: Network) -> None:
        self._network = network
        self.host = SimulatedHost(
            world,
            "operator#1",
            NodeClock(world, 0),
            world.random("operator"),
            on_recycle=lambda reason: None,
            on_failure=lambda reason: None,
        )

    def do(self, name: str, body: Callable[[], None]) -> SimulatedTask:
        """Run `body` in a task, where it may wait. May be called from anywhere."""
        return self.host.spawn(name, body)

    def ask(self, actor: Actor, method: str, *args: Any) -> CallResult:
        """Call an actor, and wait for its answer: result and error, one of them None."""
        return self.ask_all([actor], method, *args)[0]

    def ask_all(self, actors: Sequence[Actor], method: str, *args: Any) -> list[CallResult]:
        """Call actors at the same time, and wait for all answers."""
        lock = self.host.lock()
        answered = self.host.condition(lock)
        answers: dict[int, CallResult] = {}

        def note(number: int, result: Any, error: Exception | None) -> None:
            with lock:
                answers[number] = (result, error)
                answered.notify_all()

        for number, actor in enumerate(actors):
            self._network.send(self.host, actor, method, args, partial(note, number))
        with lock:
            while len(answers) < len(actors):
                answered.wait()
        return [answers[number] for number in range(len(actors))]
