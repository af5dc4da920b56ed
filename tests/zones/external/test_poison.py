"""An item of an external store that ends its workers becomes a dead letter after as many deaths as one in a shard."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from fairlead.zones import engines
from fairlead.zones.external import visits
from fairlead.zones.external.store import ItemLease, Start
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import LeasedItem, new_item
from fairlead.zones.shard import open_shard
from tests.clocks import ManualClock
from tests.simulation.mutations.mutation import in_a_race
from tests.zones.external.town import ALICE, LEASE_US, Town

LEASES_MAX = 20


class Queued(NamedTuple):
    """Where the item is. `lease`: None: it cannot be leased. `start`: marks that its handler starts, alone or not."""

    lease: Callable[[], LeasedItem | None]
    start: Callable[[LeasedItem, bool], object]
    pass_time: Callable[[], object]


def in_a_shard() -> Queued:
    clock = ManualClock()
    shard = open_shard("main", engines.open("memory:", clock=clock, random=Random(1)), clock=clock, random=Random(2))
    zone = shard.zone(ALICE.tenant, ALICE.zone)
    numbers = iter(range(1_000))
    new = [(b"i" * 16, new_item("mail"))]
    shard.transact(lambda attempt: run_one(zone.enqueue_op(attempt.tr, new, now_us=attempt.now_us)))

    def lease() -> LeasedItem | None:
        lease_id = next(numbers).to_bytes(16, "big")
        found = shard.transact(
            lambda attempt: zone.dequeue(
                attempt.tr,
                capacity=Capacity(10, {"mail": 10}),
                lease_id=lease_id,
                lease_us=LEASE_US,
                now_us=attempt.now_us,
            )
        )
        return found[0] if found else None

    def start(item: LeasedItem, alone: bool) -> None:
        held = [(item.id, item.record.lease_id)]
        shard.transact(
            lambda attempt: run_one(
                zone.extend_op(
                    attempt.tr, held, lease_us=LEASE_US, now_us=attempt.now_us, started=True, ran_isolated=alone
                )
            )
        )

    return Queued(lease, start, lambda: clock.advance_us(LEASE_US))


def in_a_store() -> Queued:
    town = Town()
    town.produce("poison")
    town.read()

    def lease() -> LeasedItem | None:
        found = [item for result in town.visit_results({"mail": 10}) for item in result.items]
        return found[0] if found else None

    def start(item: LeasedItem, alone: bool) -> None:
        begins = Start.ISOLATED if alone else Start.BESIDE_OTHERS
        town.items.extend([ItemLease(item.id, item.record.lease_id)], lease_us=LEASE_US, begins=begins)

    return Queued(lease, start, lambda: town.clock.advance_us(LEASE_US + 1_000_000))


def deaths_of(queued: Queued, *, runs_alone: bool) -> list[bool]:
    """Let an item end its worker each time it runs, until nobody gets it; return of each death whether it ran isolated.

    `runs_alone`: a poison candidate gets a process of its own.
    """
    deaths: list[bool] = []
    while (item := queued.lease()) is not None:
        assert len(deaths) < LEASES_MAX, "it runs again and again"
        if item.isolated or item.record.expired_count:  # As `deadlines.lease_at_start` says.
            queued.start(item, item.isolated and runs_alone)
        deaths.append(item.isolated)
        queued.pass_time()
    return deaths


@pytest.mark.parametrize("runs_alone", [False, True], ids=["in threads", "in a process of its own"])
def test_it_takes_as_many_deaths_in_a_store_as_in_a_shard(runs_alone: bool) -> None:
    in_shard = deaths_of(in_a_shard(), runs_alone=runs_alone)
    assert deaths_of(in_a_store(), runs_alone=runs_alone) == in_shard
    assert in_shard[-1]


def test_without_the_look_at_what_was_leased_it_runs_again_and_again() -> None:
    bug = "error = poison_error(row.record, layout.settings)", "error = None"
    planted = in_a_race("a visit gives out poison", (visits._take, *bug)).planted()
    with planted, pytest.raises(AssertionError, match="again and again"):
        deaths_of(in_a_store(), runs_alone=True)


def test_one_that_cannot_run_isolated_now_is_reported_as_a_poison_candidate_and_returned() -> None:
    """Seed 31000055: a manager asks for its isolated worker, and a consumer starts one, once there is use for it."""
    town = Town()
    town.produce("poison")
    town.read()
    isolated = False
    while not isolated:
        (item,) = town.visit_results({"mail": 10})[0].items
        isolated = item.isolated
        if item.record.expired_count and not isolated:
            town.items.extend([ItemLease(item.id, item.record.lease_id)], lease_us=LEASE_US, begins=Start.BESIDE_OTHERS)
        town.clock.advance_us(LEASE_US + 1_000_000)
    results = town.visit_results({"mail": 10}, poison_candidates=0)
    assert [(len(each.items), each.poison_candidates) for each in results] == [(0, 1)]
