"""Lapses and failures: each is counted once, and an item that lapsed too often runs alone from then on.

*Lapse*: an item is leased although its last lease was never given back: its worker died or stalled.
"""

from collections.abc import Sequence
from typing import Any

from simulation.oracles.oracle import Oracle, Run
from simulation.shadow import ItemChange, ItemName, Meaning, item_of
from simulation.world import World


class LapsesAreCounted(Oracle):
    """Whoever takes an item over counts its lapse, whoever lets go of it ends the count, and nobody else changes it.

    Args:
      before_alone: after how many lapses in a row an item must run alone.
    """

    promise = "every lapse is counted, and an item that lapsed too often runs alone"

    def __init__(self, world: World, before_alone: int) -> None:
        super().__init__(world)
        self._before_alone = before_alone
        self._lapses: dict[tuple[ItemName, bytes], int] = {}  # with which count a lease was taken

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        if method == "place":
            for ref in args[0]:
                lapses = self._lapses.get((item_of(ref), ref.lease_id), 0)
                if ref.alone != (lapses >= self._before_alone):
                    how = "alone" if ref.alone else "as one of many"
                    self.broken(f"{caller} sends {item_of(ref)} after {lapses} lapses to run {how}")

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            before, after = change.before, change.after
            if before is None or after is None:
                continue
            if after.lapse_count != self._due(change):
                self.broken(
                    f"{meaning.by} counts {after.lapse_count} lapses of {change.item}, and not {self._due(change)}"
                )
            self._lapses[change.item, after.lease_id] = after.lapse_count

    def _due(self, change: ItemChange) -> int:
        before, after = change.before, change.after
        assert before is not None
        assert after is not None
        if not after.lease_id:
            return 0
        taken_over = before.lease_id not in (b"", after.lease_id)
        return before.lapse_count + taken_over


class FailuresAreCounted(Oracle):
    """An item's errors are counted one by one, and never fall: only an attempt that failed adds one."""

    promise = "the errors of an item are those of its attempts"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._attempts: set[tuple[ItemName, bytes]] = set()

    def on_start(self, run: Run) -> None:
        """See `Oracle`."""
        self._attempts.add((run.item, run.lease_id))

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            before, after = change.before, change.after
            if before is not None and after is not None and after.error_count != before.error_count:
                tried = (change.item, before.lease_id) in self._attempts
                if after.error_count != before.error_count + 1 or not tried:
                    self.broken(f"{meaning.by} counts {after.error_count} errors of {change.item} after {before}")
