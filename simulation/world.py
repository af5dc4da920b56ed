"""The world: one thread, virtual time, tasks that take turns, and every choice from one seed.

A task is a greenlet. It runs until it waits, and no other task runs meanwhile. A task that waits gives the latest time
of its next turn. The world does not sleep: it takes the next turn from a heap, and sets its time to the time of that
turn. Turns of the same instant come in drawn order. So a run is a function of its seed.

Source: FoundationDB section 3 ("a deterministic discrete-event simulation").
"""

from __future__ import annotations

import sys
from asyncio import AbstractEventLoop, _get_running_loop, _set_running_loop
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Protocol

import greenlet

from fairlead.simulation.event_log import EventLog
from fairlead.zones.engines.api.progress import report_loop_progress

START_US = 1_700_000_000_000_000
TURNS_AT_ONE_INSTANT_MAX = 200_000  # More turns mean that tasks wait for no time at all, again and again.

STEPS_IN_A_TURN_MAX = 100_000


class Violation(AssertionError):
    """The product broke a promise, or does not end. `oracle` is the promise; `what` describes the violation."""

    def __init__(self, oracle: str, what: str) -> None:
        super().__init__(f"{oracle}: {what}")
        self.oracle = oracle
        self.what = what


class InjectedError(Exception):
    """The error that a fault raises in a loop of the product. The product does not know its class."""


class Killed(greenlet.GreenletExit):  # type: ignore[misc]
    """Thrown into every task of an actor that is killed. No product code catches it."""


class TaskHost(Protocol):
    """The world's interface of the host of a task; see `fairlead.simulation.host.SimulatedHost`.

    Attributes:
      dead: whether it was killed.
      paused_until_us: none of its tasks has a turn before this time.
      postponed: its tasks, each with the number of the turn that came during the pause.
    """

    name: str
    dead: bool
    paused_until_us: int
    postponed: list[tuple[Task, int]]

    def spawn(self, name: str, body: Callable[[], None]) -> object:
        """Start a task on this host."""
        ...

    def before_switch(self) -> None:
        """A task is about to wait. Raises `Killed` if the host is dead."""
        ...

    def on_task_crash(self, task_name: str, error: Exception) -> None:
        """A task has ended by an error."""
        ...

    def on_task_end(self, task: Task) -> None:
        """A task has ended."""
        ...


class Task:
    """A greenlet and its turns. It runs on `host`."""

    __slots__ = ("_body", "greenlet", "host", "name", "suspended", "turn", "waiting_to_end", "woken")

    def __init__(self, world: World, host: TaskHost, name: str, body: Callable[[], None]) -> None:
        self.host = host
        self.name = name
        self.turn = 0  # Counts its turns: the world skips heap entries of past turns.
        self.suspended = False
        self.woken = False
        self.waiting_to_end: list[Task] = []
        self._body = body
        self.greenlet = greenlet.greenlet(self._run, parent=world.hub)

    def _run(self) -> None:
        try:
            self._body()
        except Exception as error:  # noqa: BLE001 - any error that ends a loop of the product is a finding
            self.host.on_task_crash(self.name, error)
        finally:
            self.host.on_task_end(self)


