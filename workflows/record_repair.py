"""The kinds of items that give records their index records. Each is tried until it is done, at least once a minute.

fairlead.records.repair    a marked record, which was written while shards of its index records were away
fairlead.records.restored  all records of a tenant that was restored to a snapshot: marks them

Each is safe to run twice, and late.
"""

import logging
from collections.abc import Callable

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, handler_of
from fairlead.records.accesses import run_op
from fairlead.records.alternate_keys import field_of
from fairlead.records.errors import RecordError
from fairlead.records.on_shards.performing import Homes, ShardRecords
from fairlead.records.on_shards.repairing import REPAIR_KIND, RESTORED_KIND
from fairlead.records.on_shards.restored import mark_restored
from fairlead.records.on_shards.slots import SLOTS_APP, Locations
from fairlead.records.protocol import Protocol
from fairlead.workflows.record_cleanup import UNTIL_DONE
from fairlead.zones.shard import Shard

log = logging.getLogger("fairlead.records")

LocationsOf = Callable[[str], Locations | None]  # None: the program has not declared the type.


class TypeNotDeclared(RecordError):
    """A record that lies in a tenant of a user cannot be repaired: this program does not say where such records lie.

    Do: call `app.records` for the type, with `tenant=`, in the module that `fairlead run` loads.
    """

    message = "the type of records is not declared here"


class _Repairs:
    """Runs the items."""

    def __init__(self, homes: Callable[[], Homes], locations_of: LocationsOf) -> None:
        self._homes = homes
        self._locations_of = locations_of
        self._protocol = Protocol(ends_at_once=True)
        self.__module__, self.__qualname__ = __name__, "repair a record"

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`. The item lies in the queue of the tenant that holds the record.

        Raises:
          IndexUnavailable, StoreError, Interrupted: a shard does not answer, or the record changes; it is tried again.
          TypeNotDeclared: see there.
        """
        type_name, key = held.job.payload["type"], held.job.payload["key"]
        in_slots = held.job.tenant.app == SLOTS_APP
        locations = Locations(type_name) if in_slots else self._locations_of(type_name)
        if locations is None:
            raise TypeNotDeclared(type=type_name, key=key)
        records = ShardRecords(self._homes(), locations, None)
        violations = run_op(self._protocol.repair_op(key), records.perform)
        if violations:
            fields = ", ".join(sorted({field_of(each) for each in violations}))
            log.warning("record %s of type %s has a value of another record, in: %s", key, type_name, fields)


class _Marks:
    """Runs the items of tenants that were restored."""

    def __init__(self, homes: Callable[[], Homes]) -> None:
        self._homes = homes
        self.__module__, self.__qualname__ = __name__, "mark the records of a restored tenant"

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`.

        Raises:
          Restoring, Interrupted, StoreError: see `mark_restored`; it is tried again.
        """
        mark_restored(self._homes(), shard, held.job.tenant)


def repair_handlers(homes: Callable[[], Homes], locations_of: LocationsOf) -> list[Handler]:
    """Return the handlers. `homes`: returns the application's shards. `locations_of`: where records of a type lie."""
    repairs, marks = _Repairs(homes, locations_of), _Marks(homes)
    return [handler_of(REPAIR_KIND, repairs, retry=UNTIL_DONE), handler_of(RESTORED_KIND, marks, retry=UNTIL_DONE)]
