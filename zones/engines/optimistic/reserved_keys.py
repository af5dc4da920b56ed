r"""Keys of the embedded engine itself, behind the last key that a user can write (\xff).

    \xff\\x00empty        -> the value of the empty key, which LMDB does not take
    \xff\\x00format       -> the format of all this
    \xff\\x01 newest...   -> the commit log: what each commit of the last seconds wrote, newest first

They are in the one LMDB tree that holds the users' keys. With trees of their own, a small commit wrote ten pages
instead of seven, and the number of pages decides its time. The log is ordered newest first, so that each commit's entry
shares a page with the end of a shard's keys, where its counters are.
"""

from __future__ import annotations

from typing import Final

EMPTY_KEY: Final = b"\xff\x00empty"
FORMAT_KEY: Final = b"\xff\x00format"
LOG_BEGIN: Final = b"\xff\x01"

_VERSION_BYTES: Final = 8
_NEVER: Final = (1 << 8 * _VERSION_BYTES) - 1


def log_key(version: int) -> bytes:
    """Return the key of the log entry of a version; the newer, the earlier."""
    return LOG_BEGIN + (_NEVER - version).to_bytes(_VERSION_BYTES, "big")


def log_version(key: bytes) -> int:
    """Return the version that `log_key` packed."""
    return _NEVER - int.from_bytes(key[len(LOG_BEGIN) :], "big")
