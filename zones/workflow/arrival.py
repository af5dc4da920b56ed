"""What arrives for a run: a signal, or the result of a child job. It is kept beside the run, and wakes its item.

A sender reads the record of the run's item with conflict, whether the item is leased or waits. The transaction that
suspends the item reads with conflict what it waits for. So one of the two always sees the other, and nothing is missed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemUnreadable
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion, stored_item
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode, encode
from fairlead.zones.workflow.run_records import epoch_of

ANYTHING = "anything"  # Among what an item waits for: whatever arrives wakes it.
NAMES_BYTES_MAX = 30_000  # Of what an item waits for: the record holds them, and a value ends at 100,000 bytes.


def stored_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return what an item waits for as its record holds it: if that is too much, the first of it, and `ANYTHING`."""
    stored: list[str] = []
    left_bytes = NAMES_BYTES_MAX
    for name in names:
        left_bytes -= len(name.encode()) + 1
        if left_bytes < 0:
            return (*stored, ANYTHING)
        stored.append(name)
    return tuple(stored)


class Receiver(NamedTuple):
    """The item of a run, or its dead letter: it may be retried. `epoch`: of its tenant, which a move raises."""

    location: ZoneLocation
    item_id: bytes
    epoch: int
    record: ItemRecord
    dead_letter: DeadLetterRecord | None

    @property
    def run(self) -> bytes:
        """The run that receives."""
        return self.record.run_of(self.item_id)


def receiver_op(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Operation[Receiver | None]:
    """Return the item that something is sent to, or its dead letter; None: neither is there, the run has ended.

    Reads with conflict: ownership, the record; if there is none, the dead letter. Nothing is written.

    Raises:
      ItemUnreadable: a newer version wrote it, or it is damaged.
      TenantMoved: another shard owns the tenant.
    """
    keys = location.keys
    owner, stored = tr.get(keys.tenant.owner), tr.get(keys.item(item_id))
    yield
    check_owner(tr, location.layout, location.keys.tenant, owner.value)
    epoch = epoch_of(owner.value)
    if stored.value is not None:
        record = decode(ItemRecord, stored.value)
        if record is None:
            raise ItemUnreadable(item=item_id.hex())
        return Receiver(location, item_id, epoch, record, None)
    dead_letter_value = tr.get(keys.dead_letter(item_id)).value
    if dead_letter_value is None:
        return None
    dead_letter = decode(DeadLetterRecord, dead_letter_value)
    if dead_letter is None:
        raise ItemUnreadable(item=item_id.hex())
    return Receiver(location, item_id, epoch, dead_letter.item, dead_letter)


def note_arrival_op(tr: Transaction, receiver: Receiver, name: str, *, wake_us: int, now_us: int) -> Operation[None]:
    """Note that something is kept for a run, and let its item vest at `wake_us` if it waits for that.

    `name`: how the item's record names it among what the item waits for. The caller has called `receiver_op` in this
    transaction, has waited for nothing since, and writes what arrives. Reads with conflict, if it wakes the item: the
    pointer as `pointers.read_for_insert` says. Writes: the record, if it is woken, or if nothing was kept for the run
    before; its index entry, and perhaps the pointer.
    """
    location, item_id, record = receiver.location, receiver.item_id, receiver.record
    kept_before, record.keeps_run = record.keeps_run, True
    if receiver.dead_letter is not None:
        probe("something is sent to a dead letter")
        if not kept_before:
            tr.set(location.keys.dead_letter(item_id), encode(receiver.dead_letter))
    elif (name in record.waits_for or ANYTHING in record.waits_for) and record.vesting_us > wake_us:
        probe("an item is woken by what it waits for")
        record.waits_for = ()
        record.delayed_until_us = wake_us
        stored_item.move(tr, location, item_id, record, wake_us)
        yield from insertion.wake_op(tr, location, earliest_us=wake_us, now_us=now_us)
    elif not kept_before:
        stored_item.rewrite(tr, location, item_id, record)
