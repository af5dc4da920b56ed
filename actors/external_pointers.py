"""Making or waking the pointers of queues in an external store that got items, on the shards of their tenants.

Many share a transaction, as a reader may find a hundred thousand queues at once. A shard that refuses delays no tenant
of another shard. A tenant that is locked delays others by a few milliseconds, once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, OwnerUnreadable, TenantBusy, TenantLocked, TenantMoved
from fairlead.zones.external import arrivals
from fairlead.zones.external.names import check_zone_name
from fairlead.zones.external.store import Arrival, Queue
from fairlead.zones.placement import home
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard, first_shards
from fairlead.zones.spanning.lock_wait import LockWait
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.reader")

BATCH_SIZE = 100  # Pointers in one transaction.
TRIES_MAX = 32  # Of one pointer in one look, behind moves and locks.
WAIT_US = 20_000  # For the locks of one tenant: most last for two commits.


class Waker:
    """Makes or wakes the pointers of one store, and keeps what is refused.

    Args:
      goes_on: called before each batch; False: nothing more is done in this look.

    Attributes:
      refused: what was seen, and is not noted: tenants are locked, or shards are away.
    """

    def __init__(self, store: str, shards: Mapping[str, Shard], clock: Clock, goes_on: Callable[[], bool]) -> None:
        self.refused: dict[Queue, Arrival] = {}
        self._store = store
        self._shards = shards
        self._goes_on = goes_on
        self._locks: dict[Queue, LockWait] = {}  # Of those in `refused` whose tenants are locked.
        self._misnamed = RateLimitedLog(
            clock, log, "external store %s holds items of a queue with a name that none can have; delete them: %s"
        )
        self._waits = RateLimitedLog(
            clock, log, "some queues of external store %s wait, as a shard or tenant refuses; trying again: %s"
        )

    def wake(self, found: Iterable[Arrival], away: set[str]) -> None:
        """Make or wake the pointers of queues, each on the shard of its tenant; keep those that are refused.

        `away`: the names of shards that have refused in this look; they are not asked again.
        """
        names = first_shards(self._shards)
        by_shard: dict[str, list[Arrival]] = {}
        for arrival in found:
            try:
                check_zone_name(arrival.queue.zone)
            except BadArgument as error:
                self._misnamed.note(self._store, error)
                continue
            by_shard.setdefault(home(arrival.queue.tenant, names), []).append(arrival)
        for name, some in by_shard.items():
            for begin in range(0, len(some), BATCH_SIZE):
                if not self._goes_on():
                    return
                self._wake(self._shards[name], some[begin : begin + BATCH_SIZE], away)

    def forget(self) -> None:
        """Forget what was refused: another reader finds it, as nothing was saved since."""
        self.refused.clear()
        self._locks.clear()

    def _wake(self, shard: Shard, some: Sequence[Arrival], away: set[str], tries: int = 1) -> None:
        """Make or wake pointers in one transaction, in halves if a tenant among them refuses."""
        if shard.name in away:
            self._refuse(some)
            return

        def body(attempt: Attempt) -> None:
            for arrival in some:
                arrivals.note_arrival(attempt.tr, shard.layout, self._store, arrival, now_us=attempt.now_us)

        try:
            shard.transact(body, waits_for_locks=False)
        except (TenantMoved, TenantLocked) as refusal:
            if len(some) > 1:
                half = len(some) // 2
                self._wake(shard, some[:half], away)
                self._wake(shard, some[half:], away)
            else:
                self._meet(shard, some[0], away, refusal, tries)
        except shard.db.errors as error:
            self._note_away(shard, some, away, error)
        else:
            self._settle(some)

    def _meet(self, shard: Shard, arrival: Arrival, away: set[str], refusal: Exception, tries: int) -> None:
        """Follow a tenant that has moved; wait a little for one that is locked, or leave it for the next time.

        One whose owner is damaged is left, too: a repair may find it at home here.
        """
        if isinstance(refusal, OwnerUnreadable):
            probe("a tenant with a damaged owner does not hold up the arrivals of others in an external store")
            tries = TRIES_MAX
        elif isinstance(refusal, TenantMoved):
            followed = shard.follow(refusal)
            if followed is None:
                log.warning("tenant %s lives on no shard of this fleet", arrival.queue.tenant)
                self._settle([arrival])
                return
            shard = followed
        elif isinstance(refusal, TenantLocked):
            lock = self._locks.setdefault(arrival.queue, LockWait(shard.find_shard, shard.clock, wait_us=WAIT_US))
            try:
                lock.meet(refusal)
            except TenantBusy as busy:
                probe("a locked tenant does not hold up the arrivals of others in an external store")
                tries, refusal = TRIES_MAX, busy
            except shard.db.errors as error:
                self._note_away(shard, [arrival], away, error)
                return
        if tries < TRIES_MAX:
            self._wake(shard, [arrival], away, tries + 1)
        else:
            self._waits.note(self._store, refusal)
            self._refuse([arrival])

    def _note_away(self, shard: Shard, some: Sequence[Arrival], away: set[str], error: Exception) -> None:
        probe("a shard that refuses does not hold up the arrivals of others in an external store")
        self._waits.note(self._store, error)
        away.add(shard.name)
        self._refuse(some)

    def _refuse(self, some: Sequence[Arrival]) -> None:
        self.refused |= {each.queue: Arrival(each.queue, 0) for each in some}

    def _settle(self, some: Sequence[Arrival]) -> None:
        for each in some:
            self.refused.pop(each.queue, None)
            self._locks.pop(each.queue, None)
