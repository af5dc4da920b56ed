"""Dequeue: peek and lease in one transaction, in order, of what the caller can run."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.errors import BadArgument
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import listing
from fairlead.zones.queue.dequeue_plan import Admission, Capacity
from fairlead.zones.queue.items import LeasedItem, new_item
from fairlead.zones.queue.poison_candidates import SHARED_EXPIRIES
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import FORMAT
from tests.zones.world import ALICE, LEASE_US, SECOND, World


def ids(world: World, count: int, kind: str = "mail") -> list[bytes]:
    """Enqueue items that vest one after the other."""
    enqueued = []
    for _ in range(count):
        enqueued.append(world.enqueue(kind))
        world.pass_us(1)
    return enqueued


def test_dequeue_leases_what_has_vested_by_priority_and_vesting_time(world: World) -> None:
    low = world.enqueue(priority=200)
    first, second = ids(world, 2)
    world.enqueue(delay=1)
    high = world.enqueue(priority=0)
    leased = world.dequeue()
    assert [item.id for item in leased] == [high, first, second, low]
    assert {item.record.vesting_us for item in leased} == {world.now_us + LEASE_US}
    assert world.dequeue() == []


def test_all_items_of_a_dequeue_share_its_lease(world: World) -> None:
    ids(world, 2)
    lease_id = world.new_id()
    capacity = Capacity(10, {"mail": 10})
    leased = world.run(
        lambda tr: world.zone.dequeue(tr, capacity=capacity, lease_id=lease_id, lease_us=SECOND, now_us=world.now_us)
    )
    assert [item.record.lease_id for item in leased] == [lease_id] * 2


def test_dequeue_takes_no_more_than_it_was_asked_for_and_goes_on_from_there(world: World) -> None:
    enqueued = ids(world, 5)
    assert [item.id for item in world.dequeue(2)] == enqueued[:2]
    assert [item.id for item in world.dequeue(2)] == enqueued[2:4]
    assert [item.id for item in world.dequeue(2)] == enqueued[4:]


def test_an_item_whose_lease_ran_out_is_dequeued_again(world: World) -> None:
    (item_id,) = ids(world, 1)
    world.dequeue()
    world.pass_us(LEASE_US - 1)
    assert world.dequeue() == []
    world.pass_us(1)
    assert [item.id for item in world.dequeue()] == [item_id]


def test_a_lease_of_an_absurd_length_is_refused(world: World) -> None:
    with pytest.raises(BadArgument):
        world.run(
            lambda tr: world.zone.dequeue(
                tr, capacity=Capacity(1, {}), lease_id=b"l" * 16, lease_us=0, now_us=world.now_us
            )
        )


# --- Kinds ---


def test_only_kinds_that_the_caller_knows_are_dequeued(world: World) -> None:
    unknown, known = world.enqueue("fax"), world.enqueue("mail")
    dequeued = world.dequeued(kinds={"mail": 10})
    assert [item.id for item in dequeued.items] == [known]
    assert dequeued.remaining is Admission.UNKNOWN
    assert world.vested_ids() == [unknown]


def test_a_kind_is_dequeued_only_as_often_as_it_may_run(world: World) -> None:
    mails = ids(world, 3, "mail")
    (index,) = ids(world, 1, "index")
    dequeued = world.dequeued(kinds={"mail": 2, "index": 5})
    assert [item.id for item in dequeued.items] == [*mails[:2], index]
    assert dequeued.remaining is Admission.FULL


def test_nothing_is_left_when_all_that_vested_was_taken(world: World) -> None:
    ids(world, 3)
    world.enqueue(delay=0.005)
    assert world.dequeued(3).remaining is None


def test_more_of_what_can_run_is_left_when_the_caller_wanted_no_more(world: World) -> None:
    ids(world, 4)
    assert world.dequeued(3).remaining is Admission.RUNS


def test_one_capacity_serves_several_zones_and_shrinks_with_each_item(world: World) -> None:
    zones = [world.zone_of(ALICE, name) for name in ("a", "b", "c")]
    for zone in zones:
        world.enqueue(zone=zone)
    capacity = Capacity(2, {"mail": 10})

    def take_from(tr: Any, zone: QueueZone) -> int:
        return len(zone.dequeue(tr, capacity=capacity, lease_id=b"l" * 16, lease_us=SECOND, now_us=world.now_us))

    taken = world.run(lambda tr: [take_from(tr, zone) for zone in zones])
    assert taken == [1, 1, 0]
    assert capacity.admission("mail") is Admission.FULL
    assert capacity.admission("fax") is Admission.UNKNOWN


# --- What cannot run never stands in front of what can ---


def enqueue_many(world: World, kind: str, count: int) -> None:
    world.enqueue_all([new_item(kind) for _ in range(count)])
    world.pass_us(1)


@pytest.mark.parametrize("in_front", [1, 511, 512, 513, 1_024, 1_700])
@pytest.mark.parametrize("kinds", [{"mail": 9}, {"mail": 9, "fax": 0}], ids=["unknown", "full"])
def test_an_item_is_found_behind_any_number_that_cannot_run(world: World, in_front: int, kinds: dict[str, int]) -> None:
    enqueue_many(world, "fax", in_front)
    (wanted,) = ids(world, 1)
    cursor, dequeues = b"", 0
    found: list[LeasedItem] = []
    while not found:
        dequeued = world.dequeued(kinds=kinds, cursor=cursor)
        cursor, found = dequeued.cursor, dequeued.items
        dequeues += 1
        assert found or dequeued.remaining is Admission.FULL, "it must ask again soon while there is more to look at"
    assert [item.id for item in found] == [wanted]
    assert dequeues <= 1 + in_front // 512


def test_a_dequeue_that_came_to_the_end_starts_again_at_the_front(world: World) -> None:
    enqueue_many(world, "fax", 1_100)
    first = world.dequeued()
    assert first.cursor != b""
    second = world.dequeued(cursor=first.cursor)
    assert (second.cursor, second.remaining) == (b"", Admission.UNKNOWN)


def test_what_earlier_dequeues_passed_over_counts_only_where_this_one_does_not_look(world: World) -> None:
    world.enqueue_all([new_item("fax")] * 1_100)
    front = world.zone.location.keys.vest_priority(0)
    assert world.dequeued(cursor=front, best_skipped=Admission.FULL).best_skipped is Admission.UNKNOWN


def test_the_front_is_looked_at_every_time_wherever_the_last_dequeue_stopped(world: World) -> None:
    enqueue_many(world, "fax", 1_100)
    cursor = world.dequeued().cursor
    urgent = world.enqueue(priority=0)
    assert [item.id for item in world.dequeued(cursor=cursor).items] == [urgent]


def test_records_that_a_newer_version_wrote_do_not_stand_in_front_of_others(world: World) -> None:
    """They are as many as a dequeue takes: leaving them alone must not mean taking nothing."""
    unreadable = ids(world, 20)
    for item_id in unreadable:
        world.set(world.zone.location.keys.item(item_id), bytes([FORMAT + 1]))
    readable = ids(world, 3)
    dequeued = world.dequeued(items_max=2)
    assert [item.id for item in dequeued.items] == readable[:2]
    assert dequeued.unreadable == 20
    assert dequeued.remaining is Admission.RUNS
    dequeued = world.dequeued(items_max=2)
    assert [item.id for item in dequeued.items] == readable[2:]
    assert dequeued.remaining is Admission.UNKNOWN


def test_records_that_cannot_be_read_use_none_of_the_capacity(world: World) -> None:
    (unreadable,) = ids(world, 1)
    world.set(world.zone.location.keys.item(unreadable), bytes([FORMAT + 1]))
    (readable,) = ids(world, 1)
    assert [item.id for item in world.dequeue(1, {"mail": 1})] == [readable]


# --- Damage ---


def test_an_index_entry_that_leads_nowhere_is_cleared_and_passed_over(world: World) -> None:
    keys = world.zone.location.keys
    gone = keys.vest(100, world.now_us - 1, world.new_id())
    world.set(gone, b"mail")
    (item_id,) = ids(world, 1)
    assert [item.id for item in world.dequeue()] == [item_id]
    assert world.run(lambda tr: tr.get(gone).value) is None


def test_an_index_entry_that_disagrees_with_its_record_is_cleared(world: World) -> None:
    (item_id,) = ids(world, 1)
    keys = world.zone.location.keys
    other = keys.vest(0, world.now_us - 7, item_id)
    world.set(other, b"mail")
    assert [item.id for item in world.dequeue()] == [item_id], "once, not twice"
    assert world.run(lambda tr: tr.get(other).value) is None


# --- Lease expiries ---


def note_start(world: World, held: LeasedItem, *, ran_isolated: bool = False) -> None:
    """Let a worker write that it begins with an item."""
    holding = (held.id, held.record.lease_id)
    world.run(
        lambda tr: run_one(
            world.zone.extend_op(
                tr, [holding], lease_us=LEASE_US, now_us=world.now_us, started=True, ran_isolated=ran_isolated
            )
        )
    )


def expiry(world: World, items_max: int = 100, *, started: bool = True) -> list[bytes]:
    """Dequeue, let the worker begin with all of it and die, and return what it held."""
    held = world.dequeue(items_max)
    for item in held if started else []:
        note_start(world, item)
    world.pass_us(LEASE_US)
    return [item.id for item in held]


def expiries(world: World, item_id: bytes) -> int:
    record = world.record(item_id)
    assert record is not None
    return record.expiry_count


def test_an_item_that_is_leased_again_after_its_lease_has_expired_counts_an_expiry(world: World) -> None:
    (item_id,) = ids(world, 1)
    assert expiry(world) == [item_id]
    assert expiries(world, item_id) == 0
    assert expiry(world) == [item_id]
    assert expiries(world, item_id) == 1
    assert world.dequeue()[0].record.error_count == 0, "expiries are counted apart from errors"


def test_an_expiry_before_the_start_does_not_count_towards_isolation(world: World) -> None:
    """It was in the reserve of a worker that something else ended. Before, it had to run alone after three of these."""
    (item_id,) = ids(world, 1)
    for _ in range(10):
        assert expiry(world, started=False) == [item_id]
    (held,) = world.dequeue()
    assert not held.isolated
    assert (held.record.expiry_count, held.record.expired_count) == (0, 10)


def test_that_an_item_has_started_holds_for_one_lease(world: World) -> None:
    (item_id,) = ids(world, 1)
    expiry(world)
    expiry(world, started=False)
    assert expiry(world) == [item_id]
    assert expiries(world, item_id) == 1


def test_an_item_that_is_returned_after_its_start_is_no_poison_candidate(world: World) -> None:
    (item_id,) = ids(world, 1)
    expiry(world)
    expiry(world)
    (held,) = world.dequeue()
    assert expiries(world, item_id) == 2
    note_start(world, held)
    world.run(lambda tr: world.zone.requeue(tr, item_id, held.record.lease_id, delay_us=0, now_us=world.now_us))
    assert expiries(world, item_id) == 0
    assert not world.dequeue()[0].isolated


def test_an_item_that_is_returned_before_its_start_stays_a_poison_candidate(world: World) -> None:
    """Before, one that found no slot was a poison candidate no longer, and could end three more workers."""
    (item_id,) = ids(world, 1)
    expire_until_candidate(world, item_id)
    (held,) = world.dequeue()
    world.run(lambda tr: world.zone.requeue(tr, item_id, held.record.lease_id, delay_us=0, now_us=world.now_us))
    assert world.dequeue()[0].isolated


def expire_until_candidate(world: World, item_id: bytes) -> None:
    for _ in range(world.layout.settings.expiries_before_isolation):
        assert item_id in expiry(world)


def test_an_item_with_several_expiries_is_dequeued_to_run_isolated(world: World) -> None:
    (poison,) = ids(world, 1)
    expire_until_candidate(world, poison)
    others = ids(world, 3)
    assert [(item.id, item.isolated) for item in world.dequeue()] == [
        (poison, True),
        *((each, False) for each in others),
    ]


def test_as_many_poison_candidates_are_taken_as_can_run_isolated(world: World) -> None:
    first, *rest = ids(world, 3)
    for _ in range(world.layout.settings.expiries_before_isolation):
        expiry(world)
    (item,) = ids(world, 1)
    dequeued = world.dequeued()
    assert [each.id for each in dequeued.items] == [first, item]
    assert dequeued.remaining is Admission.FULL, "others must wait until the first has run"
    assert {each.id for each in world.dequeue()} <= set(rest)


def test_a_poison_candidate_that_cannot_run_isolated_now_blocks_no_item(world: World) -> None:
    """As many as a dequeue takes of them come first. Before, such an item was taken, and everything waited for it."""
    poison_candidates = ids(world, 3)
    for _ in range(world.layout.settings.expiries_before_isolation):
        expiry(world)
    others = ids(world, 3)
    capacity = Capacity(3, {"mail": 3}, poison_candidates=0)
    held = world.run(
        lambda tr: world.zone.dequeue(tr, capacity=capacity, lease_id=b"l" * 16, lease_us=LEASE_US, now_us=world.now_us)
    )
    assert [each.id for each in held] == others
    assert (capacity.items, capacity.kinds) == (0, {"mail": 0}), "what was passed over uses no capacity"
    assert [world.record(each).lease_id != b"l" * 16 for each in poison_candidates] == [True] * 3  # type: ignore[union-attr]


def test_a_poison_candidate_uses_no_capacity_of_the_others(world: World) -> None:
    (poison_candidate,) = ids(world, 1)
    for _ in range(world.layout.settings.expiries_before_isolation):
        expiry(world)
    capacity = Capacity(1, {"mail": 2}, poison_candidates=1)
    held = world.run(
        lambda tr: world.zone.dequeue(tr, capacity=capacity, lease_id=b"l" * 16, lease_us=LEASE_US, now_us=world.now_us)
    )
    assert [each.id for each in held] == [poison_candidate]
    assert (capacity.items, capacity.poison_candidates) == (1, 0)


def test_without_isolation_an_item_becomes_a_dead_letter_after_three_more_expiries(world: World) -> None:
    """In threads, an item that must run alone shares its process with others: one of them may have ended it."""
    (poison,) = ids(world, 1)
    for _ in range(world.layout.settings.expiries_before_isolation + SHARED_EXPIRIES):
        assert expiry(world) == [poison]
    dequeued = world.dequeued()
    assert (dequeued.items, dequeued.dead_letters) == ([], ["mail"])
    (dead_letter,) = world.run(lambda tr: list(listing(tr, world.layout, items_max=10)))
    assert dead_letter.record.error == "its process died or stalled 6 times in a row while it ran"


def test_an_item_whose_lease_expires_while_it_runs_isolated_becomes_a_dead_letter(world: World) -> None:
    payload = bytes(100_000)
    poison = world.enqueue(payload=payload)
    world.pass_us(1)
    expire_until_candidate(world, poison)
    (held,) = world.dequeue()
    note_start(world, held, ran_isolated=True)
    world.pass_us(LEASE_US)
    (innocent,) = ids(world, 1)
    dequeued = world.dequeued()
    assert [item.id for item in dequeued.items] == [innocent]
    assert dequeued.dead_letters == ["mail"]
    assert world.record(poison) is None
    assert world.count() == {"mail": 1}


def test_an_item_that_finished_isolated_is_completed_like_any_other(world: World) -> None:
    (poison,) = ids(world, 1)
    expire_until_candidate(world, poison)
    (held,) = world.dequeue()
    note_start(world, held, ran_isolated=True)
    world.run(lambda tr: world.zone.complete(tr, poison, lease_id=held.record.lease_id, now_us=world.now_us))
    assert world.count() == {}


def test_an_item_that_is_returned_after_it_ran_isolated_becomes_no_dead_letter(world: World) -> None:
    (poison,) = ids(world, 1)
    expire_until_candidate(world, poison)
    (held,) = world.dequeue()
    note_start(world, held, ran_isolated=True)
    world.run(lambda tr: world.zone.requeue(tr, poison, held.record.lease_id, delay_us=0, now_us=world.now_us))
    assert expiry(world) == [poison]
    assert [item.id for item in world.dequeue()] == [poison]
