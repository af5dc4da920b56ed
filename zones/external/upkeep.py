"""What one consumer does for an external store, so that it neither grows nor slows down: what is asked of the store."""

from typing import Protocol

from fairlead.zones.external.depth import Depth


class UpkeepStore(Protocol):
    """The upkeep of one external store. Every method raises `StoreUnavailable` if the store does not answer."""

    def depth(self) -> Depth:
        """Return how much the store holds; reads a bounded number of items."""
        ...

    def expire(self, items_max: int) -> int:
        """Delete ended items whose ids and results are kept no longer; return how many: `items_max` at most."""
        ...

    def dead_rows(self) -> int:
        """Return about how many rows of items are dead: versions that nobody will read any more, or soon nobody."""
        ...

    def vacuum(self) -> None:
        """Free the room of dead rows. It may take minutes, and delays nobody."""
        ...
