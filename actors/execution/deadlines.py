"""What is due for the items that a worker holds, besides running them: pure decisions, made several times per lease.

A lease becomes a claim once a third of it has passed, so two attempts may fail before it expires. A claim is renewed
near the end of its term (`claim_keeper`); meanwhile heartbeats keep it. Exceptions:
    an open transaction of a handler   its item is not extended: the extension would conflict with the transaction
    a completion that is committed     its item is left as it is, even if its lease expires meanwhile: the commit itself
                                       finds out whether another worker has leased the item
    a handler that waits for a commit  it is not stuck: it waits for the store
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.execution.job import STUCK_US
from fairlead.actors.handlers import Form
from fairlead.zones.probes import probe

TRANSACTION_LEASE_US = 6_000_000  # A transactional attempt may take 5 s, and its lease is not extended meanwhile.
TICK_US = 100_000  # How often deadlines are checked while an item is held; bounds how late a timeout is noticed.
WAITING_US_MAX = 500_000  # An item that found no slot for so long is returned: another worker may have a free slot.


@dataclass(slots=True)
class DueWork:
    """What is due now, by what has to be done: each held item is in one list at most."""

    extend: list[HeldItem] = field(default_factory=list)
    time_out: list[HeldItem] = field(default_factory=list)
    lost: list[HeldItem] = field(default_factory=list)
    return_now: list[HeldItem] = field(default_factory=list)
    stuck: list[HeldItem] = field(default_factory=list)

    def for_store(self) -> dict[str, "DueWork"]:
        """Return what needs a transaction, by the places of the items."""
        shards: dict[str, DueWork] = {}
        for held in self.extend:
            shards.setdefault(held.place, DueWork()).extend.append(held)
        for held in self.time_out:
            shards.setdefault(held.place, DueWork()).time_out.append(held)
        for held in self.return_now:
            shards.setdefault(held.place, DueWork()).return_now.append(held)
        return shards


def due_work(held_items: Iterable[HeldItem], *, now_us: int, lease_us: int) -> DueWork:
    """Return what is due for the items that a worker holds. To be called every `TICK_US`, because it counts time."""
    due = DueWork()
    for held in held_items:
        if held.phase is not Phase.WAITING and held.is_ending:
            continue
        running = held.phase is Phase.RUNNING
        if held.job.cancelled:
            cancelled_for = held.cancelled_for
            if (
                running
                and cancelled_for is not None
                and cancelled_for.by(now_us) >= STUCK_US
                and not held.committing.in_progress
            ):
                probe("a handler ignores that it was cancelled")
                due.stuck.append(held)
        elif now_us >= held.lease_until_us:
            probe("a lease expires while its worker holds the item")
            due.lost.append(held)
        elif running and held.running_for is not None and held.running_for.by(now_us) >= held.handler.timeout_ms * 1000:
            probe("a handler runs past its timeout")
            due.time_out.append(held)
        elif not running and held.waited_us(now_us) >= WAITING_US_MAX:
            probe("an item waits too long for a slot, and is returned")
            due.return_now.append(held)
        else:
            open_transaction = running and (held.handler.form is Form.TRANSACTIONAL or held.open_steps > 0)
            due_us = held.renewal_us or held.lease_until_us - lease_us * 2 // 3
            if now_us >= due_us and not open_transaction:
                due.extend.append(held)
    return due


def lease_at_start(held: HeldItem, *, now_us: int, lease_us: int) -> int | None:
    """Return the length of the lease that an item needs before its handler starts, in microseconds; None: it has it.

    A lease that expired while the item waited (the worker stood still) can be extended, unless another worker has
    leased the item. An item whose lease has expired before gets a lease that records the start: only expiries of
    started attempts count against an item.
    """
    if held.handler.form is Form.TRANSACTIONAL and held.lease_until_us - now_us < TRANSACTION_LEASE_US:
        return max(lease_us, TRANSACTION_LEASE_US)
    if now_us >= held.lease_until_us:
        probe("an item whose lease has expired is leased again before it starts")
        return lease_us
    return lease_us if held.ref.isolated or held.record.expired_count else None
