"""Movers that go on when their move has been decided long ago."""

from __future__ import annotations

from contextlib import suppress

from fairlead.zones.records import MoveState
from tests.zones.moving.test_guards import die
from tests.zones.moving.town import Killed, Town, before


def test_a_mover_of_a_decided_move_ends_it_after_the_tenant_is_back() -> None:
    """The destination has forgotten the tenant, so nothing there says any more that the move was decided."""
    town = Town()
    move_id = town.begin("north")
    first = town.mover(move_id, "north")
    with suppress(Killed):
        before(first, _arrive=lambda: before(first, _note=die)).run()
    assert town.move("east") is MoveState.MOVED
    assert town.mover(move_id, "north", at="east").run() is MoveState.MOVED
    assert town.owner("north") is None
    assert town.findings() == {}
