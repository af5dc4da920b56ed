"""The item that carries out a move: a move that is under way always has one, whatever an operator deletes."""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.move_record import tenant_of
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.insertion import wake_op
from fairlead.zones.records import DeadLetterRecord, MoveRecord, MoveState, decode


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
        yield from source.enqueue_item_op(tr, layout, tenant, record, now_us=now_us)
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
