"""The pure atomic operations, against what they mean in integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.zones.engines.optimistic import atomics

BYTES = st.binary(max_size=5)
MAYBE = st.none() | BYTES


def resized(value: bytes | None, size: int) -> int:
    return int.from_bytes((value or b"")[:size].ljust(size, b"\x00"), "little")


@given(before=MAYBE, param=BYTES)
def test_arithmetic_is_little_endian_and_as_long_as_the_parameter(before: bytes | None, param: bytes) -> None:
    size, number = len(param), int.from_bytes(param, "little")
    old = resized(before, size)
    expected = {
        atomics.add: (old + number) % (1 << 8 * size),
        atomics.bit_or: old | number,
        atomics.bit_xor: old ^ number,
        atomics.bit_and: number if before is None else old & number,
        atomics.maximum: max(old, number),
        atomics.minimum: number if before is None else min(old, number),
    }
    for operation, result in expected.items():
        after = operation(before, param)
        assert after == result.to_bytes(size, "little"), operation


@given(before=BYTES, first=BYTES, second=BYTES)
def test_two_equally_long_operations_in_a_row_are_one(before: bytes, first: bytes, second: bytes) -> None:
    second = second[: len(first)].ljust(len(first), b"\x01")
    for operation in atomics.COALESCING:
        for base in (None, before):
            combined = operation(first, second)
            assert combined is not None
            assert operation(operation(base, first), second) == operation(base, combined), operation


@given(before=BYTES, param=BYTES)
def test_lexicographic_operations_and_conditions(before: bytes, param: bytes) -> None:
    assert atomics.byte_max(before, param) == max(before, param)
    assert atomics.byte_min(before, param) == min(before, param)
    assert atomics.append_if_fits(before, param) == before + param
    assert atomics.compare_and_clear(before, param) == (None if before == param else before)
