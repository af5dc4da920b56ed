"""Faults of watches: they are refused, or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fairlead.simulation.faults.fault import Fault

if TYPE_CHECKING:
    from fairlead.simulation.store import SimulatedStore


class WatchFault(Fault):
    """A fault of watches, each with a drawn probability."""

    fracs: ClassVar[list[float]]

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice(self.fracs)
        for store in self.cluster.stores.values():
            self.attach_to(store)

    def attach_to(self, store: SimulatedStore) -> None:
        """Disturb the watches of a store."""
        raise NotImplementedError

    def check(self) -> str | None:
        """See `Fault`. The oracle of waits finds work that no scanner finds."""
        return None

    def draw(self) -> bool:
        """Draw whether this watch is disturbed."""
        return self.strikes(self._frac)


class LostWatches(WatchFault):
    """A watch misses its change, because its client has lost the connection."""

    fracs: ClassVar[list[float]] = [0.01, 0.1]

    def attach_to(self, store: SimulatedStore) -> None:
        """See `WatchFault`."""
        store.loses_watch.append(self.draw)


class RefusedWatches(WatchFault):
    """A watch fails at once with 1032, because its client has too many watches."""

    fracs: ClassVar[list[float]] = [0.1, 1.0]

    def attach_to(self, store: SimulatedStore) -> None:
        """See `WatchFault`."""
        store.refuses_watch.append(self.draw)
