"""The transactions of a move at its source: begin, take over, note, freeze, say that it has moved, thaw, clear.

Each of the mover's transactions reads the move's record with conflict, and goes on only if it is still the mover.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import OwnerUnreadable
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant, ZoneLocation, local_tenant
from fairlead.zones.moving.errors import MoveRefused, MoverReplaced, MoveUnderWay
from fairlead.zones.moving.marks import clear_all_marks
from fairlead.zones.moving.move_record import MOVE_KIND, MOVES, move_key, tenant_of
from fairlead.zones.ownership import is_first_home, lives_elsewhere
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.policy.policies import list_tenant_policy
from fairlead.zones.probes import probe
from fairlead.zones.queue.insertion import enqueue_op
from fairlead.zones.queue.items import Enqueued, new_item
from fairlead.zones.records import (
    RESTRICTED_FORMAT,
    Move,
    MovePhase,
    MoveRecord,
    MoveState,
    OwnerRecord,
    TenantPolicy,
    decode,
    encode,
    is_newer,
)
from fairlead.zones.snapshots.snapshot_list import list_work
from fairlead.zones.top_level.part_writes import add_to_count

KEPT_US = 86_400_000_000  # A day: so long an ended move is listed.
FORGET_MAX = 100  # Ended moves that one beginning move clears.


class Mine(NamedTuple):
    """Who carries out a move: its id, and the number of the mover."""

    move_id: bytes
    mover: int


def read_owner(layout: ShardLayout, keys: TenantKeys, value: bytes | None) -> OwnerRecord | None:
    """Decode an ownership record; None: there is none.

    Raises:
      OwnerUnreadable: it is damaged, or a newer version wrote it.
    """
    owner = None if value is None else decode(OwnerRecord, value)
    if owner is None and value is not None:
        app, user = keys.names
        newer = is_newer(value, newest=RESTRICTED_FORMAT)
        raise OwnerUnreadable(app=app, user=user, shard=layout.shard_id.hex(), newer=newer)
    return owner


def write_owner(tr: Transaction, keys: TenantKeys, owner: OwnerRecord) -> None:
    """Store an ownership record, or clear it if it says nothing."""
    if owner.says_nothing:
        tr.clear(keys.owner)
    else:
        tr.set(keys.owner, encode(owner))


def begin(tr: Transaction, layout: ShardLayout, tenant: Tenant, record: MoveRecord, *, now_us: int) -> None:
    """Let a tenant move: write the move's record, say so in the ownership record, and enqueue the mover's item.

    The tenant's epoch is raised, and `record.epoch` is set to it. Reads with conflict: the ownership record, the record
    of the last move, those of moves that ended long ago. Writes: these, the item. May run twice: if the tenant's last
    move has this id, nothing is changed, even if that move has ended meanwhile, and `record.epoch` is set.

    Raises:
      TenantMoved, OwnerUnreadable: another shard owns the tenant, or the record cannot be read.
      MoveUnderWay: the tenant moves already, or has not fully arrived.
      MoveRefused: it lives at the destination.
    """
    keys = TenantKeys(*tenant)
    stored, value = tr.get(move_key(keys)), tr.get(keys.owner).value
    last = None if stored.value is None else decode(MoveRecord, stored.value)
    if last is not None and last.move_id == record.move_id:
        probe("a move of unknown result is found begun")
        record.epoch = last.epoch
        return
    owner = read_owner(layout, keys, value)
    if owner is None:
        if not is_first_home(layout, keys):
            raise lives_elsewhere(layout, keys, None)
        owner = OwnerRecord(0, layout.shard_id)
    if owner.shard_id != layout.shard_id:
        raise lives_elsewhere(layout, keys, owner)
    if owner.move is not None:
        raise MoveUnderWay(tenant=str(tenant), to="" if last is None else last.destination)
    if record.destination_id == layout.shard_id:
        raise MoveRefused(tenant=str(tenant), reason=f"it lives on {record.destination} already")
    _forget_ended(tr, now_us=now_us)
    record.epoch = owner.epoch = owner.epoch + 1  # So a late mover of an earlier move is told from this one.
    owner.move = Move(MovePhase.MOVING, record.destination_id, record.move_id)
    write_owner(tr, keys, owner)
    tr.set(move_key(keys), encode(record))
    run_one(
        enqueue_item_op(
            tr, layout, tenant, record.move_id, to_id=record.destination_id, epoch=record.epoch, now_us=now_us
        )
    )


def enqueue_item_op(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, *, to_id: bytes, epoch: int, now_us: int
) -> Operation[list[Enqueued]]:
    """Enqueue the item that carries out a move; nothing if it is there, or is a dead letter. See `enqueue_op`.

    The item names the destination and the epoch, so that it can end the move, and clear the destination, without the
    record. `to_id`: of the destination; `epoch`: of the tenant when the move began.
    """
    payload = {
        "app": tenant.app,
        "user": tenant.user,
        "move": move_id,
        "destination": to_id,
        "epoch": epoch,
    }
    items = [(move_id, new_item(MOVE_KIND, payload))]
    return enqueue_op(tr, item_location(layout), items, now_us=now_us, ids_are_new=False)


def item_location(layout: ShardLayout) -> ZoneLocation:
    """Return the queue of the items that carry out moves away from a shard."""
    return layout.location(local_tenant(MOVE_KIND), DEFAULT_ZONE)


def _forget_ended(tr: Transaction, *, now_us: int) -> None:
    """Clear what is stored of moves that ended long ago. Reads with conflict what it clears: each may begin anew."""
    for tenant, record in list_moves(tr, moves_max=FORGET_MAX):
        if record.state is not MoveState.UNDER_WAY and not 0 <= now_us - record.ended_us < KEPT_US:
            key = move_key(TenantKeys(*tenant))
            tr.add_read_conflict_key(key)
            tr.clear(key)


def read_move(tr: Reader, tenant: Tenant) -> MoveRecord | None:
    """Return a tenant's last move away from a shard. One snapshot read."""
    value = tr.snapshot.get(move_key(TenantKeys(*tenant))).value
    return None if value is None else decode(MoveRecord, value)


