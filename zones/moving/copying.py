"""Copying: reads ranges of a tenant at the source, and sees that they have arrived at the destination as they were."""

from collections.abc import Iterator, Sequence

from fairlead.zones.engines import KeyValue, Limits, Reader
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.moving.destination import Copied
from fairlead.zones.moving.errors import Unmovable
from fairlead.zones.moving.marks import Mark
from fairlead.zones.moving.rows import copied_ranges, is_copied
from fairlead.zones.queue.index_scan import WANT_ALL

CHUNK_ROWS = 500  # In one transaction at the destination: some milliseconds of its writer.
CHUNK_BYTES = 250_000
ROW_BYTES = 40  # What a row costs in a transaction beside its key and its value.


def read_chunk(tr: Reader, keys: TenantKeys, begin: bytes) -> Copied | None:
    """Return what is copied of a tenant from a key on, as much as one transaction writes; None: nothing is left.

    Snapshot reads.
    """
    for range_begin, range_end in copied_ranges(keys):
        start = max(begin, range_begin)
        if start < range_end:
            rows, end = _read_rows(tr, start, range_end)
            if rows or end == range_end == copied_ranges(keys)[-1][1]:
                return Copied(start, end, [row for row in rows if is_copied(keys, row.key)])
    return None


def _read_rows(tr: Reader, begin: bytes, end: bytes) -> tuple[list[KeyValue], bytes]:
    """Return rows of a range, and where it goes on; `end`: that was all of it."""
    rows, size = [], 0
    for found in tr.snapshot.get_range(begin, end, limit=CHUNK_ROWS):
        row = KeyValue(found.key, found.value)  # Pairs of two engines do not compare.
        rows.append(row)
        size += row_bytes(row)
        if size >= CHUNK_BYTES:
            break
    return rows, rows[-1].key + b"\x00" if len(rows) == CHUNK_ROWS or size >= CHUNK_BYTES else end


def row_bytes(row: KeyValue) -> int:
    """Return what a row counts in a transaction."""
    return len(row.key) + len(row.value) + ROW_BYTES


def read_marked_keys(tr: Reader, keys: TenantKeys, marks: Sequence[Mark]) -> list[Copied]:
    """Return the single keys that marks name, as they are now. Snapshot reads.

    The marks were read before, or in this transaction. So a mark that is still the same when it is cleared has been
    copied: whoever writes to its range later writes another nonce.
    """
    singles = [mark for mark in marks if mark.is_single and is_copied(keys, mark.begin)]
    reads = [tr.snapshot.get(mark.begin) for mark in singles]
    return [
        Copied(mark.begin, mark.end, [] if read.value is None else [KeyValue(mark.begin, read.value)])
        for mark, read in zip(singles, reads, strict=True)
    ]


def marked_ranges(keys: TenantKeys, marks: Sequence[Mark]) -> list[tuple[bytes, bytes]]:
    """Return the longer ranges that marks name, as far as they are copied."""
    cut = [
        (max(begin, mark.begin), min(end, mark.end))
        for mark in marks
        if not mark.is_single
        for begin, end in copied_ranges(keys)
    ]
    return [(begin, end) for begin, end in cut if begin < end]


def read_piece(tr: Reader, keys: TenantKeys, begin: bytes, end: bytes) -> Copied:
    """Return the first piece of a range, as much as one transaction writes; it goes on at its end. Snapshot reads."""
    rows, next_key = _read_rows(tr, begin, end)
    return Copied(begin, next_key, [row for row in rows if is_copied(keys, row.key)])


def in_chunks(copied: Iterator[Copied]) -> Iterator[list[Copied]]:
    """Gather ranges into chunks that one transaction writes."""
    chunk: list[Copied] = []
    rows = size = 0
    for each in copied:
        chunk.append(each)
        rows += max(1, len(each.rows))
        size += sum(row_bytes(row) for row in each.rows)
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, rows, size = [], 0, 0
    if chunk:
        yield chunk


def first_difference(tr: Reader, keys: TenantKeys, copied: Sequence[Copied]) -> bytes | None:
    """Return the first key that is not at the destination as it was copied; None: all are. Snapshot reads."""
    singles = [each for each in copied if each.end == each.begin + b"\x00"]
    reads = [tr.snapshot.get(each.begin) for each in singles]
    for each, read in zip(singles, reads, strict=True):
        if read.value != (each.rows[0].value if each.rows else None):
            return each.begin
    for each in copied:
        if each.end != each.begin + b"\x00":
            stored = tr.snapshot.get_range(each.begin, each.end, streaming_mode=WANT_ALL)
            there = [KeyValue(row.key, row.value) for row in stored if is_copied(keys, row.key)]
            if there != list(each.rows):
                different = set(there) ^ set(each.rows)
                return min(row.key for row in different)
    return None


def check_limits(rows: Sequence[KeyValue], limits: Limits) -> None:
    """See that the destination can store rows.

    Raises:
      Unmovable: a key or a value is longer than it allows.
    """
    for row in rows:
        if len(row.key) > limits.key_bytes_max:
            raise Unmovable(
                f"the destination stores keys of up to {limits.key_bytes_max:,} bytes, and the tenant has one of"
                f" {len(row.key):,}: {row.key.hex()[:200]}"
            )
        if len(row.value) > limits.value_bytes_max:
            raise Unmovable(
                f"the destination stores values of up to {limits.value_bytes_max:,} bytes, and the tenant has one of"
                f" {len(row.value):,} under the key {row.key.hex()[:200]}"
            )
