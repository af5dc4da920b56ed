"""Scrubs the records of one type: counts, and removes, what writers that stopped have left, beside users.

    missing    a record has a key, and its index record is not there, or names another record
    dangling   an index record is garbage: the record that it names does not have the key
    dummies    a creator has stopped, and its cleanup item has not run within its delay
    marked     a record was written while an index shard was away, and is to be repaired

What looks wrong may be a write that is under way. So a record is read once more after its index record, and a dangling
index record is looked at again a while later. All repairs are operations of the protocol, which is safe beside users.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fairlead.records.accesses import Access, ReadIndex, ReadRecord, run_op, several
from fairlead.records.alternate_keys import field_of
from fairlead.records.errors import Interrupted
from fairlead.records.on_shards.cleanup import DELAY_S, cleanup_id
from fairlead.records.on_shards.index_changes import Cursor
from fairlead.records.on_shards.operations import Operations
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.slots import DATA, INDEX, Locations
from fairlead.records.on_shards.walking import AllShards, Row, Walk
from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord
from fairlead.zones.engines import Clock
from fairlead.zones.layout import DEFAULT_ZONE
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.transaction_runner import Attempt

DOUBTFUL_MAX = 1_000  # Dangling index records that are looked at again together.
LATER_US = 1_000_000  # After which they are looked at again: far longer than a write takes.


class ShardScrub(msgspec.Struct):
    """What was found on one shard. `repaired`: how many of these were repaired; a violation cannot be.

    Attributes:
      violations: records without the index record of a key, because another record has the value. Both keep it.
    """

    shard: str
    records: int = 0
    index_records: int = 0
    missing: int = 0
    dangling: int = 0
    dummies: int = 0
    marked: int = 0
    violations: int = 0
    repaired: int = 0

    @property
    def faults(self) -> int:
        """How many faults were found, and are not repaired."""
        return self.missing + self.dangling + self.dummies + self.marked - self.repaired


class Scrub:
    """One scrub of a type. `progress`: called with the number of rows read so far."""

    def __init__(
        self,
        homes: AllShards,
        locations: Locations,
        operations: Operations,
        *,
        clock: Clock,
        repair: bool,
        rows_per_s: int,
        progress: Callable[[int], None],
    ) -> None:
        self._homes = homes
        self._locations = locations
        self._operations = operations
        self._clock = clock
        self._repair = repair
        self._rows_per_s = rows_per_s
        self._progress = progress
        self._protocol = Protocol(ends_at_once=True)
        self._by_shard = {name: ShardScrub(name) for name in homes}
        self._began_us = clock.now_us()
        self._rows = 0

    def run(self) -> list[ShardScrub]:
        """Go through all records, then through all index records; return what was found on each shard.

        Raises:
          IndexUnavailable, what the stores raise: a shard does not answer; what was repaired stays so.
          Interrupted: a record changes all the time.
        """
        # Data records first: an index record that is written beside the scrub is then found with its record.
        records = Walk(self._homes, self._locations, DATA, Cursor())
        for rows in self._paced(records):
            self._scrub_records(rows)
        doubtful: list[Row] = []
        for rows in self._paced(Walk(self._homes, self._locations, INDEX, Cursor())):
            doubtful += self._seemingly_dangling(rows)
            if len(doubtful) >= DOUBTFUL_MAX:
                self._judge(doubtful)
                doubtful = []
        self._judge(doubtful)
        return list(self._by_shard.values())

    def _paced(self, walk: Walk) -> Iterator[list[Row]]:
        while (rows := walk.next()) is not None:
            yield rows
            self._rows += len(rows)
            self._progress(self._rows)
            until_us = self._began_us + self._rows * 1_000_000 // self._rows_per_s
            self._clock.sleep_us(max(0, until_us - self._clock.now_us()))

    # --- Data records ---

    def _scrub_records(self, rows: list[Row]) -> None:
        records = [(row, row.record()) for row in rows]
        for row, record in records:
            if record.is_dummy:
                self._scrub_dummy(row, record)
            else:
                self._by_shard[row.shard].records += 1
        keys = [(row, key) for row, record in records if not record.is_dummy for key in self._maintained(row, record)]
        entries = self._read([ReadIndex(key) for _, key in keys])
        for (row, index_key), entry in zip(keys, entries, strict=True):
            if entry is None or entry.key != row.key:
                self._see_to_index_record(row, index_key)
        for row, record in records:
            if record.unindexed and not record.is_dummy:
                found = self._by_shard[row.shard]
                found.marked += 1
                if self._repair:
                    found.repaired += self._unmark(row, record)

    def _scrub_dummy(self, row: Row, dummy: DataRecord) -> None:
        if self._is_left(row, dummy):
            self._by_shard[row.shard].dummies += 1
            if self._repair:
                run_op(self._protocol.clean_op(row.key, dummy.generation, dummy.keys), self._perform)
                self._by_shard[row.shard].repaired += 1

    def _maintained(self, row: Row, record: DataRecord) -> list[bytes]:
        """Return the keys of a record that must have index records; a repair sees to those that it marks."""
        fields = self._operations.definitions.on(row.shard).maintained()
        return [each for each in record.keys if field_of(each) in fields and each not in record.unindexed]

    def _see_to_index_record(self, row: Row, index_key: bytes) -> None:
        """See whether a record that has no index record of a key changes just now; else repair it.

        If another record has the key, both keep it: `shared_values` lists it, and users say who is to have it.

        The record is read first. So if its index record is missing then, it was so when the record had the key.
        """
        [record] = self._read([ReadRecord(row.key)])
        if record is None or not record.has(index_key) or index_key in record.unindexed:
            return
        [entry] = self._read([ReadIndex(index_key)])
        [again] = self._read([ReadRecord(row.key)])
        if (entry is not None and entry.key == row.key) or again is None or not again.is_as(record):
            return
        found = self._by_shard[row.shard]
        found.missing += 1
        if self._repair:
            is_indexed = self._operations.run(self._protocol.reindex_op(row.key, record, index_key))
            found.repaired += is_indexed
            found.violations += not is_indexed

    def _unmark(self, row: Row, record: DataRecord) -> bool:
        """Repair a marked record; return whether no other record has one of its keys, perhaps not any more."""
        return not self._operations.run(self._protocol.repair_op(row.key, again=record.violations))

    def _is_left(self, row: Row, dummy: DataRecord) -> bool:
        """Say whether the item that cleans up after a dummy has had its time, or is gone."""

        def body(attempt: Attempt) -> bool:
            location = self._homes[row.shard].layout.location(row.tenant, DEFAULT_ZONE)
            value = attempt.tr.snapshot.get(location.keys.item(cleanup_id(dummy.generation))).value
            item = None if value is None else decode(ItemRecord, value)
            return item is None or item.enqueued_us + DELAY_S * 1_000_000 <= attempt.now_us

        return self._homes[row.shard].transact(body)

    # --- Index records ---

    def _seemingly_dangling(self, rows: list[Row]) -> list[Row]:
        """Return the index records whose record does not have their key, as far as that is seen at first."""
        for row in rows:
            self._by_shard[row.shard].index_records += 1
        entries = [row.entry() for row in rows]
        records = self._read([ReadRecord(entry.key) for entry in entries])
        return [
            row
            for row, entry, record in zip(rows, entries, records, strict=True)
            if record is None
            or not (record.has(row.key) or (record.is_dummy and record.generation == entry.generation))
        ]

    def _judge(self, doubtful: list[Row]) -> None:
        """Look again at index records that seem to dangle, and collect those that do."""
        if not doubtful:
            return
        self._clock.sleep_us(LATER_US)
        records = self._read([ReadRecord(row.entry().key) for row in doubtful])
        for row, record in zip(doubtful, records, strict=True):
            if record is not None and record.has(row.key):
                continue
            [entry] = self._read([ReadIndex(row.key)])
            if entry != row.entry():
                continue
            found = self._by_shard[row.shard]
            found.dangling += 1
            if self._repair:
                try:
                    found.repaired += run_op(self._protocol.collect_op(row.key), self._perform)
                except Interrupted:
                    continue  # A writer has just changed the record, and another scrub sees what became of it.

    # --- What both use ---

    def _read(self, accesses: Sequence[Access]) -> list[Any]:
        """Make accesses; return their answers.

        Raises:
          IndexUnavailable: the shard of an index record does not answer.
        """
        return run_op(several(accesses), self._perform)

    def _perform(self, accesses: Sequence[Access]) -> list[Any]:
        return ShardRecords(self._homes, self._locations, None).perform(accesses)
