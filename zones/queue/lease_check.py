"""Whether a caller still holds an item under its lease: what was found, and the error for it."""

from collections.abc import Sequence

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemGone, ItemUnreadable, LeaseLost, QueueError
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import ItemRecord, decode

LeaseRef = tuple[bytes, bytes | None]  # item id, and the lease under which the caller holds it


def check_leases_op(
    tr: Transaction, location: ZoneLocation, held: Sequence[LeaseRef]
) -> Operation[list[ItemRecord | Outcome]]:
    """Read held items' records and the tenant's ownership with conflict; return the records, or why one is not held."""
    owner = tr.get(location.keys.tenant.owner)
    reads = [tr.get(location.keys.item(item_id)) for item_id, _ in held]
    yield
    check_owner(tr, location.layout, location.keys.tenant, owner.value)
    return [check_lease(read.value, lease_id) for read, (_, lease_id) in zip(reads, held, strict=True)]


def check_lease(value: bytes | None, lease_id: bytes | None) -> ItemRecord | Outcome:
    """Return the record of an item as it was read, or why it is not held. `lease_id` None: any lease will do."""
    if value is None:
        probe("a held item is gone")
        return Outcome.GONE
    record = decode(ItemRecord, value)
    if record is None:
        return Outcome.UNREADABLE
    if lease_id is not None and record.lease_id != lease_id:
        probe("a held item was leased by another holder")
        return Outcome.LEASE_LOST
    return record


_ERRORS = {Outcome.GONE: ItemGone, Outcome.LEASE_LOST: LeaseLost, Outcome.UNREADABLE: ItemUnreadable}


def error_of(outcome: Outcome, item_id: bytes) -> QueueError:
    """Return the error for what was found instead of a held item."""
    return _ERRORS[outcome](item=item_id.hex())


def raise_unless_done(outcome: Outcome, item_id: bytes) -> None:
    """Raise the error for what was found instead of a held item, unless the operation was done."""
    if outcome is not Outcome.DONE:
        raise error_of(outcome, item_id)
