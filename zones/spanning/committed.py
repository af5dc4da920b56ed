"""What this process has committed across shards and is still to be carried out on one of them: many in one commit."""

import logging
from collections import deque

from fairlead.zones.open_shard import OpenShard
from fairlead.zones.records import TransactionId
from fairlead.zones.spanning.participant import PreparedUnreadable
from fairlead.zones.spanning.recovery import apply_all

log = logging.getLogger("fairlead.locks")

TOGETHER_MAX = 16  # Transactions that are carried out in one commit: each reads three keys, one after the other.


class CommittedTransactions:
    """Committed transactions that have prepared on a shard. Any thread may call any method.

    Whoever carries out takes all that are there. So while one commit is on its way, the next ones gather.
    """

    def __init__(self) -> None:
        self._waiting: deque[TransactionId] = deque()

    def add(self, transaction: TransactionId) -> None:
        """Note a transaction that is committed, and has prepared on the shard."""
        self._waiting.append(transaction)

    def carry_out(self, shard: OpenShard) -> None:
        """Carry out all that are noted. What fails is left to whoever meets its locks."""
        while batch := self._take():
            if not _succeeds(shard, batch) and len(batch) > 1:
                for each in batch:
                    _succeeds(shard, [each])

    def _take(self) -> list[TransactionId]:
        taken: list[TransactionId] = []
        while len(taken) < TOGETHER_MAX:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:
                break
        return taken


def _succeeds(shard: OpenShard, transactions: list[TransactionId]) -> bool:
    try:
        apply_all(shard, transactions)
    except PreparedUnreadable as error:
        _log_left(transactions, error)
        return False
    except shard.db.errors as error:
        _log_left(transactions, error)
        return False
    return True


def _log_left(transactions: list[TransactionId], error: Exception) -> None:
    log.info("transactions %s are left for now: %s", ", ".join(map(str, transactions)), error)
