"""A history: the operations that clients called, the times of calls and answers, and the answers.

Times are moments: the calls and answers are numbered 1, 2, 3 in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fairlead.simulation.linearizability.formatting import render

S = TypeVar("S", bound=Hashable)


class Call(Protocol[S]):
    """An operation of a sequential model, with its arguments."""

    def on(self, state: S, /) -> tuple[Any, S]:
        """Return the right answer in `state`, and the state afterwards."""
        ...


class Operation(NamedTuple):
    """A call and its answer.

    `responded`: the time of its end; None if it may still happen at the very end.
    `happened`: whether the operation is known to have happened. If not, its client died or gave up. Then the operation
    happened before `responded` with this answer, which a transaction has before its commit, or never.
    """

    client: str
    call: Call[Any]
    answer: Any
    invoked: int
    responded: int | None
    happened: bool = True


class Model(NamedTuple, Generic[S]):
    """A sequential object: its first state, which is hashable, and a function for operations without effect.

    `changes_nothing`: whether an operation that happened is a read, or was refused.
    """

    start: S
    changes_nothing: Callable[[Operation], bool]


def until(history: Sequence[Operation], moment: int) -> list[Operation]:
    """Return a history as it was known at a moment."""
    return [
        operation
        if operation.responded is not None and operation.responded <= moment
        else operation._replace(responded=None, happened=False)
        for operation in history
        if operation.invoked <= moment
    ]


class RecordedAnswer(NamedTuple):
    """A call, and its answer if its attempt commits. `over`: the time of its end, if it needs no commit."""

    call: Call[Any]
    answer: Any
    over: int | None = None


class Attempt:
    """A transaction in the records of `Recorder`. It has several calls if it is not one instant."""

    __slots__ = ("answered", "answers", "client", "invoked", "responded")

    def __init__(self, client: str, invoked: int) -> None:
        self.client = client
        self.invoked = invoked
        self.responded: int | None = None
        self.answers: list[RecordedAnswer] = []
        self.answered = False


class Recorder:
    """A recorder of a history while it happens.

    Args:
      note: writes each answer into the event log, too.
    """

    def __init__(self, note: Callable[[str], None] = lambda event: None) -> None:
        self._note = note
        self._attempts: list[Attempt] = []
        self._moment = 0

    def moment(self) -> int:
        """Return the number of this moment; the next one has the next number."""
        self._moment += 1
        return self._moment

    def begin(self, client: str) -> Attempt:
        """An attempt begins. Its answers are added to it before its commit is sent."""
        attempt = Attempt(client, self.moment())
        self._attempts.append(attempt)
        return attempt

    def end(self, attempt: Attempt) -> None:
        """An attempt has ended, and its client knows that it happened."""
        attempt.responded, attempt.answered = self.moment(), True
        for each in attempt.answers:
            self._note(f"{render(each.call)} -> {render(each.answer)}")

    def lose(self, attempt: Attempt) -> None:
        """An attempt has ended, and it is unknown whether it happened."""
        attempt.responded = self.moment()

    def drop(self, attempt: Attempt) -> None:
        """An attempt did not happen."""
        self._attempts.remove(attempt)

    def history(self) -> list[Operation]:
        """Return the history so far, without attempts that ended before their commit, which changed nothing."""
        return [
            Operation(
                client=each.client,
                call=answered.call,
                answer=answered.answer,
                invoked=each.invoked,
                responded=each.responded if answered.over is None else answered.over,
                happened=each.answered or answered.over is not None,
            )
            for each in self._attempts
            for answered in each.answers
        ]
