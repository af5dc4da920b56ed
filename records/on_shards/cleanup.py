"""The items that remove what a writer has left that stopped: its dummy, and index records that nobody's record has.

The transaction that inserts a dummy enqueues one, delayed, under an id that the dummy's generation decides. The
transaction that replaces the dummy by the record deletes it. Nobody depends on it: whoever wants a key collects garbage
by itself.
"""

from collections.abc import Sequence
from hashlib import blake2b

from fairlead.records.stored import DataRecord
from fairlead.zones.errors import PayloadDamaged
from fairlead.zones.layout import ID_BYTES
from fairlead.zones.queue.items import NewItem, new_item, unpack_payload

CLEANUP_KIND = "fairlead.records.cleanup"
DROPPED_KIND = "fairlead.records.dropped"
DELAY_S = 60  # Far longer than a create takes; so long may a dummy stand that nobody finishes.


def cleanup_id(generation: bytes) -> bytes:
    """Return the id of the item that cleans up after a creator."""
    return blake2b(b"cleanup" + generation, digest_size=ID_BYTES).digest()


def cleanup_item(type_name: str, key: str, dummy: DataRecord) -> NewItem:
    """Return the item that cleans up after a creator, if that stops."""
    payload = {"type": type_name, "key": key, "generation": dummy.generation, "keys": list(dummy.keys)}
    return new_item(CLEANUP_KIND, payload, delay=DELAY_S)


def keys_of_cleanup(payload: bytes) -> tuple[bytes, ...]:
    """Return the alternate keys of the dummy after which an item cleans up; none if the payload is damaged."""
    try:
        return tuple(unpack_payload(payload)["keys"])
    except (PayloadDamaged, KeyError, TypeError):
        return ()


def dropped_keys_item(
    type_name: str, key: str, generation: bytes, dropped: Sequence[bytes], below: int | None
) -> NewItem:
    """Return the item that deletes index records of keys that a record has dropped; see `Protocol.drop_op`."""
    payload = {"type": type_name, "key": key, "generation": generation, "keys": list(dropped), "below": below}
    return new_item(DROPPED_KIND, payload)
