"""Restoring: what a backup holds is written unchanged, and what it does not hold is derived.

Derived are the vesting indexes, counts and depths, pointers, the list of dead letters, the local index, and when
retained ids expire.
Leases are released, because their holders are gone. So leased items vest at once, and this does not count as a lease
expiry. Pointers of zones that hold items vest with their first item.

What the shard did after the backup is lost, and not what workflows did on other shards by then, or other shards'
workflows here. So lease numbers and FLOOR continue above all that the shard may have had: an attempt of before the
restore finds its fence raised, or asks again (`fairlead.zones.workflow.participants`).

During a restore the shard's record says so, and the store cannot be opened as a shard. An interrupted restore leaves
such a store behind; restore the file into another, empty store.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import BinaryIO, NamedTuple

from fairlead.zones.engines import Clock, Database, Transaction, transact
from fairlead.zones.errors import BackupRefused
from fairlead.zones.keyspace import (
    DEAD_LETTER,
    FLOOR,
    ITEM,
    KEY_FORMAT,
    META_KEY,
    RETAINED_ID,
    ROOT,
    ROOT_RANGE,
    pack_int,
)
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.local_index import listing_key
from fairlead.zones.maintenance.backup.backup_file import (
    NEWER,
    BackupInfo,
    Header,
    Pair,
    Trailer,
    check_digest,
    read_header,
    read_pairs,
    read_trailer,
)
from fairlead.zones.maintenance.integrity.parsed_keys import KeyParser, ZoneKey
from fairlead.zones.queue.dead_letters import dead_letter_index_key
from fairlead.zones.queue.id_retention import kept_until_us, retention_key
from fairlead.zones.records import FORMAT, DeadLetterRecord, ItemRecord, ShardRecord, decode, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import RESTORING
from fairlead.zones.top_level import pointers
from fairlead.zones.workflow.participants import FLOOR_BYTES, floor_of, is_floor

NOT_EMPTY = "the store is not empty"
TOO_LARGE_KEY = "a key is longer than this engine takes"
TOO_LARGE_VALUE = "a value is longer than this engine takes"

RESTORE_STEP = 2**32  # More than the leases of any item, or the days of any shard.
FLOOR_KEY = ROOT + pack_int(FLOOR)
BATCH_BYTES = 1_000_000
BATCH_PAIRS = 5_000
CLAIM_BYTES = 16

ProgressCallback = Callable[[int], None]


def restore(
    db: Database, file: BinaryIO, *, clock: Clock, random: Random, progress: ProgressCallback | None = None
) -> BackupInfo:
    """Restore a backup into an empty store, and return a description of the backup.

    The shard keeps its id and its parts. Its items are due when they were, leased ones at once.

    Args:
      random: source of the token that marks the store as claimed by this restore.
      file: open for reading bytes, and seekable: all of it is checked before anything is written.
      progress: called now and then with the number of pairs restored so far.

    Raises:
      BackupRefused: the file is not a whole backup, a newer version made it, the store is not empty, or a key or value
        is longer than the engine allows. Nothing was written.
    """
    header = read_header(file)
    if header.record_format > FORMAT:
        raise BackupRefused(reason=NEWER)
    check_digest(file)
    trailer = _check_pairs(db, file)
    _claim(db, RESTORING + random.randbytes(CLAIM_BYTES))
    layout = ShardLayout(shard_id=header.shard_id, part_count=header.part_count, settings=ZoneSettings())
    restored = 0
    for batch in _batches(_Rebuilding(layout, clock.now_us()).writes(read_pairs(file))):
        transact(db, partial(_write, batch=batch))
        restored += sum(each.from_file for each in batch)
        if progress is not None:
            progress(restored)
    transact(db, partial(_finish, header=header))
    return BackupInfo(
        header.shard_id,
        header.part_count,
        trailer.pairs,
        trailer.torn,
        trailer.one_version,
        header.began_us,
        trailer.ended_us,
    )


def _check_pairs(db: Database, file: BinaryIO) -> Trailer:
    """Read all pairs and check that this engine can store them; return the trailer."""
    value = b""
    for key, value in read_pairs(file):
        if len(key) > db.limits.key_bytes_max:
            raise BackupRefused(reason=TOO_LARGE_KEY, key=key, bytes=len(key), bytes_max=db.limits.key_bytes_max)
        if key and len(value) > db.limits.value_bytes_max:
            raise BackupRefused(reason=TOO_LARGE_VALUE, key=key, bytes=len(value), bytes_max=db.limits.value_bytes_max)
    return read_trailer(value)


def _claim(db: Database, claim_token: bytes) -> None:
    """Mark an empty store as being restored. Of two concurrent restores one conflicts.

    After a commit of unknown result, `claim_token` tells whether it was applied.
    """

    def body(tr: Transaction) -> None:
        if next(iter(tr.get_range(*ROOT_RANGE, limit=1)), None) is not None and tr.get(META_KEY).value != claim_token:
            raise BackupRefused(reason=NOT_EMPTY)
        tr.set(META_KEY, claim_token)

    transact(db, body, applied=lambda tr: tr.get(META_KEY).value == claim_token)


def _finish(tr: Transaction, *, header: Header) -> None:
    """Let the store be opened as a shard. May run twice: FLOOR needs only be above all that the shard has had."""
    stored = tr.get(FLOOR_KEY).value
    if is_floor(stored):  # A damaged one is left to the check.
        tr.set(FLOOR_KEY, (floor_of(stored) + RESTORE_STEP).to_bytes(FLOOR_BYTES, "big"))
    tr.set(META_KEY, encode(ShardRecord(header.shard_id, header.part_count, header.began_us, KEY_FORMAT)))


class _Write(NamedTuple):
    """One write; harmless if it is repeated."""

    bytes: int
    apply: Callable[[Transaction], None]
    from_file: bool = False


def _set(key: bytes, value: bytes, *, from_file: bool = False) -> _Write:
    return _Write(len(key) + len(value), lambda tr: tr.set(key, value), from_file)


def _batches(writes: Iterator[_Write]) -> Iterator[list[_Write]]:
    """Group writes so that each group fits a transaction."""
    batch: list[_Write] = []
    size = 0
    for write in writes:
        batch.append(write)
        size += write.bytes
        if size >= BATCH_BYTES or len(batch) >= BATCH_PAIRS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(tr: Transaction, *, batch: list[_Write]) -> None:
    for write in batch:
        write.apply(tr)


class _Rebuilding:
    """Turns the pairs of a file into the writes of a shard, zone by zone."""

    def __init__(self, layout: ShardLayout, now_us: int) -> None:
        self._now_us = now_us
        self._parser = KeyParser(layout)
        self._zone: ZoneLocation | None = None
        self._counts: Counter[str] = Counter()  # of the zone
        self._earliest_us: int | None = None  # of the zone
        self._depths: Counter[bytes] = Counter()  # of the shard

    def writes(self, pairs: Iterator[Pair]) -> Iterator[_Write]:
        """Yield the writes for these pairs."""
        for key, value in pairs:
            found = self._parser.zone_key(key)
            if found is None or found.location is not self._zone:
                yield from self._finish_zone()
                self._zone = None if found is None else found.location
            if found is not None:
                yield from self._zone_writes(found, key, value)
            elif key:
                listed_key = listing_key(key)
                if listed_key is not None:
                    yield _set(listed_key, b"")
                yield _set(key, value, from_file=True)
        for depth_key, depth in self._depths.items():
            yield _set(depth_key, depth.to_bytes(8, "little", signed=True))

    def _zone_writes(self, found: ZoneKey, key: bytes, value: bytes) -> Iterator[_Write]:
        """Yield a row of a zone, and what is derived from it; nothing is derived from a damaged row."""
        location, keys = found.location, found.location.keys
        match found.number, *found.rest:
            case int(number), bytes(item_id) if number == ITEM and key == keys.item(item_id):
                item = decode(ItemRecord, value)
                if item is not None:
                    self._release(item)
                    self._counts[item.kind] += 1
                    self._earliest_us = min(item.vesting_us, self._earliest_us or item.vesting_us)
                    value = encode(item)
                    yield _set(keys.vest(item.priority, item.vesting_us, item_id), item.kind.encode())
            case int(number), bytes(item_id) if number == DEAD_LETTER and key == keys.dead_letter(item_id):
                dead_letter = decode(DeadLetterRecord, value)
                if dead_letter is not None:
                    dead_letter.item.lease_number += RESTORE_STEP
                    value = encode(dead_letter)
                    yield _set(
                        dead_letter_index_key(location, item_id, dead_letter.dead_lettered_us),
                        dead_letter.item.kind.encode(),
                    )
            case int(number), bytes(item_id) if key == (keys.retained_id if number == RETAINED_ID else keys.result)(
                item_id
            ):
                yield _set(retention_key(location, key, kept_until_us(value)), b"")
        yield _set(key, value, from_file=True)

    def _release(self, item: ItemRecord) -> None:
        item.lease_number += RESTORE_STEP
        if item.lease_id:
            item.lease_id, item.lease_us, item.ran_isolated, item.started = b"", 0, False, False
            item.claim = b""
            item.vesting_us = min(item.vesting_us, self._now_us)

    def _finish_zone(self) -> Iterator[_Write]:
        """Yield the counts and the pointer of a zone once all of its items were read."""
        location, earliest_us = self._zone, self._earliest_us
        if location is None or earliest_us is None:
            return
        for kind, count in self._counts.items():
            yield _set(location.keys.count(kind), count.to_bytes(8, "little", signed=True))
            self._depths[location.part.depth(kind)] += count
        vesting_us = max(earliest_us, self._now_us)
        create = partial(pointers.create, location=location, vesting_us=vesting_us, now_us=self._now_us)
        yield _Write(1_000, create)
        self._counts, self._earliest_us = Counter(), None
