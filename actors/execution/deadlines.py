"""What a worker must do for the items it holds, besides running them: pure decisions, taken a few times per lease.

A lease is extended once a third of it has passed, so two extensions may fail before it runs out. An item whose
transactional handler is open is not extended: that would conflict with it. One whose completion is being committed is
left alone, even if its lease ends meanwhile: the commit itself finds out whether somebody has taken the item over.
A handler that waits for any commit is not stuck: the store is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.execution.job import STUCK_US
from fairlead.actors.handlers import Form
from fairlead.zones.probes import probe

TRANSACTION_LEASE_US = 6_000_000  # A transactional attempt may take 5 s, and its lease is not extended meanwhile.
TICK_US = 100_000  # How often chores are looked for while anything is held; bounds how late a timeout is noticed.
WAITING_US_MAX = 500_000  # An item that found no slot for so long is given back: another worker may have one.


@dataclass(slots=True)
class Chores:
    """What to do now, by what must be done."""

    extend: list[HeldItem] = field(default_factory=list)
    time_out: list[HeldItem] = field(default_factory=list)
    lost: list[HeldItem] = field(default_factory=list)
    give_back: list[HeldItem] = field(default_factory=list)
    stuck: list[HeldItem] = field(default_factory=list)

    def by_shard(self) -> dict[str, "Chores"]:
        """Return what the store must be told, by the shard that must be told."""
        shards: dict[str, Chores] = {}
        for held in self.extend:
            shards.setdefault(held.ref.shard, Chores()).extend.append(held)
        for held in self.time_out:
            shards.setdefault(held.ref.shard, Chores()).time_out.append(held)
        for held in self.give_back:
            shards.setdefault(held.ref.shard, Chores()).give_back.append(held)
        return shards


def chores(held_items: Iterable[HeldItem], *, now_us: int, lease_us: int) -> Chores:
    """Sort what a worker holds by what must be done for it. To be called each `TICK_US`: it counts time."""
    work = Chores()
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
                work.stuck.append(held)
        elif now_us >= held.lease_until_us:
            probe("a lease ends while its worker holds the item")
            work.lost.append(held)
        elif running and held.running_for is not None and held.running_for.by(now_us) >= held.handler.timeout_ms * 1000:
            probe("a handler runs past its timeout")
            work.time_out.append(held)
        elif not running and held.waited_us(now_us) >= WAITING_US_MAX:
            probe("an item waits too long for a slot, and goes back")
            work.give_back.append(held)
        else:
            open_transaction = running and held.handler.form is Form.TRANSACTIONAL
            if held.lease_until_us - now_us <= lease_us * 2 // 3 and not open_transaction:
                work.extend.append(held)
    return work


def lease_at_start(held: HeldItem, *, now_us: int, lease_us: int) -> int | None:
    """Return the lease that an item needs to be given before its handler starts, in microseconds; None: it has it.

    One that ended while the item waited (the worker stood still) can be had again unless somebody took the item over.
    An item that has lapsed before gets one that says that it has started: only such attempts are held against it.
    """
    if held.handler.form is Form.TRANSACTIONAL and held.lease_until_us - now_us < TRANSACTION_LEASE_US:
        return max(lease_us, TRANSACTION_LEASE_US)
    if now_us >= held.lease_until_us:
        probe("an item whose lease has ended is leased anew before it starts")
        return lease_us
    return lease_us if held.ref.alone or held.record.expired_count else None
