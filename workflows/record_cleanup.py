"""The kinds of items that remove what writers of records have left. Each is safe to run twice, and late.

fairlead.records.cleanup   a creator has stopped: its dummy, and its index records
fairlead.records.dropped   a transaction on a tenant has dropped keys of a record: their index records
fairlead.release           items with unique keys have ended: their index records
"""

from collections.abc import Callable

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, handler_of
from fairlead.records.accesses import run_op, together
from fairlead.records.on_shards.cleanup import CLEANUP_KIND, DROPPED_KIND
from fairlead.records.on_shards.performing import Homes, ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.unique_items import ITEMS_TYPE, ItemLocations, ItemTransaction, item_key
from fairlead.records.protocol import Protocol
from fairlead.zones.queue.unique_keys import RELEASE_KIND
from fairlead.zones.shard import Shard

UNTIL_DONE = Retry(attempts=None, backoff_max=60)  # A shard that is away holds it up; nobody waits for it.


class _Cleanups:
    """Runs the items."""

    def __init__(self, homes: Callable[[], Homes]) -> None:
        self._homes = homes
        self.__module__, self.__qualname__ = __name__, "clean up after the creator of a record"

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`. The item lies in the queue of the tenant that holds the record.

        Raises:
          IndexUnavailable, StoreError: a shard does not answer; it is tried again.
        """
        payload, tenant = held.job.payload, held.job.tenant
        key, generation, keys = payload["key"], payload["generation"], payload["keys"]
        protocol = Protocol(ends_at_once=True)
        is_unique_item = payload["type"] == ITEMS_TYPE
        if is_unique_item:
            records = ShardRecords(self._homes(), ItemLocations(), None, transaction=ItemTransaction)
        else:
            records = ShardRecords(self._homes(), Locations(payload["type"], lambda _: tenant), None)
        if held.job.kind == DROPPED_KIND:
            run_op(protocol.drop_op(key, generation, keys, payload["below"]), records.perform)
        elif is_unique_item:
            held.job.completing = True  # This item is the reservation, and ends with it; another deletes index records.
            run_op(protocol.end_dummy_op(key, generation), records.perform)
        else:
            run_op(protocol.clean_op(key, generation, keys), records.perform)


class _Releases:
    """Runs the items that delete index records of items that have ended."""

    def __init__(self, homes: Callable[[], Homes]) -> None:
        self._homes = homes
        self.__module__, self.__qualname__ = __name__, "release the unique keys of items that have ended"

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`. The item lies in the queue zone of those that have ended.

        Raises:
          IndexUnavailable, StoreError: a shard does not answer; it is tried again.
        """
        protocol = Protocol(ends_at_once=True)
        drops = [
            protocol.drop_op(item_key(held.job.tenant, held.job.zone, item_id), run, [index_key], None)
            for index_key, item_id, run in held.job.payload["ended"]
        ]
        records = ShardRecords(self._homes(), ItemLocations(), None, transaction=ItemTransaction)
        run_op(together(drops), records.perform)


def cleanup_handlers(homes: Callable[[], Homes]) -> list[Handler]:
    """Return the handlers. `homes`: returns the shards of the application."""
    return [handler_of(kind, _Cleanups(homes), retry=UNTIL_DONE) for kind in (CLEANUP_KIND, DROPPED_KIND)] + [
        handler_of(RELEASE_KIND, _Releases(homes), retry=UNTIL_DONE)
    ]
