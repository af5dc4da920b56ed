"""What may be enqueued: plain data, names, delays; everything else is refused before anything is stored."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.zones.errors import BadArgument, PayloadNotData, PayloadTooLarge
from fairlead.zones.layout import item_id_of
from fairlead.zones.queue.items import GIVEN_ID_BYTES_MAX, new_item, pack_payload, unpack_payload
from fairlead.zones.settings import PAYLOAD_BYTES_MAX

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)
DATA = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=8)


class Colour(Enum):
    RED = "red"


@given(DATA)
def test_a_payload_of_plain_data_is_read_as_it_was_packed(payload: Any) -> None:
    assert unpack_payload(pack_payload(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [
        object(),
        {"when": datetime(2026, 1, 1, tzinfo=UTC)},
        [{"price": Decimal("1.50")}],
        {1, 2},
        Colour.RED,
        UUID(int=7),
        bytearray(b"x"),
        OrderedDict(when=datetime(2026, 1, 1)),  # noqa: DTZ001 - what is refused is that it is no data
        {("a", "b"): 1},
        {"f": len},
        2**64,
        -(2**63) - 1,
        "\ud800",
        {"\ud800": 1},
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_payload_that_would_come_back_as_something_else_is_refused(payload: Any) -> None:
    with pytest.raises(PayloadNotData):
        pack_payload(payload)


def test_a_payload_that_holds_itself_is_refused() -> None:
    payload: list[Any] = []
    payload.append(payload)
    with pytest.raises(PayloadNotData):
        pack_payload(payload)


def test_the_refusal_names_what_was_found() -> None:
    with pytest.raises(PayloadNotData) as refused:
        pack_payload({"orders": [1, {"price": Decimal("1.50")}]})
    assert refused.value.fields["found"] == "Decimal"


def test_tuples_arrive_as_lists() -> None:
    assert unpack_payload(pack_payload({"point": (1, (2, 3))})) == {"point": [1, [2, 3]]}


def test_a_payload_may_be_as_long_as_the_limit_and_no_longer() -> None:
    header = 5  # msgpack's for a byte string of that length
    assert len(pack_payload(bytes(PAYLOAD_BYTES_MAX - header))) == PAYLOAD_BYTES_MAX
    with pytest.raises(PayloadTooLarge) as refused:
        pack_payload(bytes(PAYLOAD_BYTES_MAX - header + 1))
    assert refused.value.fields == {"bytes": PAYLOAD_BYTES_MAX + 1, "bytes_max": PAYLOAD_BYTES_MAX}


@pytest.mark.parametrize(
    "argument, value",
    [
        ("kind", ""),
        ("kind", 7),
        ("kind", "x" * 97),
        ("kind", "with\0nul"),
        ("kind", "\ud800"),
        ("priority", -1),
        ("priority", 256),
        ("priority", 1.5),
        ("priority", True),
        ("delay", -1),
        ("delay", 11 * 365 * 24 * 3600),
        ("delay", "5"),
        ("delay", True),
        ("unique_for", -1),
        ("unique_for", None),
        ("item_id", ""),
        ("item_id", b""),
        ("item_id", 7),
        ("item_id", "\ud800"),
        ("item_id", "x" * (GIVEN_ID_BYTES_MAX + 1)),
        ("item_id", bytes(GIVEN_ID_BYTES_MAX + 1)),
    ],
)
def test_an_argument_outside_its_range_is_named(argument: str, value: Any) -> None:
    arguments = {"kind": "mail"} | {argument: value}
    with pytest.raises(BadArgument) as refused:
        new_item(**arguments)
    assert refused.value.fields["argument"] == argument


def test_sixteen_bytes_are_their_own_id_and_all_else_is_hashed_to_sixteen() -> None:
    assert item_id_of(b"sixteen bytes ok") == b"sixteen bytes ok"
    ids = {item_id_of(given) for given in ("invoice-7", b"invoice-7", "invoice-8", b"seventeen bytes x", "é")}
    assert len(ids) == 5
    assert {len(item_id) for item_id in ids} == {16}


def test_a_retention_time_is_refused_without_an_id() -> None:
    with pytest.raises(BadArgument, match="unique_for"):
        new_item("mail", unique_for=1)
