"""A manager's workers: how much room each has, of which kinds, from their last reports; and the calls to them.

A report says what a worker held when it was written; what was sent since and not yet answered is added. A worker
that died is counted out until it answers again. What it was sent lately is remembered for `freeing`: each item is sent
to one life of a worker, and no other takes it, so once that life has ended nobody runs it.
"""

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

from fairlead.actors.messages import ItemRef, Report
from fairlead.actors.runtime.host import Condition, Lock, Remote, note_failed_call
from fairlead.zones.probes import probe

log = logging.getLogger("fairlead.manager")

# Items that are remembered of what a worker was sent, the last ones: as many as it can hold, with a thousand slots and
# its reserve.
SENT_MAX = 2_000

OrphanedItems = list[ItemRef]  # What one life of a worker was sent lately, and may have held when it ended.


@dataclass(slots=True)
class Member:
    """One worker, as its manager sees it."""

    report: Report | None = None  # None: not heard of yet, or dead
    answered: bool = False  # it answered once, or is known to have died
    on_the_way: int = 0
    kinds_on_the_way: Counter[str] = field(default_factory=Counter)
    incarnation: bytes = b""  # the one that was heard of last, see `Host.incarnation`
    sent: deque[Sequence[ItemRef]] = field(default_factory=deque)  # what this life was sent lately
    sent_count: int = 0
    earlier: dict[bytes, OrphanedItems] = field(default_factory=dict)  # and what those before it had
    asked: bool = False  # a question for progress is out

    @property
    def capacity(self) -> int:
        """How many items it can take."""
        if self.report is None:
            return 0
        return max(0, self.report.in_flight_limit - self.report.held - self.on_the_way)

    def send(self, refs: Sequence[ItemRef]) -> bytes:
        """Note that items are on their way to it, which is not known to be dead, and return for which of its lives."""
        self.on_the_way += len(refs)
        self.kinds_on_the_way.update(ref.kind for ref in refs)
        self.sent.append(refs)
        self.sent_count += len(refs)
        while self.sent_count - len(self.sent[0]) >= SENT_MAX:
            self.sent_count -= len(self.sent.popleft())
        return self.incarnation

    def arrive(self, refs: Sequence[ItemRef], report: Report | None) -> None:
        """Note the answer to `send`; None: it died."""
        if report is None:
            probe("a worker dies with items on their way to it")
        self.on_the_way -= len(refs)
        self.kinds_on_the_way.subtract(ref.kind for ref in refs)
        self.update(report)

    def update(self, report: Report | None) -> None:
        """Take the newer of two reports: answers to calls side by side may come out of order. None: it died.

        Between two items that leave, a worker only gets fuller.
        """
        self.answered = True
        known = self.report
        if report is not None and report.incarnation != self.incarnation:
            self._begin_incarnation(report.incarnation)
        if (
            report is None
            or known is None
            or report.incarnation != known.incarnation
            or (report.progress, report.held) >= (known.progress, known.held)
        ):
            self.report = report
        else:
            probe("an older report of a worker comes after a newer one")

    @property
    def incarnations(self) -> list[bytes]:
        """The lives that were sent something, as far as it is not known what became of it."""
        return [*self.earlier, self.incarnation] if self.sent else list(self.earlier)

    def take_orphans(self, ended: Mapping[bytes, bool]) -> list[OrphanedItems]:
        """Return what lives that have ended were sent; what one before the last was is forgotten if it has not.

        One whose present life has ended is dead, though no call to it has failed yet: it is given nothing more.
        `ended`: of the lives that were looked at, whether they have.
        """
        if self.report is not None and ended.get(self.report.incarnation):
            self.report = None
        if ended.get(self.incarnation):
            self._begin_incarnation(b"")
        earlier = self.earlier
        self.earlier = {incarnation: refs for incarnation, refs in earlier.items() if incarnation not in ended}
        return [refs for incarnation, refs in earlier.items() if ended.get(incarnation)]

    def _begin_incarnation(self, incarnation: bytes) -> None:
        if self.sent:
            self.earlier[self.incarnation] = list(chain.from_iterable(self.sent))
            self.sent.clear()
            self.sent_count = 0
        self.incarnation = incarnation


class Assignment(NamedTuple):
    """Items for one worker, and for which of its lives."""

    worker: int
    refs: Sequence[ItemRef]
    incarnation: bytes


