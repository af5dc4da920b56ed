"""The search alone: histories by hand with and without an order, and drawn ones, compared with all orders."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.simulation.linearizability.counterexample import counterexample, shortest
from fairlead.simulation.linearizability.history import Model, Operation, RecordedAnswer, Recorder
from fairlead.simulation.linearizability.search import Verdict, is_linearizable

STEPS = 100_000


class Write(NamedTuple):
    """Write a register."""

    value: int

    def on(self, state: int) -> tuple[Any, int]:
        return "written", self.value


class Read(NamedTuple):
    """Read the register."""

    def on(self, state: int) -> tuple[Any, int]:
        return state, state


class Add(NamedTuple):
    """Add to the register, and answer the value before."""

    amount: int

    def on(self, state: int) -> tuple[Any, int]:
        return state, state + self.amount


REGISTER = Model(0, lambda operation: isinstance(operation.call, Read))


def verdict(*history: Operation, steps_max: int = STEPS) -> Verdict:
    """Return the verdict on a history of a register that holds 0 at first."""
    return is_linearizable(history, REGISTER, steps_max=steps_max).verdict


def write(invoked: int, responded: int | None, value: int) -> Operation:
    return Operation("writer", Write(value), "written", invoked, responded)


def maybe(operation: Operation) -> Operation:
    return operation._replace(happened=False)


def read(invoked: int, responded: int, answer: int) -> Operation:
    return Operation("reader", Read(), answer, invoked, responded)


# --- By hand ---


def test_an_empty_history_is_linearizable() -> None:
    assert verdict() is Verdict.LINEARIZABLE


def test_a_read_sees_the_write_before_it() -> None:
    assert verdict(write(1, 2, 7), read(3, 4, 7)) is Verdict.LINEARIZABLE
    assert verdict(write(1, 2, 7), read(3, 4, 0)) is Verdict.NOT_LINEARIZABLE


def test_a_read_beside_a_write_sees_either_value() -> None:
    assert verdict(write(1, 4, 7), read(2, 3, 0)) is Verdict.LINEARIZABLE
    assert verdict(write(1, 4, 7), read(2, 3, 7)) is Verdict.LINEARIZABLE


def test_a_later_read_does_not_see_less_than_an_earlier_one() -> None:
    """Both are beside the write, but one after the other: new, then old, has no order."""
    assert verdict(write(1, 6, 7), read(2, 3, 7), read(4, 5, 0)) is Verdict.NOT_LINEARIZABLE
    assert verdict(write(1, 6, 7), read(2, 3, 0), read(4, 5, 7)) is Verdict.LINEARIZABLE


def test_a_write_whose_client_died_happens_at_any_time_or_never() -> None:
    dead = maybe(write(1, None, 7))
    assert verdict(dead, read(2, 3, 0), read(4, 5, 7)) is Verdict.LINEARIZABLE
    assert verdict(dead, read(2, 3, 0)) is Verdict.LINEARIZABLE
    assert verdict(dead, read(2, 3, 7), read(4, 5, 0)) is Verdict.NOT_LINEARIZABLE


def test_a_write_does_not_happen_before_it_is_called() -> None:
    assert verdict(read(1, 2, 7), maybe(write(3, None, 7))) is Verdict.NOT_LINEARIZABLE


def test_a_write_of_unknown_result_happened_before_it_was_over_or_never() -> None:
    lost = maybe(write(1, 2, 7))
    assert verdict(lost, read(3, 4, 7)) is Verdict.LINEARIZABLE
    assert verdict(lost, read(3, 4, 0)) is Verdict.LINEARIZABLE
    assert verdict(lost, read(3, 4, 0), read(5, 6, 7)) is Verdict.NOT_LINEARIZABLE


def test_a_read_that_is_right_at_once_does_not_exclude_an_operation_before_it() -> None:
    """The last read is right at the beginning. But then the lost write would come too late for the other read."""
    lost, rewritten = maybe(write(1, 3, 7)), write(2, 9, 0)
    assert verdict(lost, rewritten, read(4, 6, 7), read(5, 8, 0)) is Verdict.LINEARIZABLE


def test_which_of_two_equal_writes_has_happened_matters() -> None:
    """If the first read saw the pending write, no write remains for the last read."""
    pending, lost = maybe(write(1, None, 7)), maybe(write(2, 4, 7))
    assert verdict(pending, lost, read(5, 6, 7), write(7, 8, 5), read(9, 10, 7)) is Verdict.LINEARIZABLE
    assert verdict(pending, read(5, 6, 7), write(7, 8, 5), read(9, 10, 7)) is Verdict.NOT_LINEARIZABLE


def test_a_search_that_reaches_its_limit_is_undecided() -> None:
    writes = [write(1, 20, value) for value in range(8)]
    hopeless = [*writes, read(21, 22, 99)]
    assert verdict(*hopeless, steps_max=50) is Verdict.UNDECIDED
    assert verdict(*hopeless) is Verdict.NOT_LINEARIZABLE


def test_a_search_takes_the_same_steps_twice() -> None:
    history = [*(write(1, 20, value) for value in range(6)), read(21, 22, 99)]
    assert is_linearizable(history, REGISTER, steps_max=STEPS) == is_linearizable(history, REGISTER, steps_max=STEPS)


def test_the_order_that_is_found_explains_every_answer() -> None:
    history = [write(1, 9, 7), write(2, 8, 5), read(3, 4, 5), read(5, 6, 7)]
    finding = is_linearizable(history, REGISTER, steps_max=STEPS)
    assert finding.order == [history[1], history[2], history[0], history[3]]
    assert finding.state == 7


# --- The counterexample of a history without an order ---


def test_a_counterexample_omits_later_and_irrelevant_operations() -> None:
    wrong = [write(1, 2, 7), read(9, 10, 0)]
    history = [*wrong, read(3, 4, 7), read(5, 6, 7), write(11, 12, 3), read(13, 14, 3)]
    assert sorted(shortest(history, REGISTER, steps_max=STEPS)) == sorted(wrong)


def test_a_counterexample_keeps_operations_of_unknown_result() -> None:
    """The second read is wrong. Without the write of unknown result the first would be wrong, too."""
    history = [maybe(write(1, 2, 7)), read(3, 4, 7), read(5, 6, 0)]
    assert shortest(history, REGISTER, steps_max=STEPS) == history


def test_a_counterexample_shows_each_operation_once_and_the_right_answer() -> None:
    history = [write(1, 2, 7), maybe(write(3, None, 9)), read(4, 5, 0), write(6, 7, 8), read(8, 9, 8)]
    assert counterexample(history, REGISTER, steps_max=STEPS).splitlines() == [
        "no order explains these 3 operations (moments of call and answer, client, operation, answer).",
        "One that explains 2 of them:",
        "    1-2   writer: Write(value=7) -> written",
        "    3-    writer: Write(value=9) -> written, if it happened",
        "leads to 9, where nothing that could come next is right:",
        "    4-5   reader: Read() -> 0; right would be 9",
    ]


# --- Against every order ---


def orders(history: Sequence[Operation]) -> Iterator[Sequence[Operation]]:
    """Yield every order of the operations that happened, and of any of the others."""
    happened = [operation for operation in history if operation.happened]
    others = [operation for operation in history if not operation.happened]
    for size in range(len(others) + 1):
        for chosen in combinations(others, size):
            yield from permutations([*happened, *chosen])


def is_explained_by(order: Sequence[Operation]) -> bool:
    """Whether the order respects real time (an operation is before those called after its end) and all answers."""
    for first, second in combinations(order, 2):
        if second.responded is not None and second.responded < first.invoked:
            return False
    state = 0
    for operation in order:
        answer, state = operation.call.on(state)
        if operation.answer != answer:
            return False
    return True


CALLS = st.one_of(st.builds(Write, st.integers(0, 2)), st.just(Read()), st.builds(Add, st.integers(1, 2)))


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Draw up to six operations. Their answers are those of some order, or off by one."""
    calls = draw(st.lists(CALLS, max_size=6))
    moments = iter(draw(st.permutations(range(2 * len(calls)))))
    history, state = [], 0
    for call in calls:
        invoked, responded = sorted((next(moments), next(moments)))
        answer, state = call.on(state)
        if isinstance(answer, int):
            answer += draw(st.sampled_from([0, 0, 0, 1, -1]))
        fate = draw(st.sampled_from(["answered", "answered", "lost", "dead"]))
        history.append(
            Operation(
                "client",
                call,
                answer,
                invoked,
                None if fate == "dead" else responded,
                happened=fate == "answered",
            )
        )
    return history


