"""Pointers: how consumers find a zone that has work, and how little they cost when it has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fairlead.zones.keyspace import META_KEY, PartKeys, TenantKeys, ZoneKeys, pack_text
from fairlead.zones.layout import ZoneLocation, local_tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.dequeue_plan import Admission, Capacity
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import FORMAT, PointerRecord, encode
from fairlead.zones.settings import WINDOW_KEYS, ZoneSettings
from fairlead.zones.top_level.pointers import PointerRef, earliest_vesting_us, location_of, scan, scan_back
from fairlead.zones.top_level.process_pointers import Deferred, PointerOutcome, lease, process_pointers
from fairlead.zones.top_level.sessions import LIVE_US
from tests.zones.world import ALICE, BOB, LEASE_US, MS, PAUSE_US, SECOND, THROTTLE_US, World

SETTINGS = ZoneSettings()
SLACK_US = SETTINGS.wake_slack_ms * MS
MIN_INACTIVE_US = SETTINGS.min_inactive_ms * MS
MAX_SLEEP_US = SETTINGS.max_sleep_ms * MS


def visit_one(world: World, ref: PointerRef, **how: Any) -> Any:
    terms = world.terms(**how)
    return world.run(lambda tr: process_pointers(tr, world.layout, [ref], Capacity(100, {"mail": 100}), terms)[0][0])


# --- Made and woken by whoever enqueues ---


def test_the_first_item_of_a_zone_makes_its_pointer(world: World) -> None:
    assert world.pointer() is None
    world.enqueue()
    pointer = world.pointer()
    assert pointer is not None
    (ref,) = world.scan()
    assert ref == world.ref()
    assert location_of(ref, world.layout) is world.zone.location
    assert world.pointer_delay_us() == 0


def test_a_pointer_to_a_delayed_item_vests_with_it(world: World) -> None:
    world.enqueue(delay=2)
    assert world.scan() == []
    world.pass_us(2 * SECOND)
    assert world.scan() == [world.ref()]


def test_more_items_leave_an_awake_pointer_alone(world: World) -> None:
    world.enqueue()
    before = world.pointer()
    world.pass_us(SECOND)
    world.enqueue()
    world.enqueue(delay=0.005)
    assert world.pointer() == before


def test_each_zone_has_one_pointer_however_many_items_it_holds(world: World) -> None:
    tenants = [ALICE, BOB, local_tenant("reindex")]
    for tenant in tenants:
        for _ in range(3):
            world.enqueue(zone=world.zone_of(tenant))
    assert len(world.scan()) == 3


@pytest.mark.parametrize("later_us, woken", [(SLACK_US, False), (SLACK_US + 1, True)])
def test_an_item_wakes_a_pointer_that_would_let_it_wait_longer_than_the_slack(
    world: World, later_us: int, woken: bool
) -> None:
    delay_ms = 50
    world.enqueue(delay=1)
    world.pass_us(SECOND - later_us - delay_ms * MS)
    world.enqueue(delay=delay_ms / 1000)
    assert world.pointer_delay_us() == delay_ms * MS + (0 if woken else later_us)


def test_an_item_wakes_a_sleeping_pointer_in_its_own_transaction(world: World) -> None:
    world.enqueue(delay=3600)
    world.enqueue()
    assert world.pointer_delay_us() == 0
    assert len(world.scan()) == 1, "the old index entry is gone"
    world.pass_us(3_600 * SECOND)
    assert len(world.scan()) == 1


def test_a_leased_pointer_is_left_to_its_holder(world: World) -> None:
    world.enqueue()
    assert world.run(
        lambda tr: lease(tr, world.layout, world.ref(), lease_id=b"l" * 16, lease_us=SECOND, now_us=world.now_us)
    )
    world.enqueue(priority=0)
    assert world.pointer_delay_us() == SECOND


def test_a_pointer_leased_for_longer_than_anybody_may_is_woken(world: World) -> None:
    """Its holder's clock was wrong, and nobody waits for that."""
    world.enqueue()
    too_long_us = (SETTINGS.max_pointer_lease_ms + SETTINGS.max_skew_ms) * MS + 1
    ref = world.ref()
    assert world.run(
        lambda tr: lease(tr, world.layout, ref, lease_id=b"l" * 16, lease_us=too_long_us, now_us=world.now_us)
    )
    world.enqueue()
    assert world.pointer_delay_us() == 0


