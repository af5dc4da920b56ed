"""Explicit-state exploration: every order of a model's transitions, breadth first (Clarke, Grumberg, Peled, chapter 2).

A model's state is immutable and holds all that matters: the store, and what each process has in mind. Breadth first
means that the first violation found has a shortest trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

STATES_MAX = 700_000  # About 2 GB. A model that grows beyond it needs smaller scenes.


class Transition(NamedTuple, Generic[State]):
    """One committed transaction, or one event, and the state after it."""

    label: str
    state: State
    violation: str | None = None  # What the transition itself breaks, whatever the state after it.


class Model(Protocol[State]):
    """A protocol as states and transitions."""

    def initial(self) -> State:
        """Return the state in which every run begins."""
        ...

    def transitions(self, state: State) -> Iterable[Transition[State]]:
        """Yield all that may happen next, in an order that is the same in every process."""
        ...

    def violation(self, state: State) -> str | None:
        """Return the invariant that `state` breaks; None if it breaks none."""
        ...


class Exploration(NamedTuple):
    """What an exploration has found."""

    state_count: int  # States seen until the first violation, or all that are reachable.
    violation: str | None
    trace: tuple[str, ...]  # Labels from the initial state to the violation; empty if there is none.


class TooManyStates(AssertionError):
    """The model has more than the allowed number of states, so the exploration proves nothing.

    Do: choose a scene with fewer processes, or a representation that does not tell equivalent states apart.
    """


def explore(model: Model[State], states_max: int = STATES_MAX) -> Exploration:
    """Return the first violation of `model`, by a shortest trace, or the number of all its reachable states.

    Raises:
      TooManyStates: more than `states_max` states were seen, and none of them is a violation.
    """
    initial = model.initial()
    before: dict[State, tuple[State, str] | None] = {initial: None}
    queue = deque([initial])
    while queue:
        state = queue.popleft()
        for transition in model.transitions(state):
            following = transition.state
            if transition.violation is not None:
                trace = (*_trace(before, state), transition.label)
                return Exploration(len(before), transition.violation, trace)
            if following in before:
                continue
            before[following] = (state, transition.label)
            violation = model.violation(following)
            if violation is not None:
                return Exploration(len(before), violation, _trace(before, following))
            queue.append(following)
        if len(before) > states_max:
            raise TooManyStates(f"{model} has more than {states_max} states")
    return Exploration(len(before), None, ())


def _trace(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    labels = []
    while (origin := before[state]) is not None:
        state, label = origin
        labels.append(label)
    return tuple(reversed(labels))
