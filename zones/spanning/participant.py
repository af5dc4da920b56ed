"""The transactions on a participant of a transaction across shards: prepare, apply, release; and validate."""

from collections.abc import Mapping, Sequence

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import QueueError
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.ownership import check_owner, mark_if_moving
from fairlead.zones.probes import probe
from fairlead.zones.records import (
    RESTRICTED_FORMAT,
    Lock,
    OwnerRecord,
    PreparedRecord,
    PreparedTenant,
    TransactionId,
    decode,
    encode,
    is_newer,
)
from fairlead.zones.spanning.transaction_keys import piece_key, prepared_key, writes_prefix
from fairlead.zones.spanning.write_set import WriteSet, carry_out, pack_writes, unpack_writes


class PreparedUnreadable(QueueError):
    """What a transaction across shards has prepared cannot be read; nothing was changed, and its locks stay.

    Do: if `newer` is true, upgrade this program. Otherwise the record is damaged: restore the shard from a backup, or
    give up what the transaction would write here, by `fairlead locks abort TRANSACTION`.
    """

    message = "what a transaction across shards has prepared cannot be read"


def prepare(
    tr: Transaction,
    layout: ShardLayout,
    transaction: TransactionId,
    tenants: Mapping[Tenant, bool],
    writes: WriteSet,
    *,
    home_id: bytes,
) -> None:
    """Lock tenants, and store what is to be written once the transaction is committed.

    `tr` is the transaction in which the body has read on this shard, so its commit validates these reads. `tenants`:
    whether the lock is exclusive, of all whom the body has read or written here. A tenant who has only been read gets a
    shared lock: without it, two transactions that each write what the other one has read would both commit.

    Reads with conflict: owner records. Writes: owner records, PREPARED, its pieces. May run twice.

    Raises:
      TenantLocked: another transaction has locked one of them; nothing is written.
      TenantMoved: another shard owns one of them; nothing is written.
    """
    keys = {tenant: TenantKeys(*tenant) for tenant in tenants}
    reads = {tenant: tr.get(keys[tenant].owner) for tenant in tenants}
    owners = {}
    for tenant, exclusive in tenants.items():
        value = reads[tenant].value
        check_owner(tr, layout, keys[tenant], value, writes=exclusive)
        owner = None if value is None else decode(OwnerRecord, value)
        owners[tenant] = owner or OwnerRecord(0, layout.shard_id)
    for tenant, exclusive in tenants.items():
        owner = owners[tenant]
        owner.locks = (*owner.locks, Lock(transaction, home_id, exclusive))
        tr.set(keys[tenant].owner, encode(owner))
    pieces = pack_writes(writes)
    for number, piece in enumerate(pieces):
        tr.set(piece_key(transaction, number), piece)
    locked = tuple(PreparedTenant(*tenant) for tenant in tenants)
    tr.set(prepared_key(transaction), encode(PreparedRecord(home_id, locked, len(pieces))))


def has_prepared(tr: Reader, transaction: TransactionId) -> bool:
    """Say whether a transaction is prepared here, and not settled. One snapshot read."""
    return tr.snapshot.get(prepared_key(transaction)).present()


def apply(tr: Transaction, layout: ShardLayout, transaction: TransactionId) -> bool:
    """Carry out what a committed transaction has prepared here; False: it is done, or was never prepared.

    Reads with conflict: PREPARED, its pieces, owner records; see `carry_out`. Writes: what was prepared; clears
    PREPARED, its pieces, and the locks. May run twice.

    Raises:
      PreparedUnreadable: it is damaged, or a newer version has prepared it.
    """
    prepared = _take(tr, layout, transaction)
    if prepared is None:
        return False
    pieces = [tr.get(piece_key(transaction, number)) for number in range(prepared.pieces)]
    writes = unpack_writes([piece.value or b"" for piece in pieces])
    if writes is None:
        raise PreparedUnreadable(transaction=str(transaction), shard=layout.shard_id.hex(), newer=False)
    carry_out(tr, layout, writes)
    _clear_pieces(tr, transaction, prepared)
    return True


