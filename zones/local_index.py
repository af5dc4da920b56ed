"""The local index of a shard: finds what the shard's tenants hold, by a value of it (Uniqorn section 3.2).

An entry is written and cleared in the transaction of what it names. Each entry has two keys:

    (ROOT, DB, app, user, INDEXED, index, member) -> empty; beside the tenant's rows, so a move copies it
    (ROOT, LOCAL_INDEX, index, app, user, member) -> empty; by it the shard finds the member

    index    a tuple, packed: the name of the index, a field, a value; nested in the keys, so it is not packed twice
    member   bytes that name what is found, among all that its tenant holds

A reader who looks for a member of any tenant asks all shards. A tenant may move meanwhile, so the reader counts moves:

    (ROOT, MOVE_COUNT) -> a number that grows; read in the transaction that reads the index, and once more at the end

A move lists all entries at the destination, and counts there, before it clears the first one at the source. So a reader
misses no member that was there all the time, if the count of no shard has changed since the index of that shard was
read. `tests/protocol_models/scatter.py` explores this.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import (
    DB,
    INDEXED,
    LOCAL_INDEX,
    MOVE_COUNT,
    ROOT,
    TenantKeys,
    pack_bytes,
    pack_int,
    range_end,
    tenant_prefix,
    unpack_bytes,
    unpack_names,
)
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.top_level.part_writes import add_to_count

INDEX_BYTES_MAX = 140
MEMBER_BYTES_MAX = 140
MEMBER_NULS_MAX = 18  # Each takes two bytes in a key. An id of 16 bytes may consist of them.

_DB, _INDEXED = ROOT + pack_int(DB), pack_int(INDEXED)
_LOCAL_INDEX = ROOT + pack_int(LOCAL_INDEX)
_MOVE_COUNT_KEY = ROOT + pack_int(MOVE_COUNT)
# How elements of a packed tuple begin.
_BYTES, _TEXT, _NESTED, _END = 0x01, 0x02, 0x05, 0x00
_BIG_NEGATIVE, _BIG = 0x0B, 0x1D
_ZERO, _NUMBER_BYTES_MAX = 0x14, 8


class Entry(NamedTuple):
    """What an index names: a member of a tenant. `index_key`: the index, a packed tuple."""

    tenant: Tenant
    index_key: bytes
    member: bytes


class Page(NamedTuple):
    """Entries in the order of index, tenant, member. `next_key`: where to go on; None: these were the last ones."""

    entries: list[Entry]
    next_key: bytes | None


def add(tr: Transaction, keys: TenantKeys, index: bytes, member: bytes) -> None:
    """Write an entry. The caller has read the tenant's ownership with conflict. May run twice.

    Args:
      index: a packed tuple of bytes, texts, whole numbers, and such tuples; at most 140 bytes.
      member: 1 to 140 bytes, of which at most 18 are NUL.
    """
    _check(index, member)
    tr.set(indexed_key(keys, index, member), b"")
    tr.set(local_key(keys, index, member), b"")


def remove(tr: Transaction, keys: TenantKeys, index: bytes, member: bytes) -> None:
    """Clear an entry, if there is one. The caller has read the tenant's ownership with conflict. May run twice."""
    tr.clear(indexed_key(keys, index, member))
    tr.clear(local_key(keys, index, member))


def find_op(
    tr: Reader, index: bytes, *, entries_max: int, next_key: bytes | None = None, longer: bool = False
) -> Operation[Page]:
    """Return entries of an index, of all tenants; `longer`: also of each index that begins with this tuple.

    One range of snapshot reads. A damaged key is passed over. `next_key`: of the page before this one.
    """
    begin = _LOCAL_INDEX + (bytes([_NESTED]) + index if longer else _nested(index))
    rows = tr.snapshot.get_range(
        begin if next_key is None else next_key, range_end(begin), limit=entries_max, streaming_mode=WANT_ALL
    )
    yield
    found = list(rows)
    entries = [entry for row in found if (entry := parse_local_key(row.key)) is not None]
    return Page(entries, None if len(found) < entries_max else found[-1].key + b"\x00")


class HeldPage(NamedTuple):
    """Entries of one tenant: index and member of each. `next_key`: where to go on; None: these were the last ones."""

    entries: list[tuple[bytes, bytes]]
    next_key: bytes | None


def held_op(tr: Reader, keys: TenantKeys, *, entries_max: int, next_key: bytes | None = None) -> Operation[HeldPage]:
    """Return entries of a tenant, in the order of index and member; see `find_op`."""
    begin = keys.indexed if next_key is None else next_key
    rows = tr.snapshot.get_range(begin, range_end(keys.indexed), limit=entries_max, streaming_mode=WANT_ALL)
    yield
    found = list(rows)
    entries = [entry for row in found if (entry := parse_indexed_key(keys, row.key)) is not None]
    return HeldPage(entries, None if len(found) < entries_max else found[-1].key + b"\x00")


