"""FoundationDB's tuple layer: pure Python, and no client library.

Its package brings an old copy of six, which leaves an importer behind that Python 3.11 warns about at every import
that fails and that pytest stumbles over. Nothing of the package needs it, so it is taken off the list.
"""

import struct
import sys
from typing import Any

from fdb.tuple import pack, unpack

__all__ = ["elements_of", "pack", "unpack"]

sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != "fdb.six"]


def elements_of(key: bytes) -> tuple[Any, ...]:
    """Return the elements of a key; none if it is no tuple."""
    try:
        return tuple(unpack(key))
    except (ValueError, IndexError, struct.error):
        return ()
