"""Which transactions conflict: the core of the design, row by row.

Each story runs two transactions on the same version of the store; `collides(world.db, winner, loser)` commits the
winner first and says whether the loser lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.keyspace import ROOT_RANGE
from fairlead.zones.layout import item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import discard, move_to_dead_letters, read
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.id_retention import expire
from fairlead.zones.queue.items import EnqueueStatus, NewItem, new_item
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import OwnerRecord, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level.pointers import PointerRef, read_for_insert, scan
from fairlead.zones.top_level.process_pointers import PointerOutcome, lease, process_pointers
from tests.zones.colliding import Body, collides, commits
from tests.zones.world import ANY, BOB, LEASE_US, MS, NOBODYS, SECOND, World

SETTINGS = ZoneSettings()
PRESENT, DEAD_LETTER, COMPLETED = EnqueueStatus.PRESENT, EnqueueStatus.DEAD_LETTER, EnqueueStatus.COMPLETED
MIN_INACTIVE_US = SETTINGS.min_inactive_ms * MS

# --- What the two sides do ---


def enqueues(world: World, item: NewItem | None = None, *, zone: QueueZone | None = None) -> Body:
    item = item or new_item("mail")
    item_id = world.new_id() if item.given_id is None else item_id_of(item.given_id)
    return lambda tr: (zone or world.zone).enqueue(tr, item, item_id=item_id, now_us=world.now_us)


def dequeues(world: World, items_max: int = 10) -> Body:
    lease_id = world.new_id()
    return lambda tr: world.zone.dequeue(
        tr, capacity=Capacity(items_max, ANY), lease_id=lease_id, lease_us=LEASE_US, now_us=world.now_us
    )


def processes(
    world: World, found: PointerOutcome = PointerOutcome.SERVED, *, items_max: int = 10, ref: PointerRef | None = None
) -> Body:
    ref, terms = ref or world.ref(), world.terms(items_max=items_max)

    def body(tr: Any) -> None:
        result = process_pointers(tr, world.layout, [ref], Capacity(100, ANY), terms)[0][0]
        assert result.outcome is found

    return body


def leases_pointer(world: World) -> Body:
    ref, lease_id = world.ref(), world.new_id()
    return lambda tr: lease(tr, world.layout, ref, lease_id=lease_id, lease_us=SECOND, now_us=world.now_us)


def leases_item(world: World, item_id: bytes) -> Body:
    lease_id = world.new_id()
    return lambda tr: world.zone.obtain_lease(tr, item_id, lease_id=lease_id, lease_us=LEASE_US, now_us=world.now_us)


def completes(world: World, item_id: bytes, lease_id: bytes | None = None) -> Body:
    return lambda tr: world.zone.complete(tr, item_id, lease_id=lease_id, now_us=world.now_us)


def extends(world: World, item_id: bytes, lease_id: bytes, lease_us: int = 2 * LEASE_US) -> Body:
    return lambda tr: world.zone.extend_lease(tr, item_id, lease_id, lease_us=lease_us, now_us=world.now_us)


def requeues(world: World, item_id: bytes, lease_id: bytes, delay_us: int = 2 * LEASE_US) -> Body:
    return lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=delay_us, now_us=world.now_us)


def fails_for_good(world: World, item_id: bytes) -> Body:
    def body(tr: Any) -> None:
        record = world.record(item_id)
        assert record is not None
        tr.get(world.zone.location.keys.item(item_id)).wait()
        move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us
        )

    return body


def moves_away(world: World) -> Body:
    return lambda tr: tr.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(2, b"another shard's")))


def either_way(story: Callable[[World], tuple[Body, Body]], make_world: Callable[[], World]) -> list[bool]:
    """Run a story on two fresh worlds; return who loses: the second body, the first body."""
    world = make_world()
    first, second = story(world)
    lost = [collides(world.db, first, second)]
    world = make_world()
    first, second = story(world)
    return [*lost, collides(world.db, second, first)]


BOTH, NEITHER = [True, True], [False, False]


@pytest.fixture
def make_world(world: World) -> Callable[[], World]:
    """An empty shard each time it is called."""

    def make() -> World:
        world.run(lambda tr: tr.clear_range(*ROOT_RANGE))
        return World(world.db, world.clock)

    return make


Make = Callable[[], World]


# --- Enqueue ---


def test_two_enqueues_into_a_zone_with_an_awake_pointer_never_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue()
        return enqueues(world), enqueues(world, new_item("index", priority=0))

    assert either_way(story, make_world) == NEITHER


def test_enqueues_of_the_same_id_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue()
        return enqueues(world, new_item("mail", 1, item_id="a")), enqueues(world, new_item("mail", 2, item_id="a"))

    assert either_way(story, make_world) == BOTH


def test_enqueues_that_create_the_same_pointer_conflict(make_world: Make) -> None:
    assert either_way(lambda world: (enqueues(world), enqueues(world)), make_world) == BOTH


def test_enqueues_that_create_the_same_pointer_conflict_however_many_items_each_has(make_world: Make) -> None:
    """The second of a transaction sees the pointer that the first has made, and conflicts no less for that."""

    def twice(world: World) -> Body:
        bodies = [enqueues(world), enqueues(world)]
        return lambda tr: [body(tr) for body in bodies]

    assert either_way(lambda world: (twice(world), enqueues(world)), make_world) == BOTH


def test_enqueues_that_wake_the_same_pointer_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue(delay=60)
        return enqueues(world), enqueues(world)

    assert either_way(story, make_world) == BOTH


def test_an_enqueue_that_need_not_wake_the_pointer_does_not_conflict_with_one_that_does(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue(delay=60)
        return enqueues(world), enqueues(world, new_item("mail", delay=60))

    assert either_way(story, make_world) == NEITHER


def test_enqueues_of_different_tenants_never_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        return enqueues(world), enqueues(world, zone=world.zone_of(BOB))

    assert either_way(story, make_world) == NEITHER


def test_enqueue_and_dequeue_never_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue()
        return enqueues(world, new_item("mail", priority=0)), dequeues(world)

    assert either_way(story, make_world) == NEITHER


def test_enqueue_and_the_end_of_another_item_never_conflict(make_world: Make) -> None:
    for end in (completes, fails_for_good):

        def story(world: World, end: Callable[[World, bytes], Body] = end) -> tuple[Body, Body]:
            return end(world, world.enqueue()), enqueues(world)

        assert either_way(story, make_world) == NEITHER


def test_enqueue_and_a_dequeue_that_requeues_its_pointer_to_now_never_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue_all([new_item("mail")] * 3)
        return enqueues(world, new_item("mail", priority=0)), processes(world, items_max=1)

    assert either_way(story, make_world) == NEITHER


def test_enqueue_and_the_lease_of_a_pointer_never_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue()
        return enqueues(world), leases_pointer(world)

    assert either_way(story, make_world) == NEITHER


def test_an_enqueue_conflicts_with_a_move_of_its_tenant(make_world: Make) -> None:
    world = make_world()
    world.enqueue()
    assert collides(world.db, moves_away(world), enqueues(world))


def test_what_an_enqueue_answers_about_an_id_is_still_true_when_it_commits(make_world: Make) -> None:
    """The user's transaction may have written something because of that answer."""

    def completed(world: World) -> Body:
        return completes(world, world.enqueue(item_id="a"))

    def discarded(world: World) -> Body:
        item_id = world.enqueue(item_id="a")
        world.run(fails_for_good(world, item_id))
        dead_letter = world.run(lambda tr: read(tr, world.zone.location, item_id))
        assert dead_letter is not None
        return lambda tr: discard(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us)

    def forgotten(world: World) -> Body:
        item_id = world.enqueue(item_id="a", unique_for=1)
        world.run(completes(world, item_id, world.lease(item_id)))
        return lambda tr: expire(tr, world.zone.location.part.part, now_us=world.now_us + 2 * SECOND, keys_max=10)

    statuses = {PRESENT: completed, DEAD_LETTER: discarded, COMPLETED: forgotten}
    for status, happens in statuses.items():
        world = make_world()
        winner = happens(world)
        enqueue_again = enqueues(world, new_item("mail", item_id="a"))

        def loser(tr: Any, enqueue_again: Body = enqueue_again, status: EnqueueStatus = status) -> None:
            assert enqueue_again(tr) == (item_id_of("a"), status)
            tr.set(NOBODYS, b"enqueued before, it answered")

        assert collides(world.db, winner, loser)


