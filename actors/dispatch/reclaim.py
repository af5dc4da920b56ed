"""Freeing: what a worker held, or was sent, vests as soon as the worker is dead, not when its leases end.

That a call failed tells little: its worker may be slow, or out of reach, and go on with what it runs; and of one that
nobody calls nobody hears. So a manager looks now and then whether its workers' lives have ended, which it can see if it
is on the same machine (`Host.has_ended`). Where it cannot, or is dead itself, the leases decide as ever.

A freed item is not given back: it keeps its lease id, so whoever leases it next counts a lapse. But what was leased for
workers of which all are dead by then is given back: it has not been sent to anybody.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from fairlead.actors.dispatch.pool_member import Member, OrphanedItems
from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.in_flight import by_shard
from fairlead.actors.execution.zone_by_zone import zone_by_zone
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.host import Lock
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.manager")

RECLAIM_S = 0.25  # Between two looks at the workers' lives. One costs a tenth of a millisecond.
RECLAIM_MAX = 256  # Items in one freeing transaction.
RECLAIMED_LEASE_US = 1


class Reclaimer:
    """A manager's watch over the lives of its workers. `has_ended`: see `Host`. `lock`: what guards `members`."""

    def __init__(
        self, shards: Mapping[str, Shard], members: Sequence[Member], lock: Lock, has_ended: Callable[[bytes], bool]
    ) -> None:
        self._shards = shards
        self._members = members
        self._lock = lock
        self._has_ended = has_ended

    def reclaim_orphans(self) -> None:
        """Free what the workers held, or were sent, whose lives have ended."""
        with self._lock:
            incarnations = [incarnation for member in self._members for incarnation in member.incarnations]
        ended = {incarnation: self._has_ended(incarnation) for incarnation in incarnations}
        with self._lock:
            orphans = [each for member in self._members for each in member.take_orphans(ended)]
        for each in orphans:
            reclaim(self._shards, each)


def reclaim(shards: Mapping[str, Shard], orphans: OrphanedItems) -> None:
    """Let the items of a worker that is dead vest now.

    What has been completed, or leased by somebody else since, stays as it is. What the store refuses is left to lapse.
    """
    probe("the items of a dead worker are freed")
    for name, refs in by_shard(orphans).items():
        shard = shards[name]
        try:
            reclaimed = sum(
                _reclaim(shard, refs[begin : begin + RECLAIM_MAX]) for begin in range(0, len(refs), RECLAIM_MAX)
            )
        except shard.db.errors as error:
            log.warning("shard %s refuses; what a dead worker held there lapses in time: %s", name, error)
        else:
            log.info("a worker died; %d items that it held on shard %s vest now", reclaimed, name)


def return_items(shard: Shard, refs: Sequence[ItemRef]) -> None:
    """Let leased items that nobody was sent vest now, without a lapse. What the store refuses is left to lapse."""
    try:
        for begin in range(0, len(refs), RECLAIM_MAX):
            acknowledgement.return_items(shard, refs[begin : begin + RECLAIM_MAX])
    except shard.db.errors as error:
        log.warning("shard %s refuses; what was leased there for dead workers lapses in time: %s", shard.name, error)


def _reclaim(shard: Shard, refs: Sequence[ItemRef]) -> int:
    """Cut the leases of items short in one transaction, and return of how many there was one."""

    def body(attempt: Attempt) -> list[Outcome]:
        attempt.needs_receipt = True  # One death is one: a repetition would count it again.
        tr, now_us = attempt.tr, attempt.now_us
        return zone_by_zone(
            shard,
            refs,
            lambda zone, held: zone.extend_op(tr, held, lease_us=RECLAIMED_LEASE_US, now_us=now_us, died=True),
        )

    return shard.transact(shard.in_exclusive_section(body)).count(Outcome.DONE)
