"""A history: which operations clients called, when each was called and answered, and what it was told.

Times are moments: the numbers 1, 2, 3 of the calls and answers in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fairlead.simulation.linearizability.formatting import render

S = TypeVar("S", bound=Hashable)


class Call(Protocol[S]):
    """An operation with its arguments, as a sequential model carries it out."""

    def on(self, state: S, /) -> tuple[Any, S]:
        """Return the right answer in `state`, and the state afterwards."""
        ...


class Operation(NamedTuple):
    """A call and its answer.

    `responded`: when it was over; None if it may still happen at the very end.
    `happened`: whether it is known to have. Else its client died or gave up: it happened before it was over and with
    that answer, which a transaction has before it is committed, or never.
    """

    client: str
    call: Call[Any]
    answer: Any
    invoked: int
    responded: int | None
    happened: bool = True


class Model(NamedTuple, Generic[S]):
    """A sequential object: its first state, hashable, and which operations leave every state as it is.

    `changes_nothing`: asked of operations that happened: reads, and those whose answer is a refusal.
    """

    start: S
    changes_nothing: Callable[[Operation], bool]


def until(history: Sequence[Operation], moment: int) -> list[Operation]:
    """Return what had been seen of a history by a moment: nobody knew then what would happen later."""
    return [
        operation
        if operation.responded is not None and operation.responded <= moment
        else operation._replace(responded=None, happened=False)
        for operation in history
        if operation.invoked <= moment
    ]


class Told(NamedTuple):
    """A call, and the answer that is right if its attempt commits. `over`: when it was, if it needs no commit."""

    call: Call[Any]
    answer: Any
    over: int | None = None


class Attempt:
    """A transaction on its way, as `Recorder` keeps it. It has several calls if it is not one instant."""

    __slots__ = ("answered", "client", "invoked", "responded", "told")

    def __init__(self, client: str, invoked: int) -> None:
        self.client = client
        self.invoked = invoked
        self.responded: int | None = None
        self.told: list[Told] = []
        self.answered = False


class Recorder:
    """Writes a history down while it happens.

    Args:
      note: also tells the event log what clients were told.
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
        """An attempt begins. What it was told is noted there before its commit is sent."""
        attempt = Attempt(client, self.moment())
        self._attempts.append(attempt)
        return attempt

    def end(self, attempt: Attempt) -> None:
        """It is over, and its client knows that it happened."""
        attempt.responded, attempt.answered = self.moment(), True
        for told in attempt.told:
            self._note(f"is told {render(told.call)} -> {render(told.answer)}")

    def lose(self, attempt: Attempt) -> None:
        """It is over, and nobody knows whether it happened."""
        attempt.responded = self.moment()

    def drop(self, attempt: Attempt) -> None:
        """It did not happen."""
        self._attempts.remove(attempt)

    def history(self) -> list[Operation]:
        """Return what happened so far. An attempt that ended before its commit changed nothing, and is left out."""
        return [
            Operation(
                client=each.client,
                call=told.call,
                answer=told.answer,
                invoked=each.invoked,
                responded=each.responded if told.over is None else told.over,
                happened=each.answered or told.over is not None,
            )
            for each in self._attempts
            for told in each.told
        ]
