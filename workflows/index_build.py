"""The kind of item that builds or drops an index of records: a local item of the shard that stores the change.

Its lease makes it sure that somebody carries out the change. What two of them may do at once is fenced by the change
itself (`fairlead.records.on_shards.index_changes`).
"""

from collections.abc import Callable

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, handler_of
from fairlead.records.errors import IndexUnavailable
from fairlead.records.on_shards.building import Builder, ChangeHeldUp
from fairlead.records.on_shards.index_changes import CHANGE_KIND, ChangeReplaced
from fairlead.records.on_shards.performing import RunAll
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.walking import AllShards
from fairlead.zones.durations import DAY_S
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import Restoring, ShardRefused
from fairlead.zones.shard import Shard

RETRY = Retry(attempts=None, backoff_max=5)  # A shard that was away is asked again soon.
TIMEOUT_S = 7 * DAY_S
CHANGES_AT_ONCE = 2  # In one consumer: a builder fills a slot of a worker, and most of a processor.

LocationsOf = Callable[[str], Locations | None]


class _Changes:
    """Runs the items of changes of indexes."""

    def __init__(
        self, homes: Callable[[], AllShards], locations_of: LocationsOf, run_all: Callable[[], RunAll]
    ) -> None:
        self._homes = homes
        self._run_all = run_all
        self._locations_of = locations_of
        self.__module__, self.__qualname__ = __name__, "build or drop an index of records"

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`.

        Raises:
          ChangeHeldUp: a shard does not answer, or is not configured; or a tenant is being restored.
          StoreUnavailable: another process carries out the change.
          BuilderStopped: the attempt was cancelled; another one goes on.
        """
        payload = held.job.payload
        type_name, field = payload["type"], payload["field"]
        builder = Builder(
            self._homes(),
            shard,
            type_name,
            field,
            locations=self._locations_of(type_name),
            should_stop=lambda: held.job.cancelled,
            run_all=self._run_all(),
        )
        try:
            builder.run(payload["change"])
        except ChangeReplaced as error:
            raise StoreUnavailable(
                "another process changes the index", remedy="Wait for it.", type=type_name, field=field
            ) from error
        except (
            StoreUnavailable,
            ShardRefused,
            IndexUnavailable,
            Restoring,
        ) as error:  # So that people see why it does not go on.
            raise ChangeHeldUp(type=type_name, field=field, reason=str(error)) from error


def change_handler(homes: Callable[[], AllShards], locations_of: LocationsOf, run_all: Callable[[], RunAll]) -> Handler:
    """Return the handler.

    Args:
      locations_of: returns where records of a type lie that the application declares.
      run_all: returns what runs calls on several shards.
    """
    changes = _Changes(homes, locations_of, run_all)
    return handler_of(CHANGE_KIND, changes, retry=RETRY, timeout=TIMEOUT_S, max_running=CHANGES_AT_ONCE)
