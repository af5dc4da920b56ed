"""Answers: what a call outside of the cluster was told has happened.

Whoever cancels, revives or discards something acts on the answer: it pays money back, or writes to a customer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ItemName, ParsedCommit, ShardReplica
from fairlead.simulation.world import World


class ClientAction(Enum):
    """What a producer does to an item that it has enqueued, or finds buried."""

    CANCELLED = "cancelled"
    RETRIED = "revived"
    DISCARDED = "discarded"


class Answer(NamedTuple):
    """What a producer was told that it has done."""

    by: str
    action: ClientAction
    item: ItemName


class AnswersAreTrue(Oracle):
    """Who was told that its call did something to an item has committed just that.

    Args:
      answers: where producers note their answers as they get them: the commits came before.
    """

    promise = "what was answered has happened"

    def __init__(self, world: World, answers: list[Answer]) -> None:
        super().__init__(world)
        self._answers = answers
        self._done: set[Answer] = set()  # what was done, and not answered yet

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
                what = f"that it has {answer.action.value} {answer.item}, and nothing of the kind has happened"
                self.report_violation(f"{answer.by} is told {what}")
            self._done.discard(answer)
