"""The last steps of a move that anybody can take who finds a tenant frozen: say that it has moved, or take it back."""

from fairlead.zones.engines import transact
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving import destination, source
from fairlead.zones.moving.rows import ZoneCounts, read_zone_counts
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.probes import probe
from fairlead.zones.records import Move, MoveState, OwnerRecord

SILENT_MOVER = "its mover stopped in the last step of the move: move the tenant again"


def end_frozen_move(at: OpenShard, to: OpenShard, tenant: Tenant, move: Move) -> None:
    """Say that a tenant has moved if the destination owns it; else close the destination, and then thaw the source.

    One transaction on the destination, and three on the source. May run twice, beside the mover and others. A move that
    a newer version carries out is left to it.

    Args:
      at: the shard that is frozen; `to`: the destination.
      move: as the ownership record at the source states it.
    """
    owner = _frozen(at, tenant, move.move_id)
    if owner is None or transact(at.db, lambda tr: source.is_of_newer_version(tr, tenant)):
        return
    epoch = owner.epoch
    closed = transact(to.db, lambda tr: destination.close(tr, to.layout, tenant, move.move_id, epoch=epoch))
    if not closed:
        probe("a frozen tenant whose mover has stopped is found moved")
        say_moved(at, tenant, move.move_id)
        return
    probe("a move whose mover has stopped is taken back")
    ended_us = at.clock.now_us()
    transact(
        at.db,
        lambda tr: source.thaw(
            tr, at.layout, tenant, move.move_id, state=MoveState.FAILED, error=SILENT_MOVER, ended_us=ended_us, stage=""
        ),
    )


def say_moved(at: OpenShard, tenant: Tenant, move_id: bytes, *, zone_counts: ZoneCounts | None = None) -> bool:
    """Say at the source that a tenant has moved, which the caller has read at the destination; False: it was said.

    `zone_counts`: of the frozen tenant; None: it is read, which takes a transaction for each 200 zones.
    """
    if zone_counts is None:
        if _frozen(at, tenant, move_id) is None:
            return False
        zone_counts = read_zone_counts(at, tenant)
    depths = zone_counts.depths(at.layout)
    return transact(at.db, lambda tr: source.say_moved(tr, at.layout, tenant, move_id, depths))


def _frozen(at: OpenShard, tenant: Tenant, move_id: bytes) -> OwnerRecord | None:
    """Return the ownership record at the source if the tenant moves by this move. One snapshot read."""
    keys = TenantKeys(*tenant)
    owner = transact(at.db, lambda tr: source.read_owner(at.layout, keys, tr.snapshot.get(keys.owner).value))
    return owner if owner is not None and owner.move is not None and owner.move.move_id == move_id else None
