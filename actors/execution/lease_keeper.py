"""The lease keeper: what a worker does with leases of one place (QuiCK section 6, Algorithm 3, lines 10 to 12).

It has leases made claims instead of extending them (`claim_keeper`), marks starts, and returns items. Its loop works on
what the deadlines loop hands over, so a shard that refuses delays neither another shard nor the decision whether a
handler may go on.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.claim_keeper import CLAIM_MAX
from fairlead.actors.execution.completer import Completer
from fairlead.actors.execution.deadlines import DueWork
from fairlead.actors.execution.held_leases import HeldLeases
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.moved_items import FollowTenant
from fairlead.actors.execution.shard_access import StoreAccess
from fairlead.actors.execution.slots import Slots
from fairlead.actors.runtime.host import Host
from fairlead.zones.errors import TenantMoved
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome

RETURN_MAX = 512  # Items in one transaction that returns them.


class ClaimsItems(Protocol):
    """Keeps items for minutes, whose leases are about to end."""

    def claim(self, items: Sequence[HeldItem]) -> None:
        """Claim items, or extend their leases; cancel those that are lost. Raises what the store raises."""
        ...


class LeaseKeeper:
    """The leases of one worker on items of one place. `follow`: see `Completer`."""

    def __init__(
        self,
        host: Host,
        access: StoreAccess,
        leases: HeldLeases,
        slots: Slots,
        completer: Completer,
        claims: ClaimsItems,
        *,
        follow: FollowTenant,
    ) -> None:
        self._host = host
        self._access = access
        self._leases = leases
        self._slots = slots
        self._completer = completer
        self._claims = claims
        self._follow = follow
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
        try:
            return self._access.succeeds(lambda: self._start_lease(held, lease_us, ran_isolated=ran_isolated))
        except TenantMoved as moved:
            home = self._follow(held, moved)
            return home is not None and home.mark_started(held, lease_us, ran_isolated=ran_isolated)

    def return_items(self, items: Sequence[HeldItem]) -> None:
        """Let items vest now, see `acknowledgement.return_items`. If the store refuses, their leases expire."""
        for some in _pieces(items, RETURN_MAX):
            self._access.succeeds(partial(self._leases.return_items, some))

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
            for some in _pieces(extend, CLAIM_MAX):
                self._access.succeeds(partial(self._claims.claim, some))
            if timed_out:
                self._completer.time_out(timed_out)
            if returning:
                self._completer.note_returned(returning)
                self.return_items(returning)
                self._slots.end_return(returning)

    def _start_lease(self, held: HeldItem, lease_us: int, *, ran_isolated: bool) -> None:
        """Extend a lease and mark the item as started; cancel it if it is lost.

        Raises:
          What the store raises; then the lease was not extended.
          TenantMoved: its tenant lives on another shard.
        """
        until_us, outcome = self._leases.start(held, lease_us, ran_isolated=ran_isolated)
        if outcome is Outcome.DONE or (outcome is Outcome.GONE and acknowledgement.may_be_completed(held)):
            self._slots.extend([held], until_us)
        else:
            probe("an item is leased by another worker, or gone, when it starts")
            self._completer.note_lost(self._slots.lose([held]))


def _pieces(items: Sequence[HeldItem], size: int) -> Iterator[Sequence[HeldItem]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))
