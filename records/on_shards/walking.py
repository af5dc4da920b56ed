"""Goes through all records, or all index records, of a type, in pieces, while tenants move.

Slots are known by their names, and each is read where it lives. Tenants of users are known only by the keys that they
have on a shard, so the walk goes from shard to shard. It would miss a tenant that moves from a shard that is still to
come to one that was read. So the counts of moves are read before and after (see `fairlead.zones.local_index`). If one
has changed, the walk takes another turn.

A walk holds nothing but a `Cursor`, which its user stores: any process goes on from it.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from fairlead.records.on_shards.index_changes import Cursor
from fairlead.records.on_shards.performing import MOVES_MAX, Homes
from fairlead.records.on_shards.slots import DATA, SLOTS_APP, Locations, slot_number
from fairlead.records.stored import DataRecord, IndexRecord, unpack_data, unpack_index
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.local_index import move_count_op
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_search import all_tenants
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

TENANTS_AT_ONCE = 256  # Read by one piece of a walk, those of one shard in one transaction.
# Read of one shard by one piece, which one commit writes, and others wait for it. Beside a build by 250 the p99 of
# users was 16 ms, by 60 it was 8 ms, without a build 2 ms. The build was a quarter slower (`bench.index_build`).
ROWS_MAX = 60
BYTES_MAX = 500_000  # The same.
_NO_TENANT = ("", "")


class AllShards(Homes, Protocol):
    """The shards of an application, with their names."""

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the configured shards."""
        ...


class Row(NamedTuple):
    """A row that a walk has come to. `key`: the primary key, or the index key."""

    shard: str
    tenant: Tenant
    key: Any
    value: bytes

    def record(self) -> DataRecord:
        """Return the data record. Raises `RecordUnreadable` if it cannot be read."""
        return unpack_data(self.key, self.value)

    def entry(self) -> IndexRecord:
        """Return the index record. Raises `RecordUnreadable` if it cannot be read."""
        return unpack_index(self.value)