# --- Sleep: the pointer is requeued further into the future ---


def test_an_enqueue_that_saw_the_pointer_awake_conflicts_with_its_falling_asleep(make_world: Make) -> None:
    """The declared write conflict: the enqueue read the pointer by snapshot, and nothing else of the sleep."""
    for priority in (0, 100, 255):
        world = make_world()
        world.enqueue()
        assert collides(world.db, processes(world), enqueues(world, new_item("mail", priority=priority)))


def test_the_conflict_that_an_enqueue_only_declares_counts_from_its_first_read_on(make_world: Make) -> None:
    """A declared conflict alone has no "since": the pointer's record is read at the same time, by snapshot."""
    world = make_world()
    world.enqueue()
    inserter = world.db.create_transaction()
    read_for_insert(inserter, world.zone.location)
    inserter.set(NOBODYS, b"")
    world.run(processes(world))
    assert not commits(world.db, inserter)


@pytest.mark.parametrize("priority", [0, 99, 100, 101, 255])
def test_a_sleep_conflicts_with_an_enqueue_that_would_be_first_in_any_priority(make_world: Make, priority: int) -> None:
    """In front of all, in the gaps between priorities, and behind them: all of it was read."""
    world = make_world()
    world.enqueue(priority=100)
    world.enqueue(priority=200, delay=1)
    assert collides(world.db, enqueues(world, new_item("mail", priority=priority)), processes(world))


