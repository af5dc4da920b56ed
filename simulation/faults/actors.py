"""Faults of actors and machines: they are killed, paused, restarted; the coordinator is lost."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from fairlead.simulation.faults.cleanup import leaked_in_flight, missing_actor, silent_consumer
from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.host import SimulatedHost

if TYPE_CHECKING:
    from fairlead.simulation.actor import Actor, Node
    from fairlead.simulation.cluster import Cluster

HAND_OVER_US_MAX = 5_000_000  # As the hosts wait for managers that are to stop.
HAND_OVER_LOOK_US = 10_000


class ActorFault(Fault):
    """A fault of one actor: at any time, or just before one of its tasks waits."""

    def check(self) -> str | None:
        """Check that all actors are up, all consumers have sessions, and none waits for an actor that has died."""
        return missing_actor(self.cluster) or silent_consumer(self.cluster) or leaked_in_flight(self.cluster)

    def strike_actor(self) -> None:
        """Choose an actor, and strike its present host, if any."""
        actor = self.random.choice(list(self.cluster.actors.values()))
        host = actor.host
        if host is None:
            return
        happen = partial(self._strike_once, actor, host)
        if self.random.random() < 0.3:
            happen()
        else:
            host.inject_at_switch(self.random.randint(1, 30), happen)

    def strike(self, actor: Actor, host: SimulatedHost) -> None:
        """Strike an actor. Called between turns."""
        raise NotImplementedError

    def _strike_once(self, actor: Actor, host: SimulatedHost) -> None:
        if self.is_active and not host.dead:
            self.strike_count += 1
            self.strike(actor, host)


class Kills(ActorFault):
    """An actor is killed, and started again after a while."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._restart_us = self.random.choice([50_000, 2_000_000])
        self.at_random_times(self.random.choice([0.3e6, 2e6]), self.strike_actor)

    def strike(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        actor.restart("killed", int(self._restart_us * self.random.random()))


class NodeKills(ActorFault):
    """A machine fails with all its actors, and restarts."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.at_random_times(self.random.choice([2e6, 6e6]), self._kill)

    def _kill(self) -> None:
        self.strike_count += 1
        node = self.random.choice([node for node in self.cluster.nodes if node.actors])
        back_us = int(self.random.uniform(0.1e6, 4e6))
        for actor in node.actors:
            actor.restart(f"{node.name} fails", back_us)


class CoordinatorLoss(ActorFault):
    """The coordinator is down for seconds, and restarts without its state."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._away_us = self.random.choice([500_000, 5_000_000])
        self.at_random_times(self.random.choice([1e6, 3e6]), self._lose)

    def _lose(self) -> None:
        coordinator = self.cluster.actors["coordinator"]
        if coordinator.host is not None:
            self.strike_count += 1
            coordinator.restart("lost", int(self._away_us * self.random.random()))


class Pauses(ActorFault):
    """A process is paused, perhaps for longer than its leases last, and continues."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.at_random_times(self.random.choice([0.1e6, 1e6]), self.strike_actor)

    def strike(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        world = self.cluster.world
        pause_us = pause_us_of(self.cluster, self.random)
        world.note(f"{host.name} is paused for {pause_us} us")
        host.paused_until_us = world.now_us() + pause_us


class NodePauses(Fault):
    """A machine is paused with all its processes, even producers, as when it is moved to other hardware."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.at_random_times(self.random.choice([0.3e6, 1e6]), self._pause)

    def check(self) -> str | None:
        """Check that no actor holds an item that was lost meanwhile."""
        return leaked_in_flight(self.cluster)

    def _pause(self) -> None:
        self.strike_count += 1
        world = self.cluster.world
        node = self.random.choice([node for node in self.cluster.nodes if node.actors])
        pause_us = pause_us_of(self.cluster, self.random)
        world.note(f"{node.name} is paused for {pause_us} us")
        for actor in node.actors:
            if actor.host is not None:
                actor.host.paused_until_us = world.now_us() + pause_us


def pause_us_of(cluster: Cluster, random: Random) -> int:
    """Draw the length of a pause: most are shorter than a lease, some are twice as long."""
    return int(2_000 * cluster.plan.consumer.lease_ms * random.random() ** 2)


class Restarts(ActorFault):
    """A consumer is stopped in good order, and started again, as in a rolling upgrade.

    This does not occur while a clock is wrong, because a consumer without other sessions trusts its own clock.
    """

    def set_up(self) -> None:
        """See `Fault`."""
        self._drain_ms = self.random.choice([0, 100, 5_000])
        self.at_random_times(self.random.choice([1e6, 3e6]), self._restart)

    def _restart(self) -> None:
        node = self.random.choice(self.cluster.consumers)
        # The stop order before would also stop a consumer that has restarted since.
        if not node.is_stopping and not any(each.clock_is_wrong for each in self.cluster.consumers):
            self.strike_count += 1
            node.is_stopping = True
            self.cluster.operator.do("restart", partial(self._stop_and_start, node))

    def _stop_and_start(self, node: Node) -> None:
        world, operator = self.cluster.world, self.cluster.operator
        world.note(f"{node.name} is asked to stop")
        managers, workers = _of_role(node, "manager"), [*_of_role(node, "worker"), *_of_role(node, "isolated")]
        operator.ask_all(workers, "begin_drain")
        operator.ask_all(_of_role(node, "scanner"), "stop")
        stopping = operator.do("stop managers", partial(self._stop, managers))
        operator.ask_all(workers, "drain", self._drain_ms)
        self._await_hand_over(managers)
        stopping.join()  # A stop order that arrives late would stop the restarted managers.
        for actor in node.actors:
            world.after(0, partial(actor.restart, "stopped in good order", 100_000))
        node.is_stopping = False

    def _stop(self, managers: list[Actor]) -> None:
        self.cluster.operator.ask_all(managers, "stop")

    def _await_hand_over(self, managers: list[Actor]) -> None:
        """Wait, as hosts do, until workers have accepted what the stopping managers had leased."""
        world, operator = self.cluster.world, self.cluster.operator
        until_us = world.now_us() + HAND_OVER_US_MAX
        while world.now_us() < until_us:
            under_way = any(manager.has_pending_call("serve") for manager in managers)
            answers = operator.ask_all(managers, "counts")
            if not under_way and not any(counts["on_the_way"] for counts, error in answers if error is None):
                return
            world.sleep_us(HAND_OVER_LOOK_US)


def _of_role(node: Node, role: str) -> list[Actor]:
    return [actor for actor in node.actors if f".{role}" in actor.name]
