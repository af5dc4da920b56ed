"""A manager's workers: how much capacity they have, what of it is reserved, and the calls to them.

A report states what a worker held when it was written. Items that were sent later, and not yet answered, are added. A
worker that died has no capacity until it answers again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fairlead.actors.dispatch.concurrency_limiter import ConcurrencyLimiter, Usage
from fairlead.actors.dispatch.pool_member import Member
from fairlead.actors.messages import ItemRef, Report
from fairlead.actors.runtime.host import Condition, Lock, Remote, note_failed_call
from fairlead.zones.queue.dequeue_plan import UNLIMITED, Capacity

log = logging.getLogger("fairlead.manager")


class Assignment(NamedTuple):
    """Items for one worker, and for which of its incarnations."""

    worker: int
    refs: Sequence[ItemRef]
    incarnation: bytes


class ReservedCapacity(NamedTuple):
    """What one call may take.

    `limited`: how much of it is reserved to this call alone, by kinds with limits. `in_flight_limit`: how many items
    the living workers want to hold at once.
    """

    capacity: Capacity
    limited: Mapping[str, int]
    poison_candidates: int
    in_flight_limit: int


class WorkerPool:
    """The workers of one manager. `lock`: the manager's; callers hold it, but for `place`.

    Args:
      isolated: the worker that takes poison candidates, and nothing else, if this manager has it. It may not have been
        started.
      limits: returns the manager's share of each handler's `max_running`, by kind; None: no limit. Called each time,
        because handlers can be submitted while the fleet runs.
      changed: notified with every answer.

    Attributes:
      members: all of them, the isolated one last.
      met_poison_candidates: whether there has been use for the isolated worker.
    """

    def __init__(
        self,
        workers: Sequence[Remote],
        lock: Lock,
        changed: Condition,
        *,
        limits: Callable[[], Mapping[str, int | None]],
        isolated: Remote | None = None,
    ) -> None:
        self._workers = [*workers, *([] if isolated is None else [isolated])]
        self.members = [Member() for _ in self._workers]
        self.met_poison_candidates = False
        self._regular = self.members[: len(workers)]  # those that run items beside others
        self._isolated = self.members[-1] if isolated is not None else None
        self._limits = limits
        self._reserved: Counter[str] = Counter()  # how many items of limited kinds the calls under way may take
        self._reserved_poison_candidates = 0
        self._lock = lock
        self._changed = changed

    @property
    def capacity(self) -> int:
        """How many items the workers can take, poison candidates apart."""
        return sum(member.capacity for member in self._regular)

    @property
    def in_flight_limit(self) -> int:
        """How many items the living workers want to hold at once, poison candidates apart."""
        return sum(member.report.in_flight_limit for member in self._regular if member.report is not None)

    @property
    def poison_candidate_capacity(self) -> int:
        """How many poison candidates can be taken: one, if the isolated worker is known to live and has none."""
        return 0 if self._isolated is None else min(1, self._isolated.capacity)

    @property
    def on_the_way(self) -> int:
        """How many items are on their way to workers now."""
        return sum(member.on_the_way for member in self.members)

    @property
    def has_limits(self) -> bool:
        """Whether a handler has a `max_running`."""
        return any(limit is not None for limit in self._limits().values())

    def reserve(self, limiter: ConcurrencyLimiter) -> ReservedCapacity:
        """Return the capacity for one call, until `release`.

        The capacity for kinds with limits is granted to one call alone: two concurrent calls that share it would
        exceed the limit. Of other kinds too many items only cost a wait in the worker.
        """
        limits = self._limits()
        kinds = capacity_for_kinds(self.members, limits, UNLIMITED)
        for kind in limiter.limited & kinds.keys():
            kinds[kind] = min(kinds[kind], limiter.available(kind))
        limited = {
            kind: max(0, count - self._reserved[kind])
            for kind, count in kinds.items()
            if kind in limiter.limited or limits[kind] is not None
        }
        self._reserved.update(limited)
        poison_candidates = max(0, self.poison_candidate_capacity - self._reserved_poison_candidates)
        self._reserved_poison_candidates += poison_candidates
        capacity = Capacity(self.capacity, {**kinds, **limited}, limiter.observed, poison_candidates=poison_candidates)
        return ReservedCapacity(capacity, limited, poison_candidates, self.in_flight_limit)

    def release(self, reserved: ReservedCapacity) -> None:
        """Note that the call has ended: what it took is on its way."""
        self._reserved.subtract(reserved.limited)
        self._reserved_poison_candidates -= reserved.poison_candidates

    def usage(self, kind: str) -> Usage:
        """Return what is used of a kind, and ask the workers, so that their next reports are new."""
        self.ask_the_living()
        return Usage(held_of_kind(self.members, kind), self._reserved[kind])

    def runs_something(self) -> bool:
        """Return whether a worker held anything by its last report, or is being sent something; ask the workers."""
        self.ask_the_living()
        return any(member.on_the_way or (member.report and member.report.held) for member in self.members)

    def assign(self, refs: Sequence[ItemRef]) -> tuple[list[Assignment], list[ItemRef]]:
        """Assign items to the workers, for `place`; return also those that no worker gets, because it has died.

        Poison candidates go to the isolated worker, all other items to the others.
        """
        poison_candidates = [ref for ref in refs if ref.isolated]
        together = [ref for ref in refs if not ref.isolated] if poison_candidates else refs
        assignments = assign(
            together, [member.capacity if member.report is not None else None for member in self._regular]
        )
        unassigned = [] if any(assignments) else list(together)
        if self._isolated is not None and self._isolated.report is not None:
            assignments.append(poison_candidates)
        else:
            unassigned += poison_candidates
        assigned = zip(self.members, assignments, strict=False)
        return [
            Assignment(number, assignment, member.send(assignment))
            for number, (member, assignment) in enumerate(assigned)
            if assignment
        ], unassigned

    def place(self, assignments: Sequence[Assignment]) -> None:
        """Send what was assigned."""
        for assignment in assignments:
            self._workers[assignment.worker].call(
                "place", assignment.refs, assignment.incarnation, done=partial(self._placed, assignment)
            )

    def ask(self) -> None:
        """Ask every worker to answer once items have left it."""
        for number in range(len(self.members)):
            self._ask(number)

    def ask_the_isolated(self) -> None:
        """Ask the isolated worker, if there is use for it and it lives: a poison candidate may wait for its item."""
        if self.met_poison_candidates and self._isolated is not None and self._isolated.report is not None:
            self._ask(len(self.members) - 1)

    def ask_the_living(self) -> None:
        """Ask those that are not known to be dead: a call to a dead worker fails at once, again and again."""
        for number, member in enumerate(self.members):
            if member.report is not None:
                self._ask(number)

    def ask_the_dead(self) -> None:
        """Ask those that are dead, or have not reported, whether they live by now."""
        for number, member in enumerate(self.members):
            if member.report is None:
                self._ask(number)

    def _ask(self, number: int) -> None:
        member = self.members[number]
        unused = (
            member is self._isolated and member.answered and member.report is None and not self.met_poison_candidates
        )
        if not member.asked and not unused:
            member.asked = True
            seen = member.report.progress if member.report is not None else -1
            self._workers[number].call("await_progress", seen, done=partial(self._progressed, number))

    def _placed(self, assignment: Assignment, report: Report | None, error: Exception | None) -> None:
        if error is not None:
            note_failed_call(log, f"worker {assignment.worker}", error)
        with self._lock:
            self.members[assignment.worker].arrive(assignment.refs, report)
            self._changed.notify_all()

    def _progressed(self, number: int, report: Report | None, error: Exception | None) -> None:
        with self._lock:
            self.members[number].asked = False
            self.members[number].update(report)
            self._changed.notify_all()


def capacity_for_kinds(members: Sequence[Member], limits: Mapping[str, int | None], unlimited: int) -> dict[str, int]:
    """Return how many more items of each kind the workers may get now, within the kinds' `max_running`.

    As long as a worker has not reported, what it runs is unknown: then none of a kind that has a limit.
    """
    left = {}
    for kind, limit in limits.items():
        held = None if limit is None else held_of_kind(members, kind)
        left[kind] = unlimited if limit is None else 0 if held is None else max(0, limit - held)
    return left


def held_of_kind(members: Sequence[Member], kind: str) -> int | None:
    """Return how many items of a kind the workers hold, those on their way included; None: unknown."""
    if not all(member.answered for member in members):
        return None
    held = sum(member.report.kinds.get(kind, 0) for member in members if member.report)
    return held + sum(member.kinds_on_the_way[kind] for member in members)


def share_of(limit: int | None, *, index: int, count: int) -> int | None:
    """Return the share of a consumer's `max_running` that manager `index` of `count` may use; the shares add up."""
    if limit is None:
        return None
    return limit // count + (1 if index < limit % count else 0)


def assign(refs: Sequence[ItemRef], capacities: Sequence[int | None]) -> list[list[ItemRef]]:
    """Assign items to workers in order, so many to each that their remaining capacities become equal.

    `capacities`: None for a dead worker, which gets nothing. Then another may get more than it has capacity for; an
    item that waits there too long returns to the queue. If all are dead no worker gets anything. Each worker gets
    consecutive items, so a queue's items stay together, and are completed together.
    """
    assignments: list[list[ItemRef]] = [[] for _ in capacities]
    living = [number for number, capacity in enumerate(capacities) if capacity is not None]
    if not living:
        return assignments
    left = [capacity or 0 for capacity in capacities]
    shares = [0] * len(capacities)
    for _ in refs:
        best = max(living, key=left.__getitem__)
        shares[best] += 1
        left[best] -= 1
    begin = 0
    for assignment, share in zip(assignments, shares, strict=True):
        assignment.extend(refs[begin : begin + share])
        begin += share
    return assignments