def move_count_op(tr: Reader) -> Operation[int]:
    """Return how often a move has listed or cleared entries on this shard. One snapshot read."""
    stored = tr.snapshot.get(_MOVE_COUNT_KEY)
    yield
    return int.from_bytes((stored.value or b"")[:8], "little")


def count_move(tr: Transaction) -> None:
    """Tell readers of all shards that entries have come, or go, with a tenant that moves. Atomic add."""
    add_to_count(tr, _MOVE_COUNT_KEY, 1)


def list_row(tr: Transaction, keys: TenantKeys, key: bytes) -> None:
    """List a row of the tenant, which a move has copied, in the index of its new shard."""
    parsed = parse_indexed_key(keys, key)
    if parsed is not None:
        tr.set(local_key(keys, *parsed), b"")


def clear_listed(tr: Transaction, keys: TenantKeys, rows: Sequence[bytes]) -> None:
    """Clear what lists rows of a tenant that has left; tell readers. The caller clears the rows."""
    parsed = [found for row in rows if (found := parse_indexed_key(keys, row)) is not None]
    for index, member in parsed:
        tr.clear(local_key(keys, index, member))
    if parsed:
        count_move(tr)


def indexed_key(keys: TenantKeys, index: bytes, member: bytes) -> bytes:
    """Return the key of an entry beside the tenant's rows."""
    return keys.indexed + _nested(index) + pack_bytes(member)


def local_key(keys: TenantKeys, index: bytes, member: bytes) -> bytes:
    """Return the key of an entry in the shard's index."""
    return _LOCAL_INDEX + _nested(index) + keys.packed + pack_bytes(member)


def parse_indexed_key(keys: TenantKeys, key: bytes) -> tuple[bytes, bytes] | None:
    """Return index and member of a row of a tenant; None: it is no entry, or it is damaged."""
    at = len(keys.indexed)
    end = _nested_end(key, at) if key.startswith(keys.indexed) else None
    if end is None:
        return None
    index, member = key[at + 1 : end - 1], unpack_bytes(key[end:])
    return (index, member) if indexed_key(keys, index, member) == key else None


def parse_local_key(key: bytes) -> Entry | None:
    """Return what a key of the shard's index says; None: it is damaged."""
    at = len(_LOCAL_INDEX)
    end = _nested_end(key, at)
    named = None if end is None else unpack_names(key, end, 2)
    if end is None or named is None:
        return None
    entry = Entry(Tenant(*named[0]), key[at + 1 : end - 1], unpack_bytes(key[named[1] :]))
    return entry if local_key(TenantKeys(*entry.tenant), entry.index_key, entry.member) == key else None


def listing_key(key: bytes) -> bytes | None:
    """Return the key of the shard's index that lists a row of any tenant; None: nothing lists it, or it is damaged."""
    prefix = tenant_prefix(key)
    if not key.startswith(_INDEXED, len(prefix)):
        return None
    named = unpack_names(prefix, len(_DB), 2)
    keys = None if named is None else TenantKeys(*named[0])
    parsed = None if keys is None else parse_indexed_key(keys, key)
    return None if keys is None or parsed is None else local_key(keys, *parsed)


def is_index(index: bytes) -> bool:
    """Say whether bytes can be an index; see `add`."""
    return 0 < len(index) <= INDEX_BYTES_MAX and _nested_end(_nested(index), 0) == len(index) + 2


def _check(index: bytes, member: bytes) -> None:
    assert is_index(index), f"{index!r} is no packed tuple, or longer than {INDEX_BYTES_MAX} bytes"
    assert 0 < len(member) <= MEMBER_BYTES_MAX, f"a member of {len(member)} bytes"
    assert member.count(b"\x00") <= MEMBER_NULS_MAX, "a member of many NULs"


def _nested(index: bytes) -> bytes:
    """Return a packed tuple as an element of another one. It holds no None, which would be packed otherwise."""
    return b"\x05" + index + b"\x00"


def _nested_end(key: bytes, at: int) -> int | None:
    """Return where a nested tuple ends that begins at `at`; None: it does not end, or holds what no index holds."""
    if key[at : at + 1] != b"\x05":
        return None
    at += 1
    while at < len(key) and key[at] != _END:
        after = _element_end(key, at)
        if after is None:
            return None
        at = after
    return at + 1 if at < len(key) and key[at + 1 : at + 2] != b"\xff" else None


def _element_end(key: bytes, at: int) -> int | None:
    code = key[at]
    if code == _NESTED:
        return _nested_end(key, at)
    if code in (_BYTES, _TEXT):
        end = key.find(b"\x00", at + 1)
        while end >= 0 and key[end + 1 : end + 2] == b"\xff":
            end = key.find(b"\x00", end + 2)
        return end + 1 if end >= 0 else None
    if abs(code - _ZERO) <= _NUMBER_BYTES_MAX:
        return at + 1 + abs(code - _ZERO)
    if code in (_BIG, _BIG_NEGATIVE) and at + 1 < len(key):
        size = key[at + 1] if code == _BIG else key[at + 1] ^ 0xFF
        return at + 2 + size
    return None
