"""What a transaction does that meets a lock of a transaction across shards, or a frozen tenant: it ends it, or waits.

Its own attempt has been given up, so it holds nothing meanwhile. Afterwards its body runs again.
"""

import logging

from fairlead.zones.engines import Clock
from fairlead.zones.errors import TenantBusy, TenantFrozen, TenantLocked
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.rescue import end_frozen_move
from fairlead.zones.open_shard import FindShard
from fairlead.zones.probes import probe
from fairlead.zones.records import TransactionId
from fairlead.zones.spanning.participant import PreparedUnreadable
from fairlead.zones.spanning.recovery import drop_orphaned_lock, outcome, settle

log = logging.getLogger("fairlead.locks")

WAIT_US = 5_000_000  # By default: as long as a transaction may take.
PATIENCE_US = 1_000_000  # An undecided transaction has this long from when it is first met: then it is aborted.
POLL_US_MIN, POLL_US_MAX = (
    1_000,
    32_000,
)  # The first wait, and the longest. Two commits take about as long as the first.
FREEZE_POLL_US_MAX = 4_000  # A freeze is over after a few commits, and its longest wait is what a move costs.
UNKNOWN_HOME = "no shard of this process's configuration has the id of its home shard"
SILENT_HOME = "its home shard does not answer"
UNKNOWN_DESTINATION = "no shard of this process's configuration has the id of the shard to which the tenant moves"
SILENT_DESTINATION = "the shard to which the tenant moves does not answer"


class LockWait:
    """The locks that one transaction meets in all its attempts.

    Args:
      find_shard: finds an open shard by its id.
      wait_us: how long to wait in all, from the first lock on.
      mine: the id of the waiting transaction, if it is one across shards; a younger one, and an earlier attempt at
        the same transaction, is aborted at once.
    """

    def __init__(
        self, find_shard: FindShard, clock: Clock, *, wait_us: int = WAIT_US, mine: TransactionId | None = None
    ) -> None:
        self._find_shard = find_shard
        self._clock = clock
        self._wait_us = wait_us
        self._mine = mine
        self._began_us: int | None = None
        self._first_met_us: dict[TransactionId | bytes, int] = {}
        self._poll_us = POLL_US_MIN

    def meet(self, locked: TenantLocked) -> None:
        """Settle the lock's transaction if it is decided, or may be aborted; else wait a little.

        Afterwards the caller runs its body again, which may meet the lock again.

        Raises:
          TenantBusy: `wait_us` is over.
        """
        now_us = self._clock.now_us()
        if self._began_us is None:
            self._began_us = now_us
        by, reason = self._end(locked, now_us)
        if reason is None:
            return
        left_us = self._began_us + self._wait_us - now_us
        if left_us <= 0:
            app, user = locked.tenant
            raise TenantBusy(app=app, user=user, **by, reason=reason) from locked
        self._clock.sleep_us(min(self._poll_us, left_us, self._patience_left_us(locked, now_us)))
        longest_us = FREEZE_POLL_US_MAX if isinstance(locked, TenantFrozen) else POLL_US_MAX
        self._poll_us = min(self._poll_us * 2, longest_us)

    def _patience_left_us(self, locked: TenantLocked, now_us: int) -> int:
        """Return how long until what locks a tenant may be ended; the longest wait, if it may be, and cannot."""
        first_met_us = self._first_met_us[_restriction(locked)]
        left_us = first_met_us + PATIENCE_US - now_us
        return left_us if left_us > 0 else POLL_US_MAX

    def look(self, locked: TenantLocked) -> None:
        """End what locks a tenant, if it is decided, or may be ended now. For callers that come again by themselves."""
        self._end(locked, self._clock.now_us())

    def _end(self, locked: TenantLocked, now_us: int) -> tuple[dict[str, str], str | None]:
        """End what locks a tenant; return what that is, and why it goes on. None: it has ended."""
        if isinstance(locked, TenantFrozen):
            return {"move": locked.move.move_id.hex()}, self._end_freeze(locked, now_us)
        return {"transaction": str(locked.lock.transaction)}, self._settle(locked, now_us)

    def _end_freeze(self, frozen: TenantFrozen, now_us: int) -> str | None:
        """End a move whose mover has stopped, if the tenant has been frozen for long; return why it was not."""
        first_met_us = self._first_met_us.setdefault(_restriction(frozen), now_us)
        if now_us - first_met_us < PATIENCE_US:
            return "the last step of a move goes on"
        at, to = self._find_shard(frozen.shard_id), self._find_shard(frozen.move.shard_id)
        if at is None or to is None:
            return UNKNOWN_DESTINATION
        try:
            end_frozen_move(at, to, Tenant(*frozen.tenant), frozen.move)
        except to.db.errors as error:
            log.info("move of %s: %s: %s", "/".join(frozen.tenant), SILENT_DESTINATION, error)
            return SILENT_DESTINATION
        return None

    def _goes_first(self, transaction: TransactionId) -> bool:
        """Whether the waiting transaction is older, or is done in place of the other one, and so aborts it at once."""
        return self._mine is not None and (self._mine.age < transaction.age or self._mine.replaces(transaction))

    def _settle(self, locked: TenantLocked, now_us: int) -> str | None:
        """Settle the lock's transaction; return why it was not."""
        transaction = locked.lock.transaction
        first_met_us = self._first_met_us.setdefault(_restriction(locked), now_us)
        shard, home = self._find_shard(locked.shard_id), self._find_shard(locked.lock.home_id)
        if shard is None or home is None:
            return UNKNOWN_HOME
        may_abort = self._goes_first(transaction) or now_us - first_met_us >= PATIENCE_US
        try:
            committed = outcome(home, shard, transaction, may_abort=may_abort)
        except home.db.errors as error:
            log.info("transaction %s locks %s: %s: %s", transaction, "/".join(locked.tenant), SILENT_HOME, error)
            return SILENT_HOME
        if committed is None:
            return "it is undecided"
        try:
            if settle(shard, transaction, committed=committed):
                probe("a transaction settles another one whose lock it meets")
            elif drop_orphaned_lock(shard, transaction, Tenant(*locked.tenant)):
                log.warning("dropped a lock on %s/%s that nothing stands behind", *locked.tenant)
        except PreparedUnreadable as error:
            return error.message
        return None


def _restriction(locked: TenantLocked) -> TransactionId | bytes:
    """Return the id of the transaction that locks a tenant, or of the move that has frozen it."""
    return locked.move.move_id if isinstance(locked, TenantFrozen) else locked.lock.transaction
