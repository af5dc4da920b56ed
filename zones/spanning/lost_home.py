"""What a transaction across shards has left on a shard whose home shard is lost, or whose record is damaged.

An operator gives it up, by `fairlead locks abort`.
Nobody else aborts by hand: whether a transaction is committed is known at home only, and its other shards may have
carried it out. Here the caller has found that home cannot be asked.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import DB, ROOT, TenantKeys, pack_int, range_begin, range_end, tenant_prefix
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.records import OwnerRecord, PreparedRecord, TransactionId, decode, is_newer
from fairlead.zones.spanning import participant
from fairlead.zones.spanning.transaction_keys import RANDOM_BYTES, prepared_key
from fairlead.zones.tuples import elements_of

TENANTS_READ_MAX = 500  # In one transaction, of those whose owner records are searched.
_TENANTS = ROOT + pack_int(DB)


class Prepared(NamedTuple):
    """What a shard says of a transaction. `is_damaged`: its record is there, and cannot be read.

    `tenants`: whom it has locked. `home_id`: None: nothing says which shard decides.
    """

    tenants: Sequence[Tenant]
    home_id: bytes | None
    is_damaged: bool = False


class LockSearch(NamedTuple):
    """Tenants that a transaction has locked, among some; and from which key on there are others, or None."""

    tenants: list[Tenant]
    home_id: bytes | None
    next_key: bytes | None


def parsed(text: str) -> TransactionId | None:
    """Return the transaction that a text names, as `TransactionId` is printed; None: it names none."""
    try:
        started, random, attempt = text.split("-")
        found = TransactionId(int(started, 16), bytes.fromhex(random), int(attempt))
    except ValueError:
        return None
    return found if len(found.random) == RANDOM_BYTES and str(found) == text else None


def read_prepared(tr: Reader, layout: ShardLayout, transaction: TransactionId) -> Prepared | None:
    """Return what a transaction has prepared on a shard; None: it has no record there. One snapshot read.

    Raises:
      PreparedUnreadable: a newer version has prepared it.
    """
    value = tr.snapshot.get(prepared_key(transaction)).value
    if value is None:
        return None
    record = decode(PreparedRecord, value)
    if record is not None:
        return Prepared([Tenant(each.app, each.user) for each in record.tenants], record.home_id)
    if is_newer(value):
        raise participant.PreparedUnreadable(transaction=str(transaction), shard=layout.shard_id.hex(), newer=True)
    return Prepared((), None, is_damaged=True)


def search_locks(tr: Reader, transaction: TransactionId, begin: bytes) -> LockSearch:
    """Return whom a transaction has locked, from a key on; b"": from the first. Snapshot reads, two a tenant."""
    begin, end = begin or range_begin(_TENANTS), range_end(_TENANTS)
    tenants: list[Tenant] = []
    home_id = None
    for _ in range(TENANTS_READ_MAX):
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            return LockSearch(tenants, home_id, None)
        match elements_of(row.key):
            case (_, _, str(app), str(user), *_) if "\0" not in app + user:
                begin = range_end(tenant_prefix(row.key))
                value = tr.snapshot.get(TenantKeys(app, user).owner).value
                owner = None if value is None else decode(OwnerRecord, value)
                for lock in () if owner is None else owner.locks:
                    if lock.transaction == transaction:
                        tenants.append(Tenant(app, user))
                        home_id = lock.home_id
            case _:  # The key is damaged.
                begin = row.key + b"\x00"
    return LockSearch(tenants, home_id, begin)


def drop(tr: Transaction, layout: ShardLayout, transaction: TransactionId, found: Prepared) -> bool:
    """Drop what a transaction has prepared here, and its locks; False: that is done. See `participant.discard`."""
    return participant.discard(tr, layout, transaction, found.tenants)
