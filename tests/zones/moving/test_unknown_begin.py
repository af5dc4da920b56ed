"""The transaction that begins a move, repeated after a commit whose result nobody knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.layout import DEFAULT_ZONE, local_tenant
from fairlead.zones.moving.errors import MoveUnderWay
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.records import MoveRecord, MoveState
from tests.zones.faults import Fault
from tests.zones.moving.test_guards import cancel
from tests.zones.moving.town import Town


def begun(town: Town) -> MoveRecord:
    record = town.record("east")
    assert record is not None
    return record


def items(town: Town) -> dict[str, int]:
    east = town.shards["east"]
    return east.transact(lambda attempt: east.zone(local_tenant(MOVE_KIND), DEFAULT_ZONE).count(attempt.tr))


@pytest.mark.parametrize("applied", [True, False])
def test_a_begin_of_unknown_result_begins_one_move(applied: bool) -> None:
    town = Town()
    town.stores["east"].faults.append(Fault(applied=applied))
    move_id = town.begin("north")
    owner = town.owner("east")
    assert owner is not None
    assert (begun(town).move_id, begun(town).epoch, owner.epoch, items(town)) == (move_id, 1, 1, {MOVE_KIND: 1})
    assert town.epochs[move_id] == 1, "the second run of the transaction knows the epoch, too"
    assert town.mover(move_id, "north").run() is MoveState.MOVED
    assert town.findings() == {}


def move_on(town: Town) -> None:
    town.mover(begun(town).move_id, "north", at="east").run()


def withdraw(town: Town) -> None:
    cancel(town, "east")
    move_on(town)


@pytest.mark.parametrize(("meanwhile", "state"), [(move_on, MoveState.MOVED), (withdraw, MoveState.CANCELLED)])
def test_a_begin_of_unknown_result_does_not_begin_a_move_anew_that_has_ended(
    meanwhile: Callable[[Town], None], state: MoveState
) -> None:
    """Before, the tenant moved although its move had been cancelled; or the call was refused, because it had moved."""
    town = Town()
    town.stores["east"].faults.append(Fault(applied=True, then=lambda: meanwhile(town)))
    move_id = town.begin("north", at="east")
    owner = town.owner("east")
    assert owner is not None
    assert (begun(town).move_id, begun(town).state, owner.move) == (move_id, state, None)
    assert town.findings() == {}


def test_another_move_is_refused_after_a_begin_of_unknown_result() -> None:
    town = Town()
    town.stores["east"].faults.append(Fault(applied=True))
    town.begin("north")
    with pytest.raises(MoveUnderWay):
        town.begin("north")
    assert (begun(town).epoch, items(town)) == (1, {MOVE_KIND: 1})