def test_a_sleep_does_not_conflict_with_an_enqueue_behind_the_first_of_its_priority(make_world: Make) -> None:
    world = make_world()
    world.enqueue()
    world.enqueue(delay=1)
    assert not collides(world.db, enqueues(world, new_item("mail", delay=2)), processes(world))
    assert world.pointer_delay_us() == SECOND


def test_a_sleep_does_not_conflict_with_the_completion_of_what_it_sleeps_until(make_world: Make) -> None:
    """It is frequent: a worker completes the zone's oldest leased item while a manager dequeues from the zone."""

    def story(world: World) -> tuple[Body, Body]:
        item_id = world.enqueue()
        world.lease(item_id)
        world.pass_us(1)
        world.enqueue()
        return completes(world, item_id), processes(world)

    assert either_way(story, make_world) == NEITHER


def test_a_sleep_conflicts_with_a_give_back_that_vests_earlier_than_anything_else(make_world: Make) -> None:
    world = make_world()
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    assert collides(world.db, requeues(world, item_id, lease_id, delay_us=SECOND), processes(world))


def test_a_give_back_that_saw_the_pointer_awake_conflicts_with_its_falling_asleep(make_world: Make) -> None:
    world = make_world()
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    assert collides(world.db, processes(world), requeues(world, item_id, lease_id, delay_us=SECOND))


def test_a_sleep_until_the_recheck_conflicts_with_anything_enqueued_behind_what_is_paused(make_world: Make) -> None:
    """Otherwise it would wait for the recheck without a reason."""
    world = make_world()
    fax = world.enqueue("fax")
    world.pass_us(1)
    sleeps = processes(world)
    assert collides(world.db, enqueues(world), sleeps)
    world.run(sleeps)
    assert world.vested_ids() == [fax], "the second attempt found what was enqueued"


