"""Checks of moves: a record can be read, and a move that is under way has an item that carries it out, or ends it."""

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.records import check_record
from fairlead.zones.moving.move_item import carry_on_op, end_unlisted_op, lacks_item_op, lacks_record_and_item_op
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.records import MoveRecord

NO_ITEM = "a move that is under way has no item"
NO_RECORD_AND_NO_ITEM = "a tenant moves by a move that has neither a record nor an item"


def check_move(tr: Transaction, *, layout: ShardLayout, key: bytes, now_us: int) -> Operation[list[Problem]]:
    """Check a move's record and its item. A repair makes the item anew, as after it was set aside: the move goes on."""
    found = yield from check_record(tr, MoveRecord, key)
    if found:
        return found
    orphan = yield from lacks_item_op(tr, layout, key)
    if orphan is None:
        return []
    tenant, record = orphan

    def mend(tr: Transaction) -> None:
        run_one(carry_on_op(tr, layout, tenant, record, now_us=now_us))

    return [Problem(NO_ITEM, key, mend=mend)]


def check_leaving(tr: Transaction, *, layout: ShardLayout, tenant: Tenant, now_us: int) -> Operation[list[Problem]]:
    """Check that something carries out the move by which a tenant leaves. A repair makes an item that ends the move."""
    owner = yield from lacks_record_and_item_op(tr, layout, tenant)
    if owner is None:
        return []

    def mend(tr: Transaction) -> None:
        run_one(end_unlisted_op(tr, layout, tenant, owner, now_us=now_us))

    return [Problem(NO_RECORD_AND_NO_ITEM, TenantKeys(*tenant).owner, mend=mend)]
