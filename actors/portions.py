"""How the room of one call is portioned out: how many zones a manager visits, and how many items each may give.

A visit writes the pages that its zone lies on, however few items it takes, and all commits of a store wait for one
another. So where all zones give what they are asked for, fewer are asked for more at a time: they take turns.
"""

from typing import NamedTuple

PORTION_MAX = 16  # Items. With more, hundreds of busy tenants wait longer for their turns, and nothing goes faster.
PORTIONS_MIN = 64  # So many make up what the workers want to hold: of long items, which are few, a portion is one.


class Portions(NamedTuple):
    """Of one call: how many of its pointers to visit, and how many items each may give."""

    zones: int
    items_max: int


class Portioner:
    """Portions out the room of calls by what the call before found in the zones of the same shard."""

    def __init__(self, *, dequeue_max: int) -> None:
        """Begin as if every zone had one item."""
        self._dequeue_max = dequeue_max
        self._expected: dict[str, int] = {}  # items that a zone gives, at least, by shard

    def portion_out(self, shard_name: str, pointers: int, *, room: int, capacity: int) -> Portions:
        """Return the portions of a call with so many pointers.

        Args:
          room: items that the workers can take now.
          capacity: items that they want to hold; the longer items are, the fewer.
        """
        portion_max = max(1, min(PORTION_MAX, self._dequeue_max, capacity // PORTIONS_MIN))
        portion = min(portion_max, self._expected.get(shard_name, 1))
        zones = min(pointers, -(-room // portion))
        return Portions(zones, min(self._dequeue_max, room // max(1, zones)))

    def learn(self, shard_name: str, portions: Portions, *, visited: int, items: int) -> None:
        """Note what the visits of a call came to. Where all gave what they were asked for, they may have twice that."""
        if visited:
            asked = visited * portions.items_max
            per_zone = 2 * portions.items_max if 20 * items >= 19 * asked else -(-items // visited)
            self._expected[shard_name] = max(1, per_zone)
