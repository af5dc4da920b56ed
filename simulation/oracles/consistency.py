"""Records, index entries and counts agree after every commit."""

from collections import Counter

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ZoneReplica
from fairlead.simulation.world import World
from fairlead.zones.layout import ShardLayout


class IndexNamesEveryItem(Oracle):
    """Every item has exactly one index entry, at its priority and vesting time; every pointer too."""

    promise = "the index names every record exactly once"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for zone in parsed.zones.values():
            wanted = {(record.priority, record.vesting_us, item_id) for item_id, record in zone.items.items()}
            if wanted != zone.entries:
                self.report_violation(f"{zone} has {sorted(wanted)}, its index {sorted(zone.entries)}")
            self._check_pointer(zone)

    def _check_pointer(self, zone: ZoneReplica) -> None:
        pointer = zone.pointer
        wanted = set() if pointer is None else {(pointer.priority, pointer.vesting_us)}
        if zone.pointer_entries != wanted:
            self.report_violation(
                f"the pointer of {zone} is {pointer}, the top-level queue has {sorted(zone.pointer_entries)}"
            )


class CountsEqualItems(Oracle):
    """The counts of a zone, and of its part of the shard, equal the items in their queues."""

    promise = "the counts equal the items"

    def __init__(self, world: World, layouts: dict[str, ShardLayout]) -> None:
        super().__init__(world)
        self._layouts = layouts
        self._present: Counter[tuple[str, int, str]] = Counter()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        touched = set()
        for change in parsed.items:
            part = self._layouts[parsed.shard.name].location(change.item.tenant, change.item.zone).part.part
            for record, one in ((change.before, -1), (change.after, 1)):
                if record is not None:
                    self._present[parsed.shard.name, part, record.kind] += one
                    touched.add((part, record.kind))
        for zone in parsed.zones.values():
            counted = dict(Counter(record.kind for record in zone.items.values()))
            if zone.counts != counted:
                self.report_violation(f"{zone} holds {counted}, and counts {zone.counts}")
        for part, kind in sorted(touched):
            present, depth = self._present[parsed.shard.name, part, kind], parsed.shard.depths.get((part, kind), 0)
            if present != depth:
                self.report_violation(
                    f"part {part} of {parsed.shard.name} holds {present} of {kind}, and counts {depth}"
                )
