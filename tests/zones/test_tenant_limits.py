"""No more of a tenant's items run or start than its limit allows; items that ended or died do not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy import policies
from fairlead.zones.policy.tenant_limits import allowed_op
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import TenantPolicy
from fairlead.zones.top_level.process_pointers import PointerResult, process_pointers
from tests.zones.colliding import collides
from tests.zones.world import ALICE, BOB, LEASE_US, SECOND, THROTTLE_US, World


def limit(world: World, tenant: Tenant = ALICE, **changes: object) -> None:
    world.run(lambda tr: policies.change_tenant_policy(tr, world.layout, tenant, now_us=world.now_us, **changes))


def taken(results: list[PointerResult]) -> list[bytes]:
    return [item.id for result in results for item in result.items]


def flood(world: World, count: int = 20, *, name: str = "queue") -> None:
    world.enqueue_all([new_item("mail")] * count, zone=world.zone_of(ALICE, name))
    world.pass_us(1)


def complete(world: World, item_id: bytes) -> None:
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))


def dequeue_again(world: World, after_us: int = THROTTLE_US) -> list[bytes]:
    world.pass_us(after_us)
    return taken(world.process())


def test_no_more_run_at_once_than_the_limit_and_the_rest_is_looked_at_soon(world: World) -> None:
    limit(world, max_running=3)
    flood(world)
    assert len(taken(world.process())) == 3
    assert world.pointer_delay_us() == THROTTLE_US
    assert dequeue_again(world) == []


def test_another_may_run_when_one_has_ended(world: World) -> None:
    limit(world, max_running=3)
    flood(world)
    first, *_ = taken(world.process())
    complete(world, first)
    assert len(dequeue_again(world)) == 1


def test_an_item_whose_lease_has_ended_runs_no_more(world: World) -> None:
    limit(world, max_running=3)
    flood(world, 3)
    expired = taken(world.process())
    assert sorted(dequeue_again(world, LEASE_US)) == sorted(expired)


def test_the_limit_counts_all_zones_of_the_tenant_also_in_one_batch(world: World) -> None:
    limit(world, max_running=3)
    flood(world)
    flood(world, name="mails")
    total = len(taken(world.process()))
    for _ in range(5):
        total += len(dequeue_again(world))
    assert total == 3


def test_a_limit_lowered_below_the_running_items_lets_no_item_start_until_it_is_met(world: World) -> None:
    limit(world, max_running=200)
    flood(world, 200)
    running = [item_id for _ in range(30) for item_id in dequeue_again(world)]
    for item_id in sorted(running)[:150]:
        complete(world, item_id)
    limit(world, max_running=2)
    flood(world, 5)
    assert [dequeue_again(world) for _ in range(5)] == [[]] * 5


def test_others_are_not_limited(world: World) -> None:
    limit(world, max_running=1)
    flood(world)
    world.enqueue_all([new_item("mail")] * 5, zone=world.zone_of(BOB))
    assert len(taken(world.process())) == 1 + 5


def test_no_more_start_than_the_rate_allows_for(world: World) -> None:
    limit(world, per_s=10.0, burst=4)
    flood(world, 50)
    assert len(taken(world.process())) == 4
    assert sum(len(dequeue_again(world)) for _ in range(int(2 * SECOND / THROTTLE_US))) == 20


def test_a_limit_that_is_gone_leaves_nothing_behind(world: World) -> None:
    limit(world, max_running=3, per_s=10.0, burst=4)
    flood(world)
    world.process()
    limit(world, max_running=None, per_s=None, burst=1)
    keys = world.zone.location.keys.tenant
    assert world.stored(range_begin(keys.in_flight_prefix), range_end(keys.in_flight_prefix)) == []
    assert world.run(lambda tr: tr.get(keys.bucket).value) is None
    assert len(dequeue_again(world)) == 10


def test_a_paused_tenant_with_a_limit_keeps_the_limit(world: World) -> None:
    limit(world, max_running=2)
    limit(world, paused=True)
    flood(world)
    assert taken(world.process()) == []
    limit(world, paused=False)
    assert len(taken(world.process())) == 2


# --- Who conflicts with whom ---


def a_dequeue(world: World) -> Callable[[Any], object]:
    """Return a dequeue from all vested zones."""
    refs, terms = world.scan(), world.terms()
    return lambda tr: process_pointers(tr, world.layout, refs, Capacity(1_000, {"mail": 1_000}), terms)


def extend(world: World, item_id: bytes) -> Callable[[Any], object]:
    record = world.record(item_id)
    assert record is not None
    held = [(item_id, record.lease_id)]
    return lambda tr: run_one(world.zone.extend_op(tr, held, lease_us=LEASE_US, now_us=world.now_us))


@pytest.mark.parametrize("what", ["ends", "is extended"])
def test_changes_of_a_running_item_do_not_conflict_with_dequeues(world: World, what: str) -> None:
    limit(world, max_running=5)
    flood(world, 2)
    one, _ = taken(world.process())
    flood(world, 10)
    world.pass_us(THROTTLE_US)
    actions = {
        "ends": lambda tr: world.zone.complete(tr, one, now_us=world.now_us),
        "is extended": extend(world, one),
    }
    assert not collides(world.db, actions[what], a_dequeue(world))


def test_a_lease_that_has_ended_and_is_extended_after_all_counts(world: World) -> None:
    limit(world, max_running=1)
    flood(world, 1)
    (one,) = taken(world.process())
    flood(world, 1, name="mails")
    world.pass_us(LEASE_US)
    refs = [ref for ref in world.scan() if ref != world.ref()]
    terms = world.terms()
    dequeue = lambda tr: process_pointers(tr, world.layout, refs, Capacity(1_000, {"mail": 1_000}), terms)  # noqa: E731
    assert collides(world.db, extend(world, one), dequeue)


def test_an_expired_lease_that_is_extended_after_a_dequeue_counts_in_the_next_one(world: World) -> None:
    limit(world, max_running=1)
    flood(world, 1)
    (one,) = taken(world.process())
    world.pass_us(LEASE_US)
    world.run(lambda tr: run_one(allowed_op(tr, world.zone.location, TenantPolicy(max_running=1), now_us=world.now_us)))
    world.run(extend(world, one))
    flood(world, 1, name="mails")
    assert dequeue_again(world) == []


def test_two_dequeues_of_two_zones_that_take_the_last_slot_conflict(world: World) -> None:
    limit(world, max_running=1)
    flood(world, 1)
    flood(world, 1, name="mails")
    one, other = world.scan()

    def dequeue(ref: Any) -> Callable[[Any], object]:
        terms = world.terms()
        return lambda tr: process_pointers(tr, world.layout, [ref], Capacity(1_000, {"mail": 1_000}), terms)

    assert collides(world.db, dequeue(one), dequeue(other))


def test_a_zone_without_work_leaves_the_tenants_allowance_to_zones_with_work(world: World) -> None:
    limit(world, max_running=3)
    idle = world.zone_of(ALICE, "idle")
    item_id = world.enqueue(zone=idle)
    flood(world, 9)
    world.run(lambda tr: idle.complete(tr, item_id, now_us=world.now_us))
    refs = sorted(world.scan(), key=lambda ref: ref != world.ref(idle))
    terms = world.terms()
    results, _ = world.run(lambda tr: process_pointers(tr, world.layout, refs, Capacity(1_000, {"mail": 1_000}), terms))
    assert [len(result.items) for result in results] == [0, 3]