def is_of_newer_version(tr: Reader, tenant: Tenant) -> bool:
    """Say whether a newer version has written the record of a tenant's last move away from a shard. One snapshot read.

    Then a mover of that version carries the move out, and nobody else may end it.
    """
    value = tr.snapshot.get(move_key(TenantKeys(*tenant))).value
    return value is not None and decode(MoveRecord, value) is None and is_newer(value)


def is_left_by_another(tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes) -> bool:
    """Say whether a tenant leaves this shard by another move, and does not come in: that move's mover clears the rest.

    That mover does so once all is listed at the new home, and claims are ended: no other one knows when. A move that
    brings the tenant back begins after that. Reads with conflict: ownership, the record of the last move away.
    """
    keys = TenantKeys(*tenant)
    stored, value = tr.get(keys.owner), tr.get(move_key(keys)).value
    owner = read_owner(layout, keys, stored.value)
    if owner is not None and owner.move is not None:
        return False
    record = None if value is None else decode(MoveRecord, value)
    if record is None:
        return value is not None and is_newer(value)
    return record.move_id != move_id and record.state is MoveState.UNDER_WAY


def list_moves(tr: Reader, *, moves_max: int) -> Iterator[tuple[Tenant, MoveRecord]]:
    """Yield the moves away from a shard, also those lately ended, by tenant. Snapshot reads; skips unreadable ones."""
    for row in tr.snapshot.get_range(range_begin(MOVES), range_end(MOVES), limit=moves_max):
        tenant, record = tenant_of(row.key), decode(MoveRecord, row.value)
        if tenant is not None and record is not None:
            yield tenant, record


def may_begin(tr: Reader, layout: ShardLayout, tenant: Tenant) -> bool:
    """Say whether a tenant lives here and does not move. One snapshot read."""
    keys = TenantKeys(*tenant)
    value = tr.snapshot.get(keys.owner).value
    if value is None:
        return is_first_home(layout, keys)
    owner = decode(OwnerRecord, value)
    return owner is not None and owner.shard_id == layout.shard_id and owner.move is None


def take_over(tr: Transaction, tenant: Tenant, move_id: bytes) -> MoveRecord | None:
    """Become the mover of a move: earlier ones change nothing at the source any more. None: it is no longer listed.

    Reads with conflict, and writes: the move's record. May run twice: it only counts on.
    """
    key = move_key(TenantKeys(*tenant))
    value = tr.get(key).value
    record = None if value is None else decode(MoveRecord, value)
    if record is None or record.move_id != move_id:
        return None
    if record.state is MoveState.UNDER_WAY:
        record.mover += 1
        tr.set(key, encode(record))
    return record


def note(tr: Transaction, tenant: Tenant, mine: Mine, **changes: object) -> MoveRecord:
    """Change fields of the move's record, and return it. Reads with conflict, and writes: the record.

    Raises:
      MoverReplaced: the caller is not its mover any more, or it has ended.
    """
    key = move_key(TenantKeys(*tenant))
    value = tr.get(key).value
    record = None if value is None else decode(MoveRecord, value)
    if record is None or record.move_id != mine.move_id or record.mover != mine.mover:
        raise MoverReplaced
    if record.state is not MoveState.UNDER_WAY:
        raise MoverReplaced
    if changes:
        record = msgspec.structs.replace(record, **changes)
        tr.set(key, encode(record))
    return record


