"""Checks of moves: a record can be read, and a move that is under way has an item that carries it out."""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ShardLayout
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.records import check_record
from fairlead.zones.moving.move_item import carry_on_op, lacks_item_op
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.records import MoveRecord

NO_ITEM = "a move that is under way has no item"


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
