"""A consumer whose clock is an hour ahead takes no leases and logs an error. Its acts before that are harmless.

By such a clock all leases have expired, and its own vesting times lie an hour ahead. The shard's time shows that the
clock is wrong. Until then, leases fence the holders whose items it leased. An enqueue wakes a pointer that it requeued.
"""

import logging
from contextlib import suppress
from typing import Any

import pytest

from fairlead.actors.execution.acknowledgement import return_items
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import ItemGone
from fairlead.zones.keyspace import TIME_KEY
from fairlead.zones.layout import item_id_of
from fairlead.zones.maintenance.integrity.checker import check_integrity
from fairlead.zones.maintenance.integrity.items import LONG_LEASE
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.clock_check import ClockStatus, ShardClock
from fairlead.zones.top_level.process_pointers import FAR_ENTRIES_MAX
from fairlead.zones.top_level.sessions import SessionRecord, heartbeat
from tests.simulation.races.missing_guards import TENANTS, Patch, declare_nothing, planted, read_by_snapshot
from tests.simulation.races.scene import LEASE_US, HousekeeperRole, Scene, paid, pay, ref_of
from tests.simulation.stage import SECOND

HOUR_US = 3_600 * SECOND
HOUR_MS = 3_600_000
HALF_AN_HOUR_S = 1_800
FIVE_MINUTES_S = 300
SLACK_US = 30_000

# --- The consumer takes no leases ---


def a_consumer_starts_with_a_clock_an_hour_ahead(scene: Scene) -> tuple[HousekeeperRole, HousekeeperRole]:
    right = scene.housekeeper("right")
    right.runs_until(lambda: right.fit)
    ahead = scene.housekeeper("ahead", skew_us=HOUR_US)
    ahead.runs_until(lambda: ahead.fit is not None)
    scene.pass_us(10 * SECOND)
    return right, ahead


def test_a_consumer_an_hour_ahead_takes_no_leases_and_logs_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        right, ahead = a_consumer_starts_with_a_clock_an_hour_ahead(Scene())
    assert (right.fit, ahead.fit) == (True, False)
    (record,) = caplog.records
    assert "clock is more than 5000 ms off" in record.getMessage()


def test_without_an_assessment_of_its_clock_it_makes_all_others_look_wrong(monkeypatch: Patch) -> None:
    scene = Scene()
    assess = ShardClock.assess

    def trusting(self: ShardClock, **how: Any) -> ClockStatus:
        return ClockStatus.GOOD if how["now_us"] > scene.now_us + HOUR_US // 2 else assess(self, **how)

    monkeypatch.setattr(ShardClock, "assess", trusting)
    right, ahead = a_consumer_starts_with_a_clock_an_hour_ahead(scene)
    assert (right.fit, ahead.fit) == (False, True)


