"""The consumers that are measured: their number and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.actors.settings import ConsumerSettings


@dataclass(frozen=True, slots=True)
class Setup:
    """Consumers with the same settings. `settings.selection` is their way to choose pointers."""

    consumers: int
    settings: ConsumerSettings


# The shapes of a consumer: its worker slots, and the pointers that it leases at a time and in one transaction.
# `peek_max`, `selection_max` and `selection_frac` are the paper's by default.
Shape = Mapping[str, int]

OURS: Shape = {"managers": 1, "workers": 1, "slots": 128}
"""128 slots; one manager with two batches of up to 128 pointers under way."""

AS_IN_THE_PAPER: Shape = {"managers": 64, "workers": 64, "slots": 2, "batch_pointers": 1}
"""128 slots; 64 managers with two pointers under way each, a transaction per pointer: 128 manager threads."""


def setup(consumers: int, shape: Shape, **chosen: Any) -> Setup:
    """Return `consumers` consumers of a shape, with the settings `chosen`."""
    return Setup(consumers, ConsumerSettings(**{**shape, **chosen}))
