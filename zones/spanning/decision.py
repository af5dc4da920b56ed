"""The transactions on the home shard of a transaction across shards: decide, ask, abort, forget.

A decision is one record. It is written once, by a transaction that has read with conflict that there is none: so a
commit and an abort cannot both be written. That a record is absent decides nothing.
"""

from collections.abc import Sequence

from fairlead.zones.engines import Reader, StoreUnavailable, Transaction
from fairlead.zones.probes import probe
from fairlead.zones.records import DecisionRecord, TransactionId, decode, encode
from fairlead.zones.spanning.transaction_keys import decision_key
from fairlead.zones.transaction_runner import RECEIPT_LIFE_US

DECISION_LIFE_US = RECEIPT_LIFE_US  # Longer than any coordinator asks how its commit went.


class Aborted(Exception):
    """Another process has written that this attempt is aborted. The coordinator begins a new one."""


def decide(tr: Transaction, transaction: TransactionId, shard_ids: Sequence[bytes], *, now_us: int) -> None:
    """Write that a transaction is committed, in the body's own transaction on its home shard.

    Everything else has been prepared, on the shards `shard_ids`. **`tr` has had its read version since before the first
    of them was prepared.** Otherwise it could miss an abort that was written and forgotten meanwhile.

    Reads with conflict: DECISION. Writes: DECISION. May run twice.

    Raises:
      Aborted: another process has aborted it.
    """
    key = decision_key(transaction)
    if tr.get(key).present():
        raise Aborted
    tr.set(key, encode(DecisionRecord(True, tuple(shard_ids), now_us)))


def ask(tr: Reader, transaction: TransactionId) -> bool | None:
    """Return whether a transaction is committed; None: it is undecided, or its decision was forgotten.

    One snapshot read.

    Raises:
      StoreUnavailable: the decision cannot be read.
    """
    value = tr.snapshot.get(decision_key(transaction)).value
    return None if value is None else _committed(transaction, value)


def abort(tr: Transaction, transaction: TransactionId, shard_ids: Sequence[bytes], *, now_us: int) -> bool:
    """Write that a transaction is aborted, unless it is decided; return whether it is committed.

    `shard_ids`: where the caller knows that it has prepared. Reads with conflict: DECISION. Writes: DECISION, if it is
    absent. May run twice.

    Raises:
      StoreUnavailable: the decision cannot be read.
    """
    key = decision_key(transaction)
    value = tr.get(key).value
    if value is not None:
        return _committed(transaction, value)
    probe("an undecided transaction across shards is aborted")
    tr.set(key, encode(DecisionRecord(False, tuple(shard_ids), now_us)))
    return False


def forget(tr: Transaction, transaction: TransactionId) -> None:
    """Clear a decision. The caller has seen that it is older than `DECISION_LIFE_US`, and that nothing is prepared."""
    tr.clear(decision_key(transaction))


def _committed(transaction: TransactionId, value: bytes) -> bool:
    record = decode(DecisionRecord, value)
    if record is None:
        raise StoreUnavailable(
            "a decision about a transaction across shards cannot be read",
            remedy="Upgrade this program; if it is the newest version, the record is damaged.",
            transaction=str(transaction),
        )
    return record.committed