def two_take_over_the_time(scene: Scene) -> tuple[HousekeeperRole, HousekeeperRole]:
    """The fleet stopped an hour ago. Two consumers start now, and the clock of one is half an hour ahead."""
    scene.plant(TIME_KEY, (scene.now_us - HOUR_US).to_bytes(8, "little"))
    first, second = scene.housekeeper("first"), scene.housekeeper("second", skew_us=HOUR_US // 2)
    first.runs_until_commit()
    second.runs_until_commit()
    first.runs_until(lambda: first.fit is not None)
    second.runs_until(lambda: second.fit is not None)
    return first, second


def test_the_second_of_two_that_take_over_the_time_of_a_shard_conflicts_and_retries() -> None:
    first, second = two_take_over_the_time(Scene())
    assert second.refused == [NOT_COMMITTED]
    assert (first.fit, second.fit) == (True, False)


def test_without_the_conflict_on_the_time_consumers_with_different_clocks_both_take_leases(monkeypatch: Patch) -> None:
    declare_nothing(monkeypatch, "add_read_conflict_key")
    first, second = two_take_over_the_time(Scene())
    assert second.refused == []
    assert (first.fit, second.fit) == (True, True)


def a_clock_steps_while_two_watch(scene: Scene) -> tuple[HousekeeperRole, HousekeeperRole]:
    """The fleet failed an hour ago. Two consumers start now. The clock of the first then steps an hour ahead."""
    failed_us = scene.now_us - HOUR_US
    record = SessionRecord("host", 1, [], failed_us, failed_us)
    scene.plant(TIME_KEY, failed_us.to_bytes(8, "little"))
    scene.role("fleet", lambda shard: shard.transact(lambda attempt: heartbeat(attempt.tr, b"failed", record))).runs()
    steps, right = scene.housekeeper("steps"), scene.housekeeper("right")
    steps.runs_until(lambda: steps.fit is not None)
    scene.pass_us(SECOND // 2)
    right.runs_until(lambda: right.fit is not None)
    scene.pass_us(2 * SECOND)
    steps.host.clock.jump(HOUR_US)
    scene.pass_us(2 * SECOND)
    return steps, right


def test_a_consumer_whose_clock_steps_while_it_watches_leaves_the_time_to_one_whose_clock_is_right() -> None:
    steps, right = a_clock_steps_while_two_watch(Scene())
    assert (steps.fit, right.fit) == (False, True)


def test_without_a_new_watch_a_clock_that_has_stepped_takes_the_time_over() -> None:
    with planted("a clock that steps while its consumer watches goes on with the watch"):
        steps, right = a_clock_steps_while_two_watch(Scene())
    assert (steps.fit, right.fit) == (True, False)


# --- Before the consumer knows: its clock stepped an hour ahead less than a second ago ---


def a_live_lease_is_taken_over(scene: Scene) -> list[int]:
    """Two workers pay for one item. The lease of the first has expired by the wrong clock of the second only."""
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


def test_an_item_whose_live_lease_is_taken_over_by_a_wrong_clock_is_not_paid_twice() -> None:
    scene = Scene()
    assert a_live_lease_is_taken_over(scene) == [NOT_COMMITTED]
    assert paid(scene) == 1
    scene.check_stored()


def test_without_the_conflict_on_its_record_an_item_is_paid_twice_because_of_a_wrong_clock(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert a_live_lease_is_taken_over(scene) == []
    assert paid(scene) == 2


def a_pointer_is_leased_for_half_an_hour(scene: Scene) -> None:
    """A manager whose clock is half an hour ahead leases the pointer and dies; then an item is enqueued."""
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


def test_an_enqueue_does_not_wait_for_a_pointer_lease_above_the_maximum() -> None:
    scene = Scene()
    a_pointer_is_leased_for_half_an_hour(scene)
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_a_maximum_for_leases_an_enqueue_waits_for_a_lease_of_half_an_hour() -> None:
    scene = Scene(ZoneSettings(max_pointer_lease_ms=HOUR_MS))
    a_pointer_is_leased_for_half_an_hour(scene)
    assert scene.late_us > HOUR_US // 4


def a_pointer_is_requeued_an_hour_ahead(scene: Scene) -> None:
    scene.has(lambda alice: alice.enqueue("mail"))
    scene.manager("ahead", skew_us=HOUR_US).runs()
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.vesting_us > scene.now_us + HOUR_US
    scene.has(lambda alice: alice.enqueue("mail"))


def test_an_enqueue_wakes_a_pointer_that_a_wrong_clock_requeued_an_hour_ahead() -> None:
    scene = Scene()
    a_pointer_is_requeued_an_hour_ahead(scene)
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_the_wake_up_an_item_waits_for_an_hour(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pointers, "must_wake", lambda *_, **__: False)
    scene = Scene()
    a_pointer_is_requeued_an_hour_ahead(scene)
    assert scene.late_us > HOUR_US


def test_an_integrity_check_finds_an_item_that_a_dead_worker_leased_for_an_hour() -> None:
    scene = Scene()
    scene.has(lambda alice: alice.enqueue("mail"))
    ahead = scene.manager("ahead", skew_us=HOUR_US)
    ahead.runs()
    (item_id,) = scene.zone.items
    assert scene.zone.items[item_id].vesting_us > scene.now_us + HOUR_US, "without a check the item waits"
    found = scene.play(lambda: check_integrity(scene.shard, repair=True))
    assert LONG_LEASE in {finding.what for finding in found.findings}
    manager = scene.manager()
    manager.runs()
    assert [ref.item_id for ref in manager.handed] == [item_id]
    scene.check_stored()


# --- After the clock is right again, or its machine has failed ---


def a_mail_is_returned_by_a_wrong_clock(scene: Scene) -> bytes:
    """A manager whose clock is an hour ahead leases a mail, but its workers have died by then, so it returns the mail.

    Alice then enqueues another mail. Return the id of the mail that a manager with a good clock takes first.
    """
    scene.has(lambda alice: alice.enqueue("mail", item_id="returned"))
    ahead = scene.manager("ahead", skew_us=HOUR_US)
    ahead.runs()
    scene.role("ahead", lambda shard: return_items(shard, ahead.handed), skew_us=HOUR_US).runs()
    scene.has(lambda alice: alice.enqueue("mail", item_id="later"))
    manager = scene.manager(dequeue_max=1)
    manager.runs()
    return manager.handed[0].item_id


def test_a_mail_that_a_wrong_clock_returns_keeps_its_place_and_is_taken_at_once() -> None:
    scene = Scene()
    assert a_mail_is_returned_by_a_wrong_clock(scene) == item_id_of("returned")
    scene.check_stored()


def test_a_mail_that_is_returned_to_the_time_of_a_wrong_clock_waits_for_an_hour() -> None:
    scene = Scene()
    with planted("an item that is returned vests at the time of the clock that returns it"):
        assert a_mail_is_returned_by_a_wrong_clock(scene) == item_id_of("later")
    assert scene.zone.items[item_id_of("returned")].vesting_us > scene.now_us + HOUR_US // 2


def a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(
    scene: Scene, *, delayed: int = 1, delay_s: int = HALF_AN_HOUR_S
) -> bool:
    """A manager whose clock is an hour ahead leases a mail, and fails with its workers.

    Alice has `delayed` mails that vest in `delay_s`, before that lease ends. She enqueues one more mail, which is paid
    for at once. Return whether one of the next two visits to her queue takes the mail of the failed manager.
    """
    scene.has(lambda alice: alice.enqueue("mail", item_id="leased"))
    ahead = scene.manager("ahead", skew_us=HOUR_US)
    ahead.runs()
    scene.world.after(0, ahead.host.kill)
    for _ in range(delayed):
        scene.has(lambda alice: alice.enqueue("mail", delay=delay_s))
    scene.has(lambda alice: alice.enqueue("mail"))
    manager = scene.manager()
    manager.runs()
    scene.role("worker", lambda shard: pay(shard, manager.handed[0])).runs()
    scene.pass_us(LEASE_US + SLACK_US)  # The pointer sleeps until the lease of that mail would have ended.
    return any(visit_takes(scene, "leased") for _ in range(2))


def visit_takes(scene: Scene, name: str) -> bool:
    """Return whether a manager that serves Alice's pointer now takes this item only."""
    manager = scene.manager()
    manager.runs()
    return [ref.item_id for ref in manager.handed] == [item_id_of(name)]


def test_a_lease_of_a_wrong_clock_is_found_behind_an_item_with_a_long_delay() -> None:
    scene = Scene()
    assert a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(scene)
    scene.check_stored()


def test_a_lease_of_a_wrong_clock_is_found_behind_an_item_that_a_lease_may_keep_as_long() -> None:
    """Before, it was found when that item had ended, and the queue was served again: up to five minutes later."""
    scene = Scene()
    assert a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(scene, delay_s=FIVE_MINUTES_S)
    scene.check_stored()


def test_without_a_look_behind_such_an_item_a_lease_of_a_wrong_clock_stays() -> None:
    scene = Scene()
    with planted(
        "a queue that is put to sleep for long is searched for leases of a clock ahead only from its first item on"
    ):
        assert not a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(scene, delay_s=FIVE_MINUTES_S)


def test_a_lease_of_a_wrong_clock_is_found_behind_fifteen_items_with_long_delays_but_not_behind_sixteen() -> None:
    """Sixteen items are the bound of one look. The lease is found when the first of them has run."""
    assert a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(Scene(), delayed=FAR_ENTRIES_MAX - 1)
    assert not a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(Scene(), delayed=FAR_ENTRIES_MAX)


def test_without_a_look_behind_the_first_item_with_a_long_delay_a_lease_of_a_wrong_clock_stays() -> None:
    scene = Scene()
    with planted("of the items that wait for long only the first is looked at for a lease of a clock ahead"):
        assert not a_lease_of_a_wrong_clock_lies_behind_an_item_with_a_long_delay(scene)
    assert scene.zone.items[item_id_of("leased")].vesting_us > scene.now_us + HOUR_US // 2
