"""Which of the vested pointers a scanner hands over (Algorithm 1, lines 6 to 8)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from actors.selection.in_order import InOrder
from actors.selection.reading import IN_ORDER_MAX, batches
from actors.settings import ConsumerSettings
from simulation.host import SimulatedHost
from tests.actors.stage import SECOND, Played, Stage
from zones.attempt import Attempt
from zones.items import new_item
from zones.layout import Tenant
from zones.pointers import PointerRef


@pytest.fixture
def stage() -> Stage:
    return Stage()


def active(stage: Stage, count: int, *, begin: int = 0) -> list[Tenant]:
    """Give tenants an item each, one after the other; return them."""
    tenants = [Tenant("shop", f"user {number}") for number in range(begin, begin + count)]
    for tenant in tenants:
        stage.enqueue("mail", tenant=tenant)
    return tenants


def selected(
    stage: Stage, *, in_order: bool = False, held: frozenset[bytes] = frozenset(), seed: int = 1, **settings: Any
) -> list[PointerRef]:
    """Return what a scan selects that has, or has not, the coordinator's leave to go in order."""
    coordinator = Played(stage.host, lambda method, args: in_order)
    host = SimulatedHost(stage.world, "scanner#1", stage.clock, Random(seed), on_recycle=lambda reason: None)
    selection = InOrder(stage.shard.layout, ConsumerSettings(**settings), host, coordinator, consumer="me")
    selection.begin(stage.now_us)
    stage.pass_ms(1)
    selection.begin(stage.now_us)
    return stage.shard.transact(
        lambda attempt: selection.select(attempt.tr, lambda ref: ref.id not in held, now_us=stage.now_us)
    )


def ids(stage: Stage, tenants: list[Tenant]) -> list[bytes]:
    return [stage.shard.zone(tenant).place.pointer_id for tenant in tenants]


def test_in_order_the_oldest_come_first_whichever_part_they_lie_in(stage: Stage) -> None:
    tenants = active(stage, 40)
    refs = selected(stage, in_order=True)
    assert [ref.id for ref in refs] == ids(stage, tenants)
    assert {ref.part for ref in refs} == {0, 1}


def test_in_order_those_of_one_instant_come_by_name_whichever_part_they_lie_in(stage: Stage) -> None:
    tenants = [Tenant("shop", f"user {number}") for number in range(10, 50)]

    def enqueue_all(attempt: Attempt) -> None:
        for tenant in reversed(tenants):
            zone = stage.shard.zone(tenant)
            zone.enqueue(attempt.tr, new_item("mail"), item_id=attempt.new_id(), now_us=attempt.now_us)

    stage.shard.transact(enqueue_all)
    refs = selected(stage, in_order=True)
    assert [ref.id for ref in refs] == ids(stage, tenants)
    assert {ref.part for ref in refs} == {0, 1}


@pytest.mark.parametrize("between", [1, 20])
def test_a_pointer_with_a_second_dangling_entry_comes_once_however_far_apart_they_are(
    stage: Stage, between: int
) -> None:
    """Before, one that a scan met again as it read on was visited twice in one transaction, and left in two places."""
    (first, *others) = active(stage, between + 1)
    place = stage.shard.zone(first).place
    stage.shard.transact(lambda attempt: attempt.tr.set(place.part.vest(100, stage.now_us, place.pointer_id), b""))
    held = frozenset(ids(stage, others))
    for in_order in (True, False):
        refs = selected(stage, in_order=in_order, held=held, selection_frac=1, peek_max=8)
        assert [ref.id for ref in refs] == [place.pointer_id]


def test_in_order_takes_no_more_than_can_be_worked_off_soon(stage: Stage) -> None:
    active(stage, IN_ORDER_MAX + 50)
    assert len(selected(stage, in_order=True)) == IN_ORDER_MAX
    assert len(selected(stage, in_order=True, selection_max=7)) == 7


def test_at_random_a_fraction_is_taken_and_never_nothing(stage: Stage) -> None:
    active(stage, 100)
    assert len(selected(stage, selection_frac=0.02)) == 2
    assert len(selected(stage, selection_frac=0.025)) == 3
    assert len(selected(stage, selection_frac=0.0001)) == 1
    assert len(selected(stage, selection_frac=1, selection_max=30)) == 30


def test_at_random_every_pointer_has_its_chance(stage: Stage) -> None:
    """That is what keeps consumers apart."""
    tenants = active(stage, 20)
    taken = {ref.id for seed in range(400) for ref in selected(stage, seed=seed, selection_frac=0.05)}
    assert taken == set(ids(stage, tenants))


def test_nothing_vested_is_nothing_selected(stage: Stage) -> None:
    assert selected(stage) == []
    assert selected(stage, in_order=True) == []
    stage.enqueue("mail", delay_ms=60_000)
    assert selected(stage) == []


def test_a_sleeping_pointer_is_selected_when_it_vests(stage: Stage) -> None:
    stage.enqueue("mail", delay_ms=1_000)
    assert selected(stage, in_order=True) == []
    stage.pass_ms(1_000)
    (ref,) = selected(stage, in_order=True)
    assert stage.now_us - SECOND < ref.vesting_us <= stage.now_us


@pytest.mark.parametrize("in_order", [True, False])
def test_what_managers_hold_is_passed_over_and_never_stops_up_the_window(stage: Stage, in_order: bool) -> None:
    """All that a window holds is busy: what lies behind it is found nevertheless."""
    busy = active(stage, 60)
    free = active(stage, 5, begin=60)
    refs = selected(
        stage, in_order=in_order, held=frozenset(ids(stage, busy)), peek_max=4, selection_max=4, selection_frac=1
    )
    assert {ref.id for ref in refs} <= set(ids(stage, free))
    assert len(refs) >= 2


def test_a_selection_is_cut_into_calls() -> None:
    refs = [PointerRef(0, bytes([number]), 0, 0) for number in range(5)]
    assert batches(refs, 2) == [refs[:2], refs[2:4], refs[4:]]
    assert batches([], 2) == []
