"""Suspension: a workflow that waits is an item with a later vesting time, whose record says what it waits for.

It holds no slot and no lease meanwhile. The transaction that suspends it reads with conflict everything that it waits
for, so what arrives at the same time either is found here, or finds the item waiting and wakes it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion, stored_item
from fairlead.zones.workflow import signals
from fairlead.zones.workflow.run_records import RunHead
from fairlead.zones.workflow.signals import StoredSignal, wait_name
from fairlead.zones.workflow.step_log import Append, HeldRun, append, check_held_op


class Wait(NamedTuple):
    """What a run waits for. `signals`: the names of signals; `until_us`: when it goes on without any of them."""

    signals: Sequence[str]
    until_us: int


def suspend_op(
    tr: Transaction, held: HeldRun, head: RunHead, wait: Wait, pending: Append, *, head_changed: bool, now_us: int
) -> Operation[dict[str, StoredSignal]]:
    """Return the item to its queue until `wait.until_us`, unless something that it waits for is there: return that.

    Then nothing is written, and the caller takes what was found. May run twice: the second run finds the lease gone.

    Reads with conflict: ownership, the record, the signals waited for. Writes: pending entries, the head if it is the
    first or has changed, the record, its index entry; the pointer, if the item vests before its lease would have ended.

    Raises:
      LeaseLost, ItemGone, TenantMoved: see `check_held_op`.
    """
    record = yield from check_held_op(tr, held)
    found = {}
    for name in wait.signals:
        first = yield from signals.first_op(tr, held.location, held.run, name)
        if first is not None:
            found[name] = first
    if found:
        probe("a run that is about to wait finds its signal")
        return found
    append(tr, held, record, head, pending, head_changed=head_changed)
    earlier = wait.until_us < record.vesting_us
    record.keeps_run = True
    record.lease_id, record.started, record.ran_isolated = b"", False, False
    record.error_count = record.expiry_count = record.expired_count = 0
    record.waits_for = tuple(map(wait_name, wait.signals))
    record.suspended_at = record.lease_number
    stored_item.move(tr, held.location, held.item_id, record, max(wait.until_us, now_us))
    if earlier:
        yield from insertion.wake_op(tr, held.location, earliest_us=wait.until_us, now_us=now_us)
    return {}
