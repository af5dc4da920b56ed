"""Which tenants live on a shard: the rows of others are passed over.

A tenant who moves has rows on two shards. Those at the destination are not whole before it owns the tenant, and are not
listed before the tenant has arrived. Those at the source are cleared in pieces after that.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import DB, ROOT, TenantKeys, pack_int, tenant_prefix, unpack_names
from fairlead.zones.layout import ShardLayout
from fairlead.zones.ownership import check_owner, is_first_home
from fairlead.zones.records import MovePhase, OwnerRecord, decode

_AWAY = frozenset({MovePhase.INCOMING, MovePhase.ARRIVING})
_DB = ROOT + pack_int(DB)


def lives_here(tr: Transaction, layout: ShardLayout, key: bytes, *, writes: bool) -> bool:
    """Say whether the tenant lives here to whom a row belongs. Reads with conflict: its ownership record.

    A chunk may have been read before the tenant moved away: its rows are cleared in pieces since. `writes`: the
    transaction repairs rows of the tenant. If the tenant moves, they are marked, so that they are copied again.

    Raises:
      TenantLocked, TenantMoving: see `check_owner`; only if it `writes`.
    """
    keys = _keys_of(tenant_prefix(key))
    if keys is None or key == keys.owner:
        return True
    stored = tr.get(keys.owner).value
    if stored is None:
        return is_first_home(layout, keys)
    owner = decode(OwnerRecord, stored)
    if owner is None:
        return True
    if not _is_here(layout, owner, _AWAY):
        return False
    if writes:
        check_owner(tr, layout, keys, stored)
    return True


def _is_here(layout: ShardLayout, owner: OwnerRecord, away: Collection[MovePhase]) -> bool:
    return owner.shard_id == layout.shard_id and (owner.move is None or owner.move.phase not in away)


def _keys_of(prefix: bytes) -> TenantKeys | None:
    """Return the keys of a tenant by its prefix; None: it is damaged, or no tenant's."""
    named = unpack_names(prefix, len(_DB), 2) if prefix.startswith(_DB) else None
    return None if named is None else TenantKeys(*named[0])


class _Passed(NamedTuple):
    """The tenant of the last row, the key of its ownership record, and whether it lives here as far as is known."""

    prefix: bytes
    owner_key: bytes
    lives_here: bool


class Residents:
    """Tells rows of tenants who live on a shard from others, chunk by chunk, in the order of keys.

    `with_arriving`: a tenant that has not fully arrived lives here, too. Its rows are whole, and the depths of the
    shard count its items.
    """

    def __init__(self, layout: ShardLayout, *, with_arriving: bool = False) -> None:
        self._layout = layout
        self._away = _AWAY - {MovePhase.ARRIVING} if with_arriving else _AWAY
        self._last: _Passed | None = None

    def rows(self, rows: Sequence[KeyValue]) -> list[KeyValue]:
        """Return the rows of a chunk that belong to tenants who live here, and all ownership records.

        May be called again with the same chunk.
        """
        return self._kept(rows)[0]

    def go_on_after(self, rows: Sequence[KeyValue]) -> None:
        """Note the last tenant of a chunk, of whom the next chunk may have more rows."""
        self._last = self._kept(rows)[1]

    def _kept(self, rows: Sequence[KeyValue]) -> tuple[list[KeyValue], _Passed | None]:
        last, kept = self._last, []
        for row in rows:
            if last is None or not row.key.startswith(last.prefix):
                last = self._tenant_of(row.key)
            if row.key == last.owner_key:
                owner = decode(OwnerRecord, row.value)
                last = last._replace(lives_here=owner is None or _is_here(self._layout, owner, self._away))
                kept.append(row)
            elif last.lives_here:
                kept.append(row)
        return kept, last

    def _tenant_of(self, key: bytes) -> _Passed:
        prefix = tenant_prefix(key)
        keys = _keys_of(prefix)
        if keys is None:
            return _Passed(prefix, b"", lives_here=True)
        return _Passed(prefix, keys.owner, is_first_home(self._layout, keys))