def test_a_pointer_that_was_woken_has_no_lease(world: World) -> None:
    world.enqueue()
    too_long_us = (SETTINGS.max_pointer_lease_ms + SETTINGS.max_skew_ms) * MS + 1
    ref = world.ref()
    world.run(lambda tr: lease(tr, world.layout, ref, lease_id=b"l" * 16, lease_us=too_long_us, now_us=world.now_us))
    world.enqueue(delay=3600)
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.lease_id == b""
    assert world.pointer_delay_us() == 0, "the first item waits, and whoever held the pointer will not say so"


def test_a_lease_of_a_pointer_by_a_clock_that_is_ahead_is_believed(world: World) -> None:
    """As far as clocks may be apart: to take it away would bring two managers into each other's way."""
    world.enqueue()
    ahead_us = world.now_us + SETTINGS.max_skew_ms * MS
    longest_us = SETTINGS.max_pointer_lease_ms * MS
    ref = world.ref()
    world.run(lambda tr: lease(tr, world.layout, ref, lease_id=b"l" * 16, lease_us=longest_us, now_us=ahead_us))
    before = world.pointer()
    world.enqueue(priority=0)
    assert world.pointer() == before


def test_a_pointer_that_was_lost_is_made_again_by_the_next_enqueue(world: World) -> None:
    world.enqueue()
    location = world.zone.location
    world.clear(location.keys.pointer)
    world.enqueue()
    assert world.scan() == [world.ref()]


def test_a_transaction_that_enqueues_twice_makes_one_pointer_which_vests_in_time_for_both(world: World) -> None:
    """The second sees what the first has written: it wakes that, and leaves no second entry behind."""
    ids = [world.new_id(), world.new_id()]

    def body(tr: Any) -> None:
        for item_id, delay in zip(ids, (60, 0), strict=True):
            world.zone.enqueue(tr, new_item("mail", delay=delay), item_id=item_id, now_us=world.now_us)

    world.run(body)
    assert world.scan() == [world.ref()]
    assert world.pointer_delay_us() == 0
    world.pass_us(60 * SECOND)
    assert world.scan() == [world.ref()]


def test_retrying_an_item_wakes_the_pointer(world: World) -> None:
    item_id = world.enqueue()
    record = world.record(item_id)
    assert record is not None
    world.run(
        lambda tr: move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us
        )
    )
    world.process()
    assert world.pointer_delay_us() == MIN_INACTIVE_US
    dead_letter = world.run(lambda tr: read(tr, world.zone.location, item_id))
    assert dead_letter is not None

    def restore(tr: Any) -> None:
        retry_dead_letter(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us)
        run_one(world.zone.wake_op(tr, earliest_us=world.now_us, now_us=world.now_us))

    world.run(restore)
    assert world.pointer_delay_us() == 0


def test_waking_a_zone_that_has_no_pointer_makes_one(world: World) -> None:
    world.run(lambda tr: run_one(world.zone.wake_op(tr, earliest_us=world.now_us, now_us=world.now_us)))
    assert world.scan() == [world.ref()]


# --- Where a pointer goes after a visit ---


def test_a_processed_pointer_sleeps_until_the_leases_of_its_items_end(world: World) -> None:
    item_id = world.enqueue()
    world.pass_us(7)
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.SERVED
    assert visit.location is not None
    assert visit.location.tenant == ALICE
    assert [item.id for item in visit.items] == [item_id]
    assert world.pointer_delay_us() == LEASE_US
    assert world.scan() == []


def test_a_pointer_whose_zone_holds_more_goes_behind_every_other_vested_pointer(world: World) -> None:
    world.enqueue_all([new_item("mail")] * 5)
    world.pass_us(SECOND)
    world.process(items_max=2)
    assert world.pointer_delay_us() == 0


