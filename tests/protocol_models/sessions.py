"""Worker sessions: claims are leases of the longest term that end early if their worker's session ends.

A worker leases items. The first extension makes a lease a claim, and heartbeats keep the session. Any process that
finds a session silent ends it and releases its claims. A manager frees what its dead worker held. An operator deletes
an item, and a tenant moves to another shard.

Each store transaction is one transition. No clock is trusted: a lease may expire at any instant, and a session may be
found silent unless its heartbeat commits between two looks. A worker may die, or pause for any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from tests.protocol_models.exploration import Transition

NOBODY = 0  # Stands for the session of an item that no session claims.
OBSERVED = 1  # Workers are alike, so only the session of one of them is ever found silent.

Action = Literal["delete", "move"]
Reason = Literal["lost", "moved"]


class Guard(Enum):
    """What makes the protocol safe; a model can be built without some of them."""

    LEASE = "an end compares the lease id"
    ALIVE = "a lease becomes a claim only while the session is alive (read with conflict)"
    ONE_TRANSACTION = "the item's record and the claim's key are written in one transaction"
    CONDITIONAL_HEARTBEAT = "a heartbeat fails once its session has ended (it is no blind write)"
    HEARTBEAT_READ = "the transaction that ends a session reads its last heartbeat with conflict"
    END_FIRST = "a session is ended before its claims are released (not: together with the last batch of releases)"
    OWNER_COMPARED = "a release compares the session in the item's record with its own"
    NOTICE = "a transaction that takes a claim away (delete, move, takeover) leaves a notice in the session"
    FREED_CLAIM = "a manager that frees an item clears the claim with the lease"
    KEY_CLEARED = "a transaction that takes a claim away clears the claim's key"
    LISTED_UNTIL_EMPTY = "an ended session is listed until it has no claims"


class Item(NamedTuple):
    """An item's record."""

    state: Literal["due", "leased", "claimed"]
    lease: int  # Number of the latest lease; 0 before the first.
    session: int  # The session that claims the item, or `NOBODY`.


class HeldItem(NamedTuple):
    """What a worker believes about an item that it runs."""

    item: int
    lease: int
    claimed: bool


class Worker(NamedTuple):
    """A worker's process; its session has the worker's number."""

    status: Literal["running", "dead", "stopped"]
    held: frozenset[HeldItem] = frozenset()


class Notice(NamedTuple):
    """Tells a session that one of its claims was taken away."""

    session: int
    item: int
    reason: Reason


class Look(NamedTuple):
    """A process watches a session: whether no heartbeat has committed since its first look."""

    session: int
    silent: bool


class State(NamedTuple):
    """The shard, its workers, and one process that watches sessions."""

    items: tuple[Item | None, ...]  # None: completed or deleted.
    alive: frozenset[int]  # Sessions with an ALIVE key.
    ended: frozenset[int]  # Sessions with an OVER key.
    claim_keys: frozenset[tuple[int, int]]  # (session, item)
    notices: frozenset[Notice]
    workers: tuple[Worker, ...]  # The first has number 1.
    look: Look | None
    leases: int  # Leases so far, of all items.
    completions: tuple[int, ...]  # By item.
    actions: frozenset[Action]  # What may still happen once.

    def with_item(self, index: int, item: Item | None) -> State:
        """Return this state with another record of one item."""
        return self._replace(items=(*self.items[:index], item, *self.items[index + 1 :]))

    def with_worker(self, number: int, worker: Worker) -> State:
        """Return this state with one worker changed."""
        return self._replace(workers=(*self.workers[: number - 1], worker, *self.workers[number:]))

    def without_claim_key(self, session: int, item: int) -> State:
        """Return this state without the key of one claim."""
        return self._replace(claim_keys=self.claim_keys - {(session, item)})


