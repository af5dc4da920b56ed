"""The claims of a worker as the claim keeper writes them, wherever the items are stored."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.zone_by_zone import Refusal, zone_by_zone
from fairlead.zones.engines import Reader
from fairlead.zones.errors import TenantLocked, TenantMoved
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import SessionState, WorkerSession
from fairlead.zones.transaction_runner import Attempt


class ClaimsMade(NamedTuple):
    """The result of a transaction that claims items.

    `has_begun`: the session has begun. `at_us`: when they were claimed; `until_us`, `renewal_us`: when the claims end,
    and from when on they are renewed, microseconds since the epoch. `completed`: their handlers may have completed
    them, and they are gone: they need no claim. `locked`: the open transaction of their handler has locked them, which
    is as good as a claim. `moved`: their tenants live on other shards, as the errors say. Other items that are locked,
    or whose tenants are, are in no list: they are due again.
    """

    has_begun: bool
    at_us: int
    until_us: int
    renewal_us: int
    claimed: list[HeldItem]
    completed: list[HeldItem]
    locked: list[HeldItem]
    lost: list[HeldItem]
    moved: list[tuple[HeldItem, TenantMoved]]


class Beat(NamedTuple):
    """The answer to a heartbeat. `is_taken`: whether a claim was taken away from the session."""

    at_us: int
    is_taken: Callable[[HeldItem], bool]


class ClaimStore(Protocol):
    """The claims of one worker in one place. Raises what its store raises."""

    def claim(self, session_id: bytes, items: Sequence[HeldItem], *, begins: bool) -> ClaimsMade | None:
        """Claim items, or renew claims, in one transaction; return what became of them. None: the session has ended.

        `begins`: whether the session begins with it, unless it has begun.
        """
        ...

    def beat(self, session_id: bytes, claimed: Sequence[HeldItem]) -> Beat | None:
        """Keep a session alive. `claimed`: what it claims, as the worker knows. None: the session has ended."""
        ...

    def release(self, session_id: bytes, items: Sequence[HeldItem]) -> None:
        """Let items vest now that the session claims, and whose worker goes on without them."""
        ...

    def end(self, session_id: bytes) -> None:
        """End a session for good."""
        ...


class ShardClaims:
    """The claims of a worker on items that lie in a shard. `lease_us`: the length of its leases."""

    def __init__(self, shard: Shard, incarnation: bytes, *, lease_us: int) -> None:
        self._shard = shard
        self._incarnation = incarnation
        self._lease_us = lease_us

    def claim(self, session_id: bytes, items: Sequence[HeldItem], *, begins: bool) -> ClaimsMade | None:
        """See `ClaimStore`.

        A session that an attempt of unknown result may have begun does not begin again: it may have ended since, and a
        consumer that still releases its claims would release those of the new one.
        """
        shard = self._shard
        term_us = shard.layout.settings.max_item_lease_ms * 1000
        may_begin = begins

        def body(attempt: Attempt) -> tuple[int, bool, list[Outcome | Refusal]] | None:
            tr, now_us = attempt.tr, attempt.now_us
            state = run_one(worker_sessions.session_state_op(tr, session_id, begins=may_begin))
            if state is SessionState.OVER:
                return None
            outcomes = zone_by_zone(
                shard,
                [held.ref for held in items],
                lambda zone, held: claims.claim_op(tr, zone.location, held, session_id=session_id, now_us=now_us),
            )
            has_begun = state is SessionState.ALIVE
            if not has_begun and Outcome.DONE in outcomes:
                session = WorkerSession(self._incarnation, now_us)
                worker_sessions.begin(tr, session_id, session, beat=attempt.new_id())
                has_begun = True
            return now_us, has_begun, outcomes

        def applied(_: Reader) -> bool:
            """Return False: the body finds out. From now on this call may have begun the session."""
            nonlocal may_begin
            may_begin = False
            return False

        answer = shard.transact(shard.in_exclusive_section(body), applied=applied)
        if answer is None:
            return None
        now_us, has_begun, outcomes = answer
        renewal_us = now_us + renewed_after_us(term_us, self._lease_us)
        made = ClaimsMade(has_begun, now_us, now_us + term_us, renewal_us, [], [], [], [], [])
        for held, outcome in zip(items, outcomes, strict=True):
            if outcome is Outcome.DONE:
                made.claimed.append(held)
            elif outcome is Outcome.GONE and acknowledgement.may_be_completed(held):
                made.completed.append(held)
            elif isinstance(outcome, TenantMoved):
                made.moved.append((held, outcome))
            elif not isinstance(outcome, TenantLocked):
                made.lost.append(held)
        return made

    def beat(self, session_id: bytes, claimed: Sequence[HeldItem]) -> Beat | None:
        """See `ClaimStore`."""
        shard = self._shard
        notices: dict[tuple[ZoneLocation, bytes], bytes] = {}

        def body(attempt: Attempt) -> int | None:
            found = run_one(worker_sessions.heartbeat_op(attempt.tr, shard.layout, session_id, beat=attempt.new_id()))
            if found is not None:  # Those of an attempt of unknown result are cleared by now.
                notices.update(found)
            return None if found is None else attempt.now_us

        def is_taken(held: HeldItem) -> bool:
            ref = held.ref
            return notices.get((shard.layout.location(ref.tenant, ref.zone), ref.item_id)) == ref.lease_id

        at_us = shard.transact(body)
        return None if at_us is None else Beat(at_us, is_taken)

    def release(self, session_id: bytes, items: Sequence[HeldItem]) -> None:
        """See `ClaimStore`."""
        shard = self._shard

        def body(attempt: Attempt) -> int:
            tr = attempt.tr
            places = [(shard.layout.location(held.ref.tenant, held.ref.zone), held.ref) for held in items]
            keys = [worker_sessions.claim_key(session_id, location, ref.item_id) for location, ref in places]
            reads = [tr.snapshot.get(key) for key in keys]
            left = [
                (location, ref.item_id, ref.lease_id)
                for (location, ref), read in zip(places, reads, strict=True)
                if read.value is not None
            ]
            return claims.release(tr, left, session_id=session_id, now_us=attempt.now_us)

        shard.transact(body)

    def end(self, session_id: bytes) -> None:
        """See `ClaimStore`."""
        shard = self._shard
        shard.transact(lambda attempt: run_one(worker_sessions.end_session_op(attempt.tr, session_id)))


def renewed_after_us(term_us: int, lease_us: int) -> int:
    """Return after how long a claim is renewed: in the last tenth of its term, or as early as a lease is extended."""
    return term_us - max(term_us // 10, lease_us * 2 // 3)
