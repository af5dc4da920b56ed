"""The rows of tenants' zones: grouped by zone, each row with the checks that it calls for."""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from fairlead.zones.engines import KeyValue
from fairlead.zones.keyspace import (
    BUCKET,
    BURIED,
    COUNT,
    DONE,
    GUARD,
    ITEM,
    OWNER,
    PAYLOAD,
    POINTER,
    RESULT,
    RUN,
    TRACEBACK,
    VEST,
    ZONE,
    IndexEntry,
    TenantKeys,
)
from fairlead.zones.layout import ID_BYTES, Layout, Place
from fairlead.zones.maintenance.integrity import dead_letters, items, pointers
from fairlead.zones.maintenance.integrity.parsed_keys import Places, ZoneKey
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_record
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.records import OwnerRecord
from fairlead.zones.tuples import elements_of


class ZoneRows(NamedTuple):
    """Rows of one zone that follow each other, with their keys taken apart; `place` None: of no zone."""

    place: Place | None
    rows: list[tuple[KeyValue, ZoneKey | None]]

    def of(self, number: int) -> list[KeyValue]:
        """Return the rows of one of the zone's subspaces."""
        return [row for row, key in self.rows if key is not None and key.number == number]


def by_zone(layout: Layout, rows: list[KeyValue]) -> list[ZoneRows]:
    """Group rows by the zone they belong to."""
    places = Places(layout)
    taken_apart = [(row, places.zone_key(row.key)) for row in rows]
    groups = groupby(taken_apart, lambda pair: None if pair[1] is None else pair[1].place.keys.prefix)
    return [_zone_rows(list(group)) for _, group in groups]


def _zone_rows(rows: list[tuple[KeyValue, ZoneKey | None]]) -> ZoneRows:
    key = rows[0][1]
    return ZoneRows(None if key is None else key.place, rows)


def checks_of(
    layout: Layout, rows: list[KeyValue], *, continued: Place | None, now_us: int, rest_us: int
) -> Iterator[Check]:
    """Yield the checks that rows call for: of each row, and of each zone but the one that is only `continued`."""
    for zone in by_zone(layout, rows):
        if zone.place is not None and (continued is None or continued.keys.prefix != zone.place.keys.prefix):
            yield partial(pointers.check_zone, place=zone.place, now_us=now_us, rest_us=rest_us)
        with_payloads = set()
        for row, key in zone.rows:
            check = _tenant_check(row.key) if key is None else _zone_check(row.key, key, now_us)
            if key is not None and isinstance(check, partial) and check.func is items.check_payload:
                if key.rest[0] in with_payloads:
                    continue
                with_payloads.add(key.rest[0])
            if check is not None:
                yield check


def is_known(row: KeyValue, key: ZoneKey | None) -> bool:
    """Say whether this version knows what a row of a tenant is for, or that it is damaged."""
    if key is not None:
        return key.number in _NUMBERS
    match elements_of(row.key):
        case (_, _, str(_), str(_), int(sort), *_):
            return sort in (OWNER, ZONE, RUN, BUCKET)
    return True


_DERIVED = {VEST, COUNT, POINTER, GUARD}
_NUMBERS = {ITEM, BURIED, PAYLOAD, DONE, RESULT, TRACEBACK, *_DERIVED}


def _tenant_check(key: bytes) -> Check | None:
    """Return the check of a row of a tenant that is of no zone."""
    match elements_of(key):
        case (_, _, str(app), str(user), int(sort), *rest) if "\0" not in app + user:
            tenant = TenantKeys(app, user)
            if key == tenant.owner:
                return partial(check_record, struct=OwnerRecord, key=key)
            if key == tenant.bucket or sort not in (OWNER, ZONE, RUN, BUCKET):
                return None
            if sort == RUN and [type(element) for element in rest] == [str, bytes]:
                return None  # The next visit sees whether it means anything.
            return partial(check_damaged_key, key=key, derived=sort in (RUN, BUCKET))
    return partial(check_damaged_key, key=key)


def _zone_check(row_key: bytes, key: ZoneKey, now_us: int) -> Check | None:
    """Return the check of a row of a zone; None if it is a count, or of a subspace that this version does not know."""
    if key.number not in _NUMBERS or key.number == COUNT:
        return None
    found = _shaped_check(key, now_us)
    if found is None or found[0] != row_key:  # What the tuple layer reads may be packed otherwise than anybody packs.
        return partial(check_damaged_key, key=row_key, derived=key.number in _DERIVED)
    return found[1]


def _shaped_check(key: ZoneKey, now_us: int) -> tuple[bytes, Check] | None:
    """Return how the key of a row is packed, and its check; None if no such key can be."""
    place = key.place
    keys = place.keys
    match key.number, *key.rest:
        case int(number), bytes(item_id) if number == ITEM and len(item_id) == ID_BYTES:
            return keys.item(item_id), partial(items.check_item, place=place, item_id=item_id, now_us=now_us)
        case int(number), int(priority), int(vesting_us), bytes(item_id) if number == VEST:
            entry = IndexEntry(priority, vesting_us, item_id)
            if entry.is_possible:
                return keys.vest(*entry), partial(items.check_entry, place=place, entry=entry)
        case int(number), bytes(item_id) if number == BURIED and len(item_id) == ID_BYTES:
            return keys.buried(item_id), partial(dead_letters.check_buried, place=place, item_id=item_id)
        case int(number), bytes(item_id), int(piece) if number == PAYLOAD and 0 <= piece < 2**32:
            return keys.piece(item_id, piece), partial(items.check_payload, place=place, item_id=item_id)
        case int(number), bytes(item_id) if number == DONE:
            return keys.done(item_id), partial(dead_letters.check_done, place=place, item_id=item_id)
        case int(number), bytes(item_id) if number == RESULT:
            return keys.result(item_id), partial(dead_letters.check_result, place=place, item_id=item_id)
        case int(number), bytes(item_id) if number == TRACEBACK:
            return keys.traceback(item_id), partial(items.check_traceback, place=place, item_id=item_id)
        case (int(number),) if number == POINTER:
            return keys.pointer, partial(pointers.check_pointer, place=place, now_us=now_us)
    return None
