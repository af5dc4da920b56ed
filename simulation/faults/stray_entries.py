"""Stray index entries, as a bug or a careless restore would leave them in a shard.

Some are entries of items or zones that do not exist, or entries that name no zone. Others are second entries of
pointers, in their own part or in another. Managers clear entries of pointers, and dequeues clear entries of items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.replica import ShardReplica, ZoneName
from fairlead.zones.layout import ID_BYTES, Tenant, ZoneLocation
from fairlead.zones.records import PointerRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

Draw = Callable[[ZoneLocation, PointerRecord | None], bytes]  # Returns the key of a stray entry for a zone.

EARLY_US = 1_000_000  # Their age since vesting, so that they have vested by every clock of the cluster.
DEQUEUED_US = 60_000_000  # A queue gets a stray entry of an item if it is dequeued within this time.
SOON_US = 1_000_000  # A pointer that vests within this time may get a second entry that vests together with it.


class StrayEntries(Fault):
    """Entries without records, and second entries of pointers, are written into zones with work."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._shards: dict[str, Shard] = {}
        self.at_random_times(self.random.choice([0.1e6, 1e6]), self._strew)

    def check(self) -> str | None:
        """Check that all of them have been cleared."""
        for replica in self.cluster.suite.shards.values():
            if replica.strays:
                return (
                    f"{len(replica.strays)} stray entries are left on {replica.name}, such as {min(replica.strays)!r}"
                )
        return None

    def _strew(self) -> None:
        replica = self.random.choice(list(self.cluster.suite.shards.values()))
        zones = [zone for zone in replica.zones.values() if zone.pointer is not None and zone.counts]
        if zones:
            self.strike_count += 1
            zone = self.random.choice(zones)
            draw = self.random.choice(
                [self._entry_of_item, self._entry_of_nobody, self._no_entry, self._second_entry, self._twin_entry]
            )
            self.cluster.operator.do("strew", partial(self._write, replica, zone.name, min(zone.counts), draw))

    def _write(self, replica: ShardReplica, zone: ZoneName, kind: str, draw: Draw) -> None:
        shard = self._open(replica.name)
        location = shard.layout.location(zone.tenant, zone.zone)
        key = draw(location, replica.zones[zone].pointer)
        replica.expect_stray(key)

        def body(attempt: Attempt) -> None:
            value = attempt.tr.get(location.keys.pointer).value
            pointer = None if value is None else decode(PointerRecord, value)
            if pointer is None:  # No consumer would find the entry.
                return
            if draw == self._entry_of_item and pointer.vesting_us > self.cluster.world.now_us() + DEQUEUED_US:
                return  # A queue with holds alone is dequeued when the first hold vests, after the simulation.
            attempt.tr.set(key, kind.encode())

        try:
            shard.transact(body)
        except shard.db.errors:
            self.cluster.world.note("the operator gives up")

    def _entry_of_item(self, location: ZoneLocation, pointer: PointerRecord | None) -> bytes:
        return location.keys.vest(self.random.choice([0, 100, 255]), self._early_us(), self.random.randbytes(ID_BYTES))

    def _entry_of_nobody(self, location: ZoneLocation, pointer: PointerRecord | None) -> bytes:
        nobody = location.layout.location(Tenant("nobody", str(self.random.randrange(1_000))), location.name)
        return nobody.part.vest(100, self._early_us(), nobody.pointer_id)

    def _no_entry(self, location: ZoneLocation, pointer: PointerRecord | None) -> bytes:
        return location.part.vest(100, self._early_us(), self.random.randbytes(ID_BYTES))

    def _second_entry(self, location: ZoneLocation, pointer: PointerRecord | None) -> bytes:
        return self.random.choice(location.layout.parts).vest(100, self._early_us(), location.pointer_id)

    def _twin_entry(self, location: ZoneLocation, pointer: PointerRecord | None) -> bytes:
        """Return a second entry in another part. It vests together with the pointer, so one scan finds both."""
        others = [part for part in location.layout.parts if part is not location.part]
        if not others:
            return self._no_entry(location, pointer)
        soon_us = self.cluster.world.now_us() + SOON_US
        vesting_us = self._early_us() if pointer is None else min(pointer.vesting_us, soon_us)
        return self.random.choice(others).vest(100, vesting_us, location.pointer_id)

    def _early_us(self) -> int:
        return self.cluster.world.now_us() - EARLY_US

    def _open(self, name: str) -> Shard:
        if not self._shards:
            self._shards = self.cluster.open_shards(self.cluster.operator.host)
        return self._shards[name]
