"""What the standard workload promises its customers: effects happen once, orders are kept, every tick is one item."""

from collections.abc import Sequence

from simulation.oracles.oracle import Oracle
from simulation.shadow import ItemName, Meaning, ShardShadow, unpacked
from simulation.world import World

EXACTLY_ONCE = frozenset({"effect", "fenced", "chain"})  # Kinds whose handlers write an effect with their completion.


class EffectsHappenOnce(Oracle):
    """The effect of an exactly-once handler is there if and only if its item left its queue in the same commit."""

    promise = "transactional effects happen exactly once"

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        if meaning.by.startswith("p"):
            return  # a producer may cancel
        effects = {path[5] for path in map(unpacked, meaning.data) if path[4] == "effect"}
        gone = {
            change.item.item_id
            for change in meaning.items
            if change.before is not None
            and change.after is None
            and change.buried is None
            and change.before.kind in EXACTLY_ONCE
        }
        if effects != gone:
            only = sorted(item_id.hex() for item_id in effects ^ gone)
            self.broken(f"{meaning.by} commits an effect or a completion without the other: {only}")


class OrdersAreKept(Oracle):
    """An order is counted once, and what a producer was told is enqueued was enqueued."""

    promise = "a transaction that enqueues happens once, and what was acknowledged is there"

    def __init__(self, world: World, acknowledged: list[ItemName]) -> None:
        super().__init__(world)
        self._acknowledged = acknowledged
        self._orders: set[bytes] = set()
        self._enqueued: set[ItemName] = set()

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            if change.before is None and change.after is not None:
                self._enqueued.add(change.item)
        for key in meaning.data:
            if unpacked(key)[4] == "order":
                if key in self._orders:
                    self.broken(f"{meaning.by} counts {unpacked(key)} twice")
                self._orders.add(key)

    def at_end(self, shards: Sequence[ShardShadow]) -> None:
        """See `Oracle`."""
        for item in self._acknowledged:
            if item not in self._enqueued:
                self.broken(f"{item} was acknowledged and never was there")


class TicksComeOnce(Oracle):
    """However many consumers see a tick, it is one item."""

    promise = "each tick of a period is enqueued once"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ticks: set[bytes] = set()

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            if change.before is None and change.after is not None and change.after.kind == "tick":
                if change.item.item_id in self._ticks:
                    self.broken(f"{meaning.by} enqueues the tick {change.item} again")
                self._ticks.add(change.item.item_id)
