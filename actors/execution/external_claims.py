"""The claims of a worker on items that lie in an external store."""

from collections.abc import Sequence

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.claims import Beat, ClaimsMade, renewed_after_us
from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.handlers import Form
from fairlead.zones.engines import Clock
from fairlead.zones.external.sessions import SessionStore
from fairlead.zones.external.store import ItemLease
from fairlead.zones.queue.items import Outcome


class ExternalClaims:
    """See `ClaimStore`.

    Args:
      worker: the worker's incarnation.
      term_us: how long a claim lasts at most. `lease_us`: the length of the worker's leases.
    """

    def __init__(self, store: SessionStore, clock: Clock, worker: bytes, *, term_us: int, lease_us: int) -> None:
        self._store = store
        self._clock = clock
        self._worker = worker
        self._term_us = term_us
        self._lease_us = lease_us

    def claim(self, session_id: bytes, items: Sequence[HeldItem], *, begins: bool) -> ClaimsMade | None:
        """See `ClaimStore`. Begins the session even if nothing is claimed."""
        now_us, term_us = self._clock.now_us(), self._term_us
        outcomes = self._store.claim(session_id, leases_of(items), worker=self._worker, begins=begins, term_us=term_us)
        if outcomes is None:
            return None
        renewal_us = now_us + renewed_after_us(term_us, self._lease_us)
        made = ClaimsMade(True, now_us, now_us + term_us, renewal_us, [], [], [], [], [])
        for held, outcome in zip(items, outcomes, strict=True):
            if outcome is Outcome.DONE:
                made.claimed.append(held)
            elif outcome is None:
                if held.handler.form is Form.IN_STORE and held.phase is Phase.RUNNING:
                    made.locked.append(held)
            elif outcome is Outcome.GONE and acknowledgement.may_be_completed(held):
                made.completed.append(held)
            else:
                made.lost.append(held)
        return made

    def beat(self, session_id: bytes, claimed: Sequence[HeldItem]) -> Beat | None:
        """See `ClaimStore`. What was claimed before, and is not claimed now, was taken away."""
        now_us, known = self._clock.now_us(), set(claimed)
        found = self._store.beat(session_id)
        if found is None:
            return None
        return Beat(now_us, lambda held: held in known and found.get(held.ref.item_id) != held.ref.lease_id)

    def release(self, session_id: bytes, items: Sequence[HeldItem]) -> None:
        """See `ClaimStore`."""
        self._store.release(session_id, leases_of(items))

    def end(self, session_id: bytes) -> None:
        """See `ClaimStore`."""
        self._store.end(session_id)


def leases_of(items: Sequence[HeldItem]) -> list[ItemLease]:
    """Return held items as operations of a store name them."""
    return [ItemLease(held.ref.item_id, held.ref.lease_id) for held in items]
