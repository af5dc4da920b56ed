"""Signals: messages to a run, written in the transaction of the sender (`fairlead.zones.workflow`).

A sender reads the record of the run's item with conflict, whether the item is leased or waits. The transaction that
suspends the item reads the signals with conflict. So one of the two always sees the other, and no signal is missed.
Each signal has a key of its own, which ends with the versionstamp of its commit: senders never share a key. Stamps of
two shards do not compare, so the owner's epoch, which a move raises, comes first.
"""

from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemGone, ItemUnreadable
from fairlead.zones.keyspace import TenantKeys, pack_int, pack_text, range_end
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion, stored_item
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode, encode
from fairlead.zones.workflow.run_records import epoch_of

SIGNAL_BYTES_MAX = 64_000  # It is one value, and FoundationDB's end at 100,000 bytes.
STAMP_BYTES = 12  # Ten of the commit's versionstamp, and two that count the signals of one commit.
_OFFSET_BYTES = 4


class StoredSignal(NamedTuple):
    """A signal that the run has not taken. `key`: to be cleared in the transaction that notes it as taken."""

    key: bytes
    payload: bytes


def wait_name(signal: str) -> str:
    """Return how a waiting item's record names a signal that it waits for."""
    return f"signal {signal}"


def signal_prefix(keys: TenantKeys, run: bytes, name: str) -> bytes:
    """Return the prefix of all signals of a name."""
    return keys.signals(run) + pack_text(name)


def send_op(
    tr: Transaction, location: ZoneLocation, item_id: bytes, name: str, payload: bytes, *, number: int, now_us: int
) -> Operation[None]:
    """Send a signal to the run of an item; wake the item if it waits for the signal.

    The caller's attempt needs a receipt: a second application would be a second signal. `number`: counts the signals
    of the transaction.

    Reads with conflict: ownership, the record; if there is none, the dead letter; the pointer as
    `pointers.read_for_insert` says if it wakes the item. Writes: the signal; the record if nothing was kept for the run
    before, or if the item is woken, which also moves its index entry and perhaps the pointer.

    Raises:
      ItemGone: there is neither an item nor a dead letter: the run has ended.
      ItemUnreadable: a newer version wrote it.
      TenantMoved: another shard owns the tenant.
    """
    keys = location.keys
    owner, stored = tr.get(keys.tenant.owner), tr.get(keys.item(item_id))
    yield
    stored_item.check_owner(location.layout, owner.value)
    epoch = epoch_of(owner.value)
    if stored.value is None:
        _send_to_dead_letter(tr, location, item_id, name, payload, epoch=epoch, number=number)
        return
    record = decode(ItemRecord, stored.value)
    if record is None:
        raise ItemUnreadable(item=item_id.hex())
    _write(tr, keys.tenant, record.run_of(item_id), name, payload, epoch=epoch, number=number)
    is_awaited = wait_name(name) in record.waits_for and record.vesting_us > now_us
    record.keeps_run, kept_before = True, record.keeps_run
    if is_awaited:
        probe("a signal wakes the item that waits for it")
        record.waits_for = ()
        stored_item.move(tr, location, item_id, record, now_us)
        yield from insertion.wake_op(tr, location, earliest_us=now_us, now_us=now_us)
    elif not kept_before:
        stored_item.rewrite(tr, location, item_id, record)


def _send_to_dead_letter(
    tr: Transaction, location: ZoneLocation, item_id: bytes, name: str, payload: bytes, *, epoch: int, number: int
) -> None:
    """Keep a signal for a run that may be retried."""
    keys = location.keys
    value = tr.get(keys.dead_letter(item_id)).value
    if value is None:
        raise ItemGone(item=item_id.hex(), tenant=str(location.tenant), zone=location.name)
    dead_letter = decode(DeadLetterRecord, value)
    if dead_letter is None:
        raise ItemUnreadable(item=item_id.hex())
    probe("a signal is sent to a dead letter")
    _write(tr, keys.tenant, dead_letter.item.run_of(item_id), name, payload, epoch=epoch, number=number)
    if not dead_letter.item.keeps_run:
        dead_letter.item.keeps_run = True
        tr.set(keys.dead_letter(item_id), encode(dead_letter))


def first_op(tr: Transaction, location: ZoneLocation, run: bytes, name: str) -> Operation[StoredSignal | None]:
    """Return the oldest signal of a name that the run has not taken. Reads with conflict: the range up to it."""
    prefix = signal_prefix(location.keys.tenant, run, name)
    rows = tr.get_range(prefix, range_end(prefix), limit=1)
    yield
    row = next(iter(rows), None)
    return None if row is None else StoredSignal(row.key, row.value)


def _write(
    tr: Transaction, keys: TenantKeys, run: bytes, name: str, payload: bytes, *, epoch: int, number: int
) -> None:
    prefix = signal_prefix(keys, run, name) + pack_int(epoch)
    stamped = prefix + bytes(STAMP_BYTES - 2) + number.to_bytes(2, "big")
    tr.set_versionstamped_key(stamped + len(prefix).to_bytes(_OFFSET_BYTES, "little"), payload)