class World:
    """Virtual time and turns. As a clock it shows the true time; the clocks of actors may differ."""

    def __init__(self, seed: int | str, log: EventLog | None = None) -> None:
        self.seed = seed
        self.log = EventLog() if log is None else log
        self.hub = greenlet.getcurrent()
        self.current: Task | None = None
        self.turns = 0
        self._steps = 0
        self.violation: Violation | None = None
        self.interrupted = False  # by Ctrl-C
        self.ended_incarnations: set[str] = set()  # of hosts, by name
        self._now_us = START_US
        self._heap: list[tuple[int, float, int, Task | None, Any]] = []
        self._numbers = count()
        self._draw_order = self.random("order of turns").random

    def random(self, purpose: str) -> Random:
        """Return a generator for one purpose. Its draws do not change those of other purposes."""
        return Random(f"{self.seed}: {purpose}")

    def note(self, event: str) -> None:
        """Write a line into the event log, with the time and the actor that has the turn."""
        actor = self.current.host.name if self.current is not None else "world"
        self.log.add(f"{self._now_us - START_US} {actor} {event}")

    def fail(self, oracle: str, what: str) -> None:
        """Report a broken promise. The run ends after this turn with the first `Violation`."""
        if self.violation is None:
            self.violation = Violation(oracle, what)
            self.note(f"VIOLATION {self.violation}")

    # --- Time ---

    def now_us(self) -> int:
        """Return the true time, microseconds since the epoch."""
        return self._now_us

    @property
    def elapsed_us(self) -> int:
        """The time since the beginning of the world."""
        return self._now_us - START_US

    def sleep_us(self, duration_us: int) -> None:
        """Let other tasks have their turns until the time has passed."""
        report_loop_progress(max(0, duration_us))
        self.suspend(max(0, duration_us))
        report_loop_progress()

    # --- Turns ---

    def at(self, time_us: int, action: Callable[[], object], *, order: float | None = None) -> None:
        """Do `action` at a time, between the turns of tasks. It must not wait.

        `order`, 0 to 1, decides the order within one instant. None: it is drawn.
        """
        drawn = self._draw_order() if order is None else order
        heappush(self._heap, (time_us, drawn, next(self._numbers), None, action))

    def after(self, delay_us: int, action: Callable[[], object], *, order: float | None = None) -> None:
        """Do `action` after a delay; see `at`."""
        self.at(self._now_us + delay_us, action, order=order)

    def begin(self, task: Task) -> None:
        """Give a new task its first turn."""
        self._push(self._now_us, task)

    def suspend(self, timeout_us: int | None = None) -> bool:
        """End this turn until `wake`, or until the timeout; return whether it was `wake`.

        Raises:
          Killed: the task's actor was killed.
        """
        task = self.current
        assert task is not None, "only a task can wait"
        task.host.before_switch()
        task.woken = False
        task.suspended = True
        if timeout_us is not None:
            self._push(self._now_us + timeout_us, task)
        loop = _get_running_loop()
        if loop is None:
            self.hub.switch()
        else:
            self._switch_out_of(loop)
        return task.woken

    def block_forever(self) -> None:
        """End this turn and never continue: only a kill ends the task."""
        task = self.current
        assert task is not None
        task.turn += 1
        task.suspended = False
        self.hub.switch()

    def run_postponed(self, task: Task, turn: int) -> None:
        """Give a task a postponed turn now; nothing happens if it had that turn."""
        heappush(self._heap, (self._now_us, self._draw_order(), next(self._numbers), task, turn))

    def wake(self, task: Task, delay_us: int = 0) -> None:
        """Give a suspended task a turn, now or after a delay; nothing happens if it was woken before."""
        if task.suspended and not task.woken:
            task.woken = True
            self._push(self._now_us + delay_us, task)

    def count_step(self) -> None:
        """Count a taken lock, or a read of the clock. A turn with very many of these is a violation."""
        self._steps += 1
        if self._steps > STEPS_IN_A_TURN_MAX:
            self.fail("every turn ends", "a task loops without waiting")
            raise Killed

    def run_until(self, end_us: int) -> None:
        """Take turns until a time is reached. Raises the `Violation` that an oracle found."""
        heap = self._heap
        at_this_instant = 0
        while heap and heap[0][0] <= end_us:
            time_us, _, _, task, what = heappop(heap)
            if task is not None and (what != task.turn or self._postpone(task, time_us)):
                continue
            at_this_instant = at_this_instant + 1 if time_us == self._now_us else 0
            if at_this_instant > TURNS_AT_ONE_INSTANT_MAX:
                self.fail("time goes on", f"the turn is {task.host.name if task else 'the world'}'s again and again")
            self._now_us = time_us
            if task is None:
                what()
            else:
                self._take_turn(task)
            if self.violation is not None:
                raise self.violation
        self._now_us = max(self._now_us, end_us)

    def throw(self, task: Task) -> None:
        """End a task by `Killed`, between turns. The task must not wait while it ends."""
        assert greenlet.getcurrent() is self.hub
        outer, self.current = self.current, task
        task.turn += 1
        task.greenlet.throw(Killed)
        self.current = outer
        assert task.greenlet.dead, f"{task.name} did not die"

    def _switch_out_of(self, loop: AbstractEventLoop) -> None:
        """Switch while an event loop runs. A thread has one running loop, but here every task may have its own."""
        hooks = sys.get_asyncgen_hooks()
        _set_running_loop(None)
        try:
            self.hub.switch()
        finally:
            _set_running_loop(loop)
            sys.set_asyncgen_hooks(*hooks)

    def _take_turn(self, task: Task) -> None:
        self.turns += 1
        self._steps = 0
        task.turn += 1
        task.suspended = False
        self.current = task
        task.greenlet.switch()
        self.current = None
        if self.interrupted:
            raise KeyboardInterrupt

    def _postpone(self, task: Task, time_us: int) -> bool:
        """Postpone the turn of a paused actor to the end of the pause."""
        paused_until_us = task.host.paused_until_us
        if paused_until_us <= time_us:
            return False
        self._push(paused_until_us, task)
        task.host.postponed.append((task, task.turn))
        return True

    def _push(self, time_us: int, task: Task) -> None:
        heappush(self._heap, (time_us, self._draw_order(), next(self._numbers), task, task.turn))
