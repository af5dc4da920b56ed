"""Which tenants live on a shard: the rows of others are passed over.

A tenant who moves has rows on two shards. Those at the destination are not whole before it owns the tenant, and are not
listed before the tenant has arrived. Those at the source are cleared in pieces after that.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import KeyValue
from fairlead.zones.keyspace import DB, ROOT, TenantKeys, pack_int, tenant_prefix, unpack_names
from fairlead.zones.layout import ShardLayout
from fairlead.zones.ownership import is_first_home
from fairlead.zones.records import MovePhase, OwnerRecord, decode

_AWAY = frozenset({MovePhase.INCOMING, MovePhase.ARRIVING})
_NAMES_AT = len(ROOT + pack_int(DB))


class _Passed(NamedTuple):
    """The tenant of the last row, the key of its ownership record, and whether it lives here as far as is known."""

    prefix: bytes
    owner_key: bytes
    lives_here: bool


class Residents:
    """Tells rows of tenants who live on a shard from others, chunk by chunk, in the order of keys.

    Attributes:
      elsewhere: the prefixes of the tenants that were passed over.
    """

    def __init__(self, layout: ShardLayout) -> None:
        self._layout = layout
        self._last: _Passed | None = None
        self.elsewhere: set[bytes] = set()

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
                last = last._replace(lives_here=owner is None or self._is_here(owner))
                kept.append(row)
            elif last.lives_here:
                kept.append(row)
            else:
                self.elsewhere.add(last.prefix)
        return kept, last

    def _is_here(self, owner: OwnerRecord) -> bool:
        return owner.shard_id == self._layout.shard_id and (owner.move is None or owner.move.phase not in _AWAY)

    def _tenant_of(self, key: bytes) -> _Passed:
        prefix = tenant_prefix(key)
        named = unpack_names(prefix, _NAMES_AT, 2)
        if named is None:  # The key is damaged.
            return _Passed(prefix, b"", lives_here=True)
        keys = TenantKeys(*named[0])
        return _Passed(prefix, keys.owner, is_first_home(self._layout, keys))
