"""Signals: messages to a run, written in the transaction of the sender (`fairlead.zones.workflow`).

No signal is missed, see `fairlead.zones.workflow.arrival`. Each signal has a key of its own, which ends with the
versionstamp of its commit: senders never share a key. Stamps of two shards do not compare, so the owner's epoch, which
a move raises, comes first.
"""

from typing import Any, NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import BadArgument, ItemGone, PayloadTooLarge
from fairlead.zones.keyspace import TenantKeys, pack_int, pack_text, range_end
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue.items import NewItem, new_item, pack_payload
from fairlead.zones.workflow.arrival import note_arrival_op, receiver_op

SIGNAL_BYTES_MAX = 64_000  # It is one value, and FoundationDB's end at 100,000 bytes.
STAMP_BYTES = 12  # Ten of the commit's versionstamp, and two that count the signals of one commit.
_NUMBER_BYTES = 2
SIGNALS_MAX = 256**_NUMBER_BYTES  # In one transaction.
SIGNAL_KIND = "fairlead.signal"  # Of items that bring a signal to another tenant; a workflow, so it does so once.
_OFFSET_BYTES = 4


class StoredSignal(NamedTuple):
    """A signal that the run has not taken. `key`: to be cleared in the transaction that notes it as taken."""

    key: bytes
    payload: bytes


def wait_name(signal: str) -> str:
    """Return how a waiting item's record names a signal that it waits for."""
    return f"signal {signal}"


def pack_signal(name: str, payload: Any) -> bytes:
    """Return the payload of a signal as it is stored.

    Raises:
      PayloadNotData: it is no plain data.
      PayloadTooLarge: the packed form is longer than 64,000 bytes.
    """
    packed = pack_payload(payload)
    if len(packed) > SIGNAL_BYTES_MAX:
        raise PayloadTooLarge(signal=name, bytes=len(packed), bytes_max=SIGNAL_BYTES_MAX)
    return packed


def delivery_of(receiver: Tenant, zone: str, item_id: bytes, name: str, payload: Any) -> NewItem:
    """Return the item that brings a signal to an item of another tenant. It drops the signal if that item is gone."""
    sent = {"app": receiver.app, "user": receiver.user, "zone": zone, "item": item_id, "name": name}
    return new_item(SIGNAL_KIND, {**sent, "payload": payload})


def signal_prefix(keys: TenantKeys, run: bytes, name: str) -> bytes:
    """Return the prefix of all signals of a name."""
    return keys.signals(run) + pack_text(name)


def send_op(
    tr: Transaction, location: ZoneLocation, item_id: bytes, name: str, payload: bytes, *, number: int, now_us: int
) -> Operation[None]:
    """Send a signal to the run of an item; wake the item if it waits for the signal.

    The caller's attempt needs a receipt: a second application would be a second signal. `number`: counts the signals
    of the transaction, from 0 on.

    Reads with conflict: ownership, the record; if there is none, the dead letter; the pointer as
    `pointers.read_for_insert` says if it wakes the item. Writes: the signal; the record if nothing was kept for the run
    before, or if the item is woken, which also moves its index entry and perhaps the pointer.

    Raises:
      BadArgument: the transaction has sent too many.
      ItemGone: there is neither an item nor a dead letter: the run has ended.
      ItemUnreadable: a newer version wrote it.
      TenantMoved: another shard owns the tenant.
    """
    if number >= SIGNALS_MAX:
        raise BadArgument(argument="signals of one transaction", value=number + 1, allowed=f"up to {SIGNALS_MAX:,}")
    receiver = yield from receiver_op(tr, location, item_id)
    if receiver is None:
        raise ItemGone(item=item_id.hex(), tenant=str(location.tenant), zone=location.name)
    prefix = signal_prefix(location.keys.tenant, receiver.run, name) + pack_int(receiver.epoch)
    stamped = prefix + bytes(STAMP_BYTES - _NUMBER_BYTES) + number.to_bytes(_NUMBER_BYTES, "big")
    tr.set_versionstamped_key(stamped + len(prefix).to_bytes(_OFFSET_BYTES, "little"), payload)
    yield from note_arrival_op(tr, receiver, wait_name(name), wake_us=now_us, now_us=now_us)


def first_op(tr: Transaction, location: ZoneLocation, run: bytes, name: str) -> Operation[StoredSignal | None]:
    """Return the oldest signal of a name that the run has not taken. Reads with conflict: the range up to it."""
    prefix = signal_prefix(location.keys.tenant, run, name)
    rows = tr.get_range(prefix, range_end(prefix), limit=1)
    yield
    row = next(iter(rows), None)
    return None if row is None else StoredSignal(row.key, row.value)
