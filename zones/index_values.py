"""Values by which records and items are found, and how an index packs them.

A long value is hashed: a key of LMDB ends at 511 bytes, and values lie beside names of tenants in some keys.
"""

from hashlib import sha256
from typing import Any

from fairlead.zones import tuples
from fairlead.zones.errors import BadArgument

INDEX_NAME_BYTES_MAX = 32  # Of a field, a key of an item, a type of records.
VALUE_BYTES_MAX = 10_000
PLAIN_BYTES_MAX = 64  # A packed value that is longer is hashed.

IndexValue = str | bytes | int


def check_index_name(argument: str, name: Any) -> str:
    """Return the name of what values are of, checked.

    Raises:
      BadArgument: it is no text of 1 to 32 bytes without NUL.
    """
    if not isinstance(name, str) or not name or "\x00" in name or len(encoded(argument, name)) > INDEX_NAME_BYTES_MAX:
        allowed = f"text of 1 to {INDEX_NAME_BYTES_MAX} bytes, without NUL"
        raise BadArgument(argument=argument, value=name, allowed=allowed)
    return name


def check_value(name: str, value: Any) -> IndexValue:
    """Return a value, checked.

    Raises:
      BadArgument: it is no text, bytes or whole number; or it is empty.
    """
    if isinstance(value, bool) or not isinstance(value, str | bytes | int):
        raise BadArgument(argument=name, value=value, allowed="text, bytes, or a whole number")
    if value in ("", b""):
        raise BadArgument(argument=name, value=value, allowed="a value that is not empty; None is no value")
    return value


def pack_value(name: str, value: IndexValue) -> bytes:
    """Return a checked value as an index packs it: one element of a tuple, at most 68 bytes.

    Raises:
      BadArgument: it is too long, or no text.
    """
    try:
        packed: bytes = tuples.pack((value,))
    except (ValueError, OverflowError) as error:
        raise BadArgument(argument=name, value=value, allowed="text, bytes, or a number", reason=str(error)) from None
    if len(packed) > VALUE_BYTES_MAX:
        raise BadArgument(argument=name, value=f"{len(packed)} bytes", allowed=f"at most {VALUE_BYTES_MAX} bytes")
    if len(packed) <= PLAIN_BYTES_MAX:
        return packed
    hashed: bytes = tuples.pack(((sha256(packed).digest(),),))  # Nested: no value packs so.
    return hashed


def encoded(argument: str, text: str) -> bytes:
    """Return a text as UTF-8.

    Raises:
      BadArgument: it holds half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(argument=argument, value=text, allowed="text", reason=str(error)) from None
