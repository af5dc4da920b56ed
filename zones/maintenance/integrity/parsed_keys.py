"""Parsed keys: what a key below a tenant belongs to."""

from typing import Any, NamedTuple

from fairlead.zones.keyspace import DATA, DB, ROOT, ZONE, pack_int, range_end, tenant_prefix
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.tuples import elements_of

_DB = ROOT + pack_int(DB)
DB_PREFIX_BYTES = len(_DB)  # Behind them a key names its tenant.


class ZoneKey(NamedTuple):
    """A key of a queue zone: the number of its subspace, and the elements after it."""

    location: ZoneLocation
    number: int
    rest: tuple[Any, ...]


class KeyParser:
    """Parses keys. Keeps the location of the last key, since keys come in order."""

    def __init__(self, layout: ShardLayout) -> None:
        self._layout = layout
        self._last: ZoneLocation | None = None

    def zone_key(self, key: bytes) -> ZoneKey | None:
        """Parse the key of a queue zone; None if it is another key."""
        match elements_of(key):
            case (_, _, str(app), str(user), int(sort), str(zone), int(number), *rest) if (
                sort == ZONE and "\0" not in app + user + zone
            ):
                return ZoneKey(self._location(app, user, zone), number, tuple(rest))
        return None

    def _location(self, app: str, user: str, zone: str) -> ZoneLocation:
        last = self._last
        if last is None or last.tenant != (app, user) or last.name != zone:
            self._last = last = self._layout.location(Tenant(app, user), zone)
        return last


def skip_data(key: bytes) -> bytes | None:
    """Return the key behind a tenant's own data if `key` is in it, else None."""
    data = tenant_prefix(key) + pack_int(DATA)
    return range_end(data) if key.startswith(data) else None


def tenant_range() -> tuple[bytes, bytes]:
    """Return begin and end of all keys of tenants."""
    return _DB, range_end(_DB)
