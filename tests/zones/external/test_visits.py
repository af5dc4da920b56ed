"""What a visit of an external queue takes under the policies in force, over the model of a store."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.store import ItemLease
from fairlead.zones.external.visits import ExternalAway
from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.policy import policies
from tests.zones.external.town import ALICE, LEASE_US, Town

THROTTLE_US = 10_000


def limited(**changes: Any) -> Town:
    """A town whose tenant has a policy, and five items."""
    town = Town()
    layout, now_us = town.shard.layout, town.clock.now_us()
    town.shard.transact(
        lambda attempt: policies.change_tenant_policy(attempt.tr, layout, ALICE.tenant, now_us=now_us, **changes)
    )
    for name in "abcde":
        town.produce(name)
    town.read()
    return town


def visited_later(town: Town, after_us: int = THROTTLE_US) -> int:
    """Visit once some time has passed; return how many items were taken."""
    town.clock.advance_us(after_us)
    return len(town.visit())


def markers(town: Town) -> int:
    """Return how many items of the tenant are marked as running."""
    prefix = town.location.keys.tenant.in_flight_prefix
    return len(town.shard.transact(lambda attempt: list(attempt.tr.get_range(range_begin(prefix), range_end(prefix)))))


def test_a_visit_takes_no_more_than_may_run_and_looks_again_soon() -> None:
    town = limited(max_running=2)
    assert len(town.visit()) == 2
    assert visited_later(town) == 0
    town.items.complete([ItemLease(town.taken[0], None)])
    assert visited_later(town) == 1
    assert markers(town) == 2


def test_items_whose_leases_have_expired_do_not_count() -> None:
    """Their worker has died: they must be leased again."""
    town = limited(max_running=2)
    died = set(town.visit())
    assert visited_later(town, LEASE_US) == 2
    assert set(town.taken[2:]) == died


def test_an_item_of_a_store_that_has_ended_counts_until_a_visit_of_the_store() -> None:
    """A shard cannot ask the store, and lets less run rather than more."""
    town = limited(max_running=2)
    town.visit()
    town.end_leased()
    assert markers(town) == 2
    assert visited_later(town) == 2
    assert markers(town) == 2


def test_a_tenant_at_its_limit_leaves_its_pointer_awake() -> None:
    town = limited(max_running=2)
    town.visit()
    assert town.pointer is not None
    assert town.pointer.vesting_us == town.clock.now_us() + THROTTLE_US


def test_a_paused_tenant_gives_nothing() -> None:
    town = limited(paused=True)
    town.clock.advance_us(1)
    assert town.visit() == []


def test_a_paused_shard_is_not_visited() -> None:
    town = Town()
    town.produce("a")
    town.read()
    town.shard.transact(lambda attempt: policies.pause_shard(attempt.tr))
    assert town.visit() == []
    town.shard.transact(lambda attempt: policies.resume_shard(attempt.tr))
    assert len(town.visit()) == 1


@pytest.mark.parametrize("kinds", [{"mail": 0}, {}])
def test_what_has_no_room_here_is_named(kinds: dict[str, int]) -> None:
    """A limiter of kinds asks for slots of what was met without one."""
    town = Town()
    town.produce("a")
    town.read()
    (result,) = town.visit_results(kinds)
    assert result.skipped_kinds == {"mail"}
    assert not result.items


def test_what_was_leased_is_kept_when_the_store_does_not_say_what_is_left() -> None:
    """Before, nobody knew of the items until their leases expired, and each counted that as a worker's death."""
    town = Town()
    town.produce("a")
    town.read()
    town.items.outlook = refuse  # type: ignore[method-assign]
    assert len(town.visit()) == 1
    assert town.pointer is not None
    assert town.pointer.vesting_us == town.clock.now_us() + THROTTLE_US


def test_a_store_that_gave_nothing_and_does_not_say_what_is_left_is_away() -> None:
    town = Town()
    town.produce("a")
    town.read()
    town.visit()
    town.items.outlook = refuse  # type: ignore[method-assign]
    town.produce("b")
    town.read()
    with pytest.raises(ExternalAway):
        town.visit_results({})


def refuse(queues: object, stops: object = ()) -> Any:
    """Do not answer."""
    raise StoreUnavailable("the connection was lost", remedy="Wait.")
