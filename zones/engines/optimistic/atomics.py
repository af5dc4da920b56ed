"""The atomic operations, as pure functions `(value before or None, parameter) -> value after or None`.

Source: FoundationDB's `Atomic.h` at API version 510 and later. Numbers are little-endian byte strings. In all
but the lexicographic operations the result is as long as the parameter, whatever the value was before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Atomic = Callable[[bytes | None, bytes], bytes | None]

VALUE_BYTES_MAX: Final = 100_000


def add(before: bytes | None, param: bytes) -> bytes:
    """Return the sum, modulo 2^(8 n) for a parameter of n bytes."""
    if not before or not param:
        return param
    size = len(param)
    total = int.from_bytes(before[:size], "little") + int.from_bytes(param, "little")
    try:
        return total.to_bytes(size, "little")
    except OverflowError:
        return (total & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def bit_and(before: bytes | None, param: bytes) -> bytes:
    """Return the bitwise and; the parameter itself if there was no value."""
    if before is None:
        return param
    return _bitwise(int.__and__, before, param)


def bit_or(before: bytes | None, param: bytes) -> bytes:
    """Return the bitwise or, a missing value counting as zero."""
    return _bitwise(int.__or__, before or b"", param)


def bit_xor(before: bytes | None, param: bytes) -> bytes:
    """Return the bitwise exclusive or, a missing value counting as zero."""
    return _bitwise(int.__xor__, before or b"", param)


def maximum(before: bytes | None, param: bytes) -> bytes:
    """Return the larger number, a missing value counting as zero."""
    resized = _resize(before or b"", len(param))
    return resized if resized[::-1] > param[::-1] else param


def minimum(before: bytes | None, param: bytes) -> bytes:
    """Return the smaller number; the parameter itself if there was no value."""
    if before is None:
        return param
    resized = _resize(before, len(param))
    return resized if resized[::-1] < param[::-1] else param


def byte_max(before: bytes | None, param: bytes) -> bytes:
    """Return the lexicographically larger string; the parameter itself if there was no value."""
    return param if before is None or param >= before else before


def byte_min(before: bytes | None, param: bytes) -> bytes:
    """Return the lexicographically smaller string; the parameter itself if there was no value."""
    return param if before is None or param <= before else before


def append_if_fits(before: bytes | None, param: bytes) -> bytes:
    """Return the concatenation, or the value as it was if the whole would exceed `VALUE_BYTES_MAX`."""
    if before is None:
        return param
    return before + param if len(before) + len(param) <= VALUE_BYTES_MAX else before


def compare_and_clear(before: bytes | None, param: bytes) -> bytes | None:
    """Return None if the value equals the parameter, else the value as it was."""
    return None if before == param else before


# For these, two in a row on one key are one with the parameters combined, provided the parameters are equally long.
COALESCING: Final[frozenset[Atomic]] = frozenset({add, bit_and, bit_or, bit_xor, maximum, minimum, byte_max, byte_min})


def _bitwise(operation: Callable[[int, int], int], before: bytes, param: bytes) -> bytes:
    size = len(param)
    combined = operation(int.from_bytes(before[:size], "little"), int.from_bytes(param, "little"))
    return combined.to_bytes(size, "little")


def _resize(value: bytes, size: int) -> bytes:
    return value[:size].ljust(size, b"\x00")
