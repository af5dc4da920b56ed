"""Accesses as our shards carry them out, for the enumeration: the real `RecordTransaction`, over rows in memory.

An access is one transaction on one shard, so it is one step. `EndWriters` and `WriteAtOnce` are steps, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from fairlead.records.accesses import Access
from fairlead.records.on_shards import transaction
from fairlead.records.on_shards.slots import DATA, Locations
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.stored import Versioned, pack, unpack_data, unpack_index
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import NewItem

Key = tuple[str, str, int, str | bytes]


class RowsView:
    """What a tenant's transaction is to `RecordTransaction`: rows, by the last element of their keys.

    Attributes:
      enqueued: items, which nobody runs: a scene has a client that does what they do.
    """

    def __init__(self, data: MemoryStore, index: MemoryStore) -> None:
        self.enqueued: list[NewItem] = []
        self._data = data
        self._index = index

    def get(self, key: Key) -> bytes | None:
        """Return a value."""
        rows, row_key = self._row(key)
        found = rows.get(row_key)
        return None if found is None else found.value

    def set(self, key: Key, value: bytes) -> None:
        """Set a value; its version is that of the record."""
        rows, row_key = self._row(key)
        record = unpack_data("", value) if key[2] == DATA else unpack_index(value)
        rows[row_key] = pack(record)

    def clear(self, key: Key) -> None:
        """Clear a row."""
        rows, row_key = self._row(key)
        rows.pop(row_key, None)

    def get_between(self, begin: Key, end: Key, *, limit: int = 0) -> Iterator[tuple[Key, bytes]]:
        """Yield no rows: no scene lists any."""
        return iter(())

    def enqueue_item(self, item: NewItem, *, item_id: bytes | None = None) -> None:
        """Note an item."""
        self.enqueued.append(item)

    def cancel(self, item_id: bytes) -> None:
        """Cancel nothing."""

    def _row(self, key: Key) -> tuple[dict[bytes, Versioned], bytes]:
        if key[2] == DATA:
            return self._data.rows, cast(str, key[3]).encode()
        return self._index.rows, cast(bytes, key[3])


class ShardStores(ModelStores):
    """All records on one shard. `transaction_class`: carries accesses out."""

    transaction_class: type[transaction.RecordTransaction] = transaction.RecordTransaction

    def answer(self, access: Access) -> Any:
        """See `ModelStores`."""
        return self.begin(self.view()).answer(access)

    def view(self) -> RowsView:
        """Return the rows of all tenants."""
        return RowsView(cast(MemoryStore, self._data[0]), cast(MemoryStore, self._index[0]))

    def begin(self, view: RowsView) -> transaction.RecordTransaction:
        """Return a transaction over rows."""

        class OverRows(self.transaction_class):  # type: ignore[misc, name-defined]
            def _view(self, tenant: Tenant) -> RowsView:
                return view

            def _check_schema(self) -> None:
                """Each client has the same definition."""

            def _add_entry(self, view: RowsView, index_key: bytes, key: str) -> None:
                """Keep no index of the shard's own."""

            def _remove_entry(self, view: RowsView, index_key: bytes, key: str) -> None:
                """Keep no index of the shard's own."""

            def _begin_readable(self, field: str) -> Callable[[], None]:
                """The index is complete."""
                return lambda: None

        made: transaction.RecordTransaction = OverRows(None, None, Locations("scene"), None, lambda _: True)
        return made