class WorkerPool:
    """The workers of one manager. `lock`: the manager's, held by whoever calls anything but `place`.

    Args:
      isolated: the worker that takes suspects, and nothing else, if this manager has it. It may not have been started.
      changed: notified with every answer.

    Attributes:
      members: all of them, the isolated one last.
      met_suspects: whether there has been use for the isolated worker.
    """

    def __init__(
        self, workers: Sequence[Remote], lock: Lock, changed: Condition, *, isolated: Remote | None = None
    ) -> None:
        self._workers = [*workers, *([] if isolated is None else [isolated])]
        self.members = [Member() for _ in self._workers]
        self.met_poison_candidates = False
        self._regular = self.members[: len(workers)]  # those that run items beside others
        self._isolated = self.members[-1] if isolated is not None else None
        self._lock = lock
        self._changed = changed

    @property
    def capacity(self) -> int:
        """How many items the workers can take, suspects apart."""
        return sum(member.capacity for member in self._regular)

    @property
    def poison_candidate_capacity(self) -> int:
        """How many suspects can be taken: one, if the isolated worker is known to live and has none."""
        return 0 if self._isolated is None else min(1, self._isolated.capacity)

    @property
    def in_flight_limit(self) -> int:
        """How many items the living workers want to hold at once, suspects apart."""
        return sum(member.report.in_flight_limit for member in self._regular if member.report is not None)

    @property
    def on_the_way(self) -> int:
        """How many items are on their way to workers now."""
        return sum(member.on_the_way for member in self.members)

    @property
    def runs_something(self) -> bool:
        """Whether a worker held anything when it was heard of last, or is being sent something."""
        return any(member.on_the_way or (member.report and member.report.held) for member in self.members)

    def assign(self, refs: Sequence[ItemRef]) -> tuple[list[Assignment], list[ItemRef]]:
        """Deal items to the workers, for `place`; return also those that no worker gets, because it has died.

        Suspects are the isolated worker's, all others the others'.
        """
        poison_candidates = [ref for ref in refs if ref.alone]
        together = [ref for ref in refs if not ref.alone] if poison_candidates else refs
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
        """Send what was dealt."""
        for assignment in assignments:
            self._workers[assignment.worker].call(
                "place", assignment.refs, assignment.incarnation, done=partial(self._placed, assignment)
            )

    def ask(self) -> None:
        """Ask every worker to answer once items have left it."""
        for number in range(len(self.members)):
            self._ask(number)

    def ask_the_isolated(self) -> None:
        """Ask the isolated worker, if there is use for it and it lives: a suspect may wait for what it runs."""
        if self.met_poison_candidates and self._isolated is not None and self._isolated.report is not None:
            self._ask(len(self.members) - 1)

    def ask_the_living(self) -> None:
        """Ask those that are not known to be dead: the dead answer at once, again and again."""
        for number, member in enumerate(self.members):
            if member.report is not None:
                self._ask(number)

    def ask_the_dead(self) -> None:
        """Ask those that are dead, or have not been heard of, whether they are there by now."""
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
    """Return how many more items of each kind may be given to the crew now, within the kinds' `max_running`.

    As long as a worker has not been heard of, nobody knows what it runs: then no more of a kind that has a limit.
    """
    left = {}
    for kind, limit in limits.items():
        held = None if limit is None else held_of_kind(members, kind)
        left[kind] = unlimited if limit is None else 0 if held is None else max(0, limit - held)
    return left


def held_of_kind(members: Sequence[Member], kind: str) -> int | None:
    """Return how many items of a kind the crew holds, those on their way included; None: nobody knows."""
    if not all(member.answered for member in members):
        return None
    held = sum(member.report.kinds.get(kind, 0) for member in members if member.report)
    return held + sum(member.kinds_on_the_way[kind] for member in members)


def share_of(limit: int | None, *, index: int, count: int) -> int | None:
    """Return the share of a consumer's `max_running` that manager `index` of `count` may use; the shares add up."""
    if limit is None:
        return None
    return limit // count + (1 if index < limit % count else 0)


def assign(refs: Sequence[ItemRef], rooms: Sequence[int | None]) -> list[list[ItemRef]]:
    """Deal items to workers by their rooms, in order, and as many as evens out what each can still take.

    `rooms`: None for a worker that is dead; it gets nothing, and another may get more than it has room for: what waits
    there too long goes back to the queue. If all are dead nobody gets anything. Each worker gets a stretch, so a
    queue's items stay together, and are completed together.
    """
    assignments: list[list[ItemRef]] = [[] for _ in rooms]
    living = [number for number, capacity in enumerate(rooms) if capacity is not None]
    if not living:
        return assignments
    left = [capacity or 0 for capacity in rooms]
    shares = [0] * len(rooms)
    for _ in refs:
        best = max(living, key=left.__getitem__)
        shares[best] += 1
        left[best] -= 1
    begin = 0
    for assignment, share in zip(assignments, shares, strict=True):
        assignment.extend(refs[begin : begin + share])
        begin += share
    return assignments