@pytest.mark.parametrize("enqueued_first", [True, False])
def test_deferring_a_pointer_conflicts_with_an_enqueue_behind_the_items_that_others_can_run(
    make_world: Make, enqueued_first: bool
) -> None:
    """Otherwise the deferring consumer would skip it until the recheck, though it could run the new item."""
    world = make_world()
    world.present("faxer", "fax")
    world.enqueue("fax")
    world.pass_us(1)
    leaves, arrives = processes(world), enqueues(world)
    first, second = (arrives, leaves) if enqueued_first else (leaves, arrives)
    assert collides(world.db, first, second)


def test_the_race_of_a_sleep_and_an_enqueue_of_another_priority_never_leaves_an_item_behind(make_world: Make) -> None:
    """The loser is retried, and then either the pointer is awake or the item was seen."""
    for sleeper_first in (True, False):
        world = make_world()
        world.enqueue(priority=100)
        sleeps, arrives = processes(world), enqueues(world, new_item("mail", priority=0))
        winner, loser = (sleeps, arrives) if sleeper_first else (arrives, sleeps)
        assert collides(world.db, winner, loser)
        world.run(loser)
        assert not world.vested_ids() or world.pointer_delay_us() == 0


# --- Deletion of a pointer ---


def leave_an_old_pointer(world: World) -> None:
    item_id = world.enqueue()
    world.run(completes(world, item_id))
    world.pass_us(MIN_INACTIVE_US)