@settings(max_examples=400, deadline=None)
@given(histories())
def test_the_search_finds_an_order_if_and_only_if_there_is_one(history: list[Operation]) -> None:
    there_is_one = any(map(is_explained_by, orders(history)))
    expected = Verdict.LINEARIZABLE if there_is_one else Verdict.NOT_LINEARIZABLE
    assert verdict(*history) is expected


# --- Recording a history ---


def test_a_recorder_numbers_calls_and_answers_as_they_happen() -> None:
    recorder = Recorder()
    first = recorder.begin("a")
    first.answers = [RecordedAnswer(Write(7), "written")]
    second = recorder.begin("b")
    second.answers = [RecordedAnswer(Read(), 0)]
    recorder.end(second)
    recorder.lose(first)
    assert recorder.history() == [maybe(Operation("a", Write(7), "written", 1, 4)), Operation("b", Read(), 0, 2, 3)]


def test_an_operation_whose_client_died_before_its_commit_is_omitted() -> None:
    recorder = Recorder()
    recorder.begin("a")
    dead = recorder.begin("b")
    dead.answers = [RecordedAnswer(Write(7), "written")]
    assert recorder.history() == [maybe(Operation("b", Write(7), "written", 2, None))]


@pytest.mark.parametrize("fate", ["lost", "answered"])
def test_an_operation_that_did_not_happen_can_be_dropped(fate: str) -> None:
    recorder = Recorder()
    attempt = recorder.begin("a")
    attempt.answers = [RecordedAnswer(Write(7), "written")]
    recorder.lose(attempt) if fate == "lost" else recorder.end(attempt)
    recorder.drop(attempt)
    assert recorder.history() == []
