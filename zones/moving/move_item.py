"""The item that carries out a move: a move that is under way always has one, whatever an operator deletes."""

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.move_record import move_key, tenant_of
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.insertion import wake_op
from fairlead.zones.records import DeadLetterRecord, MovePhase, MoveRecord, MoveState, OwnerRecord, decode

LEAVING = frozenset({MovePhase.MOVING, MovePhase.FROZEN})


def carry_on_op(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, record: MoveRecord, *, now_us: int
) -> Operation[None]:
    """Give a move an item that carries it out: retry it if it is a dead letter, make it anew if it is gone.

    Reads with conflict: the item, its dead letter, the pointer as `wake_op` says. Writes: see `retry_dead_letter` and
    `enqueue_op`; nothing if the item is there, readable or not. May run twice.
    """
    location = source.item_location(layout)
    stored = tr.get(location.keys.dead_letter(record.move_id))
    yield
    if stored.value is None:
        probe("a move gets its item anew")
        yield from source.enqueue_item_op(
            tr, layout, tenant, record.move_id, to_id=record.destination_id, epoch=record.epoch, now_us=now_us
        )
        return
    dead_letter = decode(DeadLetterRecord, stored.value)
    if dead_letter is not None:
        dead_letters.retry_dead_letter(tr, location, record.move_id, dead_letter, now_us=now_us)
        yield from wake_op(tr, location, earliest_us=now_us, now_us=now_us)


def lacks_item_op(tr: Transaction, layout: ShardLayout, key: bytes) -> Operation[tuple[Tenant, MoveRecord] | None]:
    """Return the tenant and the record of a move that is under way, and that neither an item nor a dead letter carries.

    `key`: that of the move's record. Reads with conflict: the record, the item, the dead letter.
    """
    value = tr.get(key)
    yield
    record = None if value.value is None else decode(MoveRecord, value.value)
    tenant = tenant_of(key)
    if record is None or tenant is None or record.state is not MoveState.UNDER_WAY:
        return None
    keys = source.item_location(layout).keys
    item, dead_letter = tr.get(keys.item(record.move_id)), tr.get(keys.dead_letter(record.move_id))
    yield
    return None if item.present() or dead_letter.present() else (tenant, record)


def end_unlisted_op(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, owner: OwnerRecord, *, now_us: int
) -> Operation[None]:
    """Give a move whose record was lost an item, which ends the move. `owner`: as `lacks_record_and_item_op` says.

    Reads with conflict, and writes: as `enqueue_op` says. May run twice.
    """
    assert owner.move is not None
    move, epoch = owner.move, owner.epoch  # No epoch is raised while a tenant moves away.
    yield from source.enqueue_item_op(tr, layout, tenant, move.move_id, to_id=move.shard_id, epoch=epoch, now_us=now_us)


def lacks_record_and_item_op(tr: Transaction, layout: ShardLayout, tenant: Tenant) -> Operation[OwnerRecord | None]:
    """Return the ownership record of a tenant that moves away by a move that nothing carries out, and nothing lists.

    Reads with conflict: ownership, the record of the last move, the item, the dead letter. An unreadable record counts
    as one: a newer version may have written it, or a check sets it aside.
    """
    keys = TenantKeys(*tenant)
    stored, record = tr.get(keys.owner), tr.get(move_key(keys))
    yield
    owner = None if stored.value is None else decode(OwnerRecord, stored.value)
    if owner is None or owner.move is None or owner.move.phase not in LEAVING or record.present():
        return None
    of_items = source.item_location(layout).keys
    item, dead_letter = tr.get(of_items.item(owner.move.move_id)), tr.get(of_items.dead_letter(owner.move.move_id))
    yield
    return None if item.present() or dead_letter.present() else owner
