"""FoundationDB's tuple layer: pure Python, without the client library. Loaded when a key first needs it.

So an application can be imported where the binding is not installed. The binding brings an old copy of six, which adds
an importer to `sys.meta_path`. Python 3.11 warns about this importer at every failing import, and pytest fails on it.
The binding does not need it, so it is removed.

Most keys consist of texts, bytes and small numbers. `pack` and `unpack` treat these themselves, in a third of the
layer's time: a transaction of two reads would spend a fifth of its time in the layer.
"""

import struct
import sys
from collections.abc import Callable
from typing import Any

from fairlead.zones.keyspace import pack_int

_pack_any: Callable[..., bytes]  # the layer's own
_unpack_any: Callable[..., tuple[Any, ...]]
_INT_MAX = 2**64 - 2  # Of `pack_int`.
_BYTES, _TEXT, _ZERO, _INT_END = 0x01, 0x02, 0x14, 0x1D  # How elements begin: 0x14 and the number of an int's bytes.


def __getattr__(name: str) -> Any:
    if name not in ("_pack_any", "_unpack_any"):
        raise AttributeError(name)
    from fdb import tuple as layer

    sys.meta_path[:] = [each for each in sys.meta_path if type(each).__module__ != "fdb.six"]
    globals().update(_pack_any=layer.pack, _unpack_any=layer.unpack)
    return globals()[name]


def _layer(name: str) -> Callable[..., Any]:
    """Return a function of the layer, through the module, which loads it."""
    return getattr(sys.modules[__name__], name)  # type: ignore[no-any-return]


def pack(elements: tuple[Any, ...]) -> bytes:
    """Return a tuple as the layer packs it.

    Raises:
      What the layer raises: `elements` is no tuple, or one is of no type that it packs, or is half of a surrogate pair.
    """
    if type(elements) is not tuple:
        return _layer("_pack_any")(elements)  # type: ignore[no-any-return]
    parts = []
    for each in elements:
        kind = type(each)  # Exactly: the layer treats a subclass, such as `bool`, in its own way.
        if kind is str:  # In place what `pack_text` and `pack_bytes` do: a call would be a third of the time.
            parts.append(b"\x02" + each.encode().replace(b"\x00", b"\x00\xff") + b"\x00")
        elif kind is bytes:
            parts.append(b"\x01" + each.replace(b"\x00", b"\x00\xff") + b"\x00")
        elif kind is int and 0 <= each <= _INT_MAX:
            parts.append(pack_int(each))
        else:
            return _layer("_pack_any")(elements)  # type: ignore[no-any-return]
    return b"".join(parts)


def unpack(key: bytes, begin: int = 0) -> tuple[Any, ...]:
    """Return the elements of a packed tuple, which begins at `begin` of a key.

    Raises:
      What the layer raises: it is no packed tuple.
    """
    elements: list[Any] = []
    at = begin
    while at < len(key):
        code = key[at]
        if code in (_BYTES, _TEXT):
            end = key.find(b"\x00", at)
            if end < 0 or key[end + 1 : end + 2] == b"\xff":  # Damaged, or it holds a NUL.
                return _layer("_unpack_any")(key, begin)  # type: ignore[no-any-return]
            elements.append(key[at + 1 : end] if code == _BYTES else key[at + 1 : end].decode())
            at = end + 1
        elif _ZERO <= code < _INT_END and at + 1 + code - _ZERO <= len(key):
            end = at + 1 + code - _ZERO
            elements.append(int.from_bytes(key[at + 1 : end], "big"))
            at = end
        else:
            return _layer("_unpack_any")(key, begin)  # type: ignore[no-any-return]
    return tuple(elements)


def elements_of(key: bytes) -> tuple[Any, ...]:
    """Return the elements of a key; an empty tuple if it is no packed tuple."""
    try:
        return unpack(key)
    except (ValueError, IndexError, struct.error):
        return ()
