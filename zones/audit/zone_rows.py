"""The rows of tenants' zones: grouped by zone, each row with the checks that it calls for."""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from zones.audit import graves, items, tops
from zones.audit.places import Places, ZoneKey, elements_of
from zones.audit.records import check_record
from zones.audit.walk import Check
from zones.engines import KeyValue
from zones.keyspace import BUCKET, BURIED, COUNT, DONE, ITEM, OWNER, PAYLOAD, POINTER, RESULT, RUN, VEST, IndexEntry
from zones.layout import Layout, Place
from zones.records import OwnerRecord


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
            yield partial(tops.check_zone, place=zone.place, now_us=now_us, rest_us=rest_us)
        with_payloads = set()
        for row, key in zone.rows:
            check = _owner_check(row) if key is None else _zone_check(key, now_us)
            if key is not None and key.number == PAYLOAD:
                if key.rest[0] in with_payloads:
                    continue
                with_payloads.add(key.rest[0])
            if check is not None:
                yield check


def is_known(row: KeyValue, key: ZoneKey | None) -> bool:
    """Say whether this version knows what a row of a tenant is for."""
    if key is None:
        return _owner_check(row) is not None or _is_of_limit(row)
    return key.number == COUNT or _zone_check(key, 0) is not None


def _owner_check(row: KeyValue) -> Check | None:
    match elements_of(row.key):
        case (_, _, str(_), str(_), int(number)) if number == OWNER:
            return partial(check_record, struct=OwnerRecord, key=row.key)
    return None


def _is_of_limit(row: KeyValue) -> bool:
    """Say whether a row of a tenant counts what its limits allow for; the next visit puts right what is wrong there."""
    match elements_of(row.key):
        case (_, _, str(_), str(_), int(number), *_):
            return number in (RUN, BUCKET)
    return False


def _zone_check(key: ZoneKey, now_us: int) -> Check | None:
    place = key.place
    match key.number, *key.rest:
        case int(number), bytes(item_id) if number == ITEM:
            return partial(items.check_item, place=place, item_id=item_id, now_us=now_us)
        case int(number), int(priority), int(vesting_us), bytes(item_id) if number == VEST:
            entry = IndexEntry(priority, vesting_us, item_id)
            return partial(items.check_entry, place=place, entry=entry) if entry.is_possible else None
        case int(number), bytes(item_id) if number == BURIED:
            return partial(graves.check_buried, place=place, item_id=item_id)
        case int(number), bytes(item_id), int(_) if number == PAYLOAD:
            return partial(items.check_payload, place=place, item_id=item_id)
        case int(number), bytes(item_id) if number == DONE:
            return partial(graves.check_done, place=place, item_id=item_id)
        case int(number), bytes(item_id) if number == RESULT:
            return partial(graves.check_result, place=place, item_id=item_id)
        case (int(number),) if number == POINTER:
            return partial(tops.check_pointer, place=place, now_us=now_us)
    return None
