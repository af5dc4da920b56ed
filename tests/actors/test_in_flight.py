"""What a worker holds, and what starts next."""

from fairlead.actors.execution.in_flight import PREFETCH_MAX, HeldItem, InFlight, Phase
from tests.actors.stage import MS, SECOND, held_item


def in_flight(slots: int = 2) -> InFlight:
    return InFlight(slots=slots, incarnation=b"life")


def held_with(*items: HeldItem, slots: int = 2) -> InFlight:
    """Return holdings that have accepted items."""
    made = in_flight(slots)
    for item in items:
        assert made.accept(item)
    return made


def run(made: InFlight, held: HeldItem, *, took_us: int = 0) -> None:
    """Let an item start and end."""
    assert made.next_to_run(0) is held
    made.finish(held, took_us)
    made.drop(held)


def test_items_start_in_the_order_they_came() -> None:
    first, second = held_item(1), held_item(2)
    made = held_with(first, second)
    assert made.next_to_run(0) is first
    assert made.next_to_run(0) is second
    assert made.next_to_run(0) is None


def test_an_item_that_starts_is_running_and_its_time_runs_once_its_handler_begins() -> None:
    held = held_item(timeout=30)
    made = held_with(held)
    made.next_to_run(5)
    assert (held.phase, held.since_us, held.running_for) == (Phase.RUNNING, 5, None)
    held.begin(7)
    assert held.running_for is not None
    assert held.running_for.by(9) == 2


def test_a_message_that_came_twice_is_one_item() -> None:
    made = held_with(held_item(1))
    assert not made.accept(held_item(1))
    assert len(made) == 1


def test_an_item_leaves_when_its_end_is_committed_and_not_before() -> None:
    held = held_item()
    made = held_with(held)
    made.next_to_run(0)
    made.finish(held, 0)
    assert len(made) == 1
    assert made.progress == 0
    made.drop(held)
    assert len(made) == 0
    assert made.progress == 1


def test_an_item_leaves_once() -> None:
    """Settling and a lost lease may both want it gone."""
    held = held_item(max_running=3)
    made = held_with(held)
    made.drop(held)
    made.drop(held)
    assert made.progress == 1
    assert made.report().kinds == {"mail": 0}


def test_one_that_is_dropped_while_it_waits_does_not_start() -> None:
    first, second = held_item(1), held_item(2)
    made = held_with(first, second)
    made.drop(first)
    assert made.next_to_run(0) is second


# --- Isolation ---


def isolating(*items: HeldItem) -> InFlight:
    made = InFlight(slots=1, incarnation=b"life", isolates=True)
    for held in items:
        made.accept(held)
    return made


def test_in_isolation_an_item_starts_when_the_end_of_the_one_before_it_is_committed() -> None:
    """The next may be the one that kills workers: then this one would be taken for it, and buried."""
    first, second = held_item(1, alone=True), held_item(2, alone=True)
    made = isolating(first, second)
    assert made.next_to_run(0) is first
    assert made.next_to_run(0) is None
    made.finish(first, 1)
    assert made.next_to_run(1) is None, "its end is not committed yet"
    made.drop(first)
    assert made.next_to_run(1) is second


def test_in_isolation_one_that_never_started_lifts_no_bar_by_leaving() -> None:
    other = held_item(2, alone=True)
    made = isolating(held_item(1, alone=True), other, held_item(3, alone=True))
    made.next_to_run(0)
    made.drop(other)
    assert made.next_to_run(0) is None


def test_in_isolation_one_that_does_not_listen_bars_the_way_no_longer_once_it_is_given_up() -> None:
    first, second = held_item(1, alone=True), held_item(2, alone=True)
    made = isolating(first, second)
    made.next_to_run(0)
    made.give_up(first)
    assert first.phase is Phase.GIVEN_UP
    assert made.next_to_run(0) is second


def test_in_isolation_a_worker_wants_one_item_and_nothing_in_reserve() -> None:
    held = held_item(1, alone=True)
    made = isolating(held)
    assert made.in_flight_limit == 1
    made.next_to_run(0)
    made.finish(held, 1)
    made.drop(held)
    assert made.in_flight_limit == 1, "however short its items are"


# --- Capacity ---


def test_a_worker_wants_an_item_per_slot_and_what_it_works_off_in_a_moment() -> None:
    assert in_flight(slots=4).in_flight_limit == 8  # as if handlers took 45 ms, before it knows better


def test_it_holds_little_in_reserve_when_handlers_are_slow() -> None:
    made = in_flight(slots=4)
    for number in range(100):
        held = held_item(number)
        made.accept(held)
        run(made, held, took_us=10 * SECOND)
    assert made.in_flight_limit == 4


def test_it_holds_much_in_reserve_when_handlers_are_fast_and_never_more_than_may_be_lost() -> None:
    made = in_flight(slots=4)
    for number in range(400):
        held = held_item(number)
        made.accept(held)
        run(made, held)
    assert made.in_flight_limit == 4 + PREFETCH_MAX


def test_it_holds_next_to_nothing_in_reserve_once_items_wait_in_vain() -> None:
    """Its handlers were fast, and now they are not: what it took would wait here, beside a worker that is idle."""
    made = in_flight(slots=16)
    for number in range(400):
        held = held_item(number)
        made.accept(held)
        run(made, held)
    waiting = held_item(500)
    made.accept(waiting)
    made.begin_return(waiting, 500 * 1_000)
    assert made.in_flight_limit == 17


def test_one_that_accepts_nothing_has_no_capacity() -> None:
    made = in_flight()
    made.accepting = False
    assert made.report().in_flight_limit == 0


# --- The report ---


def test_the_report_says_what_is_held_waiting_running_and_finished() -> None:
    items = [held_item(number) for number in range(3)]
    made = held_with(*items)
    made.finish(made.next_to_run(0) or items[0], 1)
    made.next_to_run(1)
    assert made.report().held == 3


def test_the_report_counts_items_by_kind_from_arrival_to_end() -> None:
    mail, index = held_item(1), held_item(2, kind="index")
    made = held_with(mail, index)
    assert made.report().kinds == {"mail": 1, "index": 1}
    made.next_to_run(0)
    made.finish(mail, 1)
    assert made.report().kinds == {"mail": 1, "index": 1}
    made.drop(mail)
    assert made.report().kinds == {"mail": 0, "index": 1}


def test_one_that_goes_back_counts_in_its_kind_until_its_lease_has_been_given_up() -> None:
    waiting, other = held_item(1), held_item(2)
    made = held_with(waiting, other)
    made.begin_return(waiting, 1)
    assert (made.report().held, made.report().kinds) == (1, {"mail": 2})
    seen = made.progress
    made.note_returned([waiting, other])
    assert (made.report().kinds, made.progress) == ({"mail": 1}, seen + 1)
    made.note_returned([waiting])
    assert made.report().kinds == {"mail": 1}


def test_each_life_of_a_worker_has_a_name() -> None:
    assert held_with(held_item()).report().incarnation == b"life"


def test_cancelling_twice_interrupts_once_and_keeps_the_first_time() -> None:
    held = held_item()
    interrupts: list[str] = []
    held.job.on_cancel(lambda: interrupts.append("stop"))
    held.cancel(5 * MS)
    held.cancel(9 * MS)
    assert held.cancelled_for is not None
    assert (held.cancelled_for.by(6 * MS), interrupts) == (MS, ["stop"])
