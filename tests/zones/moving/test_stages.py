"""Whatever happens at any stage of a move, the tenant lives on one shard afterwards, and has all that it had."""

from __future__ import annotations

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.engines.api.errors import IO_ERROR, StoreError
from fairlead.zones.errors import TenantBusy
from fairlead.zones.moving.move_record import request_cancel
from fairlead.zones.records import MovePhase, MoveState
from tests.zones.moving.town import NAMES, Killed, Town

KEYS = 3
MINUTE_US = 60_000_000


def filled() -> Town:
    """Return a town whose tenant has some data and an item."""
    town = Town()
    for number in range(KEYS):
        town.on(lambda tr, number=number: tr.set(("key", number), b"v"))  # type: ignore[misc]
    town.enqueue()
    return town


def whole(town: Town) -> None:
    """See that nothing is lost, and nothing is left where the tenant does not live."""
    at = town.home_name()
    assert town.data() == {("key", number): b"v" for number in range(KEYS)}
    assert town.in_queue(lambda tr, queue, now_us: queue.count(tr)) == {"mail": 1}
    for name in NAMES:
        assert name == at or town.rows(name) in ([], [(2,)])
    assert town.findings() == {}


def count_stages() -> int:
    """Return how many commits an undisturbed move makes."""
    town = filled()
    move_id = town.begin("west")
    town.hook = lambda *_: None
    town.mover(move_id, "west").run()
    return town.commits


STAGES = range(1, count_stages() + 1)


@pytest.mark.parametrize("stage", STAGES)
def test_a_move_that_is_cancelled_at_any_stage_ends_on_one_shard(stage: int) -> None:
    town = filled()
    move_id = town.begin("west")

    def hook(_: str, number: int, after: bool) -> None:
        if number == stage and not after:
            transact(town.shards["east"].db, lambda tr: request_cancel(tr, town.alice))

    town.hook = hook
    state = town.mover(move_id, "west").run()
    town.hook = None
    assert (state, town.home_name()) in ((MoveState.CANCELLED, "east"), (MoveState.MOVED, "west"))
    whole(town)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_a_mover_that_is_killed_at_any_stage_is_followed_by_one_that_goes_on(stage: int, answered: bool) -> None:
    """It dies before or after one of its commits."""
    town = filled()
    move_id = town.begin("west")

    def hook(_: str, number: int, after: bool) -> None:
        if number == stage and after is answered:
            raise Killed

    town.hook = hook
    with pytest.raises(Killed):
        town.mover(move_id, "west").run()
    town.hook = None
    assert town.mover(move_id, "west").run() is MoveState.MOVED
    assert town.home_name() == "west"
    whole(town)


@pytest.mark.parametrize("away", ["east", "west"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_shard_that_is_away_for_a_minute_at_any_stage_delays_a_move(stage: int, away: str) -> None:
    """The mover fails until the shard is back, and another one goes on.

    A tenant that is frozen then waits: the destination alone knows whether it owns the tenant.
    """
    town = filled()
    move_id = town.begin("west")
    is_away = False

    def hook(name: str, number: int, after: bool) -> None:
        nonlocal is_away
        is_away = is_away or (number >= stage and not after)
        if is_away and name == away and not after:
            raise StoreError(IO_ERROR)

    town.hook = hook
    try:
        state = town.mover(move_id, "west").run()
    except StoreError:
        state = None
    owner = town.owner("east")
    if away == "west" and owner is not None and owner.move is not None and owner.move.phase is MovePhase.FROZEN:
        with pytest.raises(TenantBusy):
            town.on(lambda tr: tr.get(("key", 0)))
    town.clock.advance_us(MINUTE_US)
    town.hook = None
    if state is None:
        state = town.mover(move_id, "west").run()
    assert (state, town.home_name()) == (MoveState.MOVED, "west")
    whole(town)
