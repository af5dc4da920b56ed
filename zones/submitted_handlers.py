"""Handlers submitted to a running fleet: code kept in the shard, a version number per kind, the newest one in force.

What the code is and whether to trust it is not known here: `fairlead.actors.execution.submitted_handlers` packs, signs,
verifies and loads it.
"""

from collections.abc import Callable

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import QueueError
from fairlead.zones.keyspace import HANDLER, ROOT, pack_int, pack_text, range_begin, range_end, unpack_int
from fairlead.zones.layout import check_name
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import HandlerRecord, decode, encode

CODE_BYTES_MAX = 90_000  # Below FoundationDB's value limit of 100 kB, with room for the rest of the record.

_PREFIX = ROOT + pack_int(HANDLER)

Sign = Callable[[str, int, bytes], bytes]  # kind, version, code -> signature


class HandlerTooLarge(QueueError):
    """The packed handler is longer than `bytes_max`.

    Do: keep data out of the function and what it refers to: read it from the tenant's keys or a file when it runs.
    Large programs are installed on the workers, and submitted functions import them.
    """

    message = "the submitted handler is too large"


def submit(tr: Transaction, kind: str, code: bytes, *, sign: Sign, above: int, now_us: int) -> int:
    """Store `code` as the newest handler of `kind`; return its version, later than `above` and than any before.

    Earlier versions are cleared. Reads with conflict: the versions of the kind; of two that submit at once one
    comes after the other. It must not be applied twice: a second run makes one more version, newer than others' since.

    Args:
      sign: answers the signature of (kind, version, code), empty without a key.
      above: the highest version known from other shards, 0 if there is none.

    Raises:
      BadArgument: `kind` cannot be the name of a kind.
      HandlerTooLarge: `code` is longer than 90,000 bytes.
    """
    prefix = _PREFIX + pack_text(check_name("kind", kind))
    if len(code) > CODE_BYTES_MAX:
        raise HandlerTooLarge(kind=kind, bytes=len(code), bytes_max=CODE_BYTES_MAX)
    rows = list(tr.get_range(range_begin(prefix), range_end(prefix), limit=1, reverse=True))
    version = 1 + max(above, _version(rows[0].key, prefix) if rows else 0)
    tr.clear_range(range_begin(prefix), range_end(prefix))
    record = HandlerRecord(kind, version, code, sign(kind, version, code), now_us)
    tr.set(prefix + pack_int(version), encode(record))
    return version


def is_there(tr: Reader, kind: str) -> bool:
    """Say whether this shard has a handler of a kind that was submitted, whoever signed it. Snapshot reads.

    Raises:
      BadArgument: `kind` cannot be the name of a kind.
    """
    prefix = _PREFIX + pack_text(check_name("kind", kind))
    return next(iter(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=1)), None) is not None


def listing(tr: Reader) -> list[HandlerRecord]:
    """Return the handlers in force on this shard, by kind. Snapshot reads; a newer format is passed over."""
    rows = tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), streaming_mode=WANT_ALL)
    newest: dict[str, HandlerRecord] = {}
    for row in rows:
        record = decode(HandlerRecord, row.value)
        if record is not None:
            newest[record.kind] = record  # versions of a kind come in order
    return list(newest.values())


def _version(key: bytes, prefix: bytes) -> int:
    found = unpack_int(key, len(prefix))
    return 0 if found is None else found[0]
