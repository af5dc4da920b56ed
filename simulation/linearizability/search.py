"""Is a history linearizable? Wing and Gong's search: try every order that the times allow, one operation after another.

From a point of the search, set by which operations have happened and the state they led to, any operation can come
next that was called before all others that are still to come were answered, and whose answer is right in that state.
A point is not visited twice (Lowe, "Testing for linearizability", 2017), nor one that differs from another only in that
more of what may have happened did: what can follow there can follow here. So the points with the least of that come
first, and of these the furthest. A read or a refusal comes at once if it is right and no other would come too late
then: whatever order there is stays one if it is moved forward.

No maintained Python library does this: of the known checkers (Porcupine in Go, Knossos and Elle in Clojure, Lincheck
in Kotlin) none has a counterpart on PyPI.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from fairlead.simulation.linearizability.history import Model, Operation

S = TypeVar("S", bound=Hashable)


class Verdict(Enum):
    """What a search found."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided: the search came to its limit"


class Finding(NamedTuple, Generic[S]):
    """How a search ended.

    `order` is the longest order that it found, `state` where that leads, and `steps` how many operations it tried.
    """

    verdict: Verdict
    order: list[Operation]
    state: S
    steps: int


class _Point(NamedTuple):
    """Which operations have happened, as bits in the order of their calls; the state; and how it came here."""

    done: int
    state: Any
    last: Operation | None
    before: _Point | None


def is_linearizable(history: Sequence[Operation], model: Model[S], *, steps_max: int) -> Finding[S]:
    """Search an order of the operations in which a sequential object would have given the same answers.

    Args:
      history: in any order; what may have happened may be in the order found or not.
      steps_max: after so many tries of an operation in a state it gives up. The same history always takes as many.
    """
    operations = sorted(history, key=lambda operation: operation.invoked)
    must = sum(1 << number for number, operation in enumerate(operations) if operation.happened)
    furthest = _Point(0, model.start, None, None)
    open_points = [(0, 0, 0, furthest)]
    visited: dict[tuple[int, S], list[int]] = {}
    found = steps = 0
    while open_points and steps < steps_max:
        *_, point = heappop(open_points)
        known, unknown = point.done & must, point.done & ~must
        before = visited.setdefault((known, point.state), [])
        if any(fewer & unknown == fewer for fewer in before):
            continue
        before.append(unknown)
        if point.done.bit_count() > furthest.done.bit_count():
            furthest = point
        if known == must:
            return Finding(Verdict.LINEARIZABLE, _order(point), point.state, steps)
        following, tried = _follow(point, operations, model)
        steps += tried
        for next_point in following:
            found += 1
            rank = (next_point.done & ~must).bit_count(), -next_point.done.bit_count(), found
            heappush(open_points, (*rank, next_point))
    verdict = Verdict.UNDECIDED if open_points else Verdict.NOT_LINEARIZABLE
    return Finding(verdict, _order(furthest), furthest.state, steps)


def _follow(point: _Point, operations: Sequence[Operation], model: Model[Any]) -> tuple[list[_Point], int]:
    """Return the points to which one more operation leads, that which was called first first; and how many it tried."""
    following: list[_Point] = []
    tried = 0
    first_response: float = inf  # of those tried
    for number in _can_be_next(operations, point.done):
        tried += 1
        operation = operations[number]
        excludes_none = operation.invoked < first_response
        if operation.responded is not None:
            first_response = min(first_response, operation.responded)
        answer, state = operation.call.on(point.state)
        if answer != operation.answer or (not operation.happened and state == point.state):
            continue  # It is wrong here, or may as well not have happened.
        next_point = _Point(point.done | 1 << number, state, operation, point)
        if operation.happened and excludes_none and model.changes_nothing(operation):
            return [next_point], tried
        following.append(next_point)
    return following, tried


def can_be_next(history: Sequence[Operation], order: Sequence[Operation]) -> list[Operation]:
    """Return the operations that the times allow to come after those of `order`."""
    operations = sorted(history, key=lambda operation: operation.invoked)
    done = sum(1 << number for number, operation in enumerate(operations) if operation in order)
    return [operations[number] for number in _can_be_next(operations, done)]


def _can_be_next(operations: Sequence[Operation], done: int) -> Iterator[int]:
    """Yield the numbers of the operations that the times allow to come next."""
    latest_invoked = operations[done.bit_length() - 1].invoked if done else 0
    first_response: float = inf  # of the operations still to come, which must have happened
    for number, operation in enumerate(operations):
        if operation.invoked > first_response:
            return
        if done >> number & 1:
            continue
        if operation.responded is not None and operation.responded < latest_invoked:
            assert not operation.happened  # It did not happen in this order: it is too late now.
            continue
        yield number
        if operation.happened and operation.responded is not None:
            first_response = min(first_response, operation.responded)


def _order(point: _Point) -> list[Operation]:
    order: list[Operation] = []
    while point.last is not None and point.before is not None:
        order.append(point.last)
        point = point.before
    return order[::-1]
