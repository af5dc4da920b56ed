"""`tuples` packs and unpacks most keys itself; it is held to what `fdb.tuple` does."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import fdb.tuple
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.zones import tuples

ELEMENTS = st.one_of(
    st.text(st.characters(codec=None)),  # Also halves of surrogate pairs.
    st.binary(),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.uuids(),
    st.tuples(st.text(), st.integers()),
)


class Number(IntEnum):
    SEVEN = 7


@given(st.lists(ELEMENTS, max_size=5).map(tuple))
@example(())
@example((Number.SEVEN,))
@example((2**64 - 2,))
@example((2**64 - 1,))
@example((2**64,))
@example(("\ud800",))
@example(("a\x00b", b"\x00\xff\x00"))
@example((object(),))
def test_a_tuple_is_packed_as_the_layer_packs_it(elements: tuple[Any, ...]) -> None:
    assert _outcome(tuples.pack, elements) == _outcome(fdb.tuple.pack, elements)


def test_a_list_is_refused() -> None:
    assert _outcome(tuples.pack, ["a"]) == _outcome(fdb.tuple.pack, ["a"])


@given(st.lists(ELEMENTS.filter(lambda each: not isinstance(each, str) or each.isprintable()), max_size=5).map(tuple))
@example((2**64 - 2, 2**64 - 1, 0, 255, 256))
@example(("a\x00b", b"\x00\xff\x00", "c"))
def test_a_tuple_is_unpacked_as_the_layer_unpacks_it(elements: tuple[Any, ...]) -> None:
    packed = fdb.tuple.pack(elements)
    assert tuples.unpack(packed) == fdb.tuple.unpack(packed)
    assert tuples.unpack(b"\x02head" + packed, 5) == fdb.tuple.unpack(packed)


@given(st.binary(max_size=20))
@example(b"\x02")
@example(b"\x02\xff\x00")
@example(b"\x16\x01")
@example(b"\x02a\x00\x01")
@example(b"\x02a\x00\xff")
def test_bytes_that_are_no_tuple_fare_as_in_the_layer(packed: bytes) -> None:
    assert _outcome(tuples.unpack, packed) == _outcome(fdb.tuple.unpack, packed)


def _outcome(call: Callable[..., Any], argument: Any) -> Any:
    try:
        return repr(call(argument))  # Unlike equality, this compares types and the bits of numbers.
    except Exception as error:  # noqa: BLE001 - the layer raises it for what is no tuple
        return type(error)
