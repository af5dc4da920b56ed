"""Clients that write and look for random records over real stores, and what must hold meanwhile and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

from fairlead.records.accesses import Op, Perform, T, run_op
from fairlead.records.errors import CommitUnknown, RecordError
from fairlead.records.protocol import Protocol
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.storage_model.record_store import RecordStore
from fairlead.records.stored import GENERATION_BYTES, DataRecord, IndexRecord, unpack_data, unpack_index
from fairlead.zones.engines import StoreUnavailable

OWN_KEYS, SHARED_KEYS, ALTERNATE_KEYS = 3, 2, 8
KEYS_MAX = 3  # of one record
ATTEMPTS = 100  # of a read that finds no store
END = b"\xff"
PROTOCOL = Protocol()


class RandomClient:
    """One client. It alone writes its own records, so it knows how each must be; others write the shared ones, too.

    Attributes:
      known: how its own records must be, by what it was answered.
      unknown: how often a write was of unknown result.
    """

    def __init__(self, number: int, perform: Perform) -> None:
        self._random = Random(number)
        self._perform = perform
        self._own = [f"client {number}, record {each}" for each in range(OWN_KEYS)]
        self._shared = [f"shared record {each}" for each in range(SHARED_KEYS)]
        self.known: dict[str, DataRecord | None] = dict.fromkeys(self._own)
        self.unknown = 0

    def run(self, operations: int) -> RandomClient:
        """Make random operations; return itself."""
        for _ in range(operations):
            if self._random.random() < 0.3:
                self._find(self._random.choice(alternate_keys()))
            else:
                self._change(self._random.choice(self._own + self._shared))
        return self

    def _find(self, index_key: bytes) -> None:
        owner = next((key for key, each in self.known.items() if each is not None and each.has(index_key)), None)
        found = self._read(PROTOCOL.find_op(index_key))
        if owner is not None:
            assert found is not None, f"{owner} has {index_key!r}, and is not found"
            assert found[0] == owner, f"{owner} has {index_key!r}, and {found[0]} is found"
        assert found is None or found[1].has(index_key)

    def _change(self, key: str) -> None:
        before = self._read(PROTOCOL.get_op(key))
        if key in self.known:
            assert is_same(before, self.known[key]), f"{key} is {before}, and was acknowledged as {self.known[key]}"
        keys = tuple(self._random.sample(alternate_keys(), self._random.randint(0, KEYS_MAX)))
        after: DataRecord | None = None
        if before is None:
            after = DataRecord(self._random.randbytes(GENERATION_BYTES), 1, keys, 1, self._random.randbytes(20))
        elif self._random.random() < 0.7:
            value = self._random.randbytes(20)
            after = DataRecord(before.generation, before.version, keys, before.writes + 1, value)
        try:
            drop = run_op(self._change_op(key, before, after), self._perform)
        except CommitUnknown:
            self.unknown += 1
            found = self._read(PROTOCOL.get_op(key))
            if key in self.known:
                assert is_same(found, before) or is_same(found, after)
                self.known[key] = found
        except (RecordError, StoreUnavailable):
            return
        else:
            if key in self.known:
                self.known[key] = after
            if self._random.random() < 0.5 and drop is not None:
                with suppress(RecordError, StoreUnavailable):
                    run_op(drop, self._perform)

    def _change_op(self, key: str, before: DataRecord | None, after: DataRecord | None) -> Op[Op[None] | None]:
        """Create, update or delete a record; return what deletes index records that this leaves."""
        if before is None:
            assert after is not None
            yield from PROTOCOL.create_op(key, after.keys, after.value, after.generation)
            return None
        if after is None:
            dropped = yield from PROTOCOL.delete_op(key, before)
            return PROTOCOL.drop_op(key, before.generation, dropped, None)
        written = yield from PROTOCOL.update_op(key, before, after.keys, after.value)
        return PROTOCOL.drop_op(key, before.generation, written.dropped, written.record.version)

    def _read(self, operation: Op[T]) -> T:
        """Return what a read finds; where a store does not answer, the same accesses are made again."""
        return run_op(operation, self._perform_again)

    def _perform_again(self, accesses: Sequence[object]) -> Sequence[object]:
        for _ in range(ATTEMPTS):
            with suppress(StoreUnavailable, RecordError):
                answers = self._perform(accesses)  # type: ignore[arg-type]
                if not any(isinstance(each, Exception) for each in answers):
                    return answers
        raise AssertionError("no store answers")


def alternate_keys() -> list[bytes]:
    """Return all index keys that clients give to records."""
    return [b"\x02name\x00" + b"\x02alternate %d\x00" % each for each in range(ALTERNATE_KEYS)]


def is_same(found: DataRecord | None, other: DataRecord | None) -> bool:
    """Say whether a user sees the same record; collections of garbage change the version."""
    if found is None or other is None:
        return found is other
    return _seen(found) == _seen(other)


def _seen(record: DataRecord) -> tuple[object, ...]:
    return record.generation, record.writes, record.keys, record.value


def check_at_the_end(
    data: Sequence[RecordStore], index: Sequence[RecordStore], clients: Sequence[RandomClient]
) -> None:
    """See that all is as it must be once nobody writes: uniqueness, no missing index record, nothing lost, validity."""
    records = {
        key.decode(): unpack_data(key.decode(), row.value) for store in data for key, row in store.scan(b"\x01", END)
    }
    entries: dict[bytes, IndexRecord] = {
        key: unpack_index(row.value) for store in index for key, row in store.scan(b"\x01", END)
    }
    real = {key: record for key, record in records.items() if not record.is_dummy}
    owners: dict[bytes, str] = {}
    for key, record in real.items():
        for index_key in record.keys:
            assert index_key not in owners, f"{key} and {owners[index_key]} both have {index_key!r}"
            owners[index_key] = key
            assert index_key in entries, f"{key} has {index_key!r}, and there is no index record"
            assert entries[index_key].key == key
    for client in clients:
        for key, known in client.known.items():
            assert is_same(real.get(key), known), f"{key} is {real.get(key)}, and was acknowledged as {known}"
    perform = ModelStores(data, index).perform
    for index_key in alternate_keys():
        if index_key not in owners:
            name = f"newcomer {index_key!r}"
            run_op(PROTOCOL.create_op(name, [index_key], b"", bytes(GENERATION_BYTES)), perform)
            found = run_op(PROTOCOL.find_op(index_key), perform)
            assert found is not None
            assert found[0] == name
