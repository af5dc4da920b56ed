"""Claims: each has a key in its worker session, and lasts as long as it; a session lasts as long as its heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemChange, ItemName, ParsedCommit, SessionKey, ShardReplica
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.records import ItemRecord, MovePhase
from fairlead.zones.top_level.silence import LOOKS
from fairlead.zones.top_level.worker_sessions import ALIVE, BEAT, CLAIM, HEARTBEAT_US, NOTICE, OVER

SILENT_US_MIN = (LOOKS - 1) * HEARTBEAT_US - 100_000  # The looks are a second apart, but for the time that they take.
FREED_US_MAX = 7_000_000  # After the death of a worker, while a consumer looks and the store answers.
LOOK_US = 1_000_000


class ClaimsHaveKeys(Oracle):
    """A record with a claim has its key in a session that stands or is listed, and each key has such a record.

    Only a session that stands has a beat. A notice belongs to a session that stands, or is listed. While a tenant
    arrives from another shard, its items may have the claims that they had there.
    """

    promise = "a claim has a key in a worker session that somebody looks at"

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        shard = parsed.shard
        for change in parsed.items:
            if change.after is not None and change.after.claim and not _comes_along(shard, change):
                self._check_claim(shard, parsed.by, change.item, change.after)
        for sort, key in parsed.session_keys:
            if key in shard.worker_sessions.get(sort, {}):
                self._check_key(shard, parsed.by, sort, key)
            elif sort in (ALIVE, OVER, CLAIM):
                self._check_removal(shard, parsed.by, sort, key)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`. All items have ended."""
        for shard in shards:
            for key in shard.worker_sessions.get(CLAIM, {}):
                self.report_violation(f"{shard.name} keeps the claim {_name(shard, key)}")
            for key in shard.worker_sessions.get(NOTICE, {}):
                if not _is_known(shard, key[0]):
                    self.report_violation(f"{shard.name} keeps a notice for a session that is not there: {key}")

    def _check_claim(self, shard: ShardReplica, by: str, item: ItemName, record: ItemRecord) -> None:
        key = (record.claim, *item.tenant, item.zone, item.item_id)
        if key not in shard.worker_sessions.get(CLAIM, {}):
            self.report_violation(f"{by} claims {item}, and writes no key")
        if not _is_known(shard, record.claim):
            self.report_violation(f"{by} claims {item} for a session that has ended")

    def _check_key(self, shard: ShardReplica, by: str, sort: int, key: SessionKey) -> None:
        if sort == CLAIM and _record_of(shard, key) is None:
            self.report_violation(f"{by} writes the key of a claim without a claim: {_name(shard, key)}")
        if sort == BEAT and key not in shard.worker_sessions.get(ALIVE, {}):
            self.report_violation(f"{by} sends a heartbeat for a session that has ended")
        if sort in (ALIVE, OVER) and all(key in shard.worker_sessions.get(other, {}) for other in (ALIVE, OVER)):
            self.report_violation(f"{by} lets a session stand that is listed as ended")
        if sort == NOTICE and not _is_known(shard, key[0]) and not _is_arriving(shard, Tenant(*key[1:3])):
            self.report_violation(f"{by} leaves a notice for a session that is forgotten")

    def _check_removal(self, shard: ShardReplica, by: str, sort: int, key: SessionKey) -> None:
        if sort == CLAIM:
            if _record_of(shard, key) is not None:
                self.report_violation(f"{by} clears the key of the claim {_name(shard, key)}")
            return
        if not _is_known(shard, key[0]):
            for left in (BEAT, CLAIM, NOTICE):
                for other in shard.worker_sessions.get(left, {}):
                    if other[0] == key[0]:
                        self.report_violation(f"{by} forgets a session that has a key of sort {left} left: {other}")


class SessionsLastAsLongAsTheirHeartbeats(Oracle):
    """Nobody but its own worker ends a session within the time of its last heartbeats, unless the worker is dead.

    Once the faults are over, the claims of a dead worker are released within `FREED_US_MAX`.

    Args:
      calm_us: from when on no fault delays consumers and stores.
    """

    promise = "a worker session lasts as long as its worker's heartbeats"

    def __init__(self, world: World, *, calm_us: int, is_dead: Callable[[str], bool]) -> None:
        super().__init__(world)
        self._calm_us = calm_us
        self._is_dead = is_dead
        self._beat_us: dict[tuple[str, bytes], int] = {}
        self._worker: dict[tuple[str, bytes], str] = {}  # the incarnation of each session that has begun
        self._dead_since_us: dict[str, int] = {}
        self._next_look_us = 0

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        shard, now_us = parsed.shard, self.world.now_us()
        ends = set()
        for sort, key in parsed.session_keys:
            session = shard.name, key[0]
            stands = key in shard.worker_sessions.get(sort, {})
            if sort == BEAT and stands:
                self._beat_us[session] = now_us
            if sort == ALIVE and stands:
                self._worker[session] = parsed.commit.by
            elif sort == ALIVE:
                ends.add(session)
        for session in ends:
            worker = self._worker[session]
            silent_us = now_us - self._beat_us.get(session, 0)
            if parsed.commit.by != worker and not self._is_dead(worker) and silent_us < SILENT_US_MIN:
                self.report_violation(f"{parsed.by} ends the session of {worker}, {silent_us} us after a heartbeat")
        if now_us >= self._next_look_us:
            self._next_look_us = now_us + LOOK_US
            self._check_dead(shard, now_us)

    def _check_dead(self, shard: ShardReplica, now_us: int) -> None:
        for key in shard.worker_sessions.get(CLAIM, {}):
            worker = self._worker[shard.name, key[0]]
            if self._is_dead(worker):
                since_us = max(self._dead_since_us.setdefault(worker, now_us), self._calm_us)
                if now_us - since_us > FREED_US_MAX:
                    self.report_violation(f"{worker} is dead for {now_us - since_us} us, and claims {key[1:]}")


def _comes_along(shard: ShardReplica, change: ItemChange) -> bool:
    """Return whether an item keeps a claim with which it has come from the shard where its tenant lived before."""
    claim = None if change.before is None else change.before.claim
    is_kept = change.after is not None and claim == change.after.claim
    return is_kept and _is_arriving(shard, change.item.tenant)


def _is_arriving(shard: ShardReplica, tenant: Tenant) -> bool:
    owner = shard.owners.get(tenant)
    return owner is not None and owner.move is not None and owner.move.phase is MovePhase.ARRIVING


def _is_known(shard: ShardReplica, session_id: bytes) -> bool:
    return any((session_id,) in shard.worker_sessions.get(sort, {}) for sort in (ALIVE, OVER))


def _record_of(shard: ShardReplica, key: SessionKey) -> ItemRecord | None:
    """Return the record that says that it is claimed by this key."""
    session_id, app, user, zone_name, item_id = key
    zone = next((zone for name, zone in shard.zones.items() if name == (Tenant(app, user), zone_name)), None)
    record = None if zone is None else zone.items.get(item_id)
    return record if record is not None and record.claim == session_id else None


def _name(shard: ShardReplica, key: SessionKey) -> str:
    _, app, user, zone, item_id = key
    return str(ItemName(shard.name, Tenant(app, user), zone, item_id))