def slow_writers(tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine, pause_us: int) -> None:
    """Let each writer wait so long after its commit.

    Reads with conflict, and writes: the move's record, the ownership record. May run twice.

    Raises:
      MoverReplaced: see `note`.
    """
    keys, owner, record = _moving(tr, layout, tenant, mine)
    assert owner.move is not None
    note(tr, tenant, mine, slowed_us=max(pause_us, record.slowed_us))  # An earlier mover may have slowed them more.
    owner.move = msgspec.structs.replace(owner.move, pause_us=pause_us)
    write_owner(tr, keys, owner)


def freeze(tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine) -> OwnerRecord | None:
    """Let all transactions on the tenant wait; return its record. None: it is locked, and nothing is changed.

    Reads with conflict: the move's record, the ownership record. Writes: the ownership record. May run twice.

    Raises:
      MoverReplaced: see `note`.
    """
    keys, owner, _ = _moving(tr, layout, tenant, mine)
    if owner.locks:
        probe("a move waits for a transaction across shards")
        return None
    assert owner.move is not None
    owner.move = msgspec.structs.replace(owner.move, phase=MovePhase.FROZEN)
    write_owner(tr, keys, owner)
    return owner


def _moving(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine
) -> tuple[TenantKeys, OwnerRecord, MoveRecord]:
    keys = TenantKeys(*tenant)
    value = tr.get(keys.owner)
    record = note(tr, tenant, mine)
    owner = read_owner(layout, keys, value.value)
    if owner is None or owner.move is None or owner.move.move_id != mine.move_id:
        raise MoverReplaced
    return keys, owner, record


def unfreeze(tr: Transaction, layout: ShardLayout, tenant: Tenant, mine: Mine) -> None:
    """Let transactions go on, and the move too: this mover has not tried to let the destination own the tenant.

    Reads with conflict: the move's record, the ownership record. Writes: the ownership record. May run twice.

    Raises:
      MoverReplaced: see `note`.
    """
    keys, owner, _ = _moving(tr, layout, tenant, mine)
    assert owner.move is not None
    owner.move = msgspec.structs.replace(owner.move, phase=MovePhase.MOVING)
    write_owner(tr, keys, owner)


def say_moved(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, depths: Mapping[bytes, int]
) -> bool:
    """Say that the destination owns the tenant, which the caller has read there; False: it was said before.

    Reads with conflict: the ownership record. Writes: the ownership record, the depths of the shard, its lists
    of policies and of snapshots. May run twice, and by anybody who finds the tenant frozen. `depths`: how many items of
    the tenant each count of the shard holds, which does not change while the tenant is frozen.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    if owner is None or owner.move is None or owner.move.move_id != move_id:
        return False
    tr.set(keys.owner, encode(OwnerRecord(owner.epoch + 1, owner.move.shard_id)))
    for key, count in depths.items():
        add_to_count(tr, key, -count)
    list_tenant_policy(tr, keys, TenantPolicy())
    list_work(tr, keys, owner.snapshots, None)
    return True


def thaw(tr: Transaction, layout: ShardLayout, tenant: Tenant, move_id: bytes, **ending: object) -> bool:
    """End a move: the tenant stays. The destination has been closed before. False: the tenant does not move.

    Reads with conflict: the ownership record, the move's record. Writes: these; clears the marks. May run twice, and by
    anybody who finds the tenant frozen. `ending`: fields of the move's record.
    """
    keys = TenantKeys(*tenant)
    value, stored = tr.get(keys.owner), tr.get(move_key(keys))
    record = None if stored.value is None else decode(MoveRecord, stored.value)
    if record is not None and record.move_id == move_id and record.state is MoveState.UNDER_WAY:
        tr.set(move_key(keys), encode(msgspec.structs.replace(record, **ending)))
    owner = read_owner(layout, keys, value.value)
    if owner is None or owner.move is None or owner.move.move_id != move_id or owner.shard_id != layout.shard_id:
        return False
    owner.move = None
    write_owner(tr, keys, owner)
    clear_all_marks(tr, keys)
    return True


def forget_stub(tr: Transaction, layout: ShardLayout, tenant: Tenant, *, epoch: int) -> None:
    """Clear the ownership record of a tenant that has moved away, unless this is the first home; all else is cleared.

    Reads with conflict, and writes: the ownership record. May run twice.
    """
    keys = TenantKeys(*tenant)
    owner = read_owner(layout, keys, tr.get(keys.owner).value)
    left = owner is not None and owner.epoch == epoch + 1 and has_moved_away(layout, owner, epoch=epoch)
    if left and not is_first_home(layout, keys):
        tr.clear(keys.owner)


def has_moved_away(layout: ShardLayout, owner: OwnerRecord | None, *, epoch: int) -> bool:
    """Say whether a record states that the tenant has left this shard since the move began in `epoch`.

    A later move from shard to shard elsewhere raises the epoch of the first home's stub. Nothing may be forgotten then,
    but what the tenant has left here may be cleared.
    """
    return owner is not None and owner.epoch > epoch and owner.shard_id != layout.shard_id and owner.move is None
