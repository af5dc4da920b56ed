"""Taking a backup: what is copied, and as of when.

A transaction reads for up to a few seconds. If that is enough for the whole shard, the backup is of one version. A
larger shard is read by several transactions, but each tenant's logical database, its data and its queues, by one. So
every tenant is restored as it was at one instant, which may differ between tenants. A tenant too large for one
transaction is torn, and the backup says so.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, NamedTuple

from fairlead.zones.engines import KeyValue, Reader, transact
from fairlead.zones.errors import ShardRefused
from fairlead.zones.keyspace import (
    CHANGE_COUNTER,
    COMPLETION_LOG,
    COUNT,
    DB,
    DEAD_LETTER,
    EXTERNAL_READER,
    HANDLER,
    ITEM,
    LOCAL_INDEX,
    PAUSED_POINTER,
    PERIODIC,
    POINTER,
    ROLLUP,
    ROOT,
    SESSION,
    VEST,
    WORKER_SESSION,
    WORKER_STATUS,
    ZONE,
    pack_int,
    range_end,
    tenant_prefix,
)
from fairlead.zones.maintenance.backup.backup_file import (
    FILE_FORMAT,
    BackupInfo,
    BackupWriter,
    Header,
    Trailer,
    pack_pair,
)
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import FORMAT, is_newer
from fairlead.zones.shard import Shard

# A transaction ends at the first border between tenants after one of the ENOUGH limits, and at a TOO_MUCH limit at the
# latest.
ENOUGH_US = 2_000_000
ENOUGH_BYTES = 32_000_000
TOO_MUCH_US = 4_000_000
TOO_MUCH_BYTES = 64_000_000

_DB = ROOT + pack_int(DB)
_ZONE = pack_int(ZONE)
_DERIVED = (pack_int(VEST), pack_int(COUNT), pack_int(POINTER))
_RECORDS = (pack_int(ITEM), pack_int(DEAD_LETTER))
# The rest is derived (the top-level queue, depths, the list of dead letters, the paused-pointer index, the local
# index), or is meaningless later (receipts, time, sessions of consumers and workers, grants of limits, the completion
# log, worker status, what the readers of external stores have seen).
_RANGES = [
    (_DB, range_end(_DB)),
    (ROOT + pack_int(HANDLER), range_end(ROOT + pack_int(PERIODIC))),
    (ROOT + pack_int(SESSION + 1), ROOT + pack_int(PAUSED_POINTER)),
    (ROOT + pack_int(COMPLETION_LOG + 1), ROOT + pack_int(LOCAL_INDEX)),
    (ROOT + pack_int(WORKER_STATUS + 1), ROOT + pack_int(ROLLUP)),
    (ROOT + pack_int(CHANGE_COUNTER + 1), ROOT + pack_int(WORKER_SESSION)),
    (ROOT + pack_int(WORKER_SESSION + 1), ROOT + pack_int(EXTERNAL_READER)),
    (ROOT + pack_int(EXTERNAL_READER + 1), range_end(ROOT)),
]

ProgressCallback = Callable[[int], None]


def backup(shard: Shard, file: BinaryIO, *, progress: ProgressCallback | None = None) -> BackupInfo:
    """Write a backup of a shard to `file`, and return its description. Producers and consumers may go on.

    Snapshot reads; conflicts with nothing. The caller makes the file durable.

    Args:
      file: open for writing bytes.
      progress: called now and then with the number of pairs written so far.

    Raises:
      ShardRefused: the shard holds records that a newer version wrote.
      OSError: `file` cannot be written.
    """
    layout, clock = shard.layout, shard.clock
    began_us = clock.now_us()
    header = Header(FILE_FORMAT, FORMAT, layout.shard_id, layout.part_count, began_us)
    writer = BackupWriter(file, header)
    token = shard.db.commit_sequence()
    pairs = chunks = 0
    torn: set[bytes] = set()
    next_key: bytes | None = _RANGES[0][0]
    while next_key is not None:
        chunk = transact(shard.db, partial(_read_chunk, shard=shard, begin=next_key))
        writer.add(chunk.packed)
        pairs += chunk.pairs
        torn |= chunk.torn
        chunks += 1
        next_key = chunk.next_key
        if progress is not None:
            progress(pairs)
    one_version = chunks == 1 or (token is not None and token == shard.db.commit_sequence())
    ended_us = clock.now_us()
    writer.finish(Trailer(pairs, len(torn), one_version, ended_us))
    return BackupInfo(layout.shard_id, layout.part_count, pairs, len(torn), one_version, began_us, ended_us)


class _Chunk(NamedTuple):
    """What one transaction read. `torn`: the tenant within which it ended, if any."""

    packed: bytes
    pairs: int
    next_key: bytes | None
    torn: frozenset[bytes] = frozenset()


def _read_chunk(tr: Reader, *, shard: Shard, begin: bytes) -> _Chunk:
    """Read from `begin` on up to a limit, to a border between tenants if there is one.

    The next chunk begins at the first possible key of its tenant, not at the first key read here: a smaller one may be
    inserted meanwhile.
    """
    began_us = shard.clock.now_us()
    packed = bytearray()
    pairs = 0
    owner: bytes | None = None
    border: _Chunk | None = None  # what to return if the tenant that follows turns out to be too large
    for row in _rows(tr, begin):
        took_us = shard.clock.now_us() - began_us
        row_owner = tenant_prefix(row.key)
        if row_owner != owner:
            if took_us >= ENOUGH_US or len(packed) >= ENOUGH_BYTES:
                return _Chunk(bytes(packed), pairs, row_owner)
            if owner is not None:
                border = _Chunk(b"", pairs, row_owner)
                border_bytes = len(packed)
            owner = row_owner
        elif took_us >= TOO_MUCH_US or len(packed) >= TOO_MUCH_BYTES:
            if border is not None:
                return border._replace(packed=bytes(packed[:border_bytes]))
            return _Chunk(bytes(packed), pairs, row.key, torn=frozenset([row_owner]))
        if _is_primary(row, shard):
            packed += pack_pair(row.key, row.value)
            pairs += 1
    return _Chunk(bytes(packed), pairs, None)


def _rows(tr: Reader, begin: bytes) -> Iterator[KeyValue]:
    for range_begin, end in _RANGES:
        if begin < end:
            yield from tr.snapshot.get_range(max(begin, range_begin), end, streaming_mode=WANT_ALL)


def _is_primary(row: KeyValue, shard: Shard) -> bool:
    """Say whether a row is copied, and not derived by a restore.

    Raises:
      ShardRefused: a newer version wrote the row, so this version cannot know what to derive from it.
    """
    rest = row.key[len(tenant_prefix(row.key)) :]
    if not rest.startswith(_ZONE):
        return True
    subspace = rest[rest.find(b"\x00", len(_ZONE)) + 1 :][:2]
    if subspace in _RECORDS and is_newer(row.value):
        raise ShardRefused(
            shard=shard.name,
        )
    return subspace not in _DERIVED
