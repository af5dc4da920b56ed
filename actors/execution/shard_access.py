"""A shard as the loops of a worker use it: a shard that refuses is logged at most every ten seconds, and fails none."""

import logging
from collections.abc import Callable

from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.errors import TenantBusy
from fairlead.zones.shard import Shard

log = logging.getLogger("fairlead.worker")


class ShardAccess:
    """One shard. Any thread may call any method; no lock is held while the shard works."""

    def __init__(self, host: Host, shard: Shard) -> None:
        self.shard = shard
        self._lock = host.lock()
        self._refusals = RateLimitedLog(
            host.clock, log, "shard %s refuses; leases that it does not extend in time will expire: %s"
        )

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Do `work`, which commits; say whether the shard committed it. It does not if a tenant stays locked."""
        try:
            work()
        except TenantBusy as error:
            self.note_refusal(error)
            return False
        except self.shard.db.errors as error:
            self.note_refusal(error)
            return False
        return True

    def note_refusal(self, error: Exception) -> None:
        """Log that the shard refuses, unless that was logged a moment ago."""
        with self._lock:
            self._refusals.note(self.shard.name, error)
