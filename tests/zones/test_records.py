"""Values outlive the programs that wrote them: newer, older, and damaged ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.zones.records import (
    FORMAT,
    RESTRICTED_FORMAT,
    DeadLetterRecord,
    DecisionRecord,
    HandlerRecord,
    ItemRecord,
    KindPolicy,
    Lock,
    OwnerRecord,
    PeriodicRecord,
    PointerRecord,
    Policy,
    PreparedRecord,
    PreparedTenant,
    Record,
    ShardRecord,
    TenantPolicy,
    TransactionId,
    decode,
    encode,
)

ITEM = ItemRecord("mail", b"\x91\x01", 100, 1_700, 1_600, lease_id=b"l" * 16, trace={"traceparent": "00-1-2-01"})
RECORDS: list[Record] = [
    ITEM,
    PointerRecord(1_700, 1_600),
    DeadLetterRecord(ITEM, "error", "ValueError: no", "Traceback ...", 1_800),
    OwnerRecord(3, b"s" * 16),
    PreparedRecord(b"s" * 16, (PreparedTenant("shop", "alice"),), 2),
    DecisionRecord(True, (b"s" * 16,), 1_700),
    ShardRecord(b"s" * 16, 16, 1_500, 2),
    HandlerRecord("mail", 2, b"code", b"", 1_500),
    PeriodicRecord(60_000_000, 1_900),
]
LOCKED = OwnerRecord(3, b"s" * 16, locks=(Lock(TransactionId(1_700, b"r" * 10, 1), b"h" * 16, exclusive=True),))
EVERY_RECORD = pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)


@EVERY_RECORD
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(type(record), encode(record)) == record


@EVERY_RECORD
def test_a_newer_format_is_not_decoded(record: Record) -> None:
    assert decode(type(record), bytes([FORMAT + 1]) + encode(record)[1:]) is None


def test_an_ownership_record_has_a_format_of_its_own_while_it_holds_locks() -> None:
    """A program that knows no locks takes it for a newer record, and refuses the tenant."""
    assert encode(LOCKED)[0] == RESTRICTED_FORMAT == FORMAT + 1
    assert decode(OwnerRecord, encode(LOCKED)) == LOCKED
    assert encode(OwnerRecord(3, b"s" * 16))[0] == FORMAT


def test_an_ownership_record_whose_format_contradicts_its_locks_is_damaged() -> None:
    assert decode(OwnerRecord, bytes([FORMAT]) + encode(LOCKED)[1:]) is None
    assert decode(OwnerRecord, bytes([RESTRICTED_FORMAT]) + encode(OwnerRecord(3, b"s" * 16))[1:]) is None


@EVERY_RECORD
def test_a_field_that_a_newer_program_appended_is_ignored(record: Record) -> None:
    fields: list[Any] = msgspec.msgpack.decode(encode(record)[1:])
    appended = bytes([FORMAT]) + msgspec.msgpack.encode([*fields, "of a later version", 7])
    assert decode(type(record), appended) == record


@EVERY_RECORD
def test_a_truncated_value_is_not_decoded(record: Record) -> None:
    value = encode(record)
    assert decode(type(record), value[:-1]) is None
    assert decode(type(record), b"") is None


@given(st.binary(max_size=60))
def test_no_value_whatsoever_makes_decoding_fail(value: bytes) -> None:
    for struct in (ItemRecord, PointerRecord, DeadLetterRecord):
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


@EVERY_RECORD
def test_a_text_that_is_none_makes_a_record_damaged_and_raises_nothing(record: Record) -> None:
    value = encode(record)
    for at, byte in enumerate(value):
        if 0xA1 <= byte <= 0xBF and at + 1 < len(value):  # a short text begins here, or something that looks like it
            decode(type(record), value[: at + 1] + b"\xff" + value[at + 2 :])


def test_nesting_without_end_makes_a_record_damaged_and_raises_nothing() -> None:
    given_id_at = ItemRecord.__struct_fields__.index("given_id")
    packed = encode(ITEM)[1:]
    fields: list[Any] = msgspec.msgpack.decode(packed)
    head = b"".join(msgspec.msgpack.encode(each) for each in fields[:given_id_at])
    nested = bytes([FORMAT, 0xDC, 0, given_id_at + 1]) + head + b"\x91" * 100_000 + b"\x01"
    assert decode(ItemRecord, nested) is None


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (ITEM, "priority", 256),
        (ITEM, "priority", -1),
        (ITEM, "vesting_us", -1),
        (ITEM, "vesting_us", 2**63),
        (ITEM, "kind", ""),
        (ITEM, "expired_count", -1),
        (PointerRecord(1_700, 1_600), "best_skipped", 4),
        (PointerRecord(1_700, 1_600), "deficit", -1),
        (TenantPolicy(), "weight", 0.0),
        (TenantPolicy(), "weight", float("nan")),
        (TenantPolicy(), "weight", float("inf")),
        (KindPolicy(), "per_s", -1.0),
        (KindPolicy(), "max_running", 0),
        (ShardRecord(b"s" * 16, 16, 1_500, 2), "part_count", 0),
        (PeriodicRecord(60_000_000, 1_900), "every_us", 0),
    ],
)
def test_a_field_outside_its_range_makes_a_record_damaged(record: Record, field: str, value: Any) -> None:
    """No writer writes it, and a reader would divide by it, or look for an impossible key."""
    assert decode(type(record), encode(msgspec.structs.replace(record, **{field: value}))) is None


def test_the_fields_of_a_policy_stay_in_place() -> None:
    """A field appended to the policy of a kind must not move the weight of tenants."""
    assert Policy.__struct_fields__ == ("paused", "max_running", "per_s", "burst")
    assert not issubclass(TenantPolicy, KindPolicy)
    assert decode(TenantPolicy, b"\x01" + msgspec.msgpack.encode([True, 5, 0.5, 3, 2.0])) == TenantPolicy(
        paused=True, max_running=5, per_s=0.5, burst=3, weight=2.0
    )