class Walk:
    """Goes through the rows of one type, from where a cursor says.

    Args:
      part: DATA or INDEX; index records are in slots always.
      prefix: only index keys that begin with it.
    """

    def __init__(
        self, homes: AllShards, locations: Locations, part: int, cursor: Cursor, *, prefix: bytes = b""
    ) -> None:
        self._homes = homes
        self._locations = locations
        self._part = part
        self._in_tenants = part == DATA and locations.in_tenants
        self._prefix = prefix
        self._at = cursor
        self._page: list[Tenant] = []  # the tenants that were listed last
        self._pending: dict[Tenant, bytes] = {}  # of these, those with rows to come, behind a key

    @property
    def cursor(self) -> Cursor:
        """From where another walk goes on once all rows are done that this one has returned."""
        if not self._pending:
            return self._at
        first, after = next(iter(self._pending.items()))
        number = self._page.index(first)
        done = tuple(self._page[number - 1]) if number else self._at.tenant
        return msgspec.structs.replace(self._at, tenant=done, within=tuple(first), after=after)

    def next(self) -> list[Row] | None:
        """Return some more rows, perhaps none; None: the walk has ended.

        Raises:
          What a store raises that does not answer.
          TenantMoved: a tenant moves on and on, or lives on a shard that is not configured.
        """
        if not self._pending and not self._list_more():
            return None
        rows: list[Row] = []
        wanted = dict(islice(self._pending.items(), TENANTS_AT_ONCE))
        for _ in range(MOVES_MAX):
            try:
                for name, tenants in self._by_home(wanted).items():
                    rows += self._read(name, tenants)
                    for tenant in tenants:
                        del wanted[tenant]
            except TenantMoved as moved:
                if not self._homes.note_moved(moved):
                    raise
            else:
                break
        if not self._pending:
            self._at = msgspec.structs.replace(self._at, tenant=tuple(self._page[-1]))
        return rows

    def _by_home(self, tenants: Mapping[Tenant, bytes]) -> dict[str, dict[Tenant, bytes]]:
        by_home: dict[str, dict[Tenant, bytes]] = {}
        for tenant, after in tenants.items():
            by_home.setdefault(self._homes.home_name(tenant), {})[tenant] = after
        return by_home

    def _read(self, name: str, tenants: Mapping[Tenant, bytes]) -> list[Row]:
        """Read rows of some tenants in one transaction, and note of which tenants more is to be read."""
        shard = self._homes[name]
        rows, pending = shard.transact(lambda attempt: self._rows(shard, attempt, tenants))
        for tenant in tenants:
            if tenant in pending:
                self._pending[tenant] = pending[tenant]
            else:
                del self._pending[tenant]
        return rows

    def _rows(
        self, shard: Shard, attempt: Attempt, tenants: Mapping[Tenant, bytes]
    ) -> tuple[list[Row], dict[Tenant, bytes]]:
        rows: list[Row] = []
        pending: dict[Tenant, bytes] = {}
        bytes_left = BYTES_MAX
        for tenant, after in tenants.items():
            rows_left = ROWS_MAX - len(rows)
            if rows_left <= 0 or bytes_left <= 0:
                pending[tenant] = after
                continue
            found = self._of_tenant(TenantTransaction(shard, tenant, attempt), after, rows_left)
            for count, (key, value) in enumerate(found, start=1):
                rows.append(Row(shard.name, tenant, key[-1], value))
                bytes_left -= len(value)
                if bytes_left <= 0 or count == rows_left:
                    pending[tenant] = key[-1].encode() if self._part == DATA else key[-1]
                    break
        return rows, pending

    def _of_tenant(self, view: TenantTransaction, after: bytes, limit: int) -> Iterator[tuple[tuple[Any, ...], bytes]]:
        table, part, prefix = (SLOTS_APP, self._locations.type_name), self._part, self._prefix
        end: tuple[Any, ...] = (*table, part, prefix + b"\xff") if prefix else (*table, part + 1)
        begin: tuple[Any, ...] = (*table, part, prefix)
        if part == DATA:
            begin = (*table, part, after.decode() + "\x00" if after else "")
        elif after:
            begin = (*table, part, after + b"\x00")
        return view.get_between(begin, end, limit=limit)

    # --- Which tenants there are ---

    def _list_more(self) -> bool:
        """List the tenants that follow; False: there are none."""
        while True:
            if self._in_tenants and not self._at.shard:
                self._at = self._first_of_turn(self._at.turn)
            self._page = self._tenants_behind(self._at)
            if self._page:
                self._pending = dict.fromkeys(self._page, b"")
                within = Tenant(*self._at.within)
                if within in self._pending:
                    self._pending[within] = self._at.after
                self._at = msgspec.structs.replace(self._at, within=_NO_TENANT, after=b"")
                return True
            following = self._next_shard() if self._in_tenants else None
            if following is None:
                return False
            self._at = following

    def _tenants_behind(self, cursor: Cursor) -> list[Tenant]:
        after = None if tuple(cursor.tenant) == _NO_TENANT else Tenant(*cursor.tenant)
        if not self._in_tenants:
            begin = 0 if after is None else slot_number(after) + 1
            return self._locations.slots(begin, limit=TENANTS_AT_ONCE)
        shard = self._homes[cursor.shard]
        return shard.transact(lambda attempt: all_tenants(attempt.tr, after=after, tenants_max=TENANTS_AT_ONCE))

    def _first_of_turn(self, turn: int) -> Cursor:
        return Cursor(turn=turn, counts=self._counts(), shard=min(self._homes))

    def _next_shard(self) -> Cursor | None:
        """Return the cursor of the next shard, or of another turn, if a tenant has moved meanwhile; None: neither."""
        names = sorted(self._homes)
        later = [name for name in names if name > self._at.shard]
        if later:
            return msgspec.structs.replace(self._at, shard=later[0], tenant=_NO_TENANT)
        if self._counts() == self._at.counts:
            return None
        return self._first_of_turn(self._at.turn + 1)

    def _counts(self) -> dict[str, int]:
        return {name: self._homes[name].transact(_move_count) for name in sorted(self._homes)}


def _move_count(attempt: Attempt) -> int:
    return run_one(move_count_op(attempt.tr))
