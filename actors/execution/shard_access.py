"""A store as the loops of a worker use it: one that refuses is logged at most every ten seconds, and fails none."""

import logging
from collections.abc import Callable

from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.errors import TenantBusy
from fairlead.zones.shard import Shard

log = logging.getLogger("fairlead.worker")


class StoreAccess:
    """One place where items are. Any thread may call any method; no lock is held while the store works.

    Args:
      shown: what the log calls it, such as `shard main`.
      errors: returns the classes of errors with which its store refuses.
    """

    def __init__(self, host: Host, shown: str, errors: Callable[[], tuple[type[Exception], ...]]) -> None:
        self._shown = shown
        self._errors = errors
        self._lock = host.lock()
        self._refusals = RateLimitedLog(
            host.clock, log, "%s refuses; leases that it does not extend in time will expire: %s"
        )

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of errors with which the store refuses."""
        return self._errors()

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Do `work`, which commits; say whether the store committed it. It does not if a tenant stays locked."""
        try:
            work()
        except TenantBusy as error:
            self.note_refusal(error)
            return False
        except self._errors() as error:
            self.note_refusal(error)
            return False
        return True

    def note_refusal(self, error: Exception) -> None:
        """Log that the store refuses, unless that was logged a moment ago."""
        with self._lock:
            self._refusals.note(self._shown, error)


class ShardAccess(StoreAccess):
    """One shard."""

    def __init__(self, host: Host, shard: Shard) -> None:
        super().__init__(host, f"shard {shard.name}", lambda: shard.db.errors)
        self.shard = shard
