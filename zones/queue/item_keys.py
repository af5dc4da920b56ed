"""Keys of items: values by which an item is found on any shard, from its enqueue to its end.

An item has its keys in its record, packed, and an entry in the local index of its shard for each of them. The entries
are written with the item, stay while it is a dead letter, and are cleared with its end.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fairlead.zones import local_index
from fairlead.zones.engines import Transaction
from fairlead.zones.errors import BadArgument
from fairlead.zones.index_values import IndexValue, check_index_name, check_value, pack_value
from fairlead.zones.keyspace import TenantKeys, pack_text
from fairlead.zones.layout import ID_BYTES, ZoneLocation
from fairlead.zones.tuples import elements_of

KEYS_MAX = 4  # Of one item: each costs two writes.
_ITEMS = pack_text("")  # The name of the index of items. Types of records have names of at least one byte.


class IndexedItem(NamedTuple):
    """An item that an entry of the local index names. `packed_key`: as `pack_keys` returns it."""

    zone: str
    item_id: bytes
    packed_key: bytes


def pack_keys(keys: Mapping[str, IndexValue]) -> tuple[bytes, ...]:
    """Return the keys of an item, each packed as its name and its value.

    Raises:
      BadArgument: there are more than four; a name is no text of 1 to 32 bytes without NUL; a value is no text, bytes
        or whole number, is empty, or is longer than 10,000 bytes.
    """
    check_mapping(keys)
    if len(keys) > KEYS_MAX:
        raise BadArgument(argument="keys", value=f"{len(keys)} keys", allowed=f"at most {KEYS_MAX}")
    return tuple(pack_key(name, value) for name, value in keys.items())


def check_mapping(keys: Any) -> None:
    """Refuse what is no mapping of names to values.

    Raises:
      BadArgument: see there.
    """
    if not isinstance(keys, Mapping):
        raise BadArgument(argument="keys", value=keys, allowed='names and values, such as {"order": 7}')


def pack_key(name: str, value: Any) -> bytes:
    """Return one key of an item, packed; see `pack_keys`."""
    check_index_name("keys", name)
    return pack_text(name) + pack_value(name, check_value(name, value))


def unpack_key(packed: bytes) -> tuple[str, IndexValue | None]:
    """Return the name and the value of a key that `pack_keys` packed. None: of a long value, only the hash is kept.

    Of a damaged key, the name is its bytes in hexadecimal digits.
    """
    match elements_of(packed):
        case (str(name), str() | bytes() | int() as value):
            return name, value
        case (str(name), tuple()):
            return name, None
    return packed.hex(), None


def is_key(packed: bytes) -> bool:
    """Say whether `pack_keys` can have packed a key."""
    return isinstance(next(iter(elements_of(packed)), None), str) and local_index.is_index(index_of(packed))


def index_of(packed_key: bytes) -> bytes:
    """Return under which index of a shard items with this key are listed."""
    return _ITEMS + packed_key


def add(tr: Transaction, location: ZoneLocation, item_id: bytes, keys: Iterable[bytes]) -> None:
    """Let the shard's index find an item by its keys. Two writes for each."""
    for packed in keys:
        local_index.add(tr, location.keys.tenant, index_of(packed), _member(location, item_id))


def remove(tr: Transaction, location: ZoneLocation, item_id: bytes, keys: Iterable[bytes]) -> None:
    """Let the shard's index not find an item any more. Two writes for each key."""
    for packed in keys:
        local_index.remove(tr, location.keys.tenant, index_of(packed), _member(location, item_id))


def entry_keys(location: ZoneLocation, item_id: bytes, packed_key: bytes) -> tuple[bytes, bytes]:
    """Return the two stored keys of an entry: the one beside the tenant's rows, and the one of the shard's index."""
    tenant, index, member = location.keys.tenant, index_of(packed_key), _member(location, item_id)
    return local_index.indexed_key(tenant, index, member), local_index.local_key(tenant, index, member)


def indexed_item(index: bytes, member: bytes) -> IndexedItem | None:
    """Return the item that an entry names; None: it names no item."""
    if not index.startswith(_ITEMS) or len(member) <= ID_BYTES:
        return None
    try:
        return IndexedItem(member[ID_BYTES:].decode(), member[:ID_BYTES], index[len(_ITEMS) :])
    except UnicodeDecodeError:
        return None


def item_of_row(keys: TenantKeys, key: bytes) -> IndexedItem | None:
    """Return the item that a tenant's row in the subspace `INDEXED` names; None: it names none."""
    parsed = local_index.parse_indexed_key(keys, key)
    return None if parsed is None else indexed_item(*parsed)


def _member(location: ZoneLocation, item_id: bytes) -> bytes:
    return item_id + location.name.encode()
