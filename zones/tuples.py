"""FoundationDB's tuple layer: pure Python, and no client library. Loaded when a key is first packed or unpacked.

So an application can be imported where the binding is not installed. The binding brings an old copy of six, which
leaves an importer behind that Python 3.11 warns about at every import that fails, and that pytest stumbles over.
Nothing of the binding needs that importer, so it is taken off the list.
"""

import struct
import sys
from collections.abc import Callable
from typing import Any

pack: Callable[..., bytes]
unpack: Callable[..., tuple[Any, ...]]


def __getattr__(name: str) -> Any:
    if name not in ("pack", "unpack"):
        raise AttributeError(name)
    from fdb import tuple as layer

    sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != "fdb.six"]
    globals().update(pack=layer.pack, unpack=layer.unpack)
    return globals()[name]


def elements_of(key: bytes) -> tuple[Any, ...]:
    """Return the elements of a key; none if it is no tuple."""
    try:
        return tuple(sys.modules[__name__].unpack(key))  # By the module, which loads it.
    except (ValueError, IndexError, struct.error):
        return ()