@dataclass(frozen=True)
class Sessions:
    """The model; its fields bound what may happen.

    Args:
      without: the guards that are removed.
      workers: number of workers, each with a session.
      items: number of items, all due in the beginning.
      leases: number of leases, of all items together.
      claims_expire: whether a claim's term may end before its session does.
      actions: what else may happen, each once.
    """

    without: tuple[Guard, ...] = ()
    workers: int = 2
    items: int = 2
    leases: int = 3
    claims_expire: bool = True
    actions: tuple[Action, ...] = ()

    def initial(self) -> State:
        """Return due items, and running workers whose sessions are alive."""
        return State(
            items=(Item("due", 0, NOBODY),) * self.items,
            alive=frozenset(range(1, self.workers + 1)),
            ended=frozenset(),
            claim_keys=frozenset(),
            notices=frozenset(),
            workers=(Worker("running"),) * self.workers,
            look=None,
            leases=0,
            completions=(0,) * self.items,
            actions=frozenset(self.actions),
        )

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield what each process may do next."""
        for number, worker in enumerate(state.workers, 1):
            if worker.status == "dead":
                yield from self._reclaim(state, number, worker)
            elif worker.status == "running":
                dead = state.with_worker(number, worker._replace(status="dead"))
                yield Transition(f"worker {number} dies", dead)
                yield self._heartbeat(state, number, worker)
                yield from self._lease(state, number, worker)
                for held in worker.held:
                    yield from self._claim(state, number, worker, held)
                    yield self._complete(state, number, worker, held)
        yield from self._end_session(state)
        yield from self._release(state)
        yield from self._act(state)

    def violation(self, state: State) -> str | None:
        """Require single completions, and that each claim ends with its session."""
        if max(state.completions) > 1:
            return "an item is completed twice"
        for index, item in enumerate(state.items):
            if item is not None and item.state == "claimed":
                if (item.session, index) not in state.claim_keys:
                    return "a claim has no key: only its term ends it"
                if item.session not in state.alive | state.ended:
                    return "a claim's session is not listed: only the claim's term ends it"
        return None

    # --- What a worker does ---

    def _heartbeat(self, state: State, number: int, worker: Worker) -> Transition[State]:
        """Write the heartbeat, read and clear the session's notices."""
        if number not in state.alive and self._has(Guard.CONDITIONAL_HEARTBEAT):
            return Transition(
                f"worker {number} stops: its heartbeat fails", state.with_worker(number, Worker("stopped"))
            )
        lost = {notice.item for notice in state.notices if notice.session == number and notice.reason == "lost"}
        moved = {notice.item for notice in state.notices if notice.session == number and notice.reason == "moved"}
        held = frozenset(
            each._replace(claimed=each.claimed and each.item not in moved)
            for each in worker.held
            if each.item not in lost
        )
        look = Look(number, silent=False) if state.look and state.look.session == number else state.look
        after = state.with_worker(number, worker._replace(held=held))._replace(
            alive=state.alive | {number},
            look=look,
            notices=frozenset(notice for notice in state.notices if notice.session != number),
        )
        violation = None
        for each in held:
            item = state.items[each.item]
            is_its_claim = item is not None and item.lease == each.lease and item.session == number
            if each.claimed and not is_its_claim:
                violation = "a worker with a heartbeat continues an item that it has lost"
        return Transition(f"worker {number} writes a heartbeat", after, violation)

    def _lease(self, state: State, number: int, worker: Worker) -> Iterator[Transition[State]]:
        """Lease an item: due, or of an expired lease, or of an expired claim."""
        if state.leases == self.leases:
            return
        lease = state.leases + 1
        for index, item in enumerate(state.items):
            if item is None or (item.state == "claimed" and not self.claims_expire):
                continue
            held = frozenset(each for each in worker.held if each.item != index) | {HeldItem(index, lease, False)}
            after = self._take_claim(state, index, "lost").with_item(index, Item("leased", lease, NOBODY))
            after = after.with_worker(number, worker._replace(held=held))._replace(leases=lease)
            yield Transition(f"worker {number} leases item {index}", after)

    def _claim(self, state: State, number: int, worker: Worker, held: HeldItem) -> Iterator[Transition[State]]:
        """Extend a lease for the first time, which makes it a claim of the worker's session."""
        item = state.items[held.item]
        is_holder = item is not None and item.lease == held.lease
        if not held.claimed:
            if self._has(Guard.ALIVE) and number not in state.alive:
                stopped = state.with_worker(number, Worker("stopped"))
                yield Transition(f"worker {number} stops: its session has ended", stopped)
            elif not is_holder:
                after = state.with_worker(number, _drop(worker, held))
                yield Transition(f"worker {number} finds its lease of item {held.item} lost", after)
            else:
                claimed = Worker(worker.status, worker.held - {held} | {held._replace(claimed=True)})
                after = state.with_item(held.item, Item("claimed", held.lease, number)).with_worker(number, claimed)
                if self._has(Guard.ONE_TRANSACTION):
                    after = after._replace(claim_keys=state.claim_keys | {(number, held.item)})
                yield Transition(f"worker {number} claims item {held.item}", after)
        elif not self._has(Guard.ONE_TRANSACTION) and is_holder:
            after = state._replace(claim_keys=state.claim_keys | {(number, held.item)})
            yield Transition(f"worker {number} writes its claim's key of item {held.item}", after)

    def _complete(self, state: State, number: int, worker: Worker, held: HeldItem) -> Transition[State]:
        """Complete an item, which compares its lease and reads no session."""
        item = state.items[held.item]
        is_holder = item is not None and item.lease == held.lease
        dropped = state.with_worker(number, _drop(worker, held))
        if item is None or not (is_holder or not self._has(Guard.LEASE)):
            return Transition(f"worker {number} cannot complete item {held.item}", dropped)
        counts = list(state.completions)
        counts[held.item] += 1
        after = dropped.with_item(held.item, None).without_claim_key(item.session, held.item)
        violation = None if is_holder else "an item is completed by a worker that does not hold it"
        return Transition(
            f"worker {number} completes item {held.item}", after._replace(completions=tuple(counts)), violation
        )

    # --- What other processes do ---

    def _reclaim(self, state: State, number: int, worker: Worker) -> Iterator[Transition[State]]:
        """Free what a dead worker held: its manager, on the same machine, knows what it has sent to the worker."""
        for held in worker.held:
            after = state.with_worker(number, _drop(worker, held))
            item = state.items[held.item]
            if item is not None and item.lease == held.lease:
                if self._has(Guard.FREED_CLAIM):
                    after = after.with_item(held.item, Item("due", held.lease, NOBODY))
                    after = after.without_claim_key(item.session, held.item)
                else:
                    after = after.with_item(held.item, item._replace(state="due"))
            yield Transition(f"the manager frees item {held.item} of worker {number}", after)

    def _end_session(self, state: State) -> Iterator[Transition[State]]:
        """Look twice at a session's heartbeat, and end the session if it is the same."""
        if state.look is None:
            if OBSERVED in state.alive:
                yield Transition(f"a process looks at session {OBSERVED}", state._replace(look=Look(OBSERVED, True)))
            return
        session, silent = state.look
        if session in state.alive and (silent or not self._has(Guard.HEARTBEAT_READ)):
            violation = None if silent else "a session is ended although a heartbeat has committed"
            ended = state._replace(alive=state.alive - {session}, ended=state.ended | {session}, look=None)
            if self._has(Guard.END_FIRST):
                yield Transition(f"session {session} is ended", ended, violation)
            else:
                claimed = sorted(item for owner, item in state.claim_keys if owner == session)
                after = ended if len(claimed) < 2 else state
                if claimed:
                    after = after.without_claim_key(session, claimed[0])
                    item = state.items[claimed[0]]
                    if item is not None and item.session == session:
                        after = after.with_item(claimed[0], Item("due", item.lease, NOBODY))
                yield Transition(f"a batch of session {session} is released", after, violation)
        yield Transition(f"the process looks away from session {session}", state._replace(look=None))

    def _release(self, state: State) -> Iterator[Transition[State]]:
        """Release the claims of an ended session, one by one, and then forget the session."""
        for session in sorted(state.ended):
            claimed = sorted(item for owner, item in state.claim_keys if owner == session)
            for index in claimed:
                item, after, violation = state.items[index], state.without_claim_key(session, index), None
                if item is not None and (item.session == session or not self._has(Guard.OWNER_COMPARED)):
                    if item.session != session and item.state != "due":
                        violation = "a release frees an item that another worker holds"
                    after = after.with_item(index, Item("due", item.lease, NOBODY))
                yield Transition(f"the claim of session {session} on item {index} is released", after, violation)
            if not claimed or not self._has(Guard.LISTED_UNTIL_EMPTY):
                yield Transition(f"session {session} is forgotten", state._replace(ended=state.ended - {session}))

    def _act(self, state: State) -> Iterator[Transition[State]]:
        """Delete an item; move an item: there a claim is a plain lease, which its worker claims again."""
        for index, item in enumerate(state.items):
            if item is not None and "delete" in state.actions:
                after = self._take_claim(state, index, "lost").with_item(index, None)
                yield Transition(f"item {index} is deleted", after._replace(actions=state.actions - {"delete"}))
            if item is not None and item.session != NOBODY and "move" in state.actions:
                after = self._take_claim(state, index, "moved").with_item(index, Item("leased", item.lease, NOBODY))
                yield Transition(f"item {index} moves", after._replace(actions=state.actions - {"move"}))

    # --- Parts of transactions ---

    def _take_claim(self, state: State, index: int, reason: Reason) -> State:
        """Clear an item's claim, if it has one, and leave a notice in the session that had it."""
        item = state.items[index]
        if item is None or item.session == NOBODY:
            return state
        if self._has(Guard.KEY_CLEARED):
            state = state.without_claim_key(item.session, index)
        if self._has(Guard.NOTICE):
            state = state._replace(notices=state.notices | {Notice(item.session, index, reason)})
        return state

    def _has(self, guard: Guard) -> bool:
        return guard not in self.without


def _drop(worker: Worker, held: HeldItem) -> Worker:
    return worker._replace(held=worker.held - {held})


SCENES = {
    "two workers, two items": Sessions(),
    "two workers, two items, four leases": Sessions(leases=4, claims_expire=False),
    "delete and move": Sessions(items=1, leases=4, actions=("delete", "move")),
    "three workers, one item": Sessions(workers=3, items=1),
}
