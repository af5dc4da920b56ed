"""The items in flight: which one starts next, and how many a worker wants."""

from fairlead.actors.execution.in_flight import PREFETCH_MAX, HeldItem, InFlight, Phase
from tests.actors.stage import MS, SECOND, held_item


def in_flight(slots: int = 2) -> InFlight:
    return InFlight(slots=slots, incarnation=b"incarnation")


def held_with(*items: HeldItem, slots: int = 2) -> InFlight:
    """Return bookkeeping that has accepted items."""
    made = in_flight(slots)
    for item in items:
        assert made.accept(item)
    return made


def run(made: InFlight, held: HeldItem, *, took_us: int = 0) -> None:
    """Let an item start and end."""
    assert made.next_to_run(0) is held
    made.finish(held, took_us)
    made.drop(held)


def test_items_start_in_the_order_of_their_arrival() -> None:
    first, second = held_item(1), held_item(2)
    made = held_with(first, second)
    assert made.next_to_run(0) is first
    assert made.next_to_run(0) is second
    assert made.next_to_run(0) is None


def test_the_timeout_of_an_item_counts_from_the_begin_of_its_handler() -> None:
    held = held_item(timeout=30)
    made = held_with(held)
    made.next_to_run(5)
    assert (held.phase, held.since_us, held.running_for) == (Phase.RUNNING, 5, None)
    held.begin(7)
    assert held.running_for is not None
    assert held.running_for.by(9) == 2


def test_a_message_that_comes_twice_is_one_item() -> None:
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
    """Its end and a lost lease may both drop it."""
    held = held_item(max_running=3)
    made = held_with(held)
    made.drop(held)
    made.drop(held)
    assert made.progress == 1
    assert made.report().kinds == {"mail": 0}


def test_an_item_that_is_dropped_while_it_waits_does_not_start() -> None:
    first, second = held_item(1), held_item(2)
    made = held_with(first, second)
    made.drop(first)
    assert made.next_to_run(0) is second


# --- Isolation ---


def isolating(*items: HeldItem) -> InFlight:
    made = InFlight(slots=1, incarnation=b"incarnation", isolates=True)
    for held in items:
        made.accept(held)
    return made


def test_in_isolation_an_item_starts_when_the_end_of_the_one_before_it_is_committed() -> None:
    """The next item may kill the worker: then this one would be taken for the cause."""
    first, second = held_item(1, isolated=True), held_item(2, isolated=True)
    made = isolating(first, second)
    assert made.next_to_run(0) is first
    assert made.next_to_run(0) is None
    made.finish(first, 1)
    assert made.next_to_run(1) is None, "its end is not committed yet"
    made.drop(first)
    assert made.next_to_run(1) is second


def test_in_isolation_a_waiting_item_that_leaves_lets_no_other_start() -> None:
    other = held_item(2, isolated=True)
    made = isolating(held_item(1, isolated=True), other, held_item(3, isolated=True))
    made.next_to_run(0)
    made.drop(other)
    assert made.next_to_run(0) is None


def test_in_isolation_the_next_item_starts_once_a_stuck_one_is_given_up() -> None:
    first, second = held_item(1, isolated=True), held_item(2, isolated=True)
    made = isolating(first, second)
    made.next_to_run(0)
    made.give_up(first)
    assert first.phase is Phase.GIVEN_UP
    assert made.next_to_run(0) is second


def test_in_isolation_a_worker_wants_one_item_and_prefetches_none() -> None:
    held = held_item(1, isolated=True)
    made = isolating(held)
    assert made.in_flight_limit == 1
    made.next_to_run(0)
    made.finish(held, 1)
    made.drop(held)
    assert made.in_flight_limit == 1, "however short its items are"


# --- Capacity ---


def test_a_worker_wants_an_item_per_slot_and_the_prefetch() -> None:
    assert in_flight(slots=4).in_flight_limit == 8  # As if handlers took 45 ms, until one has ended.


def test_the_prefetch_is_small_when_handlers_are_slow() -> None:
    made = in_flight(slots=4)
    for number in range(100):
        held = held_item(number)
        made.accept(held)
        run(made, held, took_us=10 * SECOND)
    assert made.in_flight_limit == 4


def test_the_prefetch_is_large_and_bounded_when_handlers_are_fast() -> None:
    made = in_flight(slots=4)
    for number in range(400):
        held = held_item(number)
        made.accept(held)
        run(made, held)
    assert made.in_flight_limit == 4 + PREFETCH_MAX


def test_the_prefetch_is_small_once_an_item_has_waited_too_long() -> None:
    """Its handlers were fast and are slow now: prefetched items would wait here, beside an idle worker."""
    made = in_flight(slots=16)
    for number in range(400):
        held = held_item(number)
        made.accept(held)
        run(made, held)
    waiting = held_item(500)
    made.accept(waiting)
    made.begin_return(waiting, 500 * 1_000)
    assert made.in_flight_limit == 17


def test_a_worker_that_accepts_nothing_wants_no_items() -> None:
    made = in_flight()
    made.accepting = False
    assert made.report().in_flight_limit == 0


# --- The report ---


def test_the_report_counts_waiting_running_and_finished_items() -> None:
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


def test_a_returned_item_counts_in_its_kind_until_its_return_is_committed() -> None:
    waiting, other = held_item(1), held_item(2)
    made = held_with(waiting, other)
    made.begin_return(waiting, 1)
    assert (made.report().held, made.report().kinds) == (1, {"mail": 2})
    seen = made.progress
    made.note_returned([waiting, other])
    assert (made.report().kinds, made.progress) == ({"mail": 1}, seen + 1)
    made.note_returned([waiting])
    assert made.report().kinds == {"mail": 1}


def test_the_report_has_the_incarnation() -> None:
    assert held_with(held_item()).report().incarnation == b"incarnation"


def test_cancelling_twice_interrupts_once_and_keeps_the_first_time() -> None:
    held = held_item()
    interrupts: list[str] = []
    held.job.on_cancel(lambda: interrupts.append("stop"))
    held.cancel(5 * MS)
    held.cancel(9 * MS)
    assert held.cancelled_for is not None
    assert (held.cancelled_for.by(6 * MS), interrupts) == (MS, ["stop"])