def release(tr: Transaction, layout: ShardLayout, transaction: TransactionId) -> bool:
    """Drop what an aborted transaction has prepared here; False: it is done, or was never prepared.

    Reads with conflict: PREPARED, owner records. Writes: clears PREPARED, its pieces, and the locks. May run twice.

    Raises:
      PreparedUnreadable: it is damaged, or a newer version has prepared it.
    """
    prepared = _take(tr, layout, transaction)
    if prepared is None:
        return False
    _clear_pieces(tr, transaction, prepared)
    return True


def discard(tr: Transaction, layout: ShardLayout, transaction: TransactionId, tenants: Sequence[Tenant]) -> bool:
    """Drop what a transaction has prepared here, readable or not, and its locks; False: nothing of it is here.

    For an operator who gives it up. `tenants`: whom it has locked. Reads with conflict: PREPARED, owner records.
    Writes: clears PREPARED, its pieces, and the locks. May run twice.

    Raises:
      PreparedUnreadable: an owner record cannot be read.
    """
    key, prefix = prepared_key(transaction), writes_prefix(transaction)
    keys = [TenantKeys(*tenant) for tenant in tenants]
    stored, owners = tr.get(key), [tr.get(each.owner) for each in keys]
    is_here = stored.present()
    tr.clear(key)
    tr.clear_range(range_begin(prefix), range_end(prefix))
    for each, owner in zip(keys, owners, strict=True):
        if owner.value is not None:
            is_here = _unlock(tr, layout, each, owner.value, transaction) or is_here
    return is_here


def drop_orphaned_lock(tr: Transaction, layout: ShardLayout, transaction: TransactionId, tenant: Tenant) -> bool:
    """Clear a lock whose transaction has nothing prepared here; False: there is no such lock.

    A lock and PREPARED are written and cleared together. So such a lock was left by a backup that was taken in pieces,
    or by damage. Reads with conflict: PREPARED, the owner record. Writes: the owner record. May run twice.

    Raises:
      PreparedUnreadable: the owner record cannot be read.
    """
    keys = TenantKeys(*tenant)
    prepared, owner = tr.get(prepared_key(transaction)), tr.get(keys.owner)
    if prepared.present() or owner.value is None:
        return False
    return _unlock(tr, layout, keys, owner.value, transaction)


def validate(tr: Transaction, transaction: TransactionId) -> None:
    """Let the commit of a transaction that has only read fail if something that it has read has changed since.

    Declares a write conflict on a key that nobody else uses: a store validates no transaction that writes nothing.
    """
    tr.add_write_conflict_key(prepared_key(transaction))


def _take(tr: Transaction, layout: ShardLayout, transaction: TransactionId) -> PreparedRecord | None:
    """Clear PREPARED and the locks, and return what was prepared."""
    key = prepared_key(transaction)
    value = tr.get(key).value
    if value is None:
        probe("a transaction across shards is settled by another process")
        return None
    prepared = decode(PreparedRecord, value)
    if prepared is None:
        raise PreparedUnreadable(transaction=str(transaction), shard=layout.shard_id.hex(), newer=is_newer(value))
    tr.clear(key)
    keys = [TenantKeys(each.app, each.user) for each in prepared.tenants]
    for each, read in [(each, tr.get(each.owner)) for each in keys]:
        if read.value is not None:
            _unlock(tr, layout, each, read.value, transaction)
    return prepared


def _unlock(tr: Transaction, layout: ShardLayout, keys: TenantKeys, value: bytes, transaction: TransactionId) -> bool:
    """Clear the lock of a transaction, and the record if it says nothing else; False: there is none."""
    owner = decode(OwnerRecord, value)
    if owner is None:
        raise PreparedUnreadable(
            transaction=str(transaction), shard=layout.shard_id.hex(), newer=is_newer(value, newest=RESTRICTED_FORMAT)
        )
    mark_if_moving(tr, keys, owner)
    kept = tuple(lock for lock in owner.locks if lock.transaction != transaction)
    if len(kept) == len(owner.locks):
        return False
    owner.locks = kept
    if owner.says_nothing:
        tr.clear(keys.owner)
    else:
        tr.set(keys.owner, encode(owner))
    return True


def _clear_pieces(tr: Transaction, transaction: TransactionId, prepared: PreparedRecord) -> None:
    if prepared.pieces:
        prefix = writes_prefix(transaction)
        tr.clear_range(range_begin(prefix), range_end(prefix))
