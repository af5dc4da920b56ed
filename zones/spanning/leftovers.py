"""Leftovers: what no transaction meets does not stay locked, and decisions are forgotten in the end.

A coordinator settles what it has prepared within seconds. What a process sees prepared for longer was left.
"""

import logging
from collections.abc import Sequence
from functools import partial

from fairlead.zones.engines import Reader, Transaction, transact
from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.open_shard import FindShard, OpenShard
from fairlead.zones.probes import probe
from fairlead.zones.records import DecisionRecord, PreparedRecord, TransactionId, decode
from fairlead.zones.spanning import decision, participant
from fairlead.zones.spanning.participant import PreparedUnreadable
from fairlead.zones.spanning.recovery import outcome, settle
from fairlead.zones.spanning.transaction_keys import DECISION_PREFIX, PREPARED_PREFIX, prepared_key, transaction_of

log = logging.getLogger("fairlead.locks")

SEEN_US = 5_000_000  # As long as a transaction may take: no coordinator decides later.
LISTED_MAX = 200  # Of one look: the next one takes the rest.


class Leftovers:
    """What one process has seen on one shard, look by look. Times are those of its own clock, so none is trusted."""

    def __init__(self, shard: OpenShard, find_shard: FindShard) -> None:
        self._shard = shard
        self._find_shard = find_shard
        self._first_seen_us: dict[TransactionId, int] = {}

    @property
    def has_any(self) -> bool:
        """Whether the last look has found something prepared."""
        return bool(self._first_seen_us)

    def settle_old(self, *, now_us: int) -> int:
        """Settle what has been prepared here for `SEEN_US`, by looks of this process; return how many transactions.

        One snapshot read of a list, and for each transaction that is left one or two transactions on its home shard and
        one here. One whose home shard is not configured, or does not answer, stays, and is tried again at each look.
        """
        listed = dict(transact(self._shard.db, lambda tr: list_prepared(tr, transactions_max=LISTED_MAX)))
        self._first_seen_us = {each: self._first_seen_us.get(each, now_us) for each in listed}
        settled = 0
        for transaction, prepared in listed.items():
            if now_us - self._first_seen_us[transaction] >= SEEN_US and prepared is not None:
                settled += self._settle(transaction, prepared)
        return settled

    def _settle(self, transaction: TransactionId, prepared: PreparedRecord) -> bool:
        home = self._find_shard(prepared.home_id)
        if home is None:
            return False
        try:
            committed = outcome(home, self._shard, transaction, may_abort=True)
        except home.db.errors as error:
            log.info("transaction %s stays prepared: its home shard does not answer: %s", transaction, error)
            return False
        probe("housekeeping settles a transaction across shards that nobody has met")
        try:
            return committed is not None and settle(self._shard, transaction, committed=committed)
        except PreparedUnreadable as error:
            log.warning("%s", error)
            return False

    def forget_old(self, *, now_us: int) -> int:
        """Forget decisions that are older than `DECISION_LIFE_US` and carried out everywhere; return how many.

        One snapshot read of a list here, one of a key for each decision on each shard that it names, and one
        transaction here that clears. A decision that names a shard which is not configured stays.
        """
        before_us = now_us - decision.DECISION_LIFE_US
        decided = transact(self._shard.db, lambda tr: list_decisions(tr, before_us=before_us))
        done = [each for each, record in decided if self._is_carried_out(each, record.shard_ids)]

        def forget_all(tr: Transaction) -> None:
            for each in done:
                decision.forget(tr, each)

        if done:
            transact(self._shard.db, forget_all)
        return len(done)

    def _is_carried_out(self, transaction: TransactionId, shard_ids: Sequence[bytes]) -> bool:
        for shard_id in shard_ids:
            shard = self._find_shard(shard_id)
            if shard is None:
                return False
            try:
                if transact(shard.db, lambda tr: participant.has_prepared(tr, transaction)):
                    return False
            except shard.db.errors as error:
                log.info("the decision about transaction %s is kept: a shard does not answer: %s", transaction, error)
                return False
        return True


def carry_out_decided(shard: OpenShard, find_shard: FindShard) -> None:
    """Settle what is prepared on a shard and decided, at once. For a caller that must see what was committed.

    Snapshot reads of a list, and for each transaction one on its home shard, and one here if it is decided.

    Raises:
      PreparedUnreadable: see `participant.apply`.
      What a home shard raises that does not answer.
    """
    after: TransactionId | None = None
    while True:
        listed = transact(shard.db, partial(list_prepared, transactions_max=LISTED_MAX, after=after))
        for transaction, prepared in listed:
            home = None if prepared is None else find_shard(prepared.home_id)
            committed = None if home is None else outcome(home, shard, transaction, may_abort=False)
            if committed is not None:
                settle(shard, transaction, committed=committed)
        if len(listed) < LISTED_MAX:
            return
        after = listed[-1][0]


def list_prepared(
    tr: Reader, *, transactions_max: int, after: TransactionId | None = None
) -> list[tuple[TransactionId, PreparedRecord | None]]:
    """Return what is prepared on a shard, oldest transactions first; None: the record is unreadable. Snapshot reads.

    `after`: only transactions that come after it.
    """
    begin = range_begin(PREPARED_PREFIX) if after is None else prepared_key(after) + b"\x00"
    found = []
    for row in tr.snapshot.get_range(begin, range_end(PREPARED_PREFIX), limit=transactions_max):
        transaction = transaction_of(row.key, PREPARED_PREFIX)
        if transaction is not None:
            found.append((transaction, decode(PreparedRecord, row.value)))
    return found


def list_decisions(tr: Reader, *, before_us: int) -> list[tuple[TransactionId, DecisionRecord]]:
    """Return decisions made before a time, at most `LISTED_MAX`. Snapshot reads; unreadable ones are passed over."""
    begin, end = range_begin(DECISION_PREFIX), range_end(DECISION_PREFIX)
    found = []
    for row in tr.snapshot.get_range(begin, end, limit=LISTED_MAX):
        transaction, record = transaction_of(row.key, DECISION_PREFIX), decode(DecisionRecord, row.value)
        if transaction is not None and record is not None and record.decided_us < before_us:
            found.append((transaction, record))
    return found
