"""FoundationDB's tuple layer: pure Python, and no client library.

Its package brings an old copy of six, which leaves an importer behind that Python 3.11 warns about at every import
that fails and that pytest stumbles over. Nothing of the package needs it, so it is taken off the list.
"""

import sys

from fdb.tuple import pack, unpack

__all__ = ["pack", "unpack"]

sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != "fdb.six"]
