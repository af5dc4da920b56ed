"""Shards that stop answering for a while, one after the other: to clerks only, as a part of a network fails."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from fairlead.simulation.store import Fate, SimulatedStore
from fairlead.simulation.world import World

MEAN_US = 100_000  # Between two outages.
AWAY_US_MIN, AWAY_US_MAX = 10_000, 600_000


class Outages:
    """Outages for processes of some names, until `stop`. What such a process asks of a shard is refused meanwhile.

    A commit that it has sent is applied, or lost, or comes late; and gets no answer.
    """

    def __init__(self, world: World, random: Random, names: Collection[str]) -> None:
        self._world = world
        self._draw = random
        self._names = names
        self._stores: list[SimulatedStore] = []
        self._away: dict[str, int] = {}  # Until when, by the name of the store.
        self._has_stopped = False

    def attach(self, store: SimulatedStore) -> None:
        """Let a store be one of those that go away."""
        self._stores.append(store)
        store.refuses.append(lambda: self._is_away(store))
        store.draw_fate.append(lambda: self._fate(store))

    def begin(self) -> None:
        """Begin."""
        self._world.after(self._pause_us(), self._strike)

    def stop(self) -> None:
        """End all outages."""
        self._has_stopped = True

    def _strike(self) -> None:
        if self._has_stopped:
            return
        store = self._draw.choice(self._stores)
        away_us = int(AWAY_US_MIN * (AWAY_US_MAX / AWAY_US_MIN) ** self._draw.random())
        self._world.note(f"{store.name} does not answer for {away_us} us")
        self._away[store.name] = self._world.now_us() + away_us
        self._world.after(self._pause_us(), self._strike)

    def _pause_us(self) -> int:
        return 1 + int(self._draw.expovariate(1 / MEAN_US))

    def _is_away(self, store: SimulatedStore) -> bool:
        current = self._world.current
        if self._has_stopped or current is None or current.host.name.partition("#")[0] not in self._names:
            return False
        return self._away.get(store.name, 0) > self._world.now_us()

    def _fate(self, store: SimulatedStore) -> Fate:
        if not self._is_away(store):
            return Fate.DECIDED
        return self._draw.choice([Fate.UNKNOWN_APPLIED, Fate.UNKNOWN_LOST, Fate.UNKNOWN_LATE])
