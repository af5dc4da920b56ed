"""Quarantine: where damaged records and keys are set aside, as they are, so that what is left is whole.

    (ROOT, QUARANTINE, digest of the key, when, ABOUT) -> why
    (ROOT, QUARANTINE, digest of the key, when, KEY)   -> the key
    (ROOT, QUARANTINE, digest of the key, when, VALUE) -> the value that was there

Nothing is set aside by itself: a program that takes for damaged what it only does not understand must not empty a
store. An operator says so, to an audit (`fairlead check --quarantine`), which also mends what the record leaves behind:
index entries, counts, pointers. Whoever visits a damaged record passes it over until then. What is set aside is
nobody's any more, so an id that was in it is free again; it stays here until an operator throws it away.

A key is filed by its digest, because with anything before it a long one would be too long; so whoever knows the key of
an item finds it here. Why, key and value lie apart, because a value may be as long as a value can be.
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
PARTS = 3  # Of what is kept of a pair.


class SetAside(NamedTuple):
    """A pair that was set aside. `id`: what it is called in the quarantine. `at_us`: when, since the epoch."""

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
    """Return up to `pairs_max` pairs that were set aside, any if there are more, the last of these first.

    Snapshot reads.
    """
    rows = tr.snapshot.get_range(
        range_begin(_PREFIX), range_end(_PREFIX), limit=PARTS * pairs_max, streaming_mode=WANT_ALL
    )
    return sorted(_pairs(rows), key=lambda pair: -pair.at_us)


def is_there(tr: Reader, key: bytes) -> bool:
    """Say whether what lay under `key` was set aside. Snapshot reads."""
    prefix = _of(_id_of(key))
    return next(iter(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=1)), None) is not None


def throw_away(tr: Transaction, pair_id: bytes) -> int:
    """Delete what is called so for good, and return how many pairs that were. Reads them with conflict."""
    prefix = _of(pair_id)
    begin, end = range_begin(prefix), range_end(prefix)
    pairs = len(list(_pairs(tr.get_range(begin, end, streaming_mode=WANT_ALL))))
    tr.clear_range(begin, end)
    return pairs


def quarantine_range() -> tuple[bytes, bytes]:
    """Return begin and end of the quarantine."""
    return range_begin(_PREFIX), range_end(_PREFIX)


def _pairs(rows: Any) -> Iterator[SetAside]:
    """Yield what was set aside; what is damaged here as well comes as far as it can be read."""
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
