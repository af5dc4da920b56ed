"""The ends of items as the completer commits them, wherever the items are stored."""

from collections.abc import Sequence
from typing import Protocol

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.acknowledgement import Settled, Settlement
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.lock_wait import LockWait


class ItemEnds(Protocol):
    """The ends of items of one place."""

    def settle(
        self, completed: Sequence[HeldItem], failed: Sequence[RetryDecision], *, maybe_committed: bool = False
    ) -> Settlement:
        """Commit ends, and return what became of the items; see `acknowledgement.settle`."""
        ...

    def note(self, settled: Settled) -> None:
        """Note what became of items, once that is committed: by `settle`, or by their handlers."""
        ...

    def begin_lock_wait(self) -> LockWait:
        """Return what ends the locks of transactions that nobody goes on with."""
        ...


class ShardEnds:
    """The ends of items that lie in a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def settle(
        self, completed: Sequence[HeldItem], failed: Sequence[RetryDecision], *, maybe_committed: bool = False
    ) -> Settlement:
        """See `ItemEnds`."""
        return acknowledgement.settle(self._shard, completed, failed, maybe_committed=maybe_committed)

    def note(self, settled: Settled) -> None:
        """See `ItemEnds`. The transactions themselves have written the ends into the completion log."""

    def begin_lock_wait(self) -> LockWait:
        """See `ItemEnds`."""
        return LockWait(self._shard.find_shard, self._shard.clock)