def test_a_pointer_sleeps_until_the_first_delayed_item_of_any_priority_vests(world: World) -> None:
    world.enqueue(priority=0, delay=9)
    world.enqueue(priority=200, delay=3)
    world.enqueue(priority=100)
    world.process()
    assert world.pointer_delay_us() == 3 * SECOND


def sleep_with_items_that_wait(world: World, *delays_s: int) -> int:
    """Complete one item of a zone, so that only these remain; return how long the pointer sleeps then."""
    for delay_s in delays_s:
        world.enqueue(delay=delay_s)
    world.enqueue()
    world.process()
    (held,) = world.run(lambda tr: world.zone.peek(tr, items_max=1, now_us=world.now_us + LEASE_US))
    world.run(lambda tr: world.zone.complete(tr, held.id, now_us=world.now_us))
    world.pass_us(LEASE_US)
    world.process()
    return world.pointer_delay_us()


def test_no_pointer_sleeps_longer_than_the_cap_while_an_item_may_be_leased(world: World) -> None:
    """What vests within the longest lease may be a lease that is given back: a lost wake-up must not delay it."""
    assert sleep_with_items_that_wait(world, SETTINGS.max_item_lease_ms // 1000) == MAX_SLEEP_US


def test_the_pointer_of_a_zone_in_which_all_items_wait_sleeps_until_the_first_vests(world: World) -> None:
    assert sleep_with_items_that_wait(world, 3600, 7200) == 3600 * SECOND - LEASE_US


def test_the_pointer_of_a_zone_in_which_all_items_wait_for_long_sleeps_for_a_day(world: World) -> None:
    assert sleep_with_items_that_wait(world, 10 * 86_400) == 86_400 * SECOND


def test_an_enqueue_wakes_a_pointer_that_sleeps_for_long(world: World) -> None:
    sleep_with_items_that_wait(world, 10 * 86_400)
    world.enqueue()
    assert world.pointer_delay_us() <= 0


def test_a_zone_whose_kinds_are_at_their_limits_waits_for_the_throttle_delay(world: World) -> None:
    world.enqueue()
    (visit,) = world.process({"mail": 0})
    assert visit.outcome is PointerOutcome.SERVED
    assert world.pointer_delay_us() == THROTTLE_US


def test_a_zone_of_kinds_unknown_here_waits_for_the_recheck(world: World) -> None:
    world.enqueue("fax")
    world.process()
    assert world.pointer_delay_us() == PAUSE_US


def test_a_zone_of_kinds_that_another_consumer_knows_stays_vested_for_it(world: World) -> None:
    """A visitor whose clock is ahead would otherwise send it to sleep again before the other sees it vest."""
    world.present("old", "mail")
    world.present("new", "mail", "fax")
    world.enqueue("fax")
    before = world.pointer_delay_us()
    (visit,) = world.process()
    assert world.pointer_delay_us() == before
    assert visit.deferred is not None
    assert visit.deferred.until_us == world.now_us + PAUSE_US


def test_a_zone_of_which_something_was_taken_vests_anew_for_another_consumer(world: World) -> None:
    """One that left it alone, with what it held then, sees by its vesting time that there is another look to take."""
    world.present("mailer", "mail")
    world.present("faxer", "fax")
    world.enqueue("fax")
    world.enqueue("mail")
    world.pass_us(SECOND)
    (visit,) = world.process({"mail": 10})
    assert world.pointer_delay_us() == 0
    assert visit.deferred is not None
    assert visit.deferred.vesting_us == world.now_us


def test_a_zone_whose_kinds_are_at_their_limits_stays_vested_for_a_consumer_that_may_have_capacity(
    world: World,
) -> None:
    world.present("full", "mail")
    world.enqueue()
    world.process({"mail": 0})
    assert world.pointer_delay_us() == THROTTLE_US, "nobody else could run it"
    world.pass_us(THROTTLE_US)
    world.present("other", "mail")
    (visit,) = world.process({"mail": 0})
    assert world.pointer_delay_us() == 0
    assert visit.deferred is not None
    assert visit.deferred.until_us == world.now_us + THROTTLE_US


def test_a_zone_of_more_than_two_windows_stays_vested_for_a_consumer_that_knows_the_kind(world: World) -> None:
    """A visitor that knows nothing of it is none of those that do."""
    world.present("old", "mail")
    world.present("new", "fax")
    world.enqueue_all([new_item("fax") for _ in range(2 * WINDOW_KEYS + 1)])
    (visit,) = world.process({"mail": 10})
    assert world.pointer_delay_us() == 0
    assert visit.deferred is not None


def test_an_item_wakes_a_pointer_that_a_consumer_has_left_to_others(world: World) -> None:
    """That consumer may be the one that can run it, and looks again only once the pointer vests at another time."""
    world.present("mailer", "mail")
    world.present("faxer", "fax")
    world.enqueue("fax")
    (visit,) = world.process({"mail": 10})
    assert visit.deferred is not None
    world.pass_us(MS)
    world.enqueue("mail")
    (ref,) = world.scan()
    assert ref.vesting_us != visit.deferred.vesting_us


def test_a_manager_that_has_deferred_enough_pointers_puts_the_next_to_sleep(world: World) -> None:
    world.present("new", "fax")
    world.enqueue("fax")
    terms = replace(world.terms(), may_defer=False)
    visit = world.run(
        lambda tr: process_pointers(tr, world.layout, [world.ref()], Capacity(100, {"mail": 100}), terms)[0][0]
    )
    assert visit.deferred is None
    assert world.pointer_delay_us() == PAUSE_US


def test_a_consumer_that_is_dead_is_left_nothing(world: World) -> None:
    world.present("new", "fax")
    world.pass_us(LIVE_US + 1)
    world.enqueue("fax")
    world.process()
    assert world.pointer_delay_us() == PAUSE_US


def test_a_zone_of_unreadable_records_waits_for_the_recheck(world: World) -> None:
    """Going on at once would turn an old consumer into a busy loop for as long as the upgrade takes."""
    item_id = world.enqueue()
    world.set(world.zone.location.keys.item(item_id), bytes([FORMAT + 1]))
    (visit,) = world.process()
    assert visit.unreadable == 1
    assert world.pointer_delay_us() == PAUSE_US


def test_paused_items_do_not_hold_up_a_delayed_item_of_another_kind(world: World) -> None:
    world.enqueue("fax")
    delayed = world.enqueue("mail", delay=0.4)
    world.process()
    assert world.pointer_delay_us() == 400 * MS
    world.pass_us(400 * MS)
    (visit,) = world.process()
    assert [item.id for item in visit.items] == [delayed]


def test_delayed_items_that_vest_all_the_time_do_not_make_a_paused_zone_a_busy_loop(world: World) -> None:
    world.enqueue_all([new_item("fax", delay=number / 1000) for number in range(100)])
    world.process()
    assert world.pointer_delay_us() == THROTTLE_US


def test_a_dead_workers_item_is_found_though_paused_ones_share_its_zone(world: World) -> None:
    world.enqueue("fax")
    item_id = world.enqueue("mail")
    world.process(lease_us=SECOND)
    assert world.pointer_delay_us() == SECOND
    world.pass_us(SECOND)
    (visit,) = world.process()
    assert [item.id for item in visit.items] == [item_id]


def test_dequeues_go_on_from_the_cursor_until_they_find_an_item_that_can_run(world: World) -> None:
    world.enqueue_all([new_item("fax")] * 1_700)
    world.pass_us(1)
    wanted = world.enqueue("mail")
    visits = 0
    while True:
        (visit,) = world.process()
        visits += 1
        if visit.items:
            break
        assert world.pointer_delay_us() == THROTTLE_US
        world.pass_us(THROTTLE_US)
    assert [item.id for item in visit.items] == [wanted]
    assert visits == 3


def test_items_at_their_limit_are_asked_for_again_soon_wherever_in_a_long_queue_they_are(world: World) -> None:
    """They lie between the two windows of the last visit, where it did not look."""
    world.enqueue_all([new_item("fax")] * 600)
    world.pass_us(1)
    world.enqueue("mail")
    world.pass_us(1)
    world.enqueue_all([new_item("fax")] * 800)
    at_limit = {"mail": 0}
    world.process(at_limit)
    pointer = world.pointer()
    assert pointer is not None
    assert (pointer.cursor != b"", Admission(pointer.best_skipped)) == (True, Admission.FULL)
    world.pass_us(THROTTLE_US)
    world.process(at_limit)
    assert world.pointer_delay_us() == THROTTLE_US
    pointer = world.pointer()
    assert pointer is not None
    assert (pointer.cursor, Admission(pointer.best_skipped)) == (b"", Admission.PAUSED)


def test_a_long_queue_of_paused_items_rests_once_it_was_looked_through(world: World) -> None:
    world.enqueue_all([new_item("fax")] * 1_700)
    delays = []
    for _ in range(6):
        world.process()
        delays.append(world.pointer_delay_us())
        world.pass_us(delays[-1])
    assert delays == [THROTTLE_US, THROTTLE_US, PAUSE_US] * 2


# --- Deleted when the zone has been empty for long ---


def drained(world: World) -> None:
    """Leave a zone without items whose pointer has vested."""
    item_id = world.enqueue()
    world.process()
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))
    world.pass_us(LEASE_US)


