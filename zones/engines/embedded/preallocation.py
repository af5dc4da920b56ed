"""Preallocation: writes pages of an LMDB file that LMDB counts but never wrote. The file system has no blocks for them.

A transaction takes a page at the end of the file, and frees it again before its commit: LMDB never writes this page. A
later transaction takes the page as any other free page. If the disk is full by then, the commit fails, however small it
is and however many other pages are free. So such holes in the file are filled while there is space.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_CHUNK: Final = bytes(1 << 16)


def preallocate(descriptor: int, begin: int, end: int) -> None:
    """Write zeros into the holes of an open file between two offsets. The file then reaches to `end`.

    No other process may write to the file meanwhile.

    Raises:
      OSError: some zeros could not be written, for example because the disk is full. Those before them were.
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
