"""What a scanner asks of its way to select. One object per scanner and shard, whose defaults are those of `random`."""

from typing import Any

from actors.selection.reading import Eligible
from actors.selection.stretch import Session
from zones.layout import Layout
from zones.pointers import PointerRef, earliest_vesting_us
from zones.steps import in_step


class Selection:
    """A way to select on one shard. `select` and `next_due_us` run in a scan's transaction, which may run twice."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def begin(self, now_us: int) -> None:
        """Note that a scan begins."""

    def select(self, tr: Any, eligible: Eligible, *, now_us: int) -> list[PointerRef]:
        """Choose among the eligible pointers that have vested. Snapshot reads; conflicts with nothing."""
        raise NotImplementedError

    def next_due_us(self, tr: Any, *, after_us: int) -> int | None:
        """Return when a scan may find more than one that found nothing, None if nobody knows of anything.

        `after_us`: what has vested by then is accounted for. Snapshot reads.
        """
        due = in_step([earliest_vesting_us(tr, part, after_us=after_us) for part in self.layout.parts])
        return min((vesting_us for vesting_us in due if vesting_us is not None), default=None)

    def selected(self) -> None:
        """Note that the scan's transaction has chosen pointers, which are handed over now."""

    def give_way(self) -> None:
        """Note that all managers have been full for a while."""

    def hear(self, session: Session) -> None:
        """Note this consumer's session, once a second or so. Called by another thread than the rest."""
