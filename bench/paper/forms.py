"""The interface of a form: the machine or the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bench.load.load_spec import Load
from bench.load.outcome import Outcome
from bench.paper.setup import Setup

REAL, SIMULATED = "real", "simulated"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Items that wait when the measurement begins, so that consumers always have work: saturation.

    The paper adds load until throughput no longer grows. Then items always wait for each consumer.
    """

    tenants: int
    items: int = 1  # of each tenant
    work_ms: int = 50
    warm_s: float = 1.0
    seconds: float = 2.0


class BacklogRanOut(Exception):
    """The consumers completed the backlog before the measurement ended. Do: use more tenants, or less time."""


def check_not_exhausted(backlog: Backlog, counts: Mapping[str, int]) -> None:
    """Raise BacklogRanOut if the consumers have leased all items."""
    if counts.get("items", 0) >= backlog.tenants * backlog.items:
        raise BacklogRanOut(f"{backlog.tenants:,} tenants with {backlog.items} items each were not enough")


class Form(Protocol):
    """A form, which measures setups."""

    @property
    def name(self) -> str:
        """`REAL` or `SIMULATED`."""
        ...

    def under_load(self, load: Load, setup: Setup) -> Outcome:
        """Put a setup under a load."""
        ...

    def at_saturation(self, backlog: Backlog, setup: Setup) -> Outcome:
        """Let a setup work off a backlog that is larger than the measurement needs.

        Raises:
          BacklogRanOut: the backlog was too small.
        """
        ...
