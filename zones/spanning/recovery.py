"""Recovery: any process can settle what a transaction across shards has prepared, whether its coordinator lives or not.

The process asks the home shard. What is committed is applied, what is aborted is released. What is undecided is
aborted: this must be written at home, because the coordinator may be alive and about to commit.
"""

from collections.abc import Sequence
from typing import cast

from fairlead.zones.engines import Transaction, transact
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.marks import NONCE_BYTES, MarkingTransaction
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.records import TransactionId
from fairlead.zones.spanning import decision, participant


def outcome(home: OpenShard, shard: OpenShard, transaction: TransactionId, *, may_abort: bool) -> bool | None:
    """Return whether a transaction, which has prepared on `shard`, is committed; None: it is undecided.

    `may_abort`: abort it if it is undecided. One transaction on the home shard, and another one to abort.
    """
    found = transact(home.db, lambda tr: decision.ask(tr, transaction))
    if found is not None or not may_abort:
        return found
    shard_id = shard.layout.shard_id
    return transact(home.db, lambda tr: decision.abort(tr, transaction, [shard_id], now_us=home.clock.now_us()))


def settle(shard: OpenShard, transaction: TransactionId, *, committed: bool) -> bool:
    """Apply or release what a transaction has prepared on a shard; False: that is done, or nothing was prepared.

    One transaction on the shard. Its result may be unknown: a second one finds PREPARED gone.

    Raises:
      PreparedUnreadable: see `participant.apply`.
    """
    carry_out = participant.apply if committed else participant.release
    return transact(shard.db, lambda tr: carry_out(_marking(tr, shard), shard.layout, transaction))


def apply_all(shard: OpenShard, transactions: Sequence[TransactionId]) -> None:
    """Apply what committed transactions have prepared on a shard, in one transaction; see `participant.apply`."""

    def body(tr: Transaction) -> None:
        marking = _marking(tr, shard)
        for each in transactions:
            participant.apply(marking, shard.layout, each)

    transact(shard.db, body)


def _marking(tr: Transaction, shard: OpenShard) -> Transaction:
    """Return a transaction that marks what it writes to tenants that move."""
    return cast(Transaction, MarkingTransaction(tr, shard.random.randbytes(NONCE_BYTES)))


def drop_orphaned_lock(shard: OpenShard, transaction: TransactionId, tenant: Tenant) -> bool:
    """Clear a lock whose transaction has nothing prepared on a shard; see `participant.drop_orphaned_lock`."""
    return transact(
        shard.db, lambda tr: participant.drop_orphaned_lock(_marking(tr, shard), shard.layout, transaction, tenant)
    )
