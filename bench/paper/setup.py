"""Who is measured: how many consumers, and how they work."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.actors.settings import ConsumerSettings


@dataclass(frozen=True, slots=True)
class Setup:
    """Consumers that are all alike. How they choose pointers is `settings.selection`."""

    consumers: int
    settings: ConsumerSettings


# The threads of a consumer: how many worker slots, and how many pointers it leases side by side and in one transaction.
# `peek_max`, `selection_max` and `selection_frac` are the paper's by default.
Shape = Mapping[str, int]

OURS: Shape = {"managers": 1, "workers": 1, "slots": 128}
"""128 slots; one manager with two batches of up to 128 pointers under way."""

AS_IN_THE_PAPER: Shape = {"managers": 64, "workers": 64, "slots": 2, "batch_pointers": 1}
"""128 slots; 64 managers with two pointers under way each, a transaction per pointer: 128 manager threads."""


def setup(consumers: int, shape: Shape, **chosen: Any) -> Setup:
    """Return so many consumers of a shape; `chosen` settings are as given."""
    return Setup(consumers, ConsumerSettings(**{**shape, **chosen}))
