"""Records, index entries and counts agree after every commit."""

from collections import Counter

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ShardReplica, ZoneName, ZoneReplica
from fairlead.simulation.world import World
from fairlead.zones.external.names import external_zone
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.records import ItemRecord, MovePhase


class IndexNamesEveryItem(Oracle):
    """Every item has exactly one index entry, at its priority and vesting time; every pointer too.

    The pointer of an external queue gets its entry while its tenant arrives, and has it once the tenant has arrived.
    """

    promise = "the index names every record exactly once"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._arriving: set[tuple[str, ZoneName]] = set()  # Of pointers that may have no entry yet, by shard.

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for zone in parsed.zones.values():
            wanted = {(record.priority, record.vesting_us, item_id) for item_id, record in zone.items.items()}
            if wanted != zone.entries:
                self.report_violation(f"{zone} has {sorted(wanted)}, its index {sorted(zone.entries)}")
            if external_zone(zone.name.zone) is not None and _is_arriving(parsed.shard, zone.name.tenant):
                self._arriving.add((parsed.shard.name, zone.name))
            else:
                self._check_pointer(zone)
        if parsed.locks_may_differ and self._arriving:
            self._check_arrived(parsed.shard)

    def _check_arrived(self, shard: ShardReplica) -> None:
        here = {each for each in self._arriving if each[0] == shard.name}
        arrived = {each for each in here if not _is_arriving(shard, each[1].tenant)}
        self._arriving -= arrived
        for _, name in sorted(arrived):
            if name in shard.zones:
                self._check_pointer(shard.zones[name])

    def _check_pointer(self, zone: ZoneReplica) -> None:
        pointer = zone.pointer
        wanted = set() if pointer is None else {(pointer.priority, pointer.vesting_us)}
        if zone.pointer_entries != wanted:
            self.report_violation(
                f"the pointer of {zone} is {pointer}, the top-level queue has {sorted(zone.pointer_entries)}"
            )


def _is_arriving(shard: ShardReplica, tenant: Tenant) -> bool:
    owner = shard.owners.get(tenant)
    return owner is not None and owner.move is not None and owner.move.phase is MovePhase.ARRIVING


class CountsEqualItems(Oracle):
    """The counts of a zone, and of its part of the shard, equal the items in their queues."""

    promise = "the counts equal the items"

    def __init__(self, world: World, layouts: dict[str, ShardLayout]) -> None:
        super().__init__(world)
        self._layouts = layouts
        self._present: Counter[tuple[str, int, str]] = Counter()
        # By shard and tenant: what the counts of parts hold of who lives there.
        self._of_tenants: dict[tuple[str, Tenant], Counter[tuple[int, str]]] = {}

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        touched = set()
        for change in parsed.items:
            for record, one in ((change.before, -1), (change.after, 1)):
                if record is not None:
                    touched.add(self._count(parsed.shard.name, change.item.tenant, change.item.zone, record, one))
        for tenant in parsed.arrived:
            for zone in parsed.zones.values():
                for record in zone.items.values() if zone.name.tenant == tenant else ():
                    touched.add(self._count(parsed.shard.name, tenant, zone.name.zone, record, 1))
        for tenant in parsed.moved_away:
            left = self._of_tenants.pop((parsed.shard.name, tenant), Counter())
            for (part, kind), count in left.items():
                self._present[parsed.shard.name, part, kind] -= count
            touched.update(left)
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

    def _count(self, shard: str, tenant: Tenant, zone: str, record: ItemRecord, one: int) -> tuple[int, str]:
        """Count an item in its part of a shard; return the part and the kind."""
        part = self._layouts[shard].location(tenant, zone).part.part
        self._present[shard, part, record.kind] += one
        self._of_tenants.setdefault((shard, tenant), Counter())[part, record.kind] += one
        return part, record.kind
