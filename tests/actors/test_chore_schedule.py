"""Which chores of housekeeping are due where a read is a round trip."""

from fairlead.actors.housekeeping.chore_schedule import (
    LEFTOVERS,
    TICK_LOOK_US,
    WATCHED_REST_HEARTBEATS,
    ChoreSchedule,
    is_tick_due,
)

CHORE = "packing"


def heartbeats_in_which_it_is_done(schedule: ChoreSchedule, *, did: bool, chore: str = CHORE) -> list[int]:
    done = []
    for heartbeat in range(45):
        if schedule.is_due(chore, heartbeat):
            schedule.note(chore, heartbeat, did=did)
            done.append(heartbeat)
    return done


def test_a_chore_that_finds_nothing_to_do_rests() -> None:
    assert heartbeats_in_which_it_is_done(ChoreSchedule(backs_off=True), did=False) == [
        0,
        WATCHED_REST_HEARTBEATS,
        2 * WATCHED_REST_HEARTBEATS,
    ]


def test_what_a_transaction_across_shards_has_left_is_looked_for_every_five_heartbeats() -> None:
    """Before, every forty: the visit of a locked tenant does not end the lock, so its items waited for so long."""
    found = heartbeats_in_which_it_is_done(ChoreSchedule(backs_off=True), did=False, chore=LEFTOVERS)
    assert found == list(range(0, 45, 5))


def test_one_that_found_something_goes_on_at_the_next_heartbeat() -> None:
    assert heartbeats_in_which_it_is_done(ChoreSchedule(backs_off=True), did=True) == list(range(45))


def test_where_reads_cost_nothing_no_chore_rests() -> None:
    assert heartbeats_in_which_it_is_done(ChoreSchedule(backs_off=False), did=False) == list(range(45))


def test_one_that_broke_off_is_due_again_and_its_turn_is_not_over() -> None:
    schedule = ChoreSchedule(backs_off=True)
    assert schedule.is_due(CHORE, 0)
    assert schedule.is_due(CHORE, 1)
    assert schedule.times_done(CHORE) == 0
    schedule.note(CHORE, 1, did=False)
    assert schedule.times_done(CHORE) == 1


def test_a_periods_record_is_read_when_its_tick_is_due_and_once_a_minute_at_least() -> None:
    assert is_tick_due(next_us=100, looked_us=0, now_us=100)
    assert not is_tick_due(next_us=100, looked_us=0, now_us=99)
    assert is_tick_due(next_us=2 * TICK_LOOK_US, looked_us=0, now_us=TICK_LOOK_US)


def test_by_a_clock_that_was_set_back_it_is_read_at_once() -> None:
    assert is_tick_due(next_us=100, looked_us=50, now_us=49)


def test_the_only_shard_of_a_fleet_is_looked_at_seldom_because_no_transaction_spans_it() -> None:
    schedule = ChoreSchedule(backs_off=True, is_alone=True)
    assert heartbeats_in_which_it_is_done(schedule, did=False, chore=LEFTOVERS) == [0, 40]