def test_deleting_a_pointer_and_an_enqueue_that_saw_it_conflict_in_either_order(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        leave_an_old_pointer(world)
        return enqueues(world), processes(world, PointerOutcome.DELETED)

    assert either_way(story, make_world) == BOTH


def test_deleting_a_pointer_conflicts_with_an_item_that_appears_however_far_in_the_future(make_world: Make) -> None:
    world = make_world()
    leave_an_old_pointer(world)
    delayed = enqueues(world, new_item("mail", delay=10**6))
    assert collides(world.db, delayed, processes(world, PointerOutcome.DELETED))


def test_two_consumers_that_delete_the_same_pointer_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        leave_an_old_pointer(world)
        return processes(world, PointerOutcome.DELETED), processes(world, PointerOutcome.DELETED)

    assert either_way(story, make_world) == BOTH


# --- Consumers among each other ---


def test_two_consumers_that_process_one_pointer_conflict(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue_all([new_item("mail")] * 5)
        return processes(world, items_max=1), processes(world)

    assert either_way(story, make_world) == BOTH


def test_leasing_a_pointer_conflicts_with_another_lease_or_dequeue_of_it(make_world: Make) -> None:
    for other in (leases_pointer, processes):

        def story(world: World, other: Callable[[World], Body] = other) -> tuple[Body, Body]:
            world.enqueue()
            return leases_pointer(world), other(world)

        assert either_way(story, make_world) == BOTH


def test_waking_and_processing_one_pointer_conflict(make_world: Make) -> None:
    """The pointer vests at its old time in this very moment, and is woken for an earlier one by a slower clock."""

    def story(world: World) -> tuple[Body, Body]:
        world.enqueue(delay=1)
        slow = enqueues(world)
        world.pass_us(SECOND)
        ref = world.ref()
        world.pass_us(-SECOND)
        body = processes(world, PointerOutcome.LEASED, ref=ref)

        def late_visit(tr: Any) -> None:
            body(tr)
            tr.add_write_conflict_key(NOBODYS)  # so that it is no read-only transaction

        return slow, late_visit

    world = make_world()
    wakes, reads = story(world)
    assert collides(world.db, wakes, reads)


def test_processing_different_pointers_never_conflicts(make_world: Make) -> None:
    def story(world: World) -> tuple[Body, Body]:
        world.enqueue()
        world.enqueue(zone=world.zone_of(BOB))
        return processes(world), processes(world, ref=world.ref(world.zone_of(BOB)))

    assert either_way(story, make_world) == NEITHER


def test_dequeues_conflict_only_over_the_items_that_they_take(make_world: Make) -> None:
    def same(world: World) -> tuple[Body, Body]:
        world.enqueue_all([new_item("mail")] * 3)
        return dequeues(world, 2), dequeues(world, 2)

    def different(world: World) -> tuple[Body, Body]:
        first, second = world.enqueue(), world.enqueue()
        return leases_item(world, first), leases_item(world, second)

    assert either_way(same, make_world) == BOTH
    assert either_way(different, make_world) == NEITHER


def test_a_scan_conflicts_with_nothing(make_world: Make) -> None:
    world = make_world()
    world.enqueue()

    def scans(tr: Any) -> None:
        for part in world.layout.parts:
            run_one(scan(tr, part, now_us=world.now_us, ids_max=100))
        tr.add_write_conflict_key(NOBODYS)  # so that it is no read-only transaction

    assert not collides(world.db, processes(world), scans)


def test_peek_and_count_conflict_with_nothing(make_world: Make) -> None:
    world = make_world()
    world.enqueue()

    def looks(tr: Any) -> None:
        world.zone.peek(tr, items_max=10, now_us=world.now_us)
        world.zone.count(tr)
        tr.add_write_conflict_key(NOBODYS)  # so that it is no read-only transaction

    assert not collides(world.db, dequeues(world), looks)


# --- Holders of items ---


@pytest.mark.parametrize("one", [completes, extends, requeues], ids=lambda one: one.__name__)
@pytest.mark.parametrize("other", [completes, extends, requeues], ids=lambda other: other.__name__)
def test_two_operations_on_one_item_conflict_and_on_two_items_do_not(
    make_world: Make, one: Callable[..., Body], other: Callable[..., Body]
) -> None:
    def held(world: World) -> list[tuple[bytes, bytes]]:
        return [(item_id, world.lease(item_id)) for item_id in (world.enqueue(), world.enqueue())]

    world = make_world()
    first, _ = held(world)
    assert collides(world.db, one(world, *first), other(world, *first))
    world = make_world()
    first, second = held(world)
    assert not collides(world.db, one(world, *first), other(world, *second))


def test_a_completion_conflicts_with_a_new_lease_of_the_item(make_world: Make) -> None:
    """The fence: effects that commit together with a late completion do not happen."""
    world = make_world()
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    world.pass_us(LEASE_US)
    assert collides(world.db, dequeues(world), completes(world, item_id, lease_id))


def test_a_completion_conflicts_with_a_move_of_its_tenant(make_world: Make) -> None:
    for operation in (completes, extends, requeues):
        world = make_world()
        item_id = world.enqueue()
        body = operation(world, item_id, world.lease(item_id))
        assert collides(world.db, moves_away(world), body)


# --- Cleaning ---


def test_cleaning_a_dangling_entry_of_a_pointer_conflicts_with_a_transaction_that_makes_it_valid(
    make_world: Make,
) -> None:
    world = make_world()
    location = world.zone.location
    dangling = PointerRef(location.part.part, location.pointer_id, world.now_us, 100)
    world.set(location.part.vest(100, world.now_us, location.pointer_id), b"")
    assert collides(world.db, enqueues(world), processes(world, PointerOutcome.GONE, ref=dangling))


def test_cleaning_a_dangling_entry_of_an_item_conflicts_with_a_transaction_that_makes_it_valid(
    make_world: Make,
) -> None:
    world = make_world()
    item_id = item_id_of("a")
    world.enqueue()
    world.run(completes(world, world.vested_ids()[0]))
    world.set(world.zone.location.keys.vest(100, world.now_us, item_id), b"mail")
    assert collides(world.db, enqueues(world, new_item("mail", item_id="a")), dequeues(world))
