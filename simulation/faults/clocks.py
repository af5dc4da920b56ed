"""Faults of clocks: they step within the allowed skew, or are an hour off for a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead.simulation.faults.actors import ActorFault
from fairlead.simulation.faults.names import WRONG_CLOCK_US

if TYPE_CHECKING:
    from fairlead.simulation.actor import Actor, Node

LASTS_US: Final = 1_000_000  # A consumer checks its clock once a second.
DIES: Final = 0.5  # The probability that the machine then fails, and leaves leases that end an hour later.
BACK_US: Final = 1_000_000
HOLD_US: Final = 10_000  # The interval at which actors that have restarted meanwhile are paused like the others.


class ClockJumps(ActorFault):
    """The clock of a machine steps, forward or back, within the skew of this run."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.at_random_times(self.random.choice([0.5e6, 2e6]), self._jump)

    def _jump(self) -> None:
        self.strike_count += 1
        node = self.random.choice(self.cluster.nodes)
        off_us_max = self.cluster.plan.skew_us_max
        node.clock.jump(self.random.randint(-off_us_max, off_us_max))
        self.cluster.world.note(f"the clock of {node.name} is off by {node.clock.skew_us} us from now on")


class WrongClocks(ActorFault):
    """The clock of a consumer's machine is an hour ahead, or behind, for a second, without enqueues.

    Vesting times that its scanner and its managers write by such a clock must be repaired soon, without an enqueue. The
    producers are paused meanwhile. The machine's workers are paused, too: a failed item is retried after its backoff by
    their clock, and a backoff of an hour more looks like a chosen delay.

    This fault strikes while work is enqueued, and once after the last enqueue. It strikes only while the other
    consumers are up and their clocks agree, because the only consumer on a shard's list trusts its own clock.
    """

    def set_up(self) -> None:
        """See `Fault`."""
        self._off: tuple[Node, int] | None = None  # the node whose clock is off, and its skew before
        self._ends_us = 0
        self.at_random_times(self.random.choice([0.7e6, 2e6]), self._strike)

    def stop(self) -> None:
        """See `Fault`. The clock is set right."""
        super().stop()
        self._end()

    def strike_late(self) -> int | None:
        """See `Fault`. An enqueue would wake a pointer that sleeps until a wrong time."""
        if not self.cluster.plan.clocks_agree:
            return 0
        return LASTS_US if self._strike() else None

    def _strike(self) -> bool:
        """Set a clock wrong, unless another consumer could then be the only one. Return whether a clock was set."""
        nodes = self.cluster.consumers
        living = [node for node in nodes if not node.is_stopping and all(actor.is_up for actor in node.actors)]
        alone = len(living) < 2 or len(living) < len(nodes) or not self.cluster.plan.clocks_agree
        if self._off is not None or alone:
            return False
        self.strike_count += 1
        world, node = self.cluster.world, self.random.choice(living)
        self._off = node, node.clock.skew_us
        self._ends_us = world.now_us() + LASTS_US
        node.clock_is_wrong = True
        node.clock.jump(node.clock.skew_us + self.random.choice([-WRONG_CLOCK_US, WRONG_CLOCK_US]))
        world.note(f"the clock of {node.name} is off by {node.clock.skew_us} us for a second")
        self._hold_up()
        world.after(LASTS_US, self._end)
        return True

    def _end(self) -> None:
        if self._off is not None and (not self.is_active or self.cluster.world.now_us() >= self._ends_us):
            node, skew_us = self._off
            self._off = None
            if self.random.random() < DIES:
                for actor in node.actors:
                    actor.restart(f"{node.name} fails", BACK_US)
            node.clock.jump(skew_us)
            node.clock_is_wrong = False
            self.cluster.world.note(f"the clock of {node.name} is set right")

    def _hold_up(self) -> None:
        if self._off is None:
            return
        for actor in self._held_up(self._off[0]):
            if actor.host is not None:
                actor.host.paused_until_us = max(actor.host.paused_until_us, self._ends_us + 1)
        self.cluster.world.after(HOLD_US, self._hold_up)

    def _held_up(self, node: Node) -> list[Actor]:
        """Return the workers of a node, and all producers."""
        workers = [actor for actor in node.actors if f"{node.name}.manager" not in actor.name
                   and actor.name != f"{node.name}.scanner"]  # fmt: skip
        others = [
            each for each in self.cluster.nodes if not any(actor.name in self.cluster.actors for actor in each.actors)
        ]
        return [*workers, *(actor for each in others for actor in each.actors)]
