"""Workflows of random shape: the calls of `wf` that one makes, in their order, drawn from a seed. Pure.

A call has a number within its workflow. Names of steps repeat, so that occurrences count. Whether a call fails is
decided when it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

CALLS_MAX = 7
CHILDREN_DEPTH_MAX = 2
SIGNALS = ("approved", "paid")
LOCKS = 2  # Locks of each tenant, for workflows of each depth: a parent may wait for a child that waits for a lock.


class What(Enum):
    """What a call does."""

    STEP = "step"
    EFFECT = "effect"
    READ = "read"
    WAIT = "wait"
    SLEEP = "sleep"
    CALL = "call"
    GATHER = "gather"
    ENQUEUE = "enqueue"
    SIGNAL = "signal"
    CHECKPOINT = "checkpoint"
    LOCK = "lock"


class Where(Enum):
    """The tenant on which a call acts."""

    HOME = "the workflow's own"
    BESIDE = "another one of the same shard"
    ELSEWHERE = "one of another shard"


class Failing(Enum):
    """How the body of a step, or an effect, may fail."""

    NEVER = "never"
    BEFORE_RETRY = "the attempt fails now and then, and the item is retried"
    OWN_RETRY = "it fails now and then, and is tried again by its own policy"
    LONG_RETRY = "the same, with a backoff that suspends the run"
    FOR_GOOD = "it fails for good now and then"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call.

    Attributes:
      number: of the call within its workflow.
      name: of the step.
      once: the effect is called at most once.
      has_undo: the step, or the effect, has an undo.
      catches: the workflow goes on after an error of the call that was recorded.
      timeout_s: of a wait or a child; None: it waits for as long as it takes.
      duration_s: of a sleep.
      signal: the name of a signal.
      at_least: how many children must succeed; None: all.
      since: the version of the code from which on the call is made.
      lock: the number of the lock that it takes; `shared`: together with others.
      also: another tenant whose lock of this number it takes.
      holds: how many of the following calls are made under the lock.
    """

    number: int
    what: What
    name: str
    place: Where = Where.HOME
    failing: Failing = Failing.NEVER
    once: bool = False
    has_undo: bool = False
    catches: bool = False
    timeout_s: float | None = None
    duration_s: float = 0.0
    signal: str = SIGNALS[0]
    children: int = 1
    at_least: int | None = None
    since: int = 1
    lock: int = 0
    shared: bool = False
    also: Where | None = None
    holds: int = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """A workflow. `fails`: it fails for good after its calls. `finishes`: it ends by `wf.finish`, else by a return."""

    calls: Sequence[PlannedCall]
    fails: bool
    finishes: bool


FIRST = Shape(
    calls=(
        PlannedCall(0, What.STEP, "reserve", has_undo=True),
        PlannedCall(1, What.STEP, "ship", Where.ELSEWHERE, has_undo=True),
        PlannedCall(2, What.EFFECT, "pay"),
        PlannedCall(3, What.WAIT, "approved", timeout_s=1),
        PlannedCall(4, What.SLEEP, "sleep", duration_s=0.2),
        PlannedCall(5, What.CALL, "child", Where.ELSEWHERE),
        PlannedCall(6, What.LOCK, "lock", Where.ELSEWHERE, also=Where.HOME),
        PlannedCall(7, What.STEP, "note", Where.BESIDE, has_undo=True),
    ),
    fails=False,
    finishes=True,
)  # One call of each kind of protocol.

_WEIGHTS = {
    What.STEP: 10, What.EFFECT: 4, What.READ: 4, What.WAIT: 3, What.SLEEP: 1, What.CALL: 2, What.GATHER: 1,
    What.ENQUEUE: 1, What.SIGNAL: 2, What.CHECKPOINT: 1, What.LOCK: 4,
}  # fmt: skip
_PLACES = (Where.HOME, Where.BESIDE, Where.ELSEWHERE, Where.ELSEWHERE)
_FAILING = (Failing.NEVER,) * 4 + (Failing.BEFORE_RETRY, Failing.OWN_RETRY, Failing.FOR_GOOD, Failing.FOR_GOOD)


def draw_shape(random: Random, depth: int) -> Shape:
    """Return a shape. `depth`: 0 for a workflow that is nobody's child; the deepest ones have no children."""
    whats = {what: weight for what, weight in _WEIGHTS.items() if depth < CHILDREN_DEPTH_MAX or not _has_child(what)}
    calls = []
    for number in range(random.randint(0 if depth else 1, CALLS_MAX - 2 * depth)):
        what = random.choices(list(whats), list(whats.values()))[0]
        calls.append(_draw_call(random, number, what))
    return Shape(calls, fails=random.random() < 0.15, finishes=random.random() < 0.5)


def _draw_call(random: Random, number: int, what: What) -> PlannedCall:
    return PlannedCall(
        number,
        what,
        name=f"{what.value} {random.randrange(2)}",
        place=random.choice(_PLACES),
        failing=Failing.LONG_RETRY if random.random() < 0.02 else random.choice(_FAILING),
        once=random.random() < 0.3,
        has_undo=random.random() < 0.6,
        catches=random.random() < 0.5,
        timeout_s=random.choice([None, 0.05, 1, 4]),
        duration_s=random.choice([0, 0.05, 1]),
        signal=random.choice(SIGNALS),
        children=random.randint(1, 3),
        at_least=random.choice([None, 1]),
        since=random.choice([1, 1, 1, 2]),
        lock=random.choice([0, 0, *range(LOCKS)]),
        shared=random.random() < 0.4,
        also=random.choice([None, None, None, *_PLACES]),
        holds=random.randint(1, 3),
    )


def _has_child(what: What) -> bool:
    return what in (What.CALL, What.GATHER)
