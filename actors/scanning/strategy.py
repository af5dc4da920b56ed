"""What a scan asks of a selection strategy. One object per scanner and shard; the defaults are those of `random`."""

from collections.abc import Sequence

from fairlead.actors.scanning.partitioning import Session
from fairlead.actors.scanning.reading import Eligible
from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.pipelining import run_together
from fairlead.zones.top_level.pointers import PointerRef, earliest_vesting_us


class SelectionStrategy:
    """How to select on one shard. `select` and `due_us` run in a scan's transaction, which may run twice."""

    def __init__(self, layout: ShardLayout) -> None:
        self.layout = layout

    def begin(self, now_us: int) -> None:
        """Note that a scan begins."""

    def select(self, tr: Reader, eligible: Eligible, *, now_us: int, parts: Sequence[PartKeys]) -> list[PointerRef]:
        """Select among the vested, eligible pointers of some parts. Snapshot reads; conflicts with nothing."""
        raise NotImplementedError

    def steals(self) -> bool:
        """Say whether it looks for pointers of full consumers, whose requeues no watch tells of."""
        return False

    def may_wait_us(self, part: PartKeys) -> int:
        """Return for how long a scan may wait after something has changed in a part. Called by other threads."""
        return 0

    def due_us(self, tr: Reader, parts: Sequence[PartKeys], *, after_us: int) -> dict[int, int | None]:
        """Return, by number of a part, when a scan of it may find more than one that found nothing.

        None: nothing is known there. `after_us`: pointers that vested by then are already handled. Snapshot reads.
        """
        due = run_together([earliest_vesting_us(tr, part, after_us=after_us) for part in parts])
        return {part.part: each for part, each in zip(parts, due, strict=True)}

    def selected(self) -> None:
        """Note that the scan has selected pointers, which are passed to managers now."""

    def give_way(self) -> None:
        """Note that all managers have been full for a while."""

    def set_session(self, session: Session) -> None:
        """Note this consumer's session, once a second or so. Called by a thread of its own."""
