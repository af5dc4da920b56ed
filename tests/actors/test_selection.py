"""Which of the vested pointers a scanner hands over (Algorithm 1, lines 6 to 8)."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from fairlead.actors.scanning.in_order import InOrderSelection
from fairlead.actors.scanning.reading import IN_ORDER_MAX
from fairlead.actors.scanning.tenant_turns import batches, tenant_of
from fairlead.actors.settings import ConsumerSettings
from fairlead.simulation.host import SimulatedHost
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import SECOND, Played, Stage

ZONES_AT_ONCE = 500  # A transaction of FoundationDB may take five seconds, and each zone is a round of reads.


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
    host = SimulatedHost(stage.world, "scanner#1", stage.clock, Random(seed), on_recycle=print, on_failure=print)
    selection = InOrderSelection(stage.shard.layout, ConsumerSettings(**settings), host, coordinator, consumer="me")
    selection.begin(stage.now_us)
    stage.pass_ms(1)
    selection.begin(stage.now_us)
    return stage.shard.transact(
        lambda attempt: selection.select(
            attempt.tr, lambda ref: ref.id not in held, now_us=stage.now_us, parts=stage.shard.layout.parts
        )
    )


def ids(stage: Stage, tenants: list[Tenant]) -> list[bytes]:
    return [stage.shard.zone(tenant).location.pointer_id for tenant in tenants]


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
    location = stage.shard.zone(first).location
    stage.shard.transact(
        lambda attempt: attempt.tr.set(location.part.vest(100, stage.now_us, location.pointer_id), b"")
    )
    held = frozenset(ids(stage, others))
    for in_order in (True, False):
        refs = selected(stage, in_order=in_order, held=held, selection_frac=1, peek_max=8)
        assert [ref.id for ref in refs] == [location.pointer_id]


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
    stage.enqueue("mail", delay=60)
    assert selected(stage) == []


def test_a_sleeping_pointer_is_selected_when_it_vests(stage: Stage) -> None:
    stage.enqueue("mail", delay=1)
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


# --- A tenant with many queue zones ---


def flood_zones(stage: Stage, tenant: Tenant, zones: int) -> None:
    """Give a tenant so many queue zones with an item each."""

    def body(attempt: Attempt, begin: int) -> None:
        for number in range(begin, min(begin + ZONES_AT_ONCE, zones)):
            zone = stage.shard.zone(tenant, f"z{number}")
            zone.enqueue(attempt.tr, new_item("mail"), item_id=attempt.new_id(), now_us=attempt.now_us)

    for begin in range(0, zones, ZONES_AT_ONCE):
        stage.shard.transact(partial(body, begin=begin))


@pytest.mark.parametrize("zones", [20, 3_000])
def test_a_tenant_behind_a_thousand_queue_zones_of_another_waits_for_one_of_them(stage: Stage, zones: int) -> None:
    """Before, each of the zones had a turn of its own, and all of them came first."""
    flood_zones(stage, Tenant("shop", "mallory"), zones)
    others = active(stage, 3)
    refs = selected(stage, in_order=True)
    assert [ref.id for ref in refs[1:4]] == ids(stage, others)
    assert len(refs) == min(IN_ORDER_MAX, zones + 3), "and a tenant that is nearly alone has what is left"


def test_the_second_queue_zones_of_tenants_come_after_the_first_of_all(stage: Stage) -> None:
    alice, bob = Tenant("shop", "alice"), Tenant("shop", "bob")
    for tenant in (alice, bob):
        flood_zones(stage, tenant, 2)
        stage.pass_ms(1)
    refs = selected(stage, in_order=True)
    assert [tenant_of(ref) for ref in refs] == [tenant_of(refs[0]), tenant_of(refs[1])] * 2


def test_a_pointer_whose_name_is_damaged_is_a_tenant_of_its_own() -> None:
    assert tenant_of(PointerRef(0, b"damaged", 1, 100)) == b"damaged"
    assert tenant_of(PointerRef(0, b"\x02a\x00\x02b\x00\x02zone\x00", 1, 100)) == b"\x02a\x00\x02b"
