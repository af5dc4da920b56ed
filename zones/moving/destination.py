"""The transactions of a move at its destination: prepare, copy, own, arrive, close; and the stub at the first home.

The ownership record there is the fence of the move. Each transaction reads and checks it with conflict. A mover that
takes over raises `mover` in it, and each chunk raises `chunk`: so what an earlier mover, or an earlier chunk of unknown
result, still writes cannot be committed any more.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairlead.zones import local_index
from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import (
    DEAD_LETTER,
    FENCE,
    RESULT,
    RETAINED_ID,
    TenantKeys,
    pack_int,
    range_begin,
    range_end,
    unpack_bytes,
)
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.moving.errors import MoverReplaced, Unmovable
from fairlead.zones.moving.rows import ZoneRow, dead_letter_id, expires, is_external_pointer, parse_zone_row
from fairlead.zones.moving.source import Mine, read_owner, write_owner
from fairlead.zones.ownership import is_first_home, mark_if_moving
from fairlead.zones.pipelining import run_together
from fairlead.zones.policy.policies import list_tenant_policy
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dead_letters import dead_letter_index_key
from fairlead.zones.queue.id_retention import kept_until_us, retention_key
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.insertion import wake_op
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.records import (
    COUNT_MAX,
    DeadLetterRecord,
    ItemRecord,
    Move,
    MovePhase,
    OwnerRecord,
    PointerRecord,
    decode,
)
from fairlead.zones.snapshots.snapshot_list import list_work
from fairlead.zones.top_level import pointers, worker_sessions
from fairlead.zones.top_level.part_writes import add_to_count
from fairlead.zones.workflow.participants import is_tombstone, list_tombstone

POINTERS_MAX = 500  # Made by the transaction with which the destination owns the tenant.
LISTED_MAX = 500  # Rows that one piece of an arrival looks at.
NOBODY = COUNT_MAX  # The number of no mover: the destination is closed, and the source may not have been thawed yet.
TAKEN_BACK = "it was being taken back when its mover stopped"
LEFT_BEHIND = "another shard owns the tenant by now: the source was restored from an old backup"


class Copied(NamedTuple):
    """A range of a tenant as it was read at the source."""

    begin: bytes
    end: bytes
    rows: Sequence[KeyValue]


def prepare(tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine, *, epoch: int, source_id: bytes) -> bool:
    """Let a tenant come in, or take over its coming in; False: this shard owns it already, by this move.

    Reads with conflict, and writes: the ownership record. May run twice.

    Raises:
      MoverReplaced: a later mover, or a later move, has taken over.
      Unmovable: the move is being taken back; or this shard owns the tenant, or has owned it, under a later epoch.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is not None and owner.shard_id == layout.shard_id:
        if owner.epoch > epoch:
            return False
        raise Unmovable(LEFT_BEHIND)
    chunk = 0
    if owner is not None and owner.move is not None and owner.move.move_id == mine.move_id:
        if owner.move.mover == NOBODY:
            probe("a mover finds its destination closed")
            raise Unmovable(TAKEN_BACK)
        if owner.move.mover > mine.mover:
            raise MoverReplaced
        chunk = owner.move.chunk
    elif owner is not None and owner.epoch > epoch:
        if owner.move is not None:  # A later move brings it here.
            raise MoverReplaced
        raise Unmovable(LEFT_BEHIND)
    move = Move(MovePhase.INCOMING, source_id, mine.move_id, mine.mover, chunk)
    write_owner(tr, keys, OwnerRecord(epoch + 1, source_id, move=move))
    return True


def is_incoming(owner: OwnerRecord | None, mine: Mine) -> bool:
    """Say whether a tenant comes in by this mover."""
    move = None if owner is None else owner.move
    return (
        move is not None
        and move.phase is MovePhase.INCOMING
        and (move.move_id, move.mover) == (mine.move_id, mine.mover)
    )


