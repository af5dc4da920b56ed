"""No more of a tenant's items run, and no more start, than its limit says; what ended, or died, counts no more."""

from __future__ import annotations

from tests.zones.world import ALICE, BOB, LEASE_US, SECOND, THROTTLE_US, World
from zones import rules
from zones.items import new_item
from zones.keyspace import range_begin, range_end
from zones.layout import Tenant
from zones.visit import Visit


def limit(world: World, tenant: Tenant = ALICE, **changes: object) -> None:
    world.run(lambda tr: rules.change_tenant_rule(tr, world.layout, tenant, now_us=world.now_us, **changes))


def taken(visits: list[Visit]) -> list[bytes]:
    return [item.id for visit in visits for item in visit.items]


def flood(world: World, count: int = 20, *, name: str = "queue") -> None:
    world.enqueue_all([new_item("mail")] * count, zone=world.zone_of(ALICE, name))
    world.pass_us(1)


def complete(world: World, item_id: bytes) -> None:
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))


def visit_again(world: World, after_us: int = THROTTLE_US) -> list[bytes]:
    world.pass_us(after_us)
    return taken(world.visit())


def test_no_more_run_at_once_than_the_limit_and_the_rest_is_looked_at_soon(world: World) -> None:
    limit(world, max_running=3)
    flood(world)
    assert len(taken(world.visit())) == 3
    assert world.pointer_delay_us() == THROTTLE_US
    assert visit_again(world) == []


def test_another_may_run_when_one_has_ended(world: World) -> None:
    limit(world, max_running=3)
    flood(world)
    first, *_ = taken(world.visit())
    complete(world, first)
    assert len(visit_again(world)) == 1


def test_an_item_whose_lease_has_ended_runs_no_more(world: World) -> None:
    limit(world, max_running=3)
    flood(world, 3)
    lapsed = taken(world.visit())
    assert sorted(visit_again(world, LEASE_US)) == sorted(lapsed)


def test_the_limit_counts_all_zones_of_the_tenant_also_in_one_batch(world: World) -> None:
    limit(world, max_running=3)
    flood(world)
    flood(world, name="mails")
    total = len(taken(world.visit()))
    for _ in range(5):
        total += len(visit_again(world))
    assert total == 3


def test_a_limit_that_is_lowered_below_what_runs_lets_nothing_start_before_it_is_kept(world: World) -> None:
    limit(world, max_running=200)
    flood(world, 200)
    running = [item_id for _ in range(30) for item_id in visit_again(world)]
    for item_id in sorted(running)[:150]:
        complete(world, item_id)
    limit(world, max_running=2)
    flood(world, 5)
    assert [visit_again(world) for _ in range(5)] == [[]] * 5


def test_others_are_not_limited(world: World) -> None:
    limit(world, max_running=1)
    flood(world)
    world.enqueue_all([new_item("mail")] * 5, zone=world.zone_of(BOB))
    assert len(taken(world.visit())) == 1 + 5


def test_no_more_start_than_the_rate_allows_for(world: World) -> None:
    limit(world, per_s=10.0, burst=4)
    flood(world, 50)
    assert len(taken(world.visit())) == 4
    assert sum(len(visit_again(world)) for _ in range(int(2 * SECOND / THROTTLE_US))) == 20


def test_a_limit_that_is_gone_leaves_nothing_behind(world: World) -> None:
    limit(world, max_running=3, per_s=10.0, burst=4)
    flood(world)
    world.visit()
    limit(world, max_running=None, per_s=None, burst=1)
    keys = world.zone.place.keys.tenant
    assert world.stored(range_begin(keys.running_prefix), range_end(keys.running_prefix)) == []
    assert world.run(lambda tr: tr.get(keys.bucket).value) is None
    assert len(visit_again(world)) == 10


def test_a_paused_tenant_with_a_limit_keeps_the_limit(world: World) -> None:
    limit(world, max_running=2)
    limit(world, paused=True)
    flood(world)
    assert taken(world.visit()) == []
    limit(world, paused=False)
    assert len(taken(world.visit())) == 2
