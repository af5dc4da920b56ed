"""A shard's layout: how many parts it has, where a tenant's queue zones are stored, and what they are called.

Pure: names in, keys out. A pointer's id is the packed name of its zone. BLAKE2b of that name selects the part that
holds the pointer. Python's `hash()` differs from process to process and is never used.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

from fairlead.zones.errors import BadArgument, ItemGone
from fairlead.zones.keyspace import NAME_BYTES_MAX, PartKeys, TenantKeys, ZoneKeys
from fairlead.zones.records import PlacementRecord
from fairlead.zones.settings import ZoneSettings

DEFAULT_ZONE = "queue"
ID_BYTES = 16
EXTERNAL_MARK = "\x01"  # How the names of zones begin whose items lie in an external store; see `external.names`.
LOCATIONS_MAX = 4_096  # Remembered at a time; about 600 bytes each.
_APP_ENDS = re.compile(r"(?<!/)/(?!/)")  # The first slash that stands alone.
_POINTER_ID_BYTES_MAX = 3 * (NAME_BYTES_MAX + 2)  # Three names, each with a byte before and one behind it.


class Tenant(NamedTuple):
    """One user of one app; the unit of sharding, fairness and isolation. Printed as `APP/USER`."""

    app: str
    user: str

    def __str__(self) -> str:
        if not self.user:  # A participant of a workflow that is a store; see `external.names`.
            return f"store {self.app}"
        return f"{self.app.replace('/', '//')}/{self.user}" if self.app else f"local {self.user}"

    @staticmethod
    def parse(text: str) -> "Tenant":
        """Return the tenant that is printed as `text`: "APP/USER". A slash in the name of the app stands there twice.

        An app's name that ends with a slash, and a user's that begins with one, cannot be told apart in one text.

        Raises:
          BadArgument: `text` is not of that form, or a name cannot be one.
        """
        app, *users = split_tenant(text) if isinstance(text, str) else [""]
        if not users:
            raise BadArgument(argument="tenant", value=text, allowed='"APP/USER", such as "shop/alice"; or a Tenant')
        return named_tenant(app, users[0])


def named_tenant(app: str | Tenant, user: str | None = None) -> Tenant:
    """Return the tenant of two names, or of one argument: a `Tenant`, or "APP/USER".

    Raises:
      BadArgument: a name is not text, is empty, is longer than 96 bytes in UTF-8, or holds a NUL.
    """
    if isinstance(app, Tenant):
        if not app.app:
            raise BadArgument(argument="tenant", value=str(app), allowed="a tenant; this item is local and has none")
        app, user = app
    elif user is None:
        return Tenant.parse(app)
    return Tenant(check_name("app", app), check_name("user", user))


def split_tenant(text: str) -> list[str]:
    """Return the names in "APP/USER"; only that of the app if there is no single slash."""
    app, *users = _APP_ENDS.split(text, maxsplit=1)
    return [app.replace("//", "/"), *users]


def local_tenant(kind: str) -> Tenant:
    """Return the tenant under which local items of `kind` are stored (QuiCK section 6, "local work items").

    Items without a tenant live in one zone per kind, behind one pointer like any other zone. So a million of them
    compete with tenants as a single tenant. No real tenant can have this name: a tenant's app is never empty.
    """
    return Tenant("", check_name("kind", kind))


def check_name(argument: str, name: str) -> str:
    """Return `name` if it can be the name of an app, a user, a zone or a kind.

    Raises:
      BadArgument: it is not text, is empty, is longer than 96 bytes in UTF-8, or holds a NUL.
    """
    allowed = f"text of 1 to {NAME_BYTES_MAX} bytes in UTF-8, without NUL"
    if not isinstance(name, str) or not name:
        raise BadArgument(argument=argument, value=name, allowed=allowed)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # a lone surrogate
        raise BadArgument(argument=argument, value=name, allowed=allowed) from None
    if size > NAME_BYTES_MAX or "\0" in name:
        raise BadArgument(argument=argument, value=name[:120], allowed=allowed)
    return name


def check_zone(name: str) -> str:
    """Return `name` if a user can give it to a queue zone.

    Raises:
      BadArgument: see `check_name`; or it begins with the mark of zones whose items lie elsewhere.
    """
    if check_name("zone", name).startswith(EXTERNAL_MARK):
        raise BadArgument(argument="zone", value=name, allowed="text that does not begin with a control character")
    return name


def item_id_of(given: str | bytes) -> bytes:
    """Return the 16-byte id of an item that its enqueuer named: 16 bytes unchanged, anything else hashed."""
    if isinstance(given, bytes) and len(given) == ID_BYTES:
        return given
    packed = b"\x01" + given if isinstance(given, bytes) else b"\x02" + given.encode()
    return blake2b(packed, digest_size=ID_BYTES).digest()


def shown_id(given: str | bytes) -> str:
    """Return how an error shows an item: by the name that the caller used, or by the hexadecimal digits of its id."""
    return given if isinstance(given, str) else item_id_of(given).hex()


@contextmanager
def gone_by_name(item_id: str | bytes) -> Iterator[None]:
    """Let an `ItemGone` of the block show the item as `shown_id` does: the block knows only its id."""
    try:
        yield
    except ItemGone as error:
        error.fields["item"] = shown_id(item_id)
        raise


def checked_id(item_id: Any) -> bytes:
    """Return the 16-byte id of the item that a caller names.

    Raises:
      BadArgument: it is neither text nor bytes.
    """
    try:
        if isinstance(item_id, str | bytes):
            return item_id_of(item_id)
    except UnicodeEncodeError:  # a lone surrogate, which no item is named by
        pass
    allowed = "the item_id that `enqueue` returned, 16 bytes, or the text or bytes that it was given"
    raise BadArgument(argument="item_id", value=item_id, allowed=allowed)


class ShardLayout:
    """What every operation on a shard must agree on: the shard's id, its parts, and the settings of its zones.

    `is_watched`: whether its scanners watch a key of each part, because its engine does not notify them of commits.
    `placement`: what the shard is called, and with which shards its application began; None: it does not know.
    `first_shards`: these shards; empty: it does not know, or it is the only one.
    """

    __slots__ = ("_locations", "first_shards", "is_watched", "part_count", "parts", "placement", "settings", "shard_id")

    def __init__(
        self,
        *,
        shard_id: bytes,
        part_count: int,
        settings: ZoneSettings,
        is_watched: bool = False,
        placement: PlacementRecord | None = None,
    ) -> None:
        self.is_watched = is_watched
        self.placement = placement
        is_alone = placement is None or placement.first_shards == (placement.name,)
        self.first_shards = () if placement is None or is_alone else placement.first_shards
        self.shard_id = shard_id
        self.part_count = part_count
        self.parts = [PartKeys(part) for part in range(part_count)]
        self.settings = settings
        self._locations: dict[tuple[Tenant, str], ZoneLocation] = {}

    def location(self, tenant: Tenant, zone: str) -> "ZoneLocation":
        """Return where the queue zone `zone` of `tenant` is stored.

        Caches the last few thousand locations. An item passes three operations within milliseconds, and packing its
        zone's keys would be a tenth of the time of each.
        """
        location = self._locations.get((tenant, zone))
        if location is None:
            if len(self._locations) >= LOCATIONS_MAX:
                self._locations.clear()
            location = self._locations[tenant, zone] = ZoneLocation(self, tenant, zone)
        return location

    def location_of(self, pointer_id: bytes) -> "ZoneLocation | None":
        """Return where the zone is stored whose pointer has this id; None if it is not the id of a pointer."""
        try:
            app, user, zone, rest = pointer_id.decode().split("\0")  # No name holds a NUL, and each ends with one.
        except ValueError:  # It has fewer or more parts, or is not text.
            return None
        if rest or not app[:1] == user[:1] == zone[:1] == "\x02" or len(pointer_id) > _POINTER_ID_BYTES_MAX:
            return None
        return self.location(Tenant(app[1:], user[1:]), zone[1:])


class ZoneLocation:
    """Where one queue zone is stored: its keys, its pointer's id, and the part that holds the pointer."""

    __slots__ = ("keys", "layout", "name", "part", "pointer_id", "tenant")

    def __init__(self, layout: ShardLayout, tenant: Tenant, zone: str) -> None:
        self.layout = layout
        self.tenant = tenant
        self.name = zone
        self.keys = ZoneKeys(TenantKeys(tenant.app, tenant.user), zone)
        self.pointer_id = self.keys.packed
        digest = blake2b(self.pointer_id, digest_size=8).digest()
        self.part = layout.parts[int.from_bytes(digest, "big") % layout.part_count]