def write_chunk(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine, chunk: int, copied: Sequence[Copied]
) -> None:
    """Replace ranges by what they were at the source. `chunk`: counts this mover's chunks, from the one that it found.

    Reads with conflict: the ownership record. Writes: the ranges, the ownership record. May run twice: a chunk that was
    written changes nothing.

    Raises:
      MoverReplaced: a later mover has taken over, or the move has ended.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is None or owner.move is None or not is_incoming(owner, mine):
        raise MoverReplaced
    if owner.move.chunk == chunk:
        probe("a chunk of unknown result is found written")
        return
    if owner.move.chunk != chunk - 1:
        raise MoverReplaced
    _replace(tr, copied)
    owner.move = msgspec.structs.replace(owner.move, chunk=chunk)
    write_owner(tr, keys, owner)


def _replace(tr: Transaction, copied: Sequence[Copied]) -> None:
    for each in copied:
        tr.clear_range(each.begin, each.end)
        for row in each.rows:
            tr.set(row.key, row.value)


def own(
    tr: Transaction,
    layout: ShardLayout,
    tenant: Tenant,
    mine: Mine,
    frozen: OwnerRecord,
    copied: Sequence[Copied],
    depths: Mapping[bytes, int],
    zones: Sequence[ZoneLocation],
    *,
    now_us: int,
) -> None:
    """Let this shard own the tenant: the decision of the move. The source is frozen, and has been copied but `copied`.

    Reads with conflict: the ownership record, the pointers of up to `POINTERS_MAX` zones. Writes: the ownership record,
    the last rows, the depths of the shard, the pointers, the lists of policies and of snapshots. May run twice: the
    second run finds another record.

    Args:
      frozen: the ownership record at the source.
      depths: how much is added to which count of the shard.
      zones: those that hold items.

    Raises:
      MoverReplaced: a later mover has taken over, or the move has ended; or this shard owns the tenant already.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if not is_incoming(owner, mine):
        raise MoverReplaced
    _replace(tr, copied)
    for key, count in depths.items():
        add_to_count(tr, key, count)
    run_together(wake_op(tr, location, earliest_us=now_us, now_us=now_us) for location in zones[:POINTERS_MAX])
    arriving = Move(MovePhase.ARRIVING, frozen.shard_id, mine.move_id)
    owned = msgspec.structs.replace(frozen, epoch=frozen.epoch + 1, shard_id=layout.shard_id, locks=(), move=arriving)
    write_owner(tr, keys, owned)
    list_tenant_policy(tr, keys, owned.policy)
    if owned.snapshots is not None:
        probe("a tenant moves with its snapshots")
    list_work(tr, keys, None, owned.snapshots)


def owns(layout: ShardLayout, owner: OwnerRecord | None, *, epoch: int) -> bool:
    """Say whether this shard owns a tenant, or has owned it, since the move that began in `epoch`."""
    if owner is None or owner.epoch <= epoch:
        return False
    return owner.move is None or owner.move.phase is not MovePhase.INCOMING


def arrive(tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine, begin: bytes, *, now_us: int) -> bytes:
    """Make what names a tenant's rows on its new shard, for some rows from `begin` on; return where to go on.

    Pointers of zones with items, entries of those of external queues, the shard's lists of dead letters, of what
    expires, of tombstones, the shard's index.
    Empty: that was all, and the tenant has arrived.

    Reads with conflict: the ownership record, the rows, the pointers. Writes: the lists, the pointers, and with the
    last piece the ownership record, and the count of moves. May run twice.

    Raises:
      MoverReplaced: the tenant has arrived, or this shard does not own it.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is None or owner.move is None or owner.move.move_id != mine.move_id:
        raise MoverReplaced
    if owner.move.phase is not MovePhase.ARRIVING:
        raise MoverReplaced
    end = range_end(keys.prefix)
    begin = begin or range_begin(keys.zones)
    to_wake: dict[ZoneLocation, None] = {}
    for _ in range(LISTED_MAX):
        row = next(iter(tr.get_range(begin, end, limit=1)), None)
        if row is None:
            begin = b""
            break
        begin = _list_row(tr, layout, tenant, keys, row, to_wake, now_us=now_us)
    run_together(wake_op(tr, location, earliest_us=now_us, now_us=now_us) for location in to_wake)
    if not begin:
        owner.move = None
        write_owner(tr, keys, owner)
        local_index.count_move(tr)
    return begin


def _list_row(
    tr: Transaction,
    layout: ShardLayout,
    tenant: Tenant,
    keys: TenantKeys,
    row: KeyValue,
    to_wake: dict[ZoneLocation, None],
    *,
    now_us: int,
) -> bytes:
    """List a row where its shard lists such rows; return the key to go on from, past rows that nothing lists."""
    zone_row = parse_zone_row(keys, row.key)
    if zone_row is None:
        return _list_other_row(tr, tenant, keys, row)
    location = layout.location(tenant, zone_row.zone)
    if zone_row.sort < DEAD_LETTER:  # Items, their index, and their counts: the counts say whether there are items.
        counts = location.keys.count_prefix()
        stored = tr.get_range(range_begin(counts), range_end(counts), streaming_mode=WANT_ALL)
        if any(number_of(each.value) > 0 for each in stored):
            to_wake[location] = None
        return location.keys.dead_letter_prefix()
    if is_external_pointer(zone_row):
        _list_pointer(tr, location, row, now_us=now_us)
    else:
        _list_zone_row(tr, location, zone_row, row)
    if zone_row.sort in (DEAD_LETTER, RETAINED_ID, RESULT):
        return row.key + b"\x00"
    return location.keys.prefix + pack_int(zone_row.sort + 1)


def _list_pointer(tr: Transaction, location: ZoneLocation, row: KeyValue, *, now_us: int) -> None:
    """Let the pointer of a queue in an external store vest now: it was copied without its entry."""
    pointer = decode(PointerRecord, row.value)
    if pointer is None:
        pointers.create(tr, location, vesting_us=now_us, now_us=now_us)
    else:
        probe("the pointer of an external queue moves with its tenant")
        pointer.lease_id, pointer.deferred = b"", False
        pointers.move(tr, location, pointer, now_us, now_us=now_us)
        pointers.wake_scanners(tr, location)


def _list_zone_row(tr: Transaction, location: ZoneLocation, zone_row: ZoneRow, row: KeyValue) -> None:
    item_id = dead_letter_id(zone_row)
    dead_letter = None if item_id is None else decode(DeadLetterRecord, row.value)
    if item_id is not None and dead_letter is not None:
        key = dead_letter_index_key(location, item_id, dead_letter.dead_lettered_us)
        tr.set(key, dead_letter.item.kind.encode())
    elif expires(zone_row):
        until_us = kept_until_us(row.value)
        tr.set(retention_key(location, row.key, until_us), b"")


def _list_other_row(tr: Transaction, tenant: Tenant, keys: TenantKeys, row: KeyValue) -> bytes:
    """List a row that belongs to no queue zone: a tombstone, or what the shard's index finds."""
    fences = keys.prefix + pack_int(FENCE)
    if row.key.startswith(fences):
        if is_tombstone(row.value):
            list_tombstone(tr, tenant, unpack_bytes(row.key[len(fences) :]))
    elif row.key.startswith(keys.indexed):
        local_index.list_row(tr, keys, row.key)
    else:
        return next((each for each in (fences, keys.indexed) if row.key < each), range_end(keys.prefix))
    return row.key + b"\x00"


