"""What the workflows of a run have done outside the database, and what was acknowledged to their clients.

Oracles compare it with what is stored. A label is a number that orders the calls of a workflow, see `label_of`.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.simulation.workflow_shapes import PlannedCall

LABELS_PER_CALL = 10


class RunStep(NamedTuple):
    """A call of a run. `run`: in hexadecimal digits."""

    run: str
    label: int


class WorkflowWait(NamedTuple):
    """A wait of a run: for the `occurrence`-th time for this signal since the last checkpoint, from 0 on."""

    run: str
    segment: int
    signal: str
    occurrence: int


class EffectCall(NamedTuple):
    """One call of an effect's function. `answer`: what it returned; None: it raised, or died."""

    key: str
    answer: str | None


@dataclass(slots=True)
class WorkflowLedger:
    """The ledger of one world.

    Attributes:
      effects, undone_effects: the calls of effects, and of their undos, in order.
      waits_began_us: when a run first came to a wait, in true time.
      planned_effects: what each effect was planned to do.
      sent: tokens of signals whose transactions were acknowledged.
      exchanged: tokens of transactions across shards that were acknowledged.
    """

    effects: dict[RunStep, list[EffectCall]] = field(default_factory=lambda: defaultdict(list))
    undone_effects: dict[RunStep, list[EffectCall]] = field(default_factory=lambda: defaultdict(list))
    waits_began_us: dict[WorkflowWait, int] = field(default_factory=dict)
    planned_effects: dict[RunStep, PlannedCall] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    exchanged: list[str] = field(default_factory=list)


def label_of(number: int, part: int = 0) -> int:
    """Return the label of a part of a call, such as one of several children."""
    assert part < LABELS_PER_CALL
    return number * LABELS_PER_CALL + part
