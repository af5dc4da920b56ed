"""The kind of item that moves a tenant to another shard: a local item of the shard that the tenant leaves.

Its lease makes it sure that somebody carries out the move. What two of them may do at once is fenced by the move itself
(`fairlead.zones.moving`).
"""

from collections.abc import Callable

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, handler_of
from fairlead.zones.durations import DAY_S
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.errors import MoveHeldUp
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.moving.mover import Mover
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.placement import first_home
from fairlead.zones.shard import Shard

RETRY = Retry(attempts=None, backoff_max=5)  # A shard that was away is asked again soon: writers mark what they change.
TIMEOUT_S = 7 * DAY_S
NO_DESTINATION = "shard {name}, its destination, does not answer, or this fleet's configuration does not have it"
NOT_CLEARED = "it has ended, but its destination, shard {id}, does not answer, so what was copied there is not cleared"
MOVES_AT_ONCE = 2  # In one consumer: a mover fills a slot of a worker, and half of a processor.


class _Moves:
    """Runs the items of moves."""

    def __init__(self, with_id: Callable[[bytes], Shard | None], named: Callable[[str], Shard]) -> None:
        self._with_id = with_id
        self._named = named
        self.__module__, self.__qualname__ = __name__, "move a tenant"

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`.

        Raises:
          MoveHeldUp: a shard does not answer, the destination is not configured, or the record is of a newer version.
          StoreUnavailable: another mover carries out the move.
          MoverStopped: the attempt was cancelled; another one goes on.
        """
        payload = held.job.payload
        tenant, move_id = Tenant(payload["app"], payload["user"]), payload["move"]
        destination = self._with_id(payload["destination"])
        if destination is None:
            record = shard.transact(lambda attempt: source.read_move(attempt.tr, tenant))
            is_listed = record is not None and record.move_id == move_id
            named = NO_DESTINATION.format(name=record.destination) if record is not None and is_listed else None
            raise MoveHeldUp(tenant=str(tenant), reason=named or NOT_CLEARED.format(id=payload["destination"].hex()))
        mover = Mover(
            shard, destination, self._first_home(shard, tenant), tenant, move_id, should_stop=lambda: held.job.cancelled
        )
        try:
            is_done = mover.run_item(epoch=payload["epoch"])
        except StoreUnavailable as error:  # As a failure of this item, so that people see why it does not go on.
            raise MoveHeldUp(tenant=str(tenant), reason=str(error)) from error
        if not is_done:
            raise StoreUnavailable("another mover carries out the move", remedy="Wait for it.", tenant=str(tenant))

    def _first_home(self, shard: Shard, tenant: Tenant) -> OpenShard:
        began = shard.layout.first_shards
        return self._named(first_home(TenantKeys(*tenant).packed, tuple(began))) if began else shard


def move_handler(with_id: Callable[[bytes], Shard | None], named: Callable[[str], Shard]) -> Handler:
    """Return the handler of moves. `with_id`, `named`: find an open shard of the application."""
    return handler_of(MOVE_KIND, _Moves(with_id, named), retry=RETRY, timeout=TIMEOUT_S, max_running=MOVES_AT_ONCE)
