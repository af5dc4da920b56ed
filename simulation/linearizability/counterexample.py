"""A history that has no order, made short and readable.

Two reductions of a history with an order keep an order: the history as it was known at a moment, and the history
without an operation that changed nothing. So a history without an order after these reductions had none before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar

from fairlead.simulation.linearizability.formatting import render
from fairlead.simulation.linearizability.history import Model, Operation, until
from fairlead.simulation.linearizability.search import Finding, Verdict, can_be_next, is_linearizable

S = TypeVar("S", bound=Hashable)


def counterexample(history: Sequence[Operation], model: Model[S], *, steps_max: int) -> str:
    """Return a part of a history that is not linearizable, line by line, and the wrong answers."""
    short = shortest(history, model, steps_max=steps_max)
    return "\n".join(_lines(short, is_linearizable(short, model, steps_max=steps_max)))


def shortest(history: Sequence[Operation], model: Model[S], *, steps_max: int) -> list[Operation]:
    """Return the shortest beginning of a history that is not linearizable, without reads that do not matter."""

    def is_wrong(part: Sequence[Operation]) -> bool:
        return is_linearizable(part, model, steps_max=steps_max).verdict is Verdict.NOT_LINEARIZABLE

    moments = sorted(operation.responded for operation in history if operation.responded is not None)
    shortened = next(part for moment in moments if is_wrong(part := until(history, moment)))
    for operation in list(shortened):
        without = [other for other in shortened if other is not operation]
        if operation.happened and model.changes_nothing(operation) and is_wrong(without):
            shortened = without
    return shortened


def _lines(history: Sequence[Operation], finding: Finding[Any]) -> Iterator[str]:
    wrong = [operation for operation in can_be_next(history, finding.order) if operation.happened]
    yield f"no order explains these {len(history)} operations (moments of call and answer, client, operation, answer)."
    yield f"One that explains {len(finding.order)} of them:"
    for operation in finding.order:
        yield f"  {_line(operation)}"
    yield f"leads to {render(finding.state)}, where nothing that could come next is right:"
    for operation in wrong:
        right, _ = operation.call.on(finding.state)
        yield f"  {_line(operation)}; right would be {render(right)}"
    others = [operation for operation in history if operation not in finding.order and operation not in wrong]
    if others:
        yield "The others come later, or did not happen:"
    for operation in others:
        yield f"  {_line(operation)}"


def _line(operation: Operation) -> str:
    responded = "" if operation.responded is None else operation.responded
    maybe = "" if operation.happened else ", if it happened"
    call, answer = render(operation.call), render(operation.answer)
    return f"{operation.invoked:>3}-{responded:<3} {operation.client}: {call} -> {answer}{maybe}"
