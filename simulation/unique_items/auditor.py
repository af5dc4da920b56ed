"""The auditor: once nothing disturbs it, takes every free key at once, and ends all items."""

from __future__ import annotations

from fairlead.simulation.oracles.unique_items import KeysHaveOneHolder, UniqueItem
from fairlead.simulation.unique_items.ender import Ender
from fairlead.simulation.unique_items.stock import ZONES, Habits
from fairlead.simulation.unique_items.taker import Taker
from fairlead.simulation.world import Violation

TRIES_MAX = 10  # The sweeper may end a taker. It does not do so again and again.
AT_ONCE = "a unique key that nobody holds can be taken at once"


class Auditor:
    """Audits the keys by a taker and an ender of its own."""

    def __init__(self, taker: Taker, ender: Ender, habits: Habits, oracle: KeysHaveOneHolder) -> None:
        self._taker = taker
        self._ender = ender
        self._habits = habits
        self._oracle = oracle

    def audit(self) -> None:
        """Take all keys that are free; end all items; and again. Raises a `Violation`."""
        for _ in range(2):
            for key in self._habits.keys:
                self._check(key)
            self.end_all_items()

    def _check(self, key: bytes) -> None:
        holder, is_free = self._oracle.holder(key), self._oracle.is_free(key)
        for _ in range(TRIES_MAX):
            if self._taker.enqueue(key) is not None or holder is not None or not is_free:
                return
        raise Violation(AT_ONCE, f"{key!r} is refused")

    def end_all_items(self) -> None:
        """End all items and dead letters. Raises a `Violation` if it does not find all."""
        for tenant in self._habits.tenants:
            for zone in ZONES:
                place = UniqueItem(tenant, zone, b"")
                for each in self._ender.items(place):
                    self._ender.cancel_item(each)
                for each in self._ender.dead(place):
                    self._ender.discard_item(each)
        if present := self._oracle.present():
            raise Violation(self._oracle.promise, f"nobody finds {present}")
