"""Is a history linearizable? Wing and Gong's search: try every order that the times allow, one operation after another.

A point of the search is a set of operations that have happened, and the state after them. The next operation can be any
that was called before all other remaining ones were answered, and whose answer is right in that state. No point is
explored twice (Lowe, "Testing for linearizability", 2017). A point is also skipped if it differs from another only in
more operations of unknown result, because the other point has the same continuations. So the points with the fewest of
these are explored first, and of these the furthest. A read or a refusal is ordered at once if its answer is right and
no other operation would come too late. Any order is still correct when this operation is moved forward.

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
    """The result of a search."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided: the search came to its limit"


class Finding(NamedTuple, Generic[S]):
    """The result of a search.

    `order` is the longest order that was found, `state` the state after it, and `steps` the number of tried operations.
    """

    verdict: Verdict
    order: list[Operation]
    state: S
    steps: int


class _Point(NamedTuple):
    """The operations that have happened, as bits in the order of their calls; the state; and the point before."""

    done: int
    state: Any
    last: Operation | None
    before: _Point | None


def is_linearizable(history: Sequence[Operation], model: Model[S], *, steps_max: int) -> Finding[S]:
    """Search for an order of the operations in which a sequential object would have given the same answers.

    Args:
      history: in any order. Operations of unknown result need not be in the order that is found.
      steps_max: the search gives up after this number of steps. The same history always needs the same number.
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
    """Return the points after one more operation, in the order of the calls, and the number of tried operations."""
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
            continue  # The answer is wrong here, or the operation makes no difference.
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
    first_response: float = inf  # of the remaining operations that must have happened
    for number, operation in enumerate(operations):
        if operation.invoked > first_response:
            return
        if done >> number & 1:
            continue
        if operation.responded is not None and operation.responded < latest_invoked:
            assert not operation.happened  # In this order the operation did not happen, because it is too late now.
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