def test_a_pointer_outlives_its_last_item_by_the_time_of_grace_and_is_then_deleted(world: World) -> None:
    drained(world)
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.SERVED
    assert world.pointer_delay_us() == MIN_INACTIVE_US - LEASE_US
    world.pass_us(MIN_INACTIVE_US - LEASE_US)
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.DELETED
    assert world.pointer() is None
    watched = {part.change_counter for part in world.layout.parts}
    assert [key for key, _ in world.everything() if key not in watched] == [META_KEY], "nothing of the queue is left"


def test_the_time_of_grace_begins_when_items_were_last_seen(world: World) -> None:
    item_id = world.enqueue()
    world.pass_us(MIN_INACTIVE_US)
    world.process()
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))
    world.pass_us(LEASE_US)
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.SERVED
    assert world.pointer_delay_us() == MIN_INACTIVE_US - LEASE_US


def test_a_tenant_that_comes_back_within_the_time_of_grace_finds_its_pointer(world: World) -> None:
    drained(world)
    world.process()
    item_id = world.enqueue()
    assert world.pointer_delay_us() == 0
    (visit,) = world.process()
    assert [item.id for item in visit.items] == [item_id]


def test_a_zone_with_a_delayed_item_keeps_its_pointer(world: World) -> None:
    drained(world)
    world.enqueue(delay=10 * MIN_INACTIVE_US / SECOND)
    for _ in range(20):
        world.process()
        pointer = world.pointer()
        assert pointer is not None
        world.clock.advance_us(max(0, pointer.vesting_us - world.now_us))
        if world.vested_ids():
            break
    (visit,) = world.process()
    assert len(visit.items) == 1


