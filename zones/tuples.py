"""FoundationDB's tuple layer: pure Python, without the client library. Loaded when a key is first packed or unpacked.

So an application can be imported where the binding is not installed. The binding brings an old copy of six, which adds
an importer to `sys.meta_path`. Python 3.11 warns about this importer at every failing import, and pytest fails on it.
The binding does not need it, so it is removed.
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
    """Return the elements of a key; an empty tuple if it is no packed tuple."""
    try:
        return tuple(sys.modules[__name__].unpack(key))  # Through the module, which loads it.
    except (ValueError, IndexError, struct.error):
        return ()
