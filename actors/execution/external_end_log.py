"""How items of an external store ended, for the completion logs of their tenants' shards.

An end is committed in the store, and no transaction spans both. So an end is noted here after its commit, and the ends
of a fifth of a second are written together: a busy worker writes five small transactions a second, and an idle one
none. The ends of that time are missing if the process dies, or if the shard refuses: nothing that must be correct
depends on the log.
"""

import logging
from collections.abc import Mapping

from fairlead.actors.execution.acknowledgement import Settled
from fairlead.actors.runtime.host import Host
from fairlead.zones.layout import Tenant
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedItem, EndedOfZone, EndReason
from fairlead.zones.shard import Shard

log = logging.getLogger("fairlead.worker")

FLUSH_S = 0.2
ENDS_MAX = 10_000  # Kept while a shard does not answer: later ones are not noted.

_REASONS = {"completed": int(EndReason.COMPLETED), "dropped": int(EndReason.DROPPED)}

Ends = dict[tuple[str, Tenant, str], list[EndedItem]]  # By the shard where the tenant lived, the tenant and the zone.


class ExternalEndLog:
    """The ends of one worker's items of one external store. Any thread may note; its loop ends soon after `stop`."""

    def __init__(self, host: Host, shards: Mapping[str, Shard]) -> None:
        self._host = host
        self._shards = shards
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        self._ended = host.condition(self._lock)
        self._noted: Ends = {}
        self._count = 0
        self._stopping = self._has_ended = False

    def start(self) -> None:
        """Start the loop."""
        self._host.spawn("external ends", self._run)

    def stop(self) -> None:
        """Let the loop end once it has written what was noted."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()

    def await_end(self, timeout_us: int) -> None:
        """Wait until the loop has ended, `timeout_us` at most."""
        with self._lock:
            if not self._has_ended:
                self._ended.wait(timeout_us / 1e6)

    def note(self, settled: Settled) -> None:
        """Note what became of items; those that left their queues are written within a fifth of a second."""
        now_us = self._host.clock.now_us()
        with self._lock:
            if self._count >= ENDS_MAX:
                return
            was_empty = not self._count
            self._count += add_ends(self._noted, settled, now_us=now_us)
            if was_empty and self._count:  # The loop waits for the first.
                self._changed.notify_all()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with self._lock:
                while not (self._count or self._stopping):
                    self._changed.wait()
                if not self._stopping:
                    self._changed.wait(FLUSH_S)
                is_last = self._stopping
                ends, self._noted, self._count = self._noted, {}, 0
            for name in dict.fromkeys(shard_name for shard_name, *_ in ends):
                self._write(self._shards[name], ends)
        with self._lock:
            self._has_ended = True
            self._ended.notify_all()

    def _write(self, shard: Shard, ends: Ends) -> None:
        try:
            write_ends(shard, ends)
        except shard.db.errors as error:
            log.debug("shard %s does not store how items of external stores ended: %s", shard.name, error)


def add_ends(ends: Ends, settled: Settled, *, now_us: int) -> int:
    """Add the ends of items that have left their queues for good, and are no dead letters; return how many.

    It costs about 3 us for each item of a drain.
    """
    count = 0
    for held, became in settled:
        reason = _REASONS.get(became)
        if reason is not None:
            ref, record = held.ref, held.record
            took_us = now_us - record.leased_us
            item = EndedItem(ref.item_id, ref.kind, reason, record.attempt, took_us // 1000 if took_us > 0 else 0)
            ends.setdefault((held.shard_name, ref.tenant, ref.zone), []).append(item)
            count += 1
    return count


def write_ends(shard: Shard, ends: Ends) -> None:
    """Write those ends into the completion log of a shard that belong there. One transaction of blind writes.

    Raises:
      One of `shard.db.errors`: the shard refuses.
    """
    ended = [EndedOfZone(*tenant, zone, items) for (name, tenant, zone), items in ends.items() if name == shard.name]
    shard.transact(lambda attempt: completion_log.append(attempt.tr, shard.layout, ended, now_us=attempt.now_us))
