"""Clearing what a tenant has left on a shard that does not own it: its rows, and what names it elsewhere there.

    its pointers                         with their entries in the top-level queue and in the index of paused kinds
    claims on its items                  by their keys in the sessions of workers, see `destination.end_claims`
    its dead letters                     with their entries in the shard's index
    what the shard's index finds         with their entries there; readers of all shards are told by `count_move`
    its tombstones                       by their ranges, when all else is cleared
    retained ids and results that expire their entries are cleared when their time comes: they name nothing then

Pieces, each a transaction of its own that reads the ownership record with conflict: a tenant that returns meanwhile
makes it conflict.
"""

from collections.abc import Callable, Sequence

from fairlead.zones import local_index
from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import POINTER, TenantKeys, range_begin, range_end
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.moving.errors import MoverReplaced
from fairlead.zones.moving.rows import dead_letter_id, parse_zone_row
from fairlead.zones.moving.source import read_owner
from fairlead.zones.policy.policies import forget_paused_pointer
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import DeadLetterRecord, OwnerRecord, PointerRecord, decode
from fairlead.zones.top_level import pointers
from fairlead.zones.workflow.participants import clear_tombstones

ROWS_MAX = 500  # In one transaction.


def clear_piece(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, may_clear: Callable[[OwnerRecord | None], bool]
) -> bool:
    """Clear some rows of a tenant, those of its queues first; return whether there may be more. May run twice.

    Reads with conflict: the ownership record; by snapshot the rows, which nobody changes. Only a pointer may be woken
    meanwhile, because a kind is resumed: the entry that this leaves is cleared by its next visit. Writes: clears the
    rows, and what names them; counts the move for readers of the shard's index, if entries go.

    Raises:
      MoverReplaced: `may_clear` does not hold of the ownership record.
    """
    keys = TenantKeys(*tenant)
    if not may_clear(read_owner(layout, keys, tr.get(keys.owner).value)):
        raise MoverReplaced
    for begin, end in _ranges(keys):
        rows = list(tr.snapshot.get_range(begin, end, limit=ROWS_MAX, streaming_mode=WANT_ALL))
        for row in rows:
            _clear_names(tr, layout, tenant, keys, row.key, row.value)
        local_index.clear_listed(tr, keys, [row.key for row in rows])
        if len(rows) == ROWS_MAX:
            tr.clear_range(begin, rows[-1].key + b"\x00")
            return True
        tr.clear_range(begin, end)
    clear_tombstones(tr, tenant)
    return False


def clear_claims(
    tr: Transaction,
    layout: ShardLayout,
    tenant: Tenant,
    keys: Sequence[bytes],
    may_clear: Callable[[OwnerRecord | None], bool],
) -> None:
    """Clear keys of claims on items of a tenant that has moved away. May run twice.

    Reads with conflict: the ownership record. Writes: clears the keys.

    Raises:
      MoverReplaced: `may_clear` does not hold of the ownership record.
    """
    owner_key = TenantKeys(*tenant).owner
    if not may_clear(read_owner(layout, TenantKeys(*tenant), tr.get(owner_key).value)):
        raise MoverReplaced
    for key in keys:
        tr.clear(key)


def _ranges(keys: TenantKeys) -> list[tuple[bytes, bytes]]:
    """Return the ranges of all rows but the ownership record; whoever watches an item looks again at once."""
    queues = range_begin(keys.zones), range_end(keys.zones)
    return [queues, (range_begin(keys.prefix), keys.owner), (keys.owner + b"\x00", range_end(keys.prefix))]


def _clear_names(
    tr: Transaction, layout: ShardLayout, tenant: Tenant, keys: TenantKeys, key: bytes, value: bytes
) -> None:
    """Clear what names a row outside of the tenant's rows."""
    row = parse_zone_row(keys, key)
    if row is None:
        return
    location = layout.location(tenant, row.zone)
    if row.sort == POINTER:
        pointer = decode(PointerRecord, value)
        if pointer is not None:
            forget_paused_pointer(tr, location)
            pointers.delete(tr, location, pointer)
        return
    item_id = dead_letter_id(row)
    dead_letter = None if item_id is None else decode(DeadLetterRecord, value)
    if item_id is not None and dead_letter is not None:
        dead_letters.remove(tr, location, item_id, dead_letter)
