"""Stores with a given ratio of garbage index records to valid ones, for figure 7."""

from collections.abc import Iterator, Sequence
from random import Random

from bench.uniqorn.operations import index_key
from bench.uniqorn.workload import GENERATION_BYTES, VALUE_BYTES
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.storage_model.record_store import BatchingStore, ConditionalWrite
from fairlead.records.stored import DataRecord, IndexRecord, pack, unpack_data

FIELDS = 2
BATCH = 200
BEGIN, END = b"\x00", b"\xff\xff"


class Planting:
    """The stores of one system, brought to a number of records and a ratio of garbage.

    Args:
      pool: keys in each pool.
      records: records that there are to be.
    """

    def __init__(
        self, data: Sequence[BatchingStore], index: Sequence[BatchingStore], random: Random, *, pool: int, records: int
    ) -> None:
        self._data, self._index = data, index
        self._placed = ModelStores(data, index)
        self._random = random
        self._pool = pool
        self._records = records
        self._waiting: dict[int, list[ConditionalWrite]] = {}

    def ratio(self) -> float:
        """Return the number of garbage index records, of that of valid ones."""
        valid = {key for record in self._read_records().values() for key in record.keys}
        total = sum(1 for store in self._index for _ in store.scan(BEGIN, END))
        return (total - len(valid)) / max(1, len(valid))

    def plant(self, ratio: float) -> None:
        """Bring the stores there: remove what there is, and insert records, and garbage of records that are not there.

        Half of the garbage names records that are gone, half names records that do not have the key any more.
        """
        self._clear()
        names = [[f"name {number}" for number in range(self._pool)] for _ in range(FIELDS)]
        for each in names:
            self._random.shuffle(each)
        owners = [f"record {number}" for number in self._random.sample(range(self._pool), self._records)]
        random = self._random
        for number, owner in enumerate(owners):
            keys = tuple(index_key(field, names[field][number]) for field in range(FIELDS))
            record = DataRecord(random.randbytes(GENERATION_BYTES), 1, keys, 1, random.randbytes(VALUE_BYTES[0]))
            self._insert(self._placed.data_store(owner), owner.encode(), record)
            for key in keys:
                self._insert(self._placed.index_store(key), key, IndexRecord(owner, record.generation, 0))
        for number in range(self._records, self._records + int(ratio * self._records)):
            for field in range(FIELDS):
                key = index_key(field, names[field][number])
                owner = random.choice(owners) if random.random() < 0.5 else f"gone {number}"
                entry = IndexRecord(owner, random.randbytes(GENERATION_BYTES), 0)
                self._insert(self._placed.index_store(key), key, entry)
        self._flush()

    def _read_records(self) -> dict[str, DataRecord]:
        rows = [row for store in self._data for row in store.scan(BEGIN, END)]
        records = {key.decode(): unpack_data(key.decode(), row.value) for key, row in rows}
        return {key: record for key, record in records.items() if not record.is_dummy}

    def _clear(self) -> None:
        for store in (*self._data, *self._index):
            for key, row in store.scan(BEGIN, END):
                self._add(store, ConditionalWrite(key, None, row.version))
        self._flush()

    def _insert(self, store: object, key: bytes, record: DataRecord | IndexRecord) -> None:
        self._add(store, ConditionalWrite(key, pack(record), None))

    def _add(self, store: object, write: ConditionalWrite) -> None:
        self._waiting.setdefault(id(store), []).append(write)

    def _flush(self) -> None:
        for store in (*self._data, *self._index):
            for writes in _pieces(self._waiting.pop(id(store), [])):
                assert store.batch([], writes).is_written


def _pieces(writes: Sequence[ConditionalWrite]) -> Iterator[Sequence[ConditionalWrite]]:
    for begin in range(0, len(writes), BATCH):
        yield writes[begin : begin + BATCH]
