"""Faults that hit a process at the commits of its transactions across shards, and so at every stage of the protocol.

The process dies around its commit, stands still, or gets no answer to a commit that is applied, lost, or comes late.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fairlead.simulation.actor import Actor
from fairlead.simulation.store import Fate, SimulatedStore
from fairlead.simulation.world import World

DIES_US_MAX = 10_000  # After it has sent a commit: before the commit arrives, before the answer, or later.
STANDS_US_MIN, STANDS_US_MAX = 10_000, 4_000_000  # Longer than others are patient, shorter than a transaction may take.
RESTARTS_US = 50_000
FROZEN_FACTOR = 5  # So much more often a commit of a mover is hit while a tenant is frozen.


class StageFaults:
    """Faults at commits of the processes that `actor_of` names; None: the commit is another process's.

    `frac`: how often a commit is hit, until `stop`.
    """

    def __init__(self, world: World, random: Random, frac: float, actor_of: Callable[[str], Actor | None]) -> None:
        self._world = world
        self._draw = random
        self._frac = frac
        self._actor_of = actor_of

    def attach(self, store: SimulatedStore) -> None:
        """Begin at a store."""
        store.draw_fate.append(self._strike)

    def stop(self) -> None:
        """End."""
        self._frac = 0

    def _strike(self) -> Fate:
        current = self._world.current
        assert current is not None
        actor = self._actor_of(current.host.name.partition("#")[0])
        if actor is None or self._draw.random() >= self._frac_now():
            return Fate.DECIDED
        return self._draw.choice(self._ways())(actor)

    def _frac_now(self) -> float:
        return self._frac

    def _ways(self) -> list[Callable[[Actor], Fate]]:
        return [self._kill, self._pause, self._delay, self._lose]

    def _kill(self, actor: Actor) -> Fate:
        host = actor.host

        def kill() -> None:
            if actor.host is host:
                actor.restart("killed at a commit", RESTARTS_US)

        self._world.after(self._draw.randrange(DIES_US_MAX), kill)
        return Fate.DECIDED

    def _pause(self, actor: Actor) -> Fate:
        host = actor.host
        assert host is not None
        pause_us = int(STANDS_US_MIN * (STANDS_US_MAX / STANDS_US_MIN) ** self._draw.random())
        self._world.note(f"{host.name} stands still for {pause_us} us at a commit")
        host.paused_until_us = self._world.now_us() + pause_us
        return Fate.DECIDED

    def _delay(self, actor: Actor) -> Fate:
        return Fate.UNKNOWN_LATE

    def _lose(self, actor: Actor) -> Fate:
        return self._draw.choice([Fate.UNKNOWN_APPLIED, Fate.UNKNOWN_LOST])


class MoverFaults(StageFaults):
    """Faults at the commits of movers, more frequent while a tenant is frozen: few commits decide then.

    A commit may also time out. It is not tried again, and may be applied later.

    `is_frozen`: whether some tenant is frozen.
    """

    def __init__(
        self,
        world: World,
        random: Random,
        frac: float,
        actor_of: Callable[[str], Actor | None],
        is_frozen: Callable[[], bool],
    ) -> None:
        super().__init__(world, random, frac, actor_of)
        self._is_frozen = is_frozen

    def _frac_now(self) -> float:
        return self._frac * (FROZEN_FACTOR if self._is_frozen() else 1)

    def _ways(self) -> list[Callable[[Actor], Fate]]:
        return [*super()._ways(), self._time_out]

    def _time_out(self, actor: Actor) -> Fate:
        return Fate.TIMED_OUT_LATE
