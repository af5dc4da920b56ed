"""The search visits every state, finds a shortest trace to a violation, and raises an error if it is cut off."""

from collections.abc import Iterator

import pytest

from tests.protocol_models.exploration import Exploration, TooManyStates, Transition, explore


class Counter:
    """Adds 1 or 3; `bad_sum` must not be reached, and nothing may be added to `last`."""

    def __init__(self, *, bad_sum: int = -1, last: int = -1, largest: int = 10) -> None:
        self.bad_sum, self.last, self.largest = bad_sum, last, largest

    def initial(self) -> int:
        return 0

    def transitions(self, state: int) -> Iterator[Transition[int]]:
        for added in (1, 3):
            if state + added <= self.largest:
                violation = "something is added to the last number" if state == self.last else None
                yield Transition(f"add {added}", state + added, violation)

    def violation(self, state: int) -> str | None:
        return f"the sum is {state}" if state == self.bad_sum else None


def test_every_reachable_state_is_counted_once() -> None:
    assert explore(Counter()) == Exploration(11, None, ())


def test_a_violating_state_is_reached_by_a_shortest_trace() -> None:
    found = explore(Counter(bad_sum=7))
    assert found.violation == "the sum is 7"
    assert sorted(found.trace) == ["add 1", "add 3", "add 3"]


def test_a_violating_transition_ends_the_trace() -> None:
    found = explore(Counter(last=3))
    assert (found.violation, found.trace) == ("something is added to the last number", ("add 3", "add 1"))


def test_a_search_that_is_cut_off_raises_an_error() -> None:
    with pytest.raises(TooManyStates, match="more than 50 states"):
        explore(Counter(largest=10_000), states_max=50)
