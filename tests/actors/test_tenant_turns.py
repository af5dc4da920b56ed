"""A turn is a tenant's, however many queue zones it has: which pointers go to managers, in which calls."""

from __future__ import annotations

from fairlead.actors.dispatch.batch_sizing import BatchSizer
from fairlead.actors.scanning.tenant_turns import REMEMBERED_MAX, HandoverPlan, TenantTurns, interleaved_by_tenant
from fairlead.zones.top_level.pointers import PointerRef

NOW_US = 1_000_000


def pointer(user: str, zone: int = 0, *, vesting_us: int = 100, part: int = 0) -> PointerRef:
    return PointerRef(part, b"\x02shop\x00\x02%b\x00\x02%d\x00" % (user.encode(), zone), vesting_us, 1)


def zones(user: str, count: int, *, vesting_us: int = 100) -> list[PointerRef]:
    return [pointer(user, zone, vesting_us=vesting_us, part=zone % 4) for zone in range(count)]


def users(refs: object) -> list[str]:
    assert isinstance(refs, list | tuple)
    return [ref.id.split(b"\x00")[1][1:].decode() for ref in refs]


def plan(turns: TenantTurns, refs: list[PointerRef], size: int = 128, *, now_us: int = NOW_US) -> HandoverPlan:
    return turns.plan(interleaved_by_tenant(refs), size, under_way=turns.under_way(), now_us=now_us)


def test_tenants_with_one_zone_each_are_cut_into_calls_in_their_order() -> None:
    refs = [pointer(f"u{number}", vesting_us=number) for number in range(5)]
    assert plan(TenantTurns(), refs, 2).calls == [refs[:2], refs[2:4], refs[4:]]


def test_the_zones_of_a_tenant_go_in_one_call_with_those_of_another() -> None:
    calls = plan(TenantTurns(), [*zones("a", 300), *zones("b", 300), *zones("c", 300), *zones("d", 300)]).calls
    assert [set(users(call)) for call in calls] == [{"a", "b"}, {"c", "d"}]
    assert [len(call) for call in calls] == [128, 128]
    assert [users(call).count("a") for call in calls] == [64, 0]


def test_while_a_tenant_has_its_turn_its_other_zones_wait_and_another_tenants_do_not() -> None:
    turns = TenantTurns()
    turns.begin(zones("a", 4))
    later = plan(turns, [*zones("a", 8)[4:], pointer("b", part=7)])
    assert users(later.calls[0]) == ["b"]
    assert later.waiting_parts == {0, 1, 2, 3}
    assert not later.single_tenant


def test_a_single_tenant_has_several_calls_at_once() -> None:
    turns = TenantTurns()
    turns.begin(zones("a", 4))
    later = plan(turns, zones("a", 8)[4:])
    assert later == HandoverPlan([zones("a", 8)[4:]], single_tenant=True, waiting_parts=frozenset())


def test_a_tenant_competes_while_another_is_served() -> None:
    turns = TenantTurns()
    turns.begin([*zones("a", 1), *zones("b", 1)])
    assert plan(turns, zones("a", 8)[1:]).calls == []


def test_a_call_that_ends_during_the_scan_still_competes() -> None:
    """The other tenant's only pointer was in that call, so this scan did not find it. Seen as 300 of 2,000 starts."""
    turns = TenantTurns()
    served = [*zones("a", 1), *zones("b", 1)]
    turns.begin(served)
    under_way = turns.under_way()
    turns.end(served, 2, now_us=NOW_US)
    assert turns.plan(zones("a", 8)[1:], 128, under_way=under_way, now_us=NOW_US).calls == []


def test_a_tenant_that_had_its_turn_comes_behind_those_that_wait_since_before_it() -> None:
    """With capacity for one item a call, a tenant with many old zones would come first until all had been visited."""
    turns = TenantTurns()
    refs = [*zones("a", 3), pointer("b", vesting_us=200)]
    first = plan(turns, refs).calls[0]
    assert users(first)[0] == "a"
    turns.begin(first)
    turns.end(first, 1, now_us=300)
    rest = [*zones("a", 3)[1:], pointer("b", vesting_us=200), pointer("c", vesting_us=400)]
    assert users(plan(turns, rest).calls[0])[:3] == ["b", "a", "c"]


def test_a_tenant_whose_turn_did_not_come_keeps_its_place() -> None:
    turns = TenantTurns()
    refs = [*zones("a", 3), pointer("b", vesting_us=200)]
    turns.begin(refs)
    turns.end(refs, 0, now_us=300)
    assert users(plan(turns, refs).calls[0])[0] == "a"


def test_a_pointer_that_keeps_its_place_goes_on_with_its_tenants_turn() -> None:
    """A heavy tenant, where there is capacity for one item at a time."""
    turns = TenantTurns()
    refs = [*zones("a", 3), pointer("b", vesting_us=200)]
    plan(turns, refs)
    turns.begin(refs)
    turns.end(refs, 1, now_us=300)
    assert users(plan(turns, refs).calls[0])[0] == "a"


def test_a_turn_from_the_future_is_forgotten() -> None:
    """A clock that is set back by an hour would let the tenant wait behind all others for that hour."""
    turns = TenantTurns()
    refs = [*zones("a", 3), pointer("b", vesting_us=200)]
    plan(turns, refs)
    turns.begin(refs)
    turns.end(refs, 1, now_us=NOW_US + 1)
    assert users(plan(turns, [*refs[1:]]).calls[0])[0] == "a"


def test_no_more_turns_are_remembered_than_a_bound() -> None:
    turns = TenantTurns()
    refs = [ref for number in range(REMEMBERED_MAX + 5) for ref in zones(f"u{number}", 2)]
    plan(turns, refs)
    turns.begin(refs)
    turns.end(refs, REMEMBERED_MAX + 5, now_us=300)
    assert len(turns._last) == REMEMBERED_MAX


def test_capacity_is_divided_among_tenants_and_not_among_their_zones() -> None:
    """Before, a tenant with twenty zones had twenty shares: another had 200 of 2,000 starts beside it."""
    refs = interleaved_by_tenant([*zones("a", 20), pointer("b")])
    chosen = BatchSizer(dequeue_max=64).choose("main", refs, single_tenant=False, capacity=8, in_flight_limit=8)
    assert (chosen.tenants, chosen.batch_size.items_max) == (2, 4)
    assert (users(chosen.refs).count("a"), users(chosen.refs).count("b")) == (4, 1)


def test_with_capacity_for_one_item_one_zone_of_the_first_tenant_is_processed() -> None:
    refs = interleaved_by_tenant([*zones("a", 20), pointer("b", vesting_us=50)])
    chosen = BatchSizer(dequeue_max=64).choose("main", refs, single_tenant=False, capacity=1, in_flight_limit=8)
    assert users(chosen.refs) == ["b"]


def test_a_single_tenant_in_a_call_takes_one_share_if_others_compete() -> None:
    chosen = BatchSizer(dequeue_max=64).choose(
        "main", zones("a", 100), single_tenant=False, capacity=500, in_flight_limit=500
    )
    assert len(chosen.refs) == chosen.batch_size.items_max == 64


def test_a_single_tenant_has_a_share_for_each_zone() -> None:
    chosen = BatchSizer(dequeue_max=64).choose(
        "main", zones("a", 100), single_tenant=True, capacity=500, in_flight_limit=500
    )
    assert (len(chosen.refs), chosen.batch_size.items_max) == (100, 5)
