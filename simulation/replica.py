"""A replica of a shard, parsed commit by commit, so that oracles need not read the store.

Keys are unpacked here by the rules of the tuple layer, not by the product's own readers. So this finds a key that the
product packs wrongly, too.

A tenant who moves has rows on two shards, and lives on one of them. Its rows on the other one are kept as they are, and
not parsed: oracles do not see them as its queues. With the commit by which the destination owns the tenant, its zones
leave the replica of the source, and are parsed at the destination. No item changes by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.actors.messages import ItemRef
from fairlead.simulation.store import Change, Commit
from fairlead.zones import keyspace
from fairlead.zones.keyspace import ROOT, TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.records import (
    DeadLetterRecord,
    DecisionRecord,
    ItemRecord,
    KindPolicy,
    Lock,
    MovePhase,
    MoveRecord,
    OwnerRecord,
    PlacementRecord,
    PointerRecord,
    Policy,
    PreparedRecord,
    ShardRecord,
    TransactionId,
    decode,
)
from fairlead.zones.workflow.locks import LockRequest, decode_request

RUN_KEYS = frozenset({keyspace.STEP_LOG, keyspace.FENCE, keyspace.SIGNAL, keyspace.CHILD_RESULT, keyspace.LOCK})
LOCK_LINE = 1  # The sort of the keys of requests of locks.
_SIGNAL_NAMES = 7  # The elements of a signal's key before its stamp, which is no element.

Entry = tuple[int, int, bytes]  # priority, vesting time, id
Paused = Tenant | str | None  # a tenant, a kind, or the shard itself
Limited = Tenant | str
SessionKey = tuple[Any, ...]  # the elements after the sort: the session, and of a claim or a notice the item
DeadLetterChange = tuple[DeadLetterRecord | None, DeadLetterRecord | None]  # before and after a commit


class ZoneName(NamedTuple):
    """A queue zone of a shard."""

    tenant: Tenant
    zone: str


@dataclass(slots=True)
class ZoneReplica:
    """One queue zone."""

    name: ZoneName
    items: dict[bytes, ItemRecord] = field(default_factory=dict)
    entries: set[Entry] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    dead_lettered: dict[bytes, DeadLetterRecord] = field(default_factory=dict)
    pointer: PointerRecord | None = None
    pointer_written_us: int = 0
    pointer_entries: set[tuple[int, int]] = field(default_factory=set)  # priority and vesting time

    def __str__(self) -> str:
        return f"{self.name.tenant.app}/{self.name.tenant.user}/{self.name.zone}"


class ItemName(NamedTuple):
    """The full name of an item, because two tenants may use the same id.

    `shard`: where it was when it was named. It is no part of the name, because tenants move; only local items stay.
    """

    shard: str
    tenant: Tenant
    zone: str
    item_id: bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ItemName) or self[1:] != other[1:]:
            return False
        return bool(self.tenant.app) or self.shard == other.shard

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[1:])

    def __str__(self) -> str:
        return f"{self.shard}/{self.tenant.app}/{self.tenant.user}/{self.zone}/{self.item_id.hex()}"


def item_of(ref: ItemRef) -> ItemName:
    """Return the name of the item of a message."""
    return ItemName(ref.shard, ref.tenant, ref.zone, ref.item_id)


class ItemChange(NamedTuple):
    """What a commit did to one item.

    Attributes:
      dead_lettered: the dead letter that the item became by the commit.
      dead_letter_before: the dead letter of its id before the commit.
      retried: whether the commit put that dead letter back into the queue.
    """

    item: ItemName
    before: ItemRecord | None
    after: ItemRecord | None
    dead_lettered: DeadLetterRecord | None
    dead_letter_before: DeadLetterRecord | None
    retried: bool


@dataclass(slots=True)
class ParsedCommit:
    """A commit in the queue's terms: the zones that it touched, pointers included, and its changes of items."""

    commit: Commit
    shard: ShardReplica
    zones: dict[ZoneName, ZoneReplica] = field(default_factory=dict)
    items: list[ItemChange] = field(default_factory=list)
    removed_dead_letters: set[ItemName] = field(default_factory=set)  # retried, or discarded
    session_keys: list[tuple[int, SessionKey]] = field(default_factory=list)  # of worker sessions, by sort
    data: dict[bytes, bytes | None] = field(default_factory=dict)  # of tenants, by whole key
    run_keys: list[RunKey] = field(default_factory=list)  # step logs, fences, signals, results of children, locks
    decisions: list[DecisionChange] = field(default_factory=list)  # about transactions across shards
    locks_may_differ: bool = False  # whether it has changed an ownership record, or what is prepared
    changes: list[Change] = field(default_factory=list)  # but for rows of tenants who live elsewhere
    arrived: list[Tenant] = field(default_factory=list)  # whom this shard owns from this commit on
    moved_away: list[Tenant] = field(default_factory=list)  # of whom this shard says that they live elsewhere now
    owners_before: dict[Tenant, OwnerRecord | None] = field(default_factory=dict)  # records that the commit has changed
    away: list[tuple[Tenant, Change]] = field(default_factory=list)  # rows of tenants who live elsewhere

    @property
    def by(self) -> str:
        """The actor that committed, such as `c0.worker1`, in any incarnation."""
        return self.commit.by.partition("#")[0]


