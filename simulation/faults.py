"""Faults: each a small class with three phases: set up (draw how bad it is), go on for a while, stop.

A run draws which of them exist; each has a generator of its own, so leaving one out changes nothing of what the
others draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from simulation.host import NodeClock, SimulatedHost
from simulation.network import Passage
from simulation.store import Fate, SimulatedStore

if TYPE_CHECKING:
    from simulation.actor import Actor, Node
    from simulation.cluster import Cluster


class Fault:
    """Something that goes wrong now and then."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.going_on = True
        self.set_up()

    def set_up(self) -> None:
        """Draw how bad it is, and begin."""

    def stop(self) -> None:
        """Let it happen no more."""
        self.going_on = False

    def now_and_then(self, mean_us: float, happen: Callable[[], None]) -> None:
        """Let it happen at random times, `mean_us` apart, until it is stopped."""

        def once() -> None:
            if self.going_on:
                happen()
                self.now_and_then(mean_us, happen)

        delay_us = 1 + int(self.random.expovariate(1 / mean_us))
        self.cluster.world.after(delay_us, once, order=self.random.random())


class Conflicts(Fault):
    """Commits are refused with 1020 though nothing changed: FoundationDB's resolvers may be too careful."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice([0.01, 0.1, 0.3])
        for store in self.cluster.stores.values():
            store.draw_fate.append(self._draw)

    def _draw(self) -> Fate:
        return Fate.CONFLICT if self.going_on and self.random.random() < self._frac else Fate.DECIDED


class UnknownResults(Fault):
    """Commits end with 1021, applied or not."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice([0.01, 0.1, 0.3])
        for store in self.cluster.stores.values():
            store.draw_fate.append(self._draw)

    def _draw(self) -> Fate:
        if not self.going_on or self.random.random() >= self._frac:
            return Fate.DECIDED
        return self.random.choice([Fate.UNKNOWN_APPLIED, Fate.UNKNOWN_LOST])


class Recoveries(Fault):
    """A shard is away for seconds (FoundationDB section 5: median 3.1 s, 90th percentile 5.3 s).

    Commits that are on their way then end with 1021; read versions wait.
    """

    def set_up(self) -> None:
        """See `Fault`."""
        for store in self.cluster.stores.values():
            store.draw_fate.append(partial(self._draw, store))
        self.now_and_then(self.random.choice([4e6, 10e6]), self._go_away)

    def _go_away(self) -> None:
        store = self.random.choice(list(self.cluster.stores.values()))
        away_us = int(self.random.lognormvariate(1.13, 0.42) * 1e6)
        self.cluster.world.note(f"{store.name} is away for {away_us} us")
        store.away_until_us = self.cluster.world.now_us() + away_us

    def _draw(self, store: SimulatedStore) -> Fate:
        if store.away_until_us <= self.cluster.world.now_us():
            return Fate.DECIDED
        return self.random.choice([Fate.UNKNOWN_APPLIED, Fate.UNKNOWN_LOST])


class ActorFault(Fault):
    """Something that befalls an actor: at any time, or when it is about to wait, in the midst of something."""

    def befall(self) -> None:
        """Choose an actor, and let it happen to the life it leads, if it leads one."""
        actor = self.random.choice(list(self.cluster.actors.values()))
        host = actor.host
        if host is None:
            return
        happen = partial(self._happen, actor, host)
        if self.random.random() < 0.3:
            happen()
        else:
            host.at_switch(self.random.randint(1, 30), happen)

    def happen_to(self, actor: Actor, host: SimulatedHost) -> None:
        """Let it happen. Called between turns."""
        raise NotImplementedError

    def _happen(self, actor: Actor, host: SimulatedHost) -> None:
        if self.going_on and not host.dead:
            self.happen_to(actor, host)


class Kills(ActorFault):
    """An actor is killed, and started again after a while."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._restart_us = self.random.choice([50_000, 2_000_000])
        self.now_and_then(self.random.choice([0.3e6, 2e6]), self.befall)

    def happen_to(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        actor.restart("killed", int(self._restart_us * self.random.random()))


class NodeKills(Fault):
    """A machine fails with all its actors, and comes back."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.now_and_then(self.random.choice([2e6, 6e6]), self._kill)

    def _kill(self) -> None:
        node = self.random.choice([node for node in self.cluster.nodes if node.actors])
        back_us = int(self.random.uniform(0.1e6, 4e6))
        for actor in node.actors:
            actor.restart(f"{node.name} fails", back_us)


