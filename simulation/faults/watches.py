"""What befalls watches: they are refused, or lost without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fairlead.simulation.faults.fault import Fault

if TYPE_CHECKING:
    from fairlead.simulation.store import SimulatedStore


class WatchFault(Fault):
    """Something that befalls watches, each with a drawn chance. Nothing is left of it but watches that are lost."""

    fracs: ClassVar[list[float]]

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice(self.fracs)
        for store in self.cluster.stores.values():
            self.attach_to(store)

    def attach_to(self, store: SimulatedStore) -> None:
        """Befall the watches of a store."""
        raise NotImplementedError

    def check(self) -> str | None:
        """See `Fault`: the oracle of waits sees what is not found."""
        return None

    def draw(self) -> bool:
        """Draw whether it befalls this one."""
        return self.strikes(self._frac)


class LostWatches(WatchFault):
    """A change is not told to one who watches: its client's connection is gone."""

    fracs: ClassVar[list[float]] = [0.01, 0.1]

    def attach_to(self, store: SimulatedStore) -> None:
        """See `WatchFault`."""
        store.loses_watch.append(self.draw)


class RefusedWatches(WatchFault):
    """A watch fails at once with 1032: its client has as many as it may have."""

    fracs: ClassVar[list[float]] = [0.1, 1.0]

    def attach_to(self, store: SimulatedStore) -> None:
        """See `WatchFault`."""
        store.refuses_watch.append(self.draw)
