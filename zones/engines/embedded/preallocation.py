"""Holes: pages of an LMDB file that are counted and were never written, so that the file system has no blocks for them.

A page that a transaction takes at the end of the file and lets go of before its commit is free, but was never written.
The next transactions take it like any other free page, and on a disk that is full by then each of them fails, however
small it is and however many other pages are free. So holes are filled, while there is space.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_CHUNK: Final = bytes(1 << 16)


def preallocate(descriptor: int, begin: int, end: int) -> None:
    """Write zeros where nothing has been written between two offsets of an open file, which then reaches to `end`.

    Nobody else may write to the file meanwhile.

    Raises:
      OSError: they cannot be written, such as to a full disk; what could be was.
    """
    while begin < end:
        hole = _seek(descriptor, begin, os.SEEK_HOLE, otherwise=begin)
        begin = _seek(descriptor, hole, os.SEEK_DATA, otherwise=end)
        _write_zeros(descriptor, hole, min(begin, end))


def _seek(descriptor: int, offset: int, how: int, *, otherwise: int) -> int:
    """Return where the next hole, or data, begins; `otherwise` if there is none up to the end of the file."""
    try:
        return os.lseek(descriptor, offset, how)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return otherwise


def _write_zeros(descriptor: int, begin: int, end: int) -> None:
    while begin < end:
        begin += os.pwrite(descriptor, _CHUNK[: end - begin], begin)