def test_a_zone_that_was_deleted_starts_anew(world: World) -> None:
    drained(world)
    world.pass_us(MIN_INACTIVE_US)
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.DELETED
    world.enqueue()
    (visit,) = world.process()
    assert len(visit.items) == 1


def test_items_that_lost_their_index_entries_keep_their_pointer(world: World) -> None:
    """Only a repair can help them, and it starts from the pointer."""
    item_id = world.enqueue()
    world.clear(world.zone.location.keys.vest(100, world.now_us, item_id))
    world.pass_us(MIN_INACTIVE_US)
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.SERVED
    assert world.pointer_delay_us() == PAUSE_US


# --- Several consumers ---


def test_of_two_consumers_that_scanned_the_same_pointer_the_second_finds_it_leased(world: World) -> None:
    world.enqueue()
    ref = world.ref()
    assert visit_one(world, ref).outcome is PointerOutcome.SERVED
    before = world.everything()
    late = visit_one(world, ref)
    assert (late.outcome, list(late.items)) == (PointerOutcome.LEASED, [])
    assert world.everything() == before


def test_a_leased_pointer_is_processed_by_its_holder_alone(world: World) -> None:
    """For a contended pointer the lease comes in a transaction of its own, as in Algorithm 2."""
    item_id = world.enqueue()
    ref = world.ref()
    mine = b"m" * 16

    def take(lease_id: bytes) -> bool:
        return world.run(
            lambda tr: lease(tr, world.layout, ref, lease_id=lease_id, lease_us=SECOND, now_us=world.now_us)
        )

    assert take(mine)
    assert not take(b"n" * 16)
    assert visit_one(world, ref).outcome is PointerOutcome.LEASED
    visit = visit_one(world, ref, lease_id=mine)
    assert (visit.outcome, [item.id for item in visit.items]) == (PointerOutcome.SERVED, [item_id])
    assert world.scan() == []


