"""Where the records of transactions across shards lie. Keys begin with the time, so listings are in order of age."""

from fairlead.zones.keyspace import (
    DECISION,
    PREPARED,
    PREPARED_WRITES,
    ROOT,
    pack_bytes,
    pack_int,
    unpack_bytes,
    unpack_int,
)
from fairlead.zones.records import TransactionId

PREPARED_PREFIX = ROOT + pack_int(PREPARED)
DECISION_PREFIX = ROOT + pack_int(DECISION)
_WRITES_PREFIX = ROOT + pack_int(PREPARED_WRITES)
RANDOM_BYTES = 10


def prepared_key(transaction: TransactionId) -> bytes:
    """Return the key of what a transaction has prepared on a shard."""
    return PREPARED_PREFIX + _packed(transaction)


def decision_key(transaction: TransactionId) -> bytes:
    """Return the key of the decision about a transaction, on its home shard."""
    return DECISION_PREFIX + _packed(transaction)


def writes_prefix(transaction: TransactionId) -> bytes:
    """Return the prefix of the pieces of what a transaction writes on a shard once it is committed."""
    return _WRITES_PREFIX + _packed(transaction)


def piece_key(transaction: TransactionId, number: int) -> bytes:
    """Return the key of piece `number`, from 0."""
    return writes_prefix(transaction) + pack_int(number)


def transaction_of(key: bytes, prefix: bytes) -> TransactionId | None:
    """Return the transaction that a key behind `prefix` names; None: the key is damaged."""
    started = unpack_int(key, len(prefix))
    if started is None:
        return None
    started_us, at = started
    random_end = at + 1
    while (random_end := key.find(b"\x00", random_end)) >= 0 and key[random_end + 1 : random_end + 2] == b"\xff":
        random_end += 2
    attempt = unpack_int(key, random_end + 1) if random_end >= 0 else None
    if attempt is None or attempt[1] != len(key):
        return None
    found = TransactionId(started_us, unpack_bytes(key[at : random_end + 1]), attempt[0])
    return found if prefix + _packed(found) == key else None


def _packed(transaction: TransactionId) -> bytes:
    started_us, random, attempt = transaction
    return pack_int(started_us) + pack_bytes(random) + pack_int(attempt)