class RunKey(NamedTuple):
    """A key of a workflow's run that a commit has changed. `path`: after the names of the tenant, as `unpack_key`."""

    tenant: Tenant
    path: list[Any]
    after: bytes | None


class DecisionChange(NamedTuple):
    """What a commit did to the decision about a transaction across shards."""

    transaction: TransactionId
    before: DecisionRecord | None
    after: DecisionRecord | None


class Limit(NamedTuple):
    """A limit of items of a tenant or a kind at once, and its version. `updated_us`: see `KindPolicy`."""

    max_running: int
    since: int
    updated_us: int = 0


class ShardReplica:
    """One shard."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.zones: dict[ZoneName, ZoneReplica] = {}
        self.depths: dict[tuple[int, str], int] = {}
        self.others: dict[bytes, bytes] = {}  # all other keys
        self.worker_sessions: dict[int, dict[SessionKey, bytes]] = {}  # by sort of key, such as ALIVE
        self.paused_since: dict[Paused, int] = {}  # the version of each pause
        self.limits: dict[Limited, Limit] = {}
        self.kind_policies: dict[str, KindPolicy] = {}
        self.paused_pointers: dict[ZoneName, set[str]] = {}  # zones whose pointers wake when a kind's pause ends
        self.prepared: dict[TransactionId, PreparedRecord] = {}
        self.decisions: dict[TransactionId, DecisionRecord] = {}
        self.pieces: Counter[TransactionId] = Counter()  # of what is prepared
        self.locks: dict[Tenant, tuple[Lock, ...]] = {}
        # Locks of workflows: their requests, by their places in the line.
        self.lock_lines: dict[tuple[Tenant, bytes], dict[int, LockRequest]] = {}
        self.shard_id = b""  # empty: not known yet
        self.first_shards: tuple[str, ...] = ()
        self.owners: dict[Tenant, OwnerRecord] = {}
        self.moves: dict[Tenant, MoveRecord] = {}  # the last move of each tenant away from here
        self.rows: dict[Tenant, dict[bytes, bytes]] = {}  # of all tenants, with their entries in the top-level queue
        self._taken_over: set[Tenant] = set()  # who live elsewhere, while their ownership records here say otherwise
        self.strays: set[bytes] = set()  # index entries that a fault has written, and that name no record
        self._expected_strays: set[bytes] = set()

    def expect_stray(self, key: bytes) -> None:
        """Note that a fault may write the entry `key`, which names no record; oracles ignore it."""
        self._expected_strays.add(key)

    def share_strays(self, other: ShardReplica) -> None:
        """Expect what another replica expects, too: some entries move with their tenants."""
        self._expected_strays = other._expected_strays

    def read(self, commit: Commit, now_us: int) -> ParsedCommit:
        """Apply a commit to the replica, and return it parsed."""
        parsed = ParsedCommit(commit, self)
        dead_letter_changes: dict[tuple[ZoneName, bytes], DeadLetterChange] = {}
        changed: list[tuple[ZoneReplica, bytes, bytes | None, bytes | None]] = []
        for path, (key, before, after) in self._changes_of_residents(parsed):
            if path[:1] == [keyspace.DB] and len(path) > 5 and path[3] == keyspace.ZONE:
                zone = self._touch(parsed, ZoneName(Tenant(path[1], path[2]), path[4]))
                if path[5] == keyspace.ITEM:
                    changed.append((zone, path[6], before, after))
                elif path[5] == keyspace.POINTER:
                    zone.pointer = None if after is None else decode(PointerRecord, after)
                    zone.pointer_written_us = now_us
                else:
                    self._read_zone_key(zone, path[5:], key, after, dead_letter_changes)
            elif path[:1] == [keyspace.TOP]:
                zone = self._touch(parsed, ZoneName(Tenant(path[5], path[6]), path[7]))
                _put_in(zone.pointer_entries, (path[3], path[4]), after)
            elif path[:1] == [keyspace.WORKER_SESSION]:
                session_key = tuple(path[2:])
                _put(self.worker_sessions.setdefault(path[1], {}), session_key, after)
                parsed.session_keys.append((path[1], session_key))
            elif path[:1] == [keyspace.DEPTH]:
                self.depths[path[1], path[2]] = _signed(after)
            else:
                if path[:1] == [keyspace.DB] and path[3] == keyspace.DATA:
                    parsed.data[key] = after
                elif path[:1] == [keyspace.DB] and path[3] in RUN_KEYS:
                    parsed.run_keys.append(RunKey(Tenant(path[1], path[2]), path[3:], after))
                    self._read_lock(Tenant(path[1], path[2]), path[3:], after)
                self._read_policy(path, after, commit.version)
                self._read_spanning(parsed, path, before, after)
                self._read_move(path, after)
                _put(self.others, key, after)
        for tenant in parsed.arrived:
            self._parse_all(parsed, tenant, now_us)
        for zone, item_id, before, after in changed:
            record = None if after is None else decode(ItemRecord, after)
            earlier = None if before is None else decode(ItemRecord, before)
            _put(zone.items, item_id, record)
            item = ItemName(self.name, *zone.name, item_id)
            dead_letter = zone.dead_lettered.get(item_id)
            was, became = dead_letter_changes.get((zone.name, item_id), (dead_letter, None))
            retried = was is not None and item_id not in zone.dead_lettered
            parsed.items.append(ItemChange(item, earlier, record, became, was, retried))
        parsed.removed_dead_letters.update(
            ItemName(self.name, *zone, item_id)
            for (zone, item_id), (_, became) in dead_letter_changes.items()
            if became is None
        )
        return parsed

    def lives_here(self, tenant: Tenant) -> bool:
        """Whether this shard owns a tenant; local items live on every shard."""
        if not tenant.app or not self.shard_id:
            return True
        if tenant in self._taken_over:
            return False
        owner = self.owners.get(tenant)
        if owner is None:
            return len(self.first_shards) < 2 or home(tenant, self.first_shards) == self.name
        return owner.shard_id == self.shard_id

    def leave(self, tenant: Tenant) -> None:
        """Let the zones of a tenant leave, whom another shard owns from now on."""
        self._taken_over.add(tenant)
        self._forget(tenant)

    def _changes_of_residents(self, parsed: ParsedCommit) -> list[tuple[list[Any], Change]]:
        """Return the changes of a commit that oracles see, with the elements of their keys.

        Those are all but rows of tenants who live elsewhere before or after the commit. Note who comes and goes.
        """
        changes: list[tuple[list[Any], Change]] = []
        tenants: dict[Tenant, bool] = {}  # whether they lived here before
        for change in parsed.commit.changes:
            key, _, after = change
            if key in self._expected_strays:
                self.strays.discard(key) if after is None else self.strays.add(key)
            elif key.startswith(ROOT):  # An application writes other keys through `tr.raw`.
                path = unpack_key(key)
                changes.append((path, change))
                tenant = _tenant_of(path)
                if tenant is not None:
                    tenants.setdefault(tenant, self.lives_here(tenant))
        for path, change in changes:
            tenant = _tenant_of(path)
            if tenant is not None:
                _put(self.rows.setdefault(tenant, {}), change.key, change.after)
                if path[3:] == [keyspace.OWNER]:
                    self._read_owner(parsed, tenant, change.after)
        for tenant, lived_here in tenants.items():
            if self.lives_here(tenant) and not lived_here:
                parsed.arrived.append(tenant)
            elif lived_here and not self.lives_here(tenant):
                self._forget(tenant)
        seen = []
        for path, change in changes:
            tenant = _tenant_of(path)
            if tenant is None or path[3:] == [keyspace.OWNER] or (tenants[tenant] and self.lives_here(tenant)):
                seen.append((path, change))
            elif tenant not in parsed.arrived:
                parsed.away.append((tenant, change))
        parsed.changes = [change for _, change in seen]
        return seen

    def _read_owner(self, parsed: ParsedCommit, tenant: Tenant, value: bytes | None) -> None:
        before = parsed.owners_before[tenant] = self.owners.get(tenant)
        owner = None if value is None else decode(OwnerRecord, value)
        _put(self.owners, tenant, owner)
        if owner is None or owner.shard_id == self.shard_id or (before and before.shard_id != self.shard_id):
            return
        if owner.move is None or owner.move.phase is not MovePhase.INCOMING:
            self._taken_over.discard(tenant)
            parsed.moved_away.append(tenant)

    def _parse_all(self, parsed: ParsedCommit, tenant: Tenant, now_us: int) -> None:
        """Parse all rows of a tenant that arrives. Its zones are touched, and none of its items is changed."""
        for key, value in self.rows[tenant].items():
            path = unpack_key(key)
            if path[0] == keyspace.TOP:
                zone = self._touch(parsed, ZoneName(tenant, path[7]))
                zone.pointer_entries.add((path[3], path[4]))
            elif len(path) > 5 and path[3] == keyspace.ZONE:
                zone = self._touch(parsed, ZoneName(tenant, path[4]))
                if path[5] == keyspace.ITEM:
                    _put(zone.items, path[6], decode(ItemRecord, value))
                elif path[5] == keyspace.POINTER:
                    zone.pointer, zone.pointer_written_us = decode(PointerRecord, value), now_us
                else:
                    self._read_zone_key(zone, path[5:], key, value, {})
            else:
                if path[3] in RUN_KEYS:
                    self._read_lock(tenant, path[3:], value)
                self.others[key] = value

    def _forget(self, tenant: Tenant) -> None:
        """Forget all that was parsed of a tenant's rows but the ownership record."""
        for name in [name for name in self.zones if name.tenant == tenant]:
            del self.zones[name]
        for lock in [lock for lock in self.lock_lines if lock[0] == tenant]:
            del self.lock_lines[lock]
        owner = TenantKeys(*tenant).owner
        for key in self.rows.get(tenant, ()):
            if key != owner:
                self.others.pop(key, None)

    def _read_move(self, path: list[Any], after: bytes | None) -> None:
        match path:
            case [keyspace.MOVE, str(app), str(user)]:
                _put(self.moves, Tenant(app, user), None if after is None else decode(MoveRecord, after))
            case [keyspace.META] if after is not None:
                record = decode(ShardRecord, after)
                self.shard_id = b"" if record is None else record.shard_id
            case [keyspace.PLACEMENT] if after is not None:
                placement = decode(PlacementRecord, after)
                self.first_shards = () if placement is None else placement.first_shards

    def items(self) -> Iterator[tuple[ItemName, ItemRecord]]:
        """Yield every item in its queue."""
        for zone in self.zones.values():
            for item_id, record in zone.items.items():
                yield ItemName(self.name, *zone.name, item_id), record

    def _read_spanning(self, parsed: ParsedCommit, path: list[Any], before: bytes | None, after: bytes | None) -> None:
        match path:
            case [keyspace.PREPARED, int(started_us), bytes(random), int(number)]:
                record = None if after is None else decode(PreparedRecord, after)
                _put(self.prepared, TransactionId(started_us, random, number), record)
                parsed.locks_may_differ = True
            case [keyspace.PREPARED_WRITES, int(started_us), bytes(random), int(number), _]:
                transaction = TransactionId(started_us, random, number)
                self.pieces[transaction] += (after is not None) - (before is not None)
                if not self.pieces[transaction]:
                    del self.pieces[transaction]
                parsed.locks_may_differ = True
            case [keyspace.DECISION, int(started_us), bytes(random), int(number)]:
                records = [None if value is None else decode(DecisionRecord, value) for value in (before, after)]
                transaction = TransactionId(started_us, random, number)
                parsed.decisions.append(DecisionChange(transaction, *records))
                _put(self.decisions, transaction, records[1])
            case [keyspace.DB, str(app), str(user), keyspace.OWNER]:
                owner = None if after is None else decode(OwnerRecord, after)
                _put(self.locks, Tenant(app, user), None if owner is None else owner.locks or None)
                parsed.locks_may_differ = True

    def _read_lock(self, tenant: Tenant, path: list[Any], after: bytes | None) -> None:
        match path:
            case [keyspace.LOCK, sort, bytes(lock), int(number)] if sort == LOCK_LINE:
                line = self.lock_lines.setdefault((tenant, lock), {})
                _put(line, number, None if after is None else decode_request(after))

    def _read_policy(self, path: list[Any], after: bytes | None, version: int) -> None:
        match path:
            case [keyspace.POLICY, 1]:
                self._note_pause(None, after is not None, version)
            case [keyspace.POLICY, 2, str(kind)]:
                policy = None if after is None else decode(KindPolicy, after)
                _put(self.kind_policies, kind, policy)
                self._note_policy(kind, policy, version)
            case [keyspace.DB, str(app), str(user), keyspace.OWNER]:
                owner = None if after is None else decode(OwnerRecord, after)
                self._note_policy(Tenant(app, user), None if owner is None else owner.policy, version)
            case [keyspace.PAUSED_POINTER, str(kind), str(app), str(user), str(zone)]:
                kinds = self.paused_pointers.setdefault(ZoneName(Tenant(app, user), zone), set())
                _put_in(kinds, kind, after)

    def _note_policy(self, whose: Limited, policy: Policy | None, version: int) -> None:
        self._note_pause(whose, policy is not None and policy.paused, version)
        if policy is None or policy.max_running is None:
            self.limits.pop(whose, None)
        elif whose not in self.limits or self.limits[whose].max_running != policy.max_running:
            self.limits[whose] = Limit(
                policy.max_running, version, policy.updated_us if isinstance(policy, KindPolicy) else 0
            )

    def _note_pause(self, what: Paused, paused: bool, version: int) -> None:
        if paused:
            self.paused_since.setdefault(what, version)
        else:
            self.paused_since.pop(what, None)

    def _touch(self, parsed: ParsedCommit, name: ZoneName) -> ZoneReplica:
        zone = self.zones.get(name)
        if zone is None:
            zone = self.zones[name] = ZoneReplica(name)
        parsed.zones[name] = zone
        return zone

    def _read_zone_key(
        self,
        zone: ZoneReplica,
        path: list[Any],
        key: bytes,
        after: bytes | None,
        dead_letter_changes: dict[tuple[ZoneName, bytes], DeadLetterChange],
    ) -> None:
        number = path[0]
        if number == keyspace.VEST:
            _put_in(zone.entries, (path[1], path[2], path[3]), after)
        elif number == keyspace.COUNT:
            _put(zone.counts, path[1], None if after is None else _signed(after))
        elif number == keyspace.DEAD_LETTER:
            became = None if after is None else decode(DeadLetterRecord, after)
            dead_letter_changes[zone.name, path[1]] = (zone.dead_lettered.get(path[1]), became)
            _put(zone.dead_lettered, path[1], became)
        else:
            _put(self.others, key, after)


