"""The rows of tenants' zones: grouped by zone, each row with its checks."""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from fairlead.zones.engines import KeyValue
from fairlead.zones.keyspace import (
    BUCKET,
    COUNT,
    DEAD_LETTER,
    GUARD,
    IN_FLIGHT,
    INDEXED,
    ITEM,
    LOCK,
    OWNER,
    PAYLOAD,
    POINTER,
    RESULT,
    RETAINED_ID,
    SNAP,
    TRACEBACK,
    VEST,
    ZONE,
    IndexEntry,
    TenantKeys,
    tenant_prefix,
    unpack_int,
    unpack_names,
)
from fairlead.zones.layout import ID_BYTES, ShardLayout, Tenant, ZoneLocation
from fairlead.zones.maintenance.integrity import dead_letters, indexed, items, locks, moves, pointers, runs, snapshots
from fairlead.zones.maintenance.integrity.parsed_keys import DB_PREFIX_BYTES, KeyParser, ZoneKey
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_record
from fairlead.zones.maintenance.integrity.runs import RunsSeen
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.records import OwnerRecord
from fairlead.zones.tuples import elements_of


class ZoneRows(NamedTuple):
    """Consecutive rows of one zone, with their parsed keys; `location` None: of no zone."""

    location: ZoneLocation | None
    rows: list[tuple[KeyValue, ZoneKey | None]]

    def of(self, number: int) -> list[KeyValue]:
        """Return the rows of one of the zone's subspaces."""
        return [row for row, key in self.rows if key is not None and key.number == number]


def by_zone(layout: ShardLayout, rows: list[KeyValue]) -> list[ZoneRows]:
    """Group rows by the zone they belong to."""
    parser = KeyParser(layout)
    taken_apart = [(row, parser.zone_key(row.key)) for row in rows]
    groups = groupby(taken_apart, lambda pair: None if pair[1] is None else pair[1].location.keys.prefix)
    return [_zone_rows(list(group)) for _, group in groups]


def _zone_rows(rows: list[tuple[KeyValue, ZoneKey | None]]) -> ZoneRows:
    key = rows[0][1]
    return ZoneRows(None if key is None else key.location, rows)


def checks_of(
    layout: ShardLayout,
    rows: list[KeyValue],
    *,
    continued: ZoneLocation | None,
    seen: RunsSeen,
    now_us: int,
    rest_us: int,
) -> Iterator[Check]:
    """Yield the checks of rows: of each row, and of each zone except the one that is only `continued`.

    `seen`: the runs that the walk has come by; those of these rows are added.
    """
    for zone in by_zone(layout, rows):
        seen.note(zone.rows)
        if zone.location is not None and (continued is None or continued.keys.prefix != zone.location.keys.prefix):
            yield partial(pointers.check_zone, location=zone.location, now_us=now_us, rest_us=rest_us)
        with_payloads = set()
        looked: set[bytes] = set()
        for row, key in zone.rows:
            sort = sort_of(row.key) if key is None else None
            if sort in runs.SORTS:
                yield from runs.run_checks(row.key, sort, layout=layout, seen=seen, looked=looked, now_us=now_us)
                continue
            if sort == LOCK:
                yield from locks.lock_checks(row.key, layout=layout, seen=seen, looked=looked, now_us=now_us)
                continue
            if sort == INDEXED:
                yield from indexed.row_checks(row.key, layout)
                continue
            if sort == SNAP:
                yield from _copy_checks(row.key, looked)
                continue
            if sort == OWNER:
                yield from _ownership_checks(row.key, layout, now_us)
            check = _tenant_check(row.key) if key is None else _zone_check(row.key, key, now_us)
            if key is not None and isinstance(check, partial) and check.func is items.check_payload:
                if key.rest[0] in with_payloads:
                    continue
                with_payloads.add(key.rest[0])
            if check is not None:
                yield check


def _ownership_checks(key: bytes, layout: ShardLayout, now_us: int) -> Iterator[Check]:
    """Yield the checks of what an ownership record states: of its snapshots, and of its move."""
    names = unpack_names(key, DB_PREFIX_BYTES, 2)
    tenant = None if names is None else Tenant(*names[0])
    if tenant is not None and key == TenantKeys(*tenant).owner:
        yield partial(snapshots.check_listed, layout=layout, keys=TenantKeys(*tenant))
        yield partial(moves.check_leaving, layout=layout, tenant=tenant, now_us=now_us)


