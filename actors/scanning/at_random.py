"""Random selection: a fraction of the vested pointers, by chance (QuiCK section 6, Algorithm 1, lines 6 to 8).

Chance keeps consumers apart. A smaller `selection_frac` causes fewer conflicts, and longer waits of pointers.
"""

from collections.abc import Sequence
from random import Random

from fairlead.actors.scanning.reading import Eligible, peek, sample
from fairlead.actors.scanning.strategy import SelectionStrategy
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.top_level.pointers import PointerRef


class RandomSelection(SelectionStrategy):
    """Peek at up to `peek_max` pointers, and select `selection_frac` of them, `selection_max` at most."""

    def __init__(self, layout: ShardLayout, settings: ConsumerSettings, random: Random) -> None:
        super().__init__(layout)
        self._settings = settings
        self._random = random

    def select(self, tr: Reader, eligible: Eligible, *, now_us: int, parts: Sequence[PartKeys]) -> list[PointerRef]:
        """See `SelectionStrategy`."""
        per_part = max(1, self._settings.peek_max // self.layout.part_count)
        peeked = [ref for refs, _ in peek(tr, parts, eligible, per_part, now_us) for ref in refs]
        return sample(peeked, self._settings, self._random)