def test_the_lease_of_a_pointer_whose_holder_died_runs_out(world: World) -> None:
    world.enqueue()
    ref = world.ref()
    world.run(lambda tr: lease(tr, world.layout, ref, lease_id=b"m" * 16, lease_us=SECOND, now_us=world.now_us))
    assert world.scan() == []
    world.pass_us(SECOND)
    (visit,) = world.process()
    assert len(visit.items) == 1


@pytest.mark.parametrize("named", [True, False])
def test_what_is_not_there_cannot_be_leased(world: World, named: bool) -> None:
    location = world.zone.location
    ref = PointerRef(location.part.part, location.pointer_id if named else b"no name", world.now_us, 100)
    assert not world.run(
        lambda tr: lease(tr, world.layout, ref, lease_id=b"l" * 16, lease_us=SECOND, now_us=world.now_us)
    )


def test_many_zones_are_processed_in_one_transaction_and_share_one_capacity(world: World) -> None:
    for number in range(30):
        world.enqueue(zone=world.zone_of(ALICE, f"zone {number}"), kind="mail")
    refs, terms = world.scan(), world.terms()

    def body(tr: Any) -> list[Any]:
        capacity = Capacity(20, {"mail": 25})
        return process_pointers(tr, world.layout, refs, capacity, terms)[0]

    visits = world.run(body)
    assert [visit.outcome for visit in visits] == [PointerOutcome.SERVED] * 30
    assert sum(len(visit.items) for visit in visits) == 20
    assert len(world.scan()) == 10, "what found no capacity stays in the line"


# --- Scanning ---


def test_a_scan_shows_vested_pointers_in_order_and_goes_on_where_it_stopped(world: World) -> None:
    for number in range(10):
        world.enqueue(zone=world.zone_of(ALICE, f"zone {number}"))
        world.pass_us(1)
    for part in world.layout.parts:

        def page(ids_max: int, begin: bytes = b"", part: PartKeys = part) -> tuple[list[PointerRef], bytes | None]:
            return world.run(lambda tr: run_one(scan(tr, part, now_us=world.now_us, ids_max=ids_max, begin=begin)))

        refs, stopped_at = page(100)
        assert stopped_at is None
        assert [ref.vesting_us for ref in refs] == sorted(ref.vesting_us for ref in refs)
        paged: list[PointerRef] = []
        begin: bytes | None = b""
        while begin is not None:
            shown, begin = page(2, begin)
            paged += shown
        assert paged == refs


def test_a_scan_back_shows_what_vested_before_a_time_youngest_first_and_goes_on_where_it_stopped(world: World) -> None:
    begun_us = world.now_us
    for number in range(20):
        world.enqueue(zone=world.zone_of(ALICE, f"zone {number}"))
        world.pass_us(1)
    before_us = begun_us + 15
    for part in world.layout.parts:

        def page(ids_max: int, end: bytes = b"", part: PartKeys = part) -> tuple[list[PointerRef], bytes | None]:
            return world.run(lambda tr: run_one(scan_back(tr, part, before_us=before_us, ids_max=ids_max, end=end)))

        refs, stopped_at = page(100)
        assert stopped_at is None
        all_refs, _ = world.run(lambda tr: run_one(scan(tr, part, now_us=world.now_us, ids_max=100)))  # noqa: B023
        assert refs == [ref for ref in reversed(all_refs) if ref.vesting_us < before_us]
        paged: list[PointerRef] = []
        end: bytes | None = b""
        while end is not None:
            shown, end = page(2, end)
            paged += shown
        assert paged == refs


