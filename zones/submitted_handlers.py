"""Handlers submitted to a running fleet: code stored in the shard, one version number per kind; the newest is in force.

This module does not interpret or trust the code: `fairlead.actors.execution.submitted_handlers` packs, signs, verifies
and loads it.
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

    Do: keep data out of the function and of what it refers to: let it read the tenant's keys or a file when it runs.
    Install large programs on the workers, and let submitted functions import them.
    """

    message = "the submitted handler is too large"


def submit(tr: Transaction, kind: str, code: bytes, *, sign: Sign, above: int, now_us: int) -> int:
    """Store `code` as the newest handler of `kind`; return its version, which is above `above` and every earlier one.

    Clears earlier versions. Reads the versions of the kind with conflict: concurrent submissions get different
    versions. It must not be applied twice: a second run would make one more version, newer than a submission that came
    between.

    Args:
      sign: returns the signature of (kind, version, code); empty without a key.
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
    """Say whether this shard has a submitted handler of a kind, signed by any key. Snapshot reads.

    Raises:
      BadArgument: `kind` cannot be the name of a kind.
    """
    prefix = _PREFIX + pack_text(check_name("kind", kind))
    return next(iter(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=1)), None) is not None


def listing(tr: Reader) -> list[HandlerRecord]:
    """Return the handlers in force on this shard, by kind. Snapshot reads; records of a newer format are skipped."""
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