def _copy_checks(key: bytes, looked: set[bytes]) -> Iterator[Check]:
    """Yield the checks of a copy that a snapshot of a tenant has."""
    names = unpack_names(key, DB_PREFIX_BYTES, 2)
    keys = None if names is None else TenantKeys(*names[0])
    if keys is not None and key.startswith(keys.snapshots):
        yield from snapshots.copy_checks(key, keys, looked=looked)
    else:
        yield partial(check_damaged_key, key=key)


def is_known(row: KeyValue, key: ZoneKey | None) -> bool:
    """Say whether this version knows the purpose of a tenant's row, or that the row is damaged."""
    if key is not None:
        return key.number in _NUMBERS
    return sort_of(row.key) in (None, OWNER, ZONE, IN_FLIGHT, BUCKET, LOCK, SNAP, INDEXED, *runs.SORTS)


_DERIVED = {VEST, COUNT, POINTER, GUARD}
_NUMBERS = {ITEM, DEAD_LETTER, PAYLOAD, RETAINED_ID, RESULT, TRACEBACK, *_DERIVED}


def sort_of(key: bytes) -> int | None:
    """Return the number of the subspace of a tenant that a key belongs to; None: it is damaged."""
    sort = unpack_int(key, len(tenant_prefix(key)))
    return None if sort is None else sort[0]


def _tenant_check(key: bytes) -> Check | None:
    """Return the check of a tenant's row that is of no zone, and of no run."""
    match elements_of(key):
        case (_, _, str(app), str(user), int(sort), *rest) if "\0" not in app + user:
            tenant = TenantKeys(app, user)
            if key == tenant.owner:
                return partial(check_record, struct=OwnerRecord, key=key)
            if key == tenant.bucket or sort not in (OWNER, ZONE, IN_FLIGHT, BUCKET):
                return None
            if sort == IN_FLIGHT and [type(element) for element in rest] == [str, bytes]:
                return None  # The next dequeue finds out whether it is stale.
            return partial(check_damaged_key, key=key, derived=sort in (IN_FLIGHT, BUCKET))
    return partial(check_damaged_key, key=key)


def _zone_check(row_key: bytes, key: ZoneKey, now_us: int) -> Check | None:
    """Return the check of a zone's row; None if it is a count, or of a subspace that this version does not know."""
    if key.number not in _NUMBERS or key.number == COUNT:
        return None
    found = _shaped_check(key, now_us)
    # The tuple layer can also read keys that are packed in a way in which no program packs them.
    if found is None or found[0] != row_key:
        return partial(check_damaged_key, key=row_key, derived=key.number in _DERIVED)
    return found[1]


def _shaped_check(key: ZoneKey, now_us: int) -> tuple[bytes, Check] | None:
    """Return how the key of a row is packed, and its check; None if there can be no such key."""
    location = key.location
    keys = location.keys
    match key.number, *key.rest:
        case int(number), bytes(item_id) if number == ITEM and len(item_id) == ID_BYTES:
            return keys.item(item_id), partial(items.check_item, location=location, item_id=item_id, now_us=now_us)
        case int(number), int(priority), int(vesting_us), bytes(item_id) if number == VEST:
            entry = IndexEntry(priority, vesting_us, item_id)
            if entry.is_possible:
                return keys.vest(*entry), partial(items.check_entry, location=location, entry=entry)
        case int(number), bytes(item_id) if number == DEAD_LETTER and len(item_id) == ID_BYTES:
            return keys.dead_letter(item_id), partial(
                dead_letters.check_dead_letter, location=location, item_id=item_id
            )
        case int(number), bytes(item_id), int(piece) if number == PAYLOAD and 0 <= piece < 2**32:
            return keys.piece(item_id, piece), partial(items.check_payload, location=location, item_id=item_id)
        case int(number), bytes(item_id) if number == RETAINED_ID:
            return keys.retained_id(item_id), partial(
                dead_letters.check_retained_id, location=location, item_id=item_id
            )
        case int(number), bytes(item_id) if number == RESULT:
            return keys.result(item_id), partial(dead_letters.check_result, location=location, item_id=item_id)
        case int(number), bytes(item_id) if number == TRACEBACK:
            return keys.traceback(item_id), partial(items.check_traceback, location=location, item_id=item_id)
        case (int(number),) if number == POINTER:
            return keys.pointer, partial(pointers.check_pointer, location=location, now_us=now_us)
    return None