def unpack_key(key: bytes) -> list[Any]:
    """Return the elements of a key of the product after the root: whole numbers, texts, byte strings; lists of these.

    In a key of a tenant's data, or of a copy, the rest after the first element of another type is the last element,
    unparsed. So is the stamp of a signal.
    """
    path, _ = _unpack(key, len(ROOT), nested=False)
    return path


def _unpack(key: bytes, at: int, *, nested: bool) -> tuple[list[Any], int]:
    """Return the elements of a key from `at` on, and where they end. `nested`: they are those of a nested tuple."""
    path: list[Any] = []
    while at < len(key):
        if nested and key[at] == 0:
            return path, at + 1
        if len(path) == _SIGNAL_NAMES and (path[0], path[3]) == (keyspace.DB, keyspace.SIGNAL):
            return [*path, key[at:]], len(key)
        code = key[at]
        if (code == 5 and path[:1] != [keyspace.DB]) or (code == 5 and path[3:4] == [keyspace.INDEXED]):
            inner, at = _unpack(key, at + 1, nested=True)
            path.append(inner)
        elif code in (1, 2):
            end = key.index(b"\x00", at)
            while key[end + 1 : end + 2] == b"\xff":
                end = key.index(b"\x00", end + 2)
            raw = key[at + 1 : end].replace(b"\x00\xff", b"\x00")
            path.append(raw.decode() if code == 2 else raw)
            at = end + 1
        else:
            size = code - 0x14
            if not 0 <= size <= 8:
                is_free = path[:1] == [keyspace.DB] and path[3:4] in ([keyspace.DATA], [keyspace.SNAP])
                assert is_free, f"no tuple of ours: {key!r}"
                return [*path, key[at:]], len(key)
            path.append(int.from_bytes(key[at + 1 : at + 1 + size], "big"))
            at += 1 + size
    return path, at


def _tenant_of(path: list[Any]) -> Tenant | None:
    """Return whose row a key is, or whose entry in the top-level queue; None: nobody's, or one of local items."""
    if path[0] == keyspace.DB and path[1]:
        return Tenant(path[1], path[2])
    if path[0] == keyspace.TOP and path[5]:
        return Tenant(path[5], path[6])
    return None


def _put(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _put_in(entries: set[Any], entry: Any, value: bytes | None) -> None:
    if value is None:
        entries.discard(entry)
    else:
        entries.add(entry)


def _signed(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value, "little", signed=True)
