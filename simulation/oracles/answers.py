"""Answers: an action that was acknowledged to a client outside the cluster has happened.

A client that cancels an item, or retries or discards a dead letter, relies on the answer: it pays money back, or writes
to a customer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, ShardReplica
from fairlead.simulation.world import World


class ClientAction(Enum):
    """An action of a producer on an item that it has enqueued, or on a dead letter."""

    CANCELLED = "cancelled"
    RETRIED = "retried"
    DISCARDED = "discarded"


class Answer(NamedTuple):
    """An action that was acknowledged to a producer."""

    by: str
    action: ClientAction
    item: ItemName


class AnswersAreTrue(Oracle):
    """The producer of each acknowledged action has committed the action.

    Args:
      answers: producers append their answers here, after the commits.
    """

    promise = "what was answered has happened"

    def __init__(self, world: World, answers: list[Answer]) -> None:
        super().__init__(world)
        self._answers = answers
        self._done: set[Answer] = set()  # actions that are committed, and not answered yet

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        self._check_answers()
        retried = {change.item for change in parsed.items if change.retried}
        for change in parsed.items:
            if change.before is not None and change.after is None and change.dead_lettered is None:
                self._done.add(Answer(parsed.by, ClientAction.CANCELLED, change.item))
        self._done.update(Answer(parsed.by, ClientAction.RETRIED, item) for item in retried)
        self._done.update(
            Answer(parsed.by, ClientAction.DISCARDED, item) for item in parsed.removed_dead_letters - retried
        )

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        self._check_answers()

    def _check_answers(self) -> None:
        while self._answers:
            answer = self._answers.pop()
            if answer not in self._done:
                self.report_violation(
                    f"{answer.by} is answered that it has {answer.action.value} {answer.item}; it has not"
                )
            self._done.discard(answer)