class Pauses(ActorFault):
    """A process stops for a while, its leases perhaps with it, and goes on as if nothing had happened."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.now_and_then(self.random.choice([0.1e6, 1e6]), self.befall)

    def happen_to(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        longest_us = 2_000 * self.cluster.plan.consumer.lease_ms
        pause_us = int(longest_us * self.random.random() ** 2)
        self.cluster.world.note(f"{host.name} is paused for {pause_us} us")
        host.paused_until_us = self.cluster.world.now_us() + pause_us


class ClockJumps(Fault):
    """The clock of a machine steps, forward or back, within what clocks may be off in this run."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.now_and_then(self.random.choice([0.5e6, 2e6]), self._jump)

    def _jump(self) -> None:
        node = self.random.choice(self.cluster.nodes)
        off_us_max = self.cluster.plan.skew_us_max
        node.clock.jump(self.random.randint(-off_us_max, off_us_max))
        self.cluster.world.note(f"the clock of {node.name} is off by {node.clock.skew_us} us from now on")


class Restarts(Fault):
    """A consumer is told to stop in good order, and started again, as in a rolling upgrade."""

    def set_up(self) -> None:
        """See `Fault`."""
        world = self.cluster.world
        self._drain_ms = self.random.choice([0, 100, 5_000])
        self._operator = SimulatedHost(
            world, "operator#1", NodeClock(world, 0), self.random, on_recycle=lambda reason: None
        )
        self.now_and_then(self.random.choice([1e6, 3e6]), self._restart)

    def _restart(self) -> None:
        node = self.random.choice(self.cluster.consumers)
        self._operator.spawn("restart", partial(self._stop_and_start, node))

    def _stop_and_start(self, node: Node) -> None:
        world = self.cluster.world
        world.note(f"{node.name} is told to stop")
        for role, method, args in (
            ("scanner", "stop", ()),
            ("manager", "stop", ()),
            ("worker", "drain", (self._drain_ms,)),
        ):
            self._call_all([actor for actor in node.actors if f".{role}" in actor.name], method, args)
        for actor in node.actors:
            world.after(0, partial(actor.restart, "stopped in good order", 100_000))

    def _call_all(self, actors: Sequence[Actor], method: str, args: tuple[Any, ...]) -> None:
        """Call actors side by side, and wait for all answers."""
        lock = self._operator.lock()
        answered = self._operator.condition(lock)
        left = len(actors)

        def note(result: object, error: Exception | None) -> None:
            nonlocal left
            with lock:
                left -= 1
                answered.notify_all()

        for actor in actors:
            self.cluster.network.send(self._operator, actor, method, args, note)
        with lock:
            while left:
                answered.wait()


class LostCalls(Fault):
    """Calls between actors are lost on their way there or back."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice([0.01, 0.1])
        self.cluster.network.disturb.append(self._disturb)

    def _disturb(self, passage: Passage) -> Passage:
        if not self.going_on or self.random.random() >= self._frac:
            return passage
        back_us = int(self.random.uniform(1e3, 3e6))
        if self.random.random() < 0.5:
            return passage._replace(back_us=back_us, request_lost=True)
        return passage._replace(back_us=back_us, reply_lost=True)


class LateCalls(Fault):
    """Calls between actors, or their answers, come seconds late, and so out of order."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice([0.02, 0.2])
        self.cluster.network.disturb.append(self._disturb)

    def _disturb(self, passage: Passage) -> Passage:
        if not self.going_on or self.random.random() >= self._frac:
            return passage
        late_us = int(self.random.uniform(1e3, 2e6))
        if self.random.random() < 0.5:
            return passage._replace(there_us=late_us)
        return passage._replace(back_us=late_us)


FAULTS: Final[dict[str, type[Fault]]] = {
    "conflicts": Conflicts,
    "unknown results": UnknownResults,
    "recoveries": Recoveries,
    "kills": Kills,
    "node kills": NodeKills,
    "pauses": Pauses,
    "clock jumps": ClockJumps,
    "restarts": Restarts,
    "lost calls": LostCalls,
    "late calls": LateCalls,
}

HARMLESS_TO_LEASES: Final = frozenset(
    {"unknown results", "restarts"}
)  # With these alone, no lease has a reason to run out.
