"""Leftovers: at the end there are no pointers of empty zones, and no keys that would never be cleared."""

from collections.abc import Sequence
from typing import Any

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import RUN_KEYS, ShardReplica, unpack_key
from fairlead.simulation.world import World
from fairlead.zones import keyspace
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.records import PointerRecord
from fairlead.zones.workflow.locks import decode_request
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.run_records import END, FENCE_BYTES

_LOCKS_OF_RUN = 2  # The sort of the keys that lead from a run to its locks.
_TOMBSTONE = END.to_bytes(FENCE_BYTES, "big")

_STAYS = {
    keyspace.META,
    keyspace.PLACEMENT,
    keyspace.TIME,
    keyspace.SESSION,
    keyspace.HANDLER,
    keyspace.PERIODIC,
    keyspace.POLICY,
    keyspace.COMPLETION_LOG,
    keyspace.WORKER_STATUS,
    keyspace.ROLLUP,
    keyspace.AUDIT_LOG,
    keyspace.CHANGE_COUNTER,
    keyspace.MOVE,
    keyspace.MOVE_COUNT,
    keyspace.EXTERNAL_READER,
}


class NothingIsLeftBehind(Oracle):
    """Queues are empty, pointers deleted, counts zero. Each other key has an owner, or a time to be cleared.

    Of a workflow's run that has ended nothing is left at home, and a tombstone at each participant. A cleanup whose
    workers were killed may be a dead letter: then its run's keys stay until its retry. A pointer that was made for a
    hold stays until the claim would have ended.

    Args:
      hold_us: how long the claim of a hold lasts without a renewal; 0: there are no holds.
    """

    promise = "nothing is left behind"

    def __init__(self, world: World, *, hold_us: int) -> None:
        super().__init__(world)
        self._hold_us = hold_us
        self._dead_lettered_runs: set[bytes] = set()

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        dead_letters = [
            (item_id, dead_letter.item)
            for shard in shards
            for zone in shard.zones.values()
            for item_id, dead_letter in zone.dead_lettered.items()
        ]
        self._dead_lettered_runs = {item.run_of(item_id) for item_id, item in dead_letters if item.keeps_run}
        self._dead_lettered_runs |= {
            unpack_payload(item.payload)["run"] for _, item in dead_letters if item.kind == CLEANUP_KIND
        }
        for shard in shards:
            for zone in shard.zones.values():
                is_empty = not zone.entries and not zone.counts
                if is_empty and zone.pointer is not None and sleeps_for_a_hold(zone.pointer, self._hold_us):
                    continue
                if not is_empty or zone.pointer is not None or zone.pointer_entries:
                    left = {"entries": sorted(zone.entries), "counts": zone.counts, "pointer": zone.pointer,
                            "its entries": sorted(zone.pointer_entries)}  # fmt: skip
                    self.report_violation(f"{zone} of {shard.name} still has {left}")
            for (part, kind), depth in shard.depths.items():
                if depth:
                    self.report_violation(f"part {part} of {shard.name} counts {depth} of {kind}, and is empty")
            paths = {key: unpack_key(key) for key in shard.others}
            expiring = {path[3] for path in paths.values() if path[0] == keyspace.RETENTION}
            for key, path in paths.items():
                if key not in expiring and not self._may_stay(shard, path, shard.others[key]):
                    self.report_violation(f"{shard.name} has a key that is never cleared: {path}")

    def _may_stay(self, shard: ShardReplica, path: list[Any], value: bytes) -> bool:
        if path[0] in _STAYS or (path[0] == keyspace.DB and path[3] in (keyspace.DATA, keyspace.OWNER)):
            return True
        if path[0] == keyspace.DB and path[3:] == [keyspace.SNAP]:
            return True  # The number of the last snapshot, which is not used again.
        if path[0] == keyspace.DECISION:
            return True  # Housekeeping clears it ten minutes later. The worlds of the bank check that.
        if path[0] in (keyspace.FLOOR, keyspace.TOMBSTONE):
            return True  # Housekeeping clears tombstones when it raises FLOOR.
        if path[0] == keyspace.DB and path[3] in RUN_KEYS:
            is_tombstone = path[3] == keyspace.FENCE and value == _TOMBSTONE
            return is_tombstone or _run_of(path, value) in self._dead_lettered_runs
        if path[0] in (keyspace.RECEIPT, keyspace.RETENTION):
            return True  # Housekeeping clears this key, and what it names, at the time in the key.
        if path[0] == keyspace.DB and path[3] == keyspace.ZONE:
            dead_lettered = {item_id for zone in shard.zones.values() for item_id in zone.dead_lettered}
            return path[5] == keyspace.PAYLOAD and path[6] in dead_lettered
        if path[0] == keyspace.LOCAL_INDEX or (path[0] == keyspace.DB and path[3] == keyspace.INDEXED):
            return any(path[-1].startswith(item_id) for zone in shard.zones.values() for item_id in zone.dead_lettered)
        return bool(path[0] == keyspace.DEAD_LETTER_INDEX)


def sleeps_for_a_hold(pointer: PointerRecord, hold_us: int) -> bool:
    """Return whether a pointer was made for a hold: it vests when the hold's claim would have ended."""
    return bool(hold_us) and pointer.bound_us == hold_us


def _run_of(path: list[Any], value: bytes) -> bytes | None:
    """Return the run that a key belongs to; of a lock request, its value says so."""
    if path[3] != keyspace.LOCK:
        return bytes(path[4])
    if path[4] == _LOCKS_OF_RUN:
        return bytes(path[5])
    request = decode_request(value)
    return None if request is None else request.run
