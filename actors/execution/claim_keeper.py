"""The claim keeper: a worker's claims in one place, and the session that keeps them (`top_level.worker_sessions`).

The first extension of a lease makes it a claim; the renewals of a claim come here, too. From the first claim on, a loop
sends a heartbeat a second. It learns from it which claims were taken away, and whether the session has ended. Some
seconds after the last claim the session ends, and the next claim begins a new one.

A handler goes on as long as heartbeats are answered. Without an answer for the time of a lease, or for five seconds if
that is longer, a worker must assume that other workers run its items: then `deadlines` finds them lost. If a consumer
has ended the session, the worker claims under a new one what nobody has leased yet, and loses the rest. A claim whose
item the worker does not hold any more, because the store refused its end, is released.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from fairlead.actors.execution.claims import ClaimStore
from fairlead.actors.execution.completer import Completer
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.moved_items import FollowTenant
from fairlead.actors.execution.shard_access import StoreAccess
from fairlead.actors.execution.slots import Slots
from fairlead.actors.runtime.host import Host
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import ID_BYTES
from fairlead.zones.probes import probe
from fairlead.zones.top_level.worker_sessions import HEARTBEAT_US

UNANSWERED_US_MIN = 5_000_000  # As long as a session must be silent, before a consumer ends it.
IDLE_HEARTBEATS = 5  # Without a claim, before the session ends: long jobs often follow one another.
CLAIM_MAX = 256  # Items in one transaction that claims them.
RELEASE_MAX = 256  # Claims in one transaction that releases them.


class ClaimKeeper:
    """The claims of one worker in one place: a shard, or an external store.

    `follow`: see `Completer`. `lease_us`: the length of the worker's leases.
    """

    def __init__(
        self,
        host: Host,
        access: StoreAccess,
        claims: ClaimStore,
        slots: Slots,
        completer: Completer,
        *,
        follow: FollowTenant,
        lease_us: int,
    ) -> None:
        self._host = host
        self._access = access
        self._claims = claims
        self._slots = slots
        self._completer = completer
        self._follow = follow
        self._lease_us = lease_us
        self._lock = host.lock()
        self._begun = host.condition(self._lock)
        self._stopped = host.condition(self._lock)
        self._ended = host.condition(self._lock)
        self._session_id: bytes | None = None
        self._has_begun = False  # The session is known to have begun.
        self._claimed: dict[HeldItem, bool] = {}  # Whether it is claimed under the session; False: it may be.
        self._dropped: set[HeldItem] = set()  # Of these: not held any more at the last heartbeat.
        self._idle_heartbeats = 0
        self._stopping = self._has_ended = False

    def start(self) -> None:
        """Start the loop."""
        self._host.spawn("claim keeper", self._run)

    def stop(self) -> None:
        """Let the loop end the session, and end. From now on nothing is claimed."""
        with self._lock:
            self._stopping = True
            self._begun.notify_all()
            self._stopped.notify_all()

    def await_end(self, timeout_us: int) -> None:
        """Wait until the loop has ended, `timeout_us` at most."""
        with self._lock:
            if not self._has_ended:
                self._ended.wait(timeout_us / 1e6)

    def end_once(self) -> None:
        """End the session in one try, for a worker that is abandoned. Otherwise a consumer finds it silent."""
        with self._lock:
            self._stopping = True
            session_id = self._session_id
            self._leave_session()
            self._begun.notify_all()
            self._stopped.notify_all()
        if session_id is not None:
            self._access.succeeds(partial(self._claims.end, session_id))

    # --- Waits for the store ---

    def claim(self, items: Sequence[HeldItem]) -> None:
        """Make leases claims, or renew them, in one transaction; cancel the items that are lost.

        Items whose claims need no renewal yet stay as they are: they were handed over while their claims were on the
        way. If the session has ended meanwhile, nothing is claimed, and the items are due again.

        Raises:
          What the store raises; then nothing was claimed, or that is not known.
        """
        now_us = self._host.clock.now_us()
        due = [held for held in items if now_us >= held.renewal_us]
        if due:
            self._claim(due)

    def _claim(self, items: Sequence[HeldItem]) -> None:
        with self._lock:
            if self._stopping:
                return
            if self._session_id is None:
                self._session_id = self._host.random.randbytes(ID_BYTES)
            session_id, begins = self._session_id, not self._has_begun
            # Noted before the commit: its result may stay unknown, and a heartbeat may bring a notice before it ends.
            for held in items:
                self._claimed.setdefault(held, False)
            self._idle_heartbeats = 0
        try:
            made = self._claims.claim(session_id, items, begins=begins)
        except self._access.errors:
            self._leave_unknown(session_id)
            raise
        if made is None:
            self._go_on_without(session_id)
            return
        with self._lock:
            is_current = self._session_id == session_id
            if is_current and made.has_begun:
                self._has_begun = True
                self._claimed.update(dict.fromkeys(made.claimed, True))
                self._begun.notify()
        if is_current:  # Otherwise they are due again, under the next session.
            self._forget(made.lost)
            self._slots.claim(made.claimed, self._kept_until_us(made.at_us), made.until_us, made.renewal_us)
            self._forget([*made.completed, *made.locked])
            self._slots.extend(made.completed, made.until_us)
            self._slots.extend(made.locked, made.at_us + self._lease_us)
        elif begins:  # The worker has stopped meanwhile.
            self._access.succeeds(partial(self._claims.end, session_id))
        self._lose(made.lost)
        self._hand_over(made.moved)

    def _hand_over(self, moved: Sequence[tuple[HeldItem, TenantMoved]]) -> None:
        """Have items claimed where their tenants live now. Their leases stay valid."""
        self._forget(held for held, _ in moved)
        for held, error in moved:
            home = self._follow(held, error)
            if home is None:
                self._lose([held])
            else:
                probe("a worker claims an item where its tenant has moved to")
                home.claim_moved(held)

    def claim_moved(self, held: HeldItem) -> None:
        """Claim an item whose tenant has moved to this shard; if the shard refuses, it is due again later."""
        self._access.succeeds(partial(self._claim, [held]))

    def _leave_unknown(self, session_id: bytes) -> None:
        """Leave a session that may have begun without an answer. If it has, a consumer will find it silent."""
        with self._lock:
            if self._session_id == session_id and not self._has_begun:
                self._leave_session()

    def _run(self) -> None:
        while (session_id := self._await_heartbeat()) is not None:
            self._access.succeeds(partial(self._send_heartbeat, session_id))
        with self._lock:
            self._has_ended = True
            self._ended.notify_all()

    def _await_heartbeat(self) -> bytes | None:
        """Return the session once its next heartbeat is due; None: the worker stops, and the session has ended."""
        while True:
            with self._lock:
                while not self._has_begun and not self._stopping:
                    self._begun.wait()
                if not self._stopping:
                    self._stopped.wait(HEARTBEAT_US / 1e6)
                session_id, stopping = self._session_id, self._stopping
                ends = stopping or self._idle_heartbeats >= IDLE_HEARTBEATS
                if ends:
                    self._leave_session()
                elif self._has_begun:
                    return session_id
            if ends and session_id is not None:
                self._access.succeeds(partial(self._claims.end, session_id))
            if stopping:
                return None

    def _send_heartbeat(self, session_id: bytes) -> None:
        with self._lock:
            known = [held for held, is_claimed in self._claimed.items() if is_claimed]
        beat = self._claims.beat(session_id, known)
        if beat is None:
            self._go_on_without(session_id)
            return
        with self._lock:
            if self._session_id != session_id:
                return
            claimed = list(self._claimed)  # Read after the beat: what it says is about one of these, or an older one.
            kept = [held for held in claimed if self._claimed[held]]
        self._slots.keep_claims(kept, self._kept_until_us(beat.at_us))
        taken_away = [held for held in claimed if beat.is_taken(held)]
        self._forget(taken_away)
        self._claim_again([held for held in taken_away if not (held.job.may_be_completed or held.is_ending)])
        self._release_dropped(session_id, claimed)

    def _claim_again(self, items: Sequence[HeldItem]) -> None:
        """Claim items that were taken away: only those of tenants that move, or have moved, are still this worker's."""
        if items:
            self._access.succeeds(partial(self._claim, items))

    def _go_on_without(self, session_id: bytes) -> None:
        """Claim under a new session what nobody has leased yet, because a consumer has ended the session."""
        with self._lock:
            if self._session_id != session_id:
                return
            claimed = list(self._claimed)
            self._leave_session()
        probe("a worker goes on under a new session")
        held_now = self._held_of(claimed)
        for begin in range(0, len(held_now), CLAIM_MAX):
            self._access.succeeds(partial(self._claim, held_now[begin : begin + CLAIM_MAX]))
        with self._lock:
            lost = [held for held in held_now if held.claim_until_us and not self._claimed.get(held)]
        self._lose(lost)

    def _release_dropped(self, session_id: bytes, claimed: Sequence[HeldItem]) -> None:
        """Release the claims of items that were not held at two heartbeats, and whose claims are still there.

        One whose end is being committed is not held, or cancelled, for a moment only.
        """
        held_now = set(self._held_of(claimed))
        dropped = {held for held in claimed if held not in held_now}
        with self._lock:
            due = [held for held in claimed if held in dropped and held in self._dropped]
            self._dropped = dropped - set(due)
            self._idle_heartbeats = 0 if held_now or dropped else self._idle_heartbeats + 1
        for begin in range(0, len(due), RELEASE_MAX):
            some = due[begin : begin + RELEASE_MAX]
            self._claims.release(session_id, some)
            self._forget(some)

    # --- Bookkeeping ---

    def _leave_session(self) -> None:
        """Let the next claim begin a session. The lock is held."""
        self._session_id, self._has_begun, self._idle_heartbeats = None, False, 0
        self._claimed.clear()
        self._dropped.clear()

    def _kept_until_us(self, at_us: int) -> int:
        """Return until when handlers may go on if the store answers nothing after a transaction at `at_us`."""
        return at_us + max(self._lease_us, UNANSWERED_US_MIN)

    def _held_of(self, items: Sequence[HeldItem]) -> list[HeldItem]:
        held = set(self._slots.items())
        return [each for each in items if each in held and not each.job.cancelled]

    def _forget(self, items: Iterable[HeldItem]) -> None:
        with self._lock:
            for held in items:
                self._claimed.pop(held, None)

    def _lose(self, items: Sequence[HeldItem]) -> None:
        lost = self._slots.lose(items)
        if lost:
            probe("a worker finds that its claim, or its lease, was taken away")
            self._completer.note_lost(lost)