def test_the_earliest_pointer_of_a_part_says_when_to_scan_again(world: World) -> None:
    part = world.zone.location.part

    def earliest() -> int | None:
        return world.run(lambda tr: run_one(earliest_vesting_us(tr, part)))

    assert earliest() is None
    world.enqueue(delay=0.7)
    assert earliest() == world.now_us + 700 * MS


# --- Damage ---


def entry_of_no_pointer(location: ZoneLocation) -> tuple[PartKeys, bytes]:
    return location.part, location.pointer_id


def entry_of_no_name(location: ZoneLocation) -> tuple[PartKeys, bytes]:
    return location.part, b"p" * 16


def entry_of_a_name_too_many(location: ZoneLocation) -> tuple[PartKeys, bytes]:
    return location.part, location.pointer_id + pack_text("queue")


def entry_of_a_name_longer_than_any(location: ZoneLocation) -> tuple[PartKeys, bytes]:
    """No key of such a zone could be read."""
    return location.part, ZoneKeys(TenantKeys("shop", "alice"), "z" * 300).packed


@pytest.mark.parametrize(
    "entry", [entry_of_no_pointer, entry_of_no_name, entry_of_a_name_too_many, entry_of_a_name_longer_than_any]
)
def test_a_dangling_entry_that_leads_to_no_pointer_is_cleared(
    world: World, entry: Callable[[ZoneLocation], tuple[PartKeys, bytes]]
) -> None:
    part, pointer_id = entry(world.zone.location)
    world.set(part.vest(100, world.now_us, pointer_id), b"")
    (visit,) = world.process()
    assert visit.outcome is PointerOutcome.GONE
    assert world.scan() == []


def test_an_entry_in_another_part_than_its_pointer_is_cleared_and_not_processed(world: World) -> None:
    """Scans of two parts may come into one batch: two visits of one zone would lease its items twice."""
    item_id = world.enqueue()
    location = world.zone.location
    (other,) = [part for part in world.layout.parts if part is not location.part]
    world.set(other.vest(100, world.now_us, location.pointer_id), b"")
    visits = world.process()
    assert {visit.outcome for visit in visits} == {PointerOutcome.SERVED, PointerOutcome.GONE}
    assert [item.id for visit in visits for item in visit.items] == [item_id]
    world.pass_us(LEASE_US)
    assert world.scan() == [world.ref()]


def test_a_second_entry_of_a_pointer_is_not_processed_beside_the_first_and_is_cleared_in_the_end(world: World) -> None:
    """Two visits of one zone in one batch would lease its items twice."""
    item_id = world.enqueue()
    location = world.zone.location
    world.set(location.part.vest(100, world.now_us - 5, location.pointer_id), b"")
    assert len(world.scan()) == 1
    (visit,) = world.process()
    assert [item.id for item in visit.items] == [item_id]
    (visit,) = world.process()
    assert (visit.outcome, list(visit.items)) == (PointerOutcome.LEASED, [])
    assert world.scan() == []
    assert world.pointer_delay_us() == LEASE_US


def test_a_pointer_that_a_newer_version_wrote_is_kept(world: World) -> None:
    world.enqueue()
    ref, location = world.ref(), world.zone.location
    newer = bytes([FORMAT + 1])
    world.set(location.keys.pointer, newer)
    visit = visit_one(world, ref)
    assert visit.outcome is PointerOutcome.UNREADABLE
    deferred = Deferred(ref.id, ref.vesting_us, world.now_us + PAUSE_US)
    assert visit.deferred == deferred, "looking again at every poll would keep the fleet awake"
    world.enqueue()
    assert world.run(lambda tr: tr.get(location.keys.pointer).value) == newer


def test_a_pointer_record_without_the_fields_of_this_version_is_read(world: World) -> None:
    world.enqueue()
    location, pointer = world.zone.location, world.pointer()
    assert pointer is not None
    fields = msgspec.msgpack.decode(encode(pointer)[1:])[:2]
    world.set(location.keys.pointer, bytes([FORMAT]) + msgspec.msgpack.encode(fields))
    assert isinstance(world.pointer(), PointerRecord)
    (visit,) = world.process()
    assert len(visit.items) == 1
