"""Which keys of a tenant a move copies."""

from __future__ import annotations

import pytest

from fairlead.zones.keyspace import COUNT, GUARD, ITEM, POINTER, ZONE, TenantKeys, pack_bytes, pack_int, pack_text
from fairlead.zones.moving.rows import is_copied, parse_zone_row

KEYS = TenantKeys("shop", "alice")
ZONES = KEYS.prefix + pack_int(ZONE)
POINTER_TAIL = pack_int(POINTER) + b"\x00"


def zone_key(sort: int, rest: bytes = b"", *, zone: str = "mail") -> bytes:
    return ZONES + pack_text(zone) + pack_int(sort) + rest


def test_pointers_and_their_guards_are_not_copied() -> None:
    assert not any(is_copied(KEYS, zone_key(sort, zone=zone)) for sort in (POINTER, GUARD) for zone in ("", "mail"))


def test_the_ownership_record_and_marks_are_not_copied() -> None:
    assert not any(is_copied(KEYS, key) for key in (KEYS.owner, KEYS.marks, KEYS.marks + b"\x01"))


@pytest.mark.parametrize(
    "key",
    [
        zone_key(ITEM, pack_bytes(b"\x00" + POINTER_TAIL)),
        zone_key(COUNT, pack_text("later")),
        zone_key(ITEM, zone=POINTER_TAIL.decode("latin-1").strip("\x00")),
        KEYS.data + pack_int(POINTER),
        KEYS.step_log(b"run") + POINTER_TAIL,
    ],
)
def test_all_else_is_copied(key: bytes) -> None:
    assert is_copied(KEYS, key)


@pytest.mark.parametrize(
    "damaged",
    [
        ZONES,
        ZONES + b"mail",  # It has no end.
        ZONES + b"\x01mail\x00" + POINTER_TAIL,  # Not a text.
        ZONES + b"\x02\xff\x00" + POINTER_TAIL,  # Not UTF-8.
        ZONES + pack_text("mail"),
    ],
)
def test_a_damaged_key_is_copied_as_it_is(damaged: bytes) -> None:
    assert parse_zone_row(KEYS, damaged) is None
    assert is_copied(KEYS, damaged)
