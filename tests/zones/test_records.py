"""Values outlive the programs that wrote them: newer, older, and damaged ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zones.records import (
    FORMAT,
    BuriedRecord,
    HandlerRecord,
    ItemRecord,
    OwnerRecord,
    PeriodicRecord,
    PointerRecord,
    Record,
    ShardRecord,
    decode,
    encode,
)

ITEM = ItemRecord("mail", b"\x91\x01", 100, 1_700, 1_600, lease_id=b"l" * 16, trace={"traceparent": "00-1-2-01"})
RECORDS: list[Record] = [
    ITEM,
    PointerRecord(1_700, 1_600),
    BuriedRecord(ITEM, "error", "ValueError: no", "Traceback ...", 1_800),
    OwnerRecord(3, b"s" * 16),
    ShardRecord(b"s" * 16, 16, 1_500, 2),
    HandlerRecord("mail", 2, b"code", b"", 1_500),
    PeriodicRecord(60_000_000, 1_900),
]
EVERY_RECORD = pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)


@EVERY_RECORD
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(type(record), encode(record)) == record


@EVERY_RECORD
def test_a_newer_format_is_left_alone(record: Record) -> None:
    assert decode(type(record), bytes([FORMAT + 1]) + encode(record)[1:]) is None


@EVERY_RECORD
def test_a_field_that_a_newer_program_appended_is_ignored(record: Record) -> None:
    fields: list[Any] = msgspec.msgpack.decode(encode(record)[1:])
    appended = bytes([FORMAT]) + msgspec.msgpack.encode([*fields, "of a later version", 7])
    assert decode(type(record), appended) == record


@EVERY_RECORD
def test_a_value_cut_short_is_left_alone(record: Record) -> None:
    value = encode(record)
    assert decode(type(record), value[:-1]) is None
    assert decode(type(record), b"") is None


@given(st.binary(max_size=60))
def test_no_value_whatsoever_makes_decoding_fail(value: bytes) -> None:
    for struct in (ItemRecord, PointerRecord, BuriedRecord):
        decode(struct, value)
        decode(struct, bytes([FORMAT]) + value)


def test_a_field_that_an_older_program_did_not_write_has_its_default() -> None:
    older = bytes([FORMAT]) + msgspec.msgpack.encode(["mail", b"", 100, 1_700, 1_600])
    assert decode(ItemRecord, older) == ItemRecord("mail", b"", 100, 1_700, 1_600)


@pytest.mark.parametrize("given_id", ["invoice-7", b"invoice-7", None])
def test_a_given_id_stays_text_or_bytes(given_id: str | bytes | None) -> None:
    record = ItemRecord("mail", b"", 100, 1_700, 1_600, given_id=given_id)
    read = decode(ItemRecord, encode(record))
    assert read is not None
    assert read.given_id == given_id
