"""Random stories of moves: afterwards the tenant lives on exactly one shard, and has all that was acknowledged."""

from __future__ import annotations

import pytest

from fairlead.zones.errors import QueueError
from tests.protocol_models.move import Guard
from tests.zones.moving.story import Story
from tests.zones.moving.test_guards import STORIES

SEEDS = 150
MANY_SEEDS = 5_000
PLANTED_SEEDS = 400

# Chances with which stories find a planted bug soon; without any, those that are drawn find it.
CHANCES: dict[Guard, dict[str, float]] = {
    Guard.MOVER_AT_SOURCE: {"takeovers": 0.4, "busy": 0.8, "faults": 0.15, "late": 0.0, "cancels": 0.0},
    Guard.CHUNK: {"late": 0.2, "busy": 0.8, "faults": 0.02, "cancels": 0.0},
    Guard.STAYS_CLOSED: {"takeovers": 0.1, "takeovers_at_end": 0.4, "busy": 0.8, "faults": 0.1, "cancels": 0.0},
    Guard.CLEARED_BY_EPOCH: {"takeovers": 0.0, "takeovers_at_end": 0.3, "faults": 0.0, "late": 0.0, "cancels": 0.0},
    Guard.STUB_BY_EPOCH: {"takeovers_at_end": 0.3, "faults": 0.0, "late": 0.0, "cancels": 0.0, "again": 0.0},
    Guard.EPOCH_RAISED: {"takeovers": 0.3, "takeovers_at_end": 0.3, "cancels": 0.6, "again": 1.0, "late": 0.0},
    Guard.ARRIVED: {
        "takeovers": 0.05,
        "takeovers_at_end": 0.4,
        "faults": 0.05,
        "cancels": 0.4,
        "again": 0.0,
        "busy": 0.1,
    },
}
# Two moves between the same two shards, neither the first home, both taken back, the first one twice, and late.
TOO_RARE = (Guard.OWNS,)
PLANTED = [guard for guard in STORIES if guard not in TOO_RARE]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_move_loses_nothing_and_leaves_nothing(seed: int) -> None:
    Story(seed).run()


@pytest.mark.long
def test_thousands_of_moves_lose_nothing_and_leave_nothing() -> None:
    for seed in range(SEEDS, MANY_SEEDS):
        Story(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("guard", PLANTED, ids=lambda guard: guard.name)
def test_stories_find_a_planted_bug(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plant = STORIES[guard]
    plant(monkeypatch)
    assert any(not ends_well(seed, CHANCES.get(guard, {})) for seed in range(PLANTED_SEEDS))


def ends_well(seed: int, chances: dict[str, float]) -> bool:
    """Say whether a story ends well; an error of the product is a bad end, too."""
    try:
        Story(seed, **chances).run()
    except (AssertionError, QueueError):
        return False
    return True
