"""Items that are unique in the whole application: what their end leaves, and who removes it.

An item with a unique key is a record of Uniqorn's protocol (`fairlead.records.on_shards.unique_items`): the item is the
truth, and an index record elsewhere names it. It holds the key while it is an item, or a dead letter, or for its
`unique_for`. After that the index record is garbage, which whoever wants the key collects. The transaction that ends
items with unique keys enqueues one item that deletes their index records, so that keys that nobody wants leave nothing.
"""

from collections.abc import Sequence
from hashlib import blake2b

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ID_BYTES, ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue import insertion
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord

RELEASE_KIND = "fairlead.release"


def release_op(
    tr: Transaction,
    location: ZoneLocation,
    ended: Sequence[tuple[bytes, ItemRecord]],
    *,
    now_us: int,
    kept_us: int = 0,
) -> Operation[None]:
    """Enqueue the deletion of index records of items that end in this transaction. May run twice.

    Reads and writes what an enqueue does. `kept_us`: how long their keys stay taken.
    """
    keys = [[record.unique_key, item_id, record.run_of(item_id)] for item_id, record in ended]
    release = new_item(RELEASE_KIND, {"ended": keys})._replace(delay_us=kept_us)
    release_id = blake2b(b"release" + ended[0][0], digest_size=ID_BYTES).digest()
    yield from insertion.enqueue_op(tr, location, [(release_id, release)], now_us=now_us, ids_are_new=False)
