"""The ids of items in an external store. It holds the items of all queues, so a given id is hashed with its queue."""

from hashlib import sha256
from random import Random

from fairlead.zones.external.names import Queue
from fairlead.zones.layout import ID_BYTES, Tenant
from fairlead.zones.records import GivenId

TIME_BYTES = 7  # Microseconds since the epoch; enough until the year 4253.


def new_id(now_us: int, random: Random) -> bytes:
    """Return an id that no other item has: ids of one moment lie side by side in the index."""
    return now_us.to_bytes(TIME_BYTES, "big") + random.randbytes(ID_BYTES - TIME_BYTES)


def packed_given(given: GivenId) -> bytes:
    """Return a given id as it is stored: 1 and bytes, or 2 and text."""
    return b"\x01" + given if isinstance(given, bytes) else b"\x02" + given.encode()


def unpacked_given(packed: bytes) -> GivenId:
    """Return the given id that `packed_given` packed."""
    return packed[1:] if packed[:1] == b"\x01" else packed[1:].decode()


def id_of_given(tenant: Tenant, zone: str, given: GivenId) -> bytes:
    """Return the id of an item that its enqueuer named, as the SQL function `fairlead.id_of` computes it."""
    names = "".join(f"{len(name.encode())}:{name}" for name in (tenant.app, tenant.user, zone))
    return sha256(names.encode() + packed_given(given)).digest()[:ID_BYTES]


def ids_named(queue: Queue, item_id: GivenId) -> list[bytes]:
    """Return the ids that an item of a queue may have which is named so: by its id of 16 bytes, or by its given id."""
    of_given = id_of_given(queue.tenant, queue.zone, item_id)
    return [item_id, of_given] if isinstance(item_id, bytes) and len(item_id) == ID_BYTES else [of_given]
