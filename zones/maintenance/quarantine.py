"""Quarantine: where damaged records and keys are set aside unchanged, so that the rest of the store is whole.

    (ROOT, QUARANTINE, digest of the key, when, ABOUT) -> why
    (ROOT, QUARANTINE, digest of the key, when, KEY)   -> the key
    (ROOT, QUARANTINE, digest of the key, when, VALUE) -> the value that was there

Nothing is set aside automatically: a program that takes for damage what it does not understand must not empty a store.
An operator runs an integrity check with `fairlead check --quarantine`, which also repairs what the record leaves
behind: index entries, counts, pointers. Until then a dequeue skips a damaged record. A record that was set aside
belongs to no queue, so its id is free again. It stays here until an operator discards it.

A pair is filed by the digest of its key, because a long key with a prefix would be too long. So `is_there` finds an
item by its key. Reason, key and value lie apart, because a value may have the maximal length.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import QUARANTINE, ROOT, pack_bytes, pack_int, range_begin, range_end
from fairlead.zones.layout import ID_BYTES
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.tuples import elements_of

_PREFIX = ROOT + pack_int(QUARANTINE)
_ABOUT, _KEY, _VALUE = range(1, 4)
PARTS = 3  # Keys per pair.


class SetAside(NamedTuple):
    """A pair that was set aside. `id`: its id in the quarantine. `at_us`: when, since the epoch."""

    id: bytes
    at_us: int
    why: str
    key: bytes
    value: bytes


def set_aside(tr: Transaction, begin: bytes, end: bytes, *, why: str, now_us: int) -> int:
    """Move all pairs of a range into the quarantine, and return how many. Reads the range with conflict.

    May run twice: the second run finds nothing.
    """
    rows = list(tr.get_range(begin, end, streaming_mode=WANT_ALL))
    for row in rows:
        prefix = _of(_id_of(row.key)) + pack_int(now_us)
        tr.set(prefix + pack_int(_ABOUT), why.encode())
        tr.set(prefix + pack_int(_KEY), row.key)
        tr.set(prefix + pack_int(_VALUE), row.value)
        tr.clear(row.key)
    return len(rows)


def listing(tr: Reader, *, pairs_max: int) -> list[SetAside]:
    """Return up to `pairs_max` pairs that were set aside, the latest first; an arbitrary choice if there are more.

    Snapshot reads.
    """
    rows = tr.snapshot.get_range(
        range_begin(_PREFIX), range_end(_PREFIX), limit=PARTS * pairs_max, streaming_mode=WANT_ALL
    )
    return sorted(_pairs(rows), key=lambda pair: -pair.at_us)


def is_there(tr: Reader, key: bytes) -> bool:
    """Say whether the pair with this key was set aside. Snapshot reads."""
    prefix = _of(_id_of(key))
    return next(iter(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=1)), None) is not None


def throw_away(tr: Transaction, pair_id: bytes) -> int:
    """Delete the pairs with this id for good, and return how many there were. Reads them with conflict."""
    prefix = _of(pair_id)
    begin, end = range_begin(prefix), range_end(prefix)
    pairs = len(list(_pairs(tr.get_range(begin, end, streaming_mode=WANT_ALL))))
    tr.clear_range(begin, end)
    return pairs


def quarantine_range() -> tuple[bytes, bytes]:
    """Return begin and end of the quarantine."""
    return range_begin(_PREFIX), range_end(_PREFIX)


def _pairs(rows: Any) -> Iterator[SetAside]:
    """Yield what was set aside; a pair damaged here too as far as it can be read."""
    pairs: dict[tuple[bytes, int], dict[int, bytes]] = {}
    for row in rows:
        match elements_of(row.key):
            case (_, _, bytes(pair_id), int(at_us), int(part)):
                pairs.setdefault((pair_id, at_us), {})[part] = row.value
    for (pair_id, at_us), parts in pairs.items():
        why = parts.get(_ABOUT, b"").decode(errors="replace")
        yield SetAside(pair_id, at_us, why, parts.get(_KEY, b""), parts.get(_VALUE, b""))


def _id_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=ID_BYTES).digest()


def _of(pair_id: bytes) -> bytes:
    return _PREFIX + pack_bytes(pair_id)
