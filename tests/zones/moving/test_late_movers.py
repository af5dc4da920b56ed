"""Movers that come late, or whose stores refuse."""

from __future__ import annotations

from contextlib import suppress

import pytest

from fairlead.zones.engines import StoreError
from fairlead.zones.engines.api.errors import IO_ERROR
from fairlead.zones.records import MovePhase, MoveState
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


class OtherEnginesError(Exception):
    """What another engine raises."""


def test_a_source_of_another_engine_that_refuses_the_last_reads_lets_transactions_go_on() -> None:
    """Before, the tenant stayed frozen until somebody had waited for a second: its mover knew one engine's errors."""
    town = Town()
    town.stores["north"].errors = (OtherEnginesError,)

    def refuse() -> None:
        raise StoreError(IO_ERROR)

    with pytest.raises(StoreError):
        town.mover_that("north", _copy_last=refuse).run()
    owner = town.owner("east")
    assert owner is not None
    assert owner.move is not None
    assert owner.move.phase is MovePhase.MOVING