def end_claims(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, claimed: Sequence[tuple[bytes, bytes, str]], *, epoch: int
) -> None:
    """Make claims plain leases on the shard to which their items have moved. May run twice.

    A claim names a session of a shard, and this shard does not have it. The lease goes on for its term, and the worker
    that holds it claims the item here when it renews the lease. If the worker dies, the lease ends by its term. Who has
    taken the item over meanwhile has left a notice for that session, which nobody here would clear.

    `claimed`: sessions, ids of items, and their zones. Reads with conflict: the ownership record, the items. Writes:
    the items; clears notices. Nothing if the tenant has moved on.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is None or owner.shard_id != layout.shard_id or owner.epoch != epoch + 1:
        return
    places = [(session_id, layout.location(tenant, zone), item_id) for session_id, item_id, zone in claimed]
    reads = [tr.get(location.keys.item(item_id)) for _, location, item_id in places]
    for (session_id, location, item_id), read in zip(places, reads, strict=True):
        tr.clear(worker_sessions.notice_key(session_id, location, item_id))
        record = None if read.value is None else decode(ItemRecord, read.value)
        if record is not None and record.claim == session_id:
            probe("a claim becomes a plain lease, because its item has moved")
            record.claim = b""
            mark_if_moving(tr, keys, owner)
            stored_item.rewrite(tr, location, item_id, record)


def close(tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, *, epoch: int) -> bool:
    """Let a tenant not come in any more; False: this shard owns it already, and the move goes on.

    Reads with conflict, and writes: the ownership record. May run twice, and by anybody. From now on no mover of this
    move can commit anything here, nor prepare it anew, until the source has been thawed and `forget_closed` was called.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owns(layout, owner, epoch=epoch):
        return False
    if owner is not None and owner.move is not None and owner.move.move_id == move_id:
        owner.move = msgspec.structs.replace(owner.move, mover=NOBODY)
        write_owner(tr, keys, owner)
    return True


def forget_closed(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, *, epoch: int, source_id: bytes
) -> None:
    """Let a closed destination say what it said before the move. The source has been thawed.

    Reads with conflict, and writes: the ownership record. May run twice, and by anybody.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is None or owner.move is None or (owner.move.move_id, owner.move.mover) != (move_id, NOBODY):
        return
    if is_first_home(layout, keys):
        write_owner(tr, keys, OwnerRecord(epoch, source_id))
    else:
        tr.clear(keys.owner)


def is_closed(layout: ShardLayout, owner: OwnerRecord | None) -> bool:
    """Say whether a tenant neither lives here nor comes in, so that what is left of it here may be cleared."""
    if owner is None:
        return True
    return owner.shard_id != layout.shard_id and (owner.move is None or owner.move.mover == NOBODY)


def update_stub(tr: Transaction, layout: ShardLayout, tenant: Tenant, *, epoch: int, destination_id: bytes) -> None:
    """Say at a tenant's first home where it lives, unless a later move has said it. May run twice.

    Reads with conflict, and writes: the ownership record.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is None or owner.epoch <= epoch:
        write_owner(tr, keys, OwnerRecord(epoch + 1, destination_id))
