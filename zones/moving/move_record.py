"""The record of a move at its source: its key, and asking for the end of the move.

(ROOT, MOVE, app, user)  `MoveRecord`: the tenant's last move away from the shard
"""

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import MOVE, ROOT, TenantKeys, pack_int, unpack_names
from fairlead.zones.layout import Tenant, ZoneLocation, local_tenant
from fairlead.zones.queue.items import is_payload, unpack_payload
from fairlead.zones.records import ItemRecord, MoveRecord, MoveState, decode, encode

MOVE_KIND = "fairlead.move"
MOVES = ROOT + pack_int(MOVE)


def move_key(keys: TenantKeys) -> bytes:
    """Return the key of the record of a tenant's last move away from a shard."""
    return MOVES + keys.packed


def tenant_of(key: bytes) -> Tenant | None:
    """Return whose move a record's key names; None: it is damaged."""
    names = unpack_names(key, len(MOVES), 2)
    return None if names is None else Tenant(*names[0])


def request_cancel(tr: Transaction, tenant: Tenant) -> bool:
    """Ask the mover to take the move back; False: there is none under way. Reads and writes the move's record."""
    key = move_key(TenantKeys(*tenant))
    value = tr.get(key).value
    record = None if value is None else decode(MoveRecord, value)
    if record is None or record.state is not MoveState.UNDER_WAY:
        return False
    record.cancel_requested = True
    tr.set(key, encode(record))
    return True


def take_back_instead(tr: Transaction, location: ZoneLocation, item_id: bytes, item: ItemRecord) -> bool:
    """Ask for the end of the move that an item carries out, which an operator wants to delete.

    True: the item must stay, because the move needs it to end. False: it is of another kind, or the move has ended.
    Reads with conflict, and writes: the move's record; nothing for other kinds. May run twice.
    """
    if item.kind != MOVE_KIND or location.tenant != local_tenant(MOVE_KIND) or not is_payload(item.payload):
        return False
    match unpack_payload(item.payload):
        case {"app": str(app), "user": str(user)}:
            value = tr.get(move_key(TenantKeys(app, user))).value
            record = None if value is None else decode(MoveRecord, value)
            return record is not None and record.move_id == item_id and request_cancel(tr, Tenant(app, user))
    return False
