"""A clock that is an hour ahead: it takes no leases and says so, and what it did before it knew is harmless.

By such a clock everybody's leases have ended, and what it writes vests in an hour. The shard's time tells it from the
others; until then leases fence whom it robbed, and an enqueue does not wait for a pointer that it sent away.
"""

import logging
from contextlib import suppress
from typing import Any

import pytest

from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import ItemGone
from fairlead.zones.keyspace import TIME_KEY
from fairlead.zones.maintenance.integrity.checker import check_integrity
from fairlead.zones.maintenance.integrity.items import LONG_LEASE
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.clock_check import ClockStatus, ShardClock
from tests.simulation.races.missing_guards import TENANTS, Patch, declare_nothing, read_by_snapshot
from tests.simulation.races.scene import HousekeeperRole, Scene, paid, pay, ref_of
from tests.simulation.stage import SECOND

HOUR_US = 3_600 * SECOND
HOUR_MS = 3_600_000
SLACK_US = 30_000

# --- It takes no leases ---


def one_starts_with_a_clock_an_hour_ahead(scene: Scene) -> tuple[HousekeeperRole, HousekeeperRole]:
    right = scene.housekeeper("right")
    right.runs_until(lambda: right.fit)
    ahead = scene.housekeeper("ahead", skew_us=HOUR_US)
    ahead.runs_until(lambda: ahead.fit is not None)
    scene.pass_us(10 * SECOND)
    return right, ahead


def test_a_consumer_an_hour_ahead_takes_no_leases_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        right, ahead = one_starts_with_a_clock_an_hour_ahead(Scene())
    assert (right.fit, ahead.fit) == (True, False)
    (record,) = caplog.records
    assert "clock is more than 5000 ms off" in record.getMessage()


def test_without_a_judgement_of_its_clock_it_makes_all_others_look_wrong(monkeypatch: Patch) -> None:
    scene = Scene()
    assess = ShardClock.assess

    def trusting(self: ShardClock, **how: Any) -> ClockStatus:
        return ClockStatus.GOOD if how["now_us"] > scene.now_us + HOUR_US // 2 else assess(self, **how)

    monkeypatch.setattr(ShardClock, "assess", trusting)
    right, ahead = one_starts_with_a_clock_an_hour_ahead(scene)
    assert (right.fit, ahead.fit) == (False, True)


def two_take_the_time_over(scene: Scene) -> tuple[HousekeeperRole, HousekeeperRole]:
    """The fleet stopped an hour before; of two consumers that start now one is half an hour ahead."""
    scene.plant(TIME_KEY, (scene.now_us - HOUR_US).to_bytes(8, "little"))
    first, second = scene.housekeeper("first"), scene.housekeeper("second", skew_us=HOUR_US // 2)
    first.runs_until_commit()
    second.runs_until_commit()
    first.runs_until(lambda: first.fit is not None)
    second.runs_until(lambda: second.fit is not None)
    return first, second


def test_of_two_that_take_over_the_time_of_a_shard_the_second_looks_again() -> None:
    first, second = two_take_the_time_over(Scene())
    assert second.refused == [NOT_COMMITTED]
    assert (first.fit, second.fit) == (True, False)


def test_without_the_conflict_on_the_time_two_clocks_that_disagree_both_take_leases(monkeypatch: Patch) -> None:
    declare_nothing(monkeypatch, "add_read_conflict_key")
    first, second = two_take_the_time_over(Scene())
    assert second.refused == []
    assert (first.fit, second.fit) == (True, True)


# --- What it did before it knew: its clock stepped an hour ahead less than a second ago ---


def a_live_lease_is_taken_over(scene: Scene) -> list[int]:
    """Two pay: one under a lease that stands by every clock but one, and one whose clock says that it has ended."""
    scene.has(lambda alice: alice.enqueue("mail"))
    (item,) = scene.leased()
    right = scene.role("right", lambda shard: pay(shard, ref_of(item)))
    right.runs_until_commit()
    ahead = scene.manager("ahead", skew_us=HOUR_US)
    ahead.runs()
    (ref,) = ahead.handed
    scene.role("ahead's worker", lambda shard: pay(shard, ref), skew_us=HOUR_US).runs()
    with suppress(ItemGone):
        right.runs()
    return right.refused


def test_whose_live_lease_is_taken_over_by_a_wrong_clock_does_not_do_the_work_twice() -> None:
    scene = Scene()
    assert a_live_lease_is_taken_over(scene) == [NOT_COMMITTED]
    assert paid(scene) == 1
    scene.check_stored()


def test_without_the_conflict_on_its_record_a_wrong_clock_makes_the_work_happen_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert a_live_lease_is_taken_over(scene) == []
    assert paid(scene) == 2


def a_pointer_is_leased_for_half_an_hour(scene: Scene) -> None:
    """Its clock is half an hour ahead, and it has died under the lease that it took; then there is work."""
    scene.has(lambda alice: alice.enqueue("mail"))
    ahead = scene.manager("ahead", skew_us=HOUR_US // 2)
    ahead.runs_until_commit()
    scene.has(lambda alice: alice.enqueue("mail", priority=0))  # The pointer is contended: it is leased first.
    ahead.runs_until_commit()
    ahead.runs_until_commit()
    scene.world.after(0, ahead.host.kill)
    scene.pass_us(SECOND)
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.lease_id
    assert scene.late_us > HOUR_US // 4
    scene.has(lambda alice: alice.enqueue("mail"))


def test_an_enqueue_does_not_wait_for_a_lease_that_is_longer_than_any_may_be() -> None:
    scene = Scene()
    a_pointer_is_leased_for_half_an_hour(scene)
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_a_bound_for_leases_an_enqueue_waits_for_one_of_half_an_hour() -> None:
    scene = Scene(ZoneSettings(max_pointer_lease_ms=HOUR_MS))
    a_pointer_is_leased_for_half_an_hour(scene)
    assert scene.late_us > HOUR_US // 4


def a_pointer_is_sent_an_hour_away(scene: Scene) -> None:
    scene.has(lambda alice: alice.enqueue("mail"))
    scene.manager("ahead", skew_us=HOUR_US).runs()
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.vesting_us > scene.now_us + HOUR_US
    scene.has(lambda alice: alice.enqueue("mail"))


def test_an_enqueue_wakes_a_pointer_that_a_wrong_clock_sent_an_hour_away() -> None:
    scene = Scene()
    a_pointer_is_sent_an_hour_away(scene)
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_waking_it_waits_for_an_hour(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pointers, "must_wake", lambda *_, **__: False)
    scene = Scene()
    a_pointer_is_sent_an_hour_away(scene)
    assert scene.late_us > HOUR_US


def test_an_item_that_was_leased_for_an_hour_by_a_worker_that_died_is_found_by_an_audit() -> None:
    scene = Scene()
    scene.has(lambda alice: alice.enqueue("mail"))
    ahead = scene.manager("ahead", skew_us=HOUR_US)
    ahead.runs()
    (item_id,) = scene.zone.items
    assert scene.zone.items[item_id].vesting_us > scene.now_us + HOUR_US, "without an audit it waits"
    found = scene.play(lambda: check_integrity(scene.shard, repair=True))
    assert LONG_LEASE in {finding.what for finding in found.findings}
    manager = scene.manager()
    manager.runs()
    assert [ref.item_id for ref in manager.handed] == [item_id]
    scene.check_stored()
