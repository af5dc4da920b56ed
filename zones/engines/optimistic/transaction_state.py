"""The state of a transaction: what makes its next step fail, and what ends it.

Every step of a transaction may fail for an earlier reason: a refused write (the binding reports it at every later
step), a commit that has begun, a cancellation, a timeout. FoundationDB checks them in this order, and so does
`_check_usable`. The other layers of a transaction build on this one.
"""

from __future__ import annotations

from typing import Final

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, USED_DURING_COMMIT, StoreError
from fairlead.zones.engines.optimistic.options import PersistentOptions

NEVER_US: Final = 1 << 62


class TransactionState:
    """The state of a transaction between its creation and its end.

    Attributes:
      clock: the time for timeouts and the window.
      persistent: options that survive `on_error`.
    """

    __slots__ = (
        "__weakref__",
        "_commit_started",
        "_created_us",
        "_deferred",
        "_ended",
        "_expires_us",
        "_now_us",
        "_plain_reads",
        "_plain_writes",
        "_usable",
        "_window_ends_us",
        "clock",
        "persistent_options",
    )

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._now_us = clock.now_us
        self.persistent_options = PersistentOptions()
        self._created_us = clock.now_us()

    def _clear_state(self) -> None:
        self._deferred: StoreError | None = None  # The error of a refused write.
        self._commit_started = False
        self._ended: StoreError | None = None  # Cancelled, timed out, or used during commit.
        self._usable = True  # None of these three has happened.
        # The hot paths check one flag instead of many. A plain read needs only the open snapshot; a plain write needs
        # only an entry in a dictionary. Every step that changes this clears the flag.
        self._plain_reads = False
        self._plain_writes = True
        self._window_ends_us = NEVER_US
        self._expires_us = NEVER_US
        self.apply_timeout()

    def apply_timeout(self) -> None:
        """Set when the transaction expires, from its timeout and its window."""
        timeout_ms = self.persistent_options.timeout_ms
        deadline_us = self._created_us + timeout_ms * 1_000 if timeout_ms else NEVER_US
        self._expires_us = min(deadline_us, self._window_ends_us)

    def defer(self, code: int, *, remedy: str = "", **fields: object) -> None:
        """Fail every later step with this error, as the binding does after a refused write."""
        self._defer(StoreError(code, remedy=remedy, **fields))

    def _defer(self, error: StoreError) -> None:
        if self._deferred is None:
            self._deferred = error
        self._not_usable()

    def _check_usable(self) -> None:
        """Raise the error that makes a step fail."""
        if self._now_us() > self._expires_us and self._timed_out():
            self._end(StoreError(TRANSACTION_TIMED_OUT))
        if self._usable:
            return
        if self._deferred is not None:
            raise self._deferred
        if self._commit_started:
            self._end(StoreError(USED_DURING_COMMIT))
            raise StoreError(USED_DURING_COMMIT)
        assert self._ended is not None
        raise self._ended

    def _is_writable(self) -> bool:
        """Return whether a write is possible. A write after the commit makes every later step fail."""
        if not self._usable and self._commit_started and self._deferred is None:
            self._end(StoreError(USED_DURING_COMMIT))
            self.defer(USED_DURING_COMMIT)
        return self._usable

    def _timed_out(self) -> bool:
        timeout_ms = self.persistent_options.timeout_ms
        return timeout_ms > 0 and self._now_us() > self._created_us + timeout_ms * 1_000

    def _not_usable(self) -> None:
        self._usable = self._plain_reads = self._plain_writes = False

    def _end(self, error: StoreError) -> None:
        """Let every later step fail with `error`, unless the transaction has ended before."""
        if self._ended is None:
            self._ended = error
            self._not_usable()
            self._abandon(error)

    def _abandon(self, error: StoreError) -> None:
        """Release the resources of the other layers."""
        raise NotImplementedError
