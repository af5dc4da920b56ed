"""How the room of one call is portioned out: how many zones a manager visits, and how many items each may give.

A visit writes the pages that its zone lies on, however few items it takes, and all commits of a store wait for one
another. So zones that give all that they are asked for are asked for more, fewer of them at a time: they take turns.
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
        """Begin as if all zones had few items."""
        self._dequeue_max = dequeue_max
        self._deep: set[str] = set()  # the shards whose zones gave all that they were asked for

    def portion_out(self, shard_name: str, pointers: int, *, room: int, capacity: int) -> Portions:
        """Return the portions of a call with so many pointers.

        Args:
          room: items that the workers can take now.
          capacity: items that they want to hold; the longer items are, the fewer.
        """
        zones = min(pointers, room)
        if shard_name in self._deep:
            portion = max(1, min(PORTION_MAX, self._dequeue_max, capacity // PORTIONS_MIN))
            zones = min(zones, max(1, room // portion))
        return Portions(zones, min(self._dequeue_max, room // max(1, zones)))

    def learn(self, shard_name: str, portions: Portions, *, visited: int, items: int) -> None:
        """Note what the visits of a call came to: whether they found three quarters of what they asked for."""
        if not visited:
            return
        if 4 * items >= 3 * visited * portions.items_max:
            self._deep.add(shard_name)
        else:
            self._deep.discard(shard_name)
