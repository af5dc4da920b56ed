"""Index entries that lead nowhere, as a program with a bug, or a careless restore, would leave them in a shard.

Entries of items and of zones that do not exist, what names no zone at all, and second entries of pointers, in their own
part or in another. Consumers must not stumble over them, and they clear them: managers those of pointers, dequeues
those of items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.replica import ShardShadow, ZoneName
from fairlead.zones.layout import ID_BYTES, Place, Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

EARLY_US = 1_000_000  # By how much they have vested: every clock in the cluster agrees that they have.


class StrayEntries(Fault):
    """Entries without records, and second entries of pointers, are strewn into zones that somebody will visit."""

    costs_leases = False

    def set_up(self) -> None:
        """See `Fault`."""
        self._shards: dict[str, Shard] = {}
        self.now_and_then(self.random.choice([0.1e6, 1e6]), self._strew)

    def check(self) -> str | None:
        """All of them have been cleared."""
        for shadow in self.cluster.bench.shards.values():
            if shadow.strays:
                return f"{len(shadow.strays)} stray entries are left on {shadow.name}, such as {min(shadow.strays)!r}"
        return None

    def _strew(self) -> None:
        shadow = self.random.choice(list(self.cluster.bench.shards.values()))
        zones = [zone for zone in shadow.zones.values() if zone.pointer is not None and zone.counts]
        if zones:
            self.happened += 1
            zone = self.random.choice(zones)
            draw = self.random.choice([self._entry_of_item, self._entry_of_nobody, self._no_entry, self._second_entry])
            self.cluster.operator.do("strew", partial(self._write, shadow, zone.name, min(zone.counts), draw))

    def _write(self, shadow: ShardShadow, zone: ZoneName, kind: str, draw: Callable[[Place, int], bytes]) -> None:
        shard = self._open(shadow.name)
        place = shard.layout.place(zone.tenant, zone.zone)
        key = draw(place, self.cluster.world.now_us() - EARLY_US)
        shadow.expect_stray(key)

        def body(attempt: Attempt) -> None:
            if attempt.tr.get(place.keys.pointer).present():  # Else nobody would come by.
                attempt.tr.set(key, kind.encode())

        try:
            shard.transact(body)
        except shard.db.errors:
            self.cluster.world.note("the operator gives up")

    def _entry_of_item(self, place: Place, vesting_us: int) -> bytes:
        return place.keys.vest(self.random.choice([0, 100, 255]), vesting_us, self.random.randbytes(ID_BYTES))

    def _entry_of_nobody(self, place: Place, vesting_us: int) -> bytes:
        nobody = place.layout.place(Tenant("nobody", str(self.random.randrange(1_000))), place.name)
        return nobody.part.vest(100, vesting_us, nobody.pointer_id)

    def _no_entry(self, place: Place, vesting_us: int) -> bytes:
        return place.part.vest(100, vesting_us, self.random.randbytes(ID_BYTES))

    def _second_entry(self, place: Place, vesting_us: int) -> bytes:
        return self.random.choice(place.layout.parts).vest(100, vesting_us, place.pointer_id)

    def _open(self, name: str) -> Shard:
        if not self._shards:
            self._shards = self.cluster.open_shards(self.cluster.operator.host)
        return self._shards[name]
