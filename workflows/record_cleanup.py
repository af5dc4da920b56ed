"""The kinds of items that remove what writers of records have left. Each is safe to run twice, and late.

fairlead.records.cleanup   a creator has stopped: its dummy, and its index records
fairlead.records.dropped   a transaction on a tenant has dropped keys of a record: their index records
"""

from collections.abc import Callable

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, handler_of
from fairlead.records.accesses import run_op
from fairlead.records.on_shards.cleanup import CLEANUP_KIND, DROPPED_KIND
from fairlead.records.on_shards.performing import Homes, ShardRecords
from fairlead.records.on_shards.slots import Locations
from fairlead.records.protocol import Protocol
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
        locations = Locations(payload["type"], lambda _: tenant)
        key, generation, keys = payload["key"], payload["generation"], payload["keys"]
        protocol = Protocol()
        if held.job.kind == CLEANUP_KIND:
            operation = protocol.clean_op(key, generation, keys)
        else:
            operation = protocol.drop_op(key, generation, keys, payload["below"])
        run_op(operation, ShardRecords(self._homes(), locations, None).perform)


def cleanup_handlers(homes: Callable[[], Homes]) -> list[Handler]:
    """Return the handlers. `homes`: returns the shards of the application."""
    return [handler_of(kind, _Cleanups(homes), retry=UNTIL_DONE) for kind in (CLEANUP_KIND, DROPPED_KIND)]
