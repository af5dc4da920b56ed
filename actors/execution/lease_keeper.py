"""The lease keeper: what a worker does with the leases of one shard (QuiCK section 6, Algorithm 3, lines 10 to 12).

It extends leases, marks starts, and returns items. Its loop works on what the deadlines loop hands over, so a shard
that refuses delays neither another shard nor the decision whether a handler may go on.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.completer import Completer
from fairlead.actors.execution.deadlines import DueWork
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.shard_access import ShardAccess
from fairlead.actors.execution.slots import Slots
from fairlead.actors.execution.zone_by_zone import zone_by_zone
from fairlead.actors.runtime.host import Host
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.transaction_runner import Attempt

EXTEND_MAX = 256  # Items in one transaction that extends leases.
RETURN_MAX = 512  # Items in one transaction that returns them.


class LeaseKeeper:
    """The leases of one worker on one shard."""

    def __init__(self, host: Host, access: ShardAccess, slots: Slots, completer: Completer, *, lease_us: int) -> None:
        self._host = host
        self._access = access
        self._slots = slots
        self._completer = completer
        self._lease_us = lease_us
        self._lock = host.lock()
        self._handed_over = host.condition(self._lock)
        self._extend: Sequence[HeldItem] = ()
        self._time_out: list[HeldItem] = []
        self._return: list[HeldItem] = []
        self._stopping = False

    def start(self) -> None:
        """Start the loop."""
        self._host.spawn("lease keeper", self._run)

    def stop(self) -> None:
        """Let the loop end once it has done what it was handed."""
        with self._lock:
            self._stopping = True
            self._handed_over.notify_all()

    def take(self, due: DueWork) -> None:
        """Take over what is due on this shard. An extension that cannot be made now is due again later."""
        with self._lock:
            self._extend = due.extend
            self._time_out += due.time_out
            self._return += due.return_now
            self._handed_over.notify()

    # --- Waits for the store ---

    def mark_started(self, held: HeldItem, lease_us: int, *, ran_isolated: bool) -> bool:
        """Give an item the lease with which its handler starts, and mark it as started; False if the store refuses.

        `ran_isolated`: also mark that it runs isolated.
        """
        return self._access.succeeds(
            lambda: self._extend_leases([held], lease_us, started=True, ran_isolated=ran_isolated)
        )

    def return_items(self, items: Sequence[HeldItem]) -> None:
        """Let items vest now, see `acknowledgement.return_items`. If the store refuses, their leases expire."""
        for some in _pieces(items, RETURN_MAX):
            refs = [held.ref for held in some]
            self._access.succeeds(partial(acknowledgement.return_items, self._access.shard, refs))

    def _run(self) -> None:
        while True:
            with self._lock:
                while not (self._extend or self._time_out or self._return):
                    if self._stopping:
                        return
                    self._handed_over.wait()
                extend, self._extend = self._extend, ()
                timed_out, self._time_out = self._time_out, []
                returning, self._return = self._return, []
            for some in _pieces(extend, EXTEND_MAX):
                self._access.succeeds(partial(self._extend_leases, some, self._lease_us))
            if timed_out:
                self._completer.time_out(timed_out)
            if returning:
                self._completer.note_returned(returning)
                self.return_items(returning)
                self._slots.end_return(returning)

    def _extend_leases(
        self, items: Sequence[HeldItem], lease_us: int, *, started: bool = False, ran_isolated: bool = False
    ) -> None:
        """Extend leases in one transaction; cancel the items that are lost. The marks: see `QueueZone.extend_op`.

        Raises:
          What the store raises; then no lease was extended.
        """
        shard = self._access.shard

        def body(attempt: Attempt) -> tuple[int, list[Outcome]]:
            tr, now_us = attempt.tr, attempt.now_us
            outcomes = zone_by_zone(
                shard,
                [held.ref for held in items],
                lambda zone, held: zone.extend_op(
                    tr, held, lease_us=lease_us, now_us=now_us, started=started, ran_isolated=ran_isolated
                ),
            )
            return now_us + lease_us, outcomes

        until_us, outcomes = shard.transact(shard.in_exclusive_section(body))
        extended: list[HeldItem] = []
        gone: list[HeldItem] = []
        for held, outcome in zip(items, outcomes, strict=True):
            may_be_done = outcome is Outcome.GONE and acknowledgement.may_be_completed(held)
            (extended if outcome is Outcome.DONE or may_be_done else gone).append(held)
        self._slots.extend(extended, until_us)
        if gone:
            probe("an extension finds its item leased by another worker, or gone")
            self._completer.note_lost(self._slots.lose(gone))


def _pieces(items: Sequence[HeldItem], size: int) -> Iterator[Sequence[HeldItem]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))
