"""A run whose only step is in SQL, in any order of the statements of its executors, its cleanup and FLOOR.

What happens at home is one moment each: a dictionary stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairlead.zones.errors import LeaseLost
from fairlead.zones.external.steps import StoreStep
from fairlead.zones.postgresql.step_store import StepStore
from fairlead.zones.workflow.participants import AskAgain
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import StepName
from tests.zones.postgresql.orders.stepping import Lane, SqlProcess, Stepping

OUR_RUN, OTHER_RUN = bytes(range(16)), bytes(16)
LAST = 9  # The lease number of the executor that goes on in the end.


@dataclass
class Home:
    """What the home of the run knows: who holds the item, what is recorded of the store, whether the run has ended."""

    lease_number: int
    has_ended: bool
    is_clean: bool
    place: ParticipantState | None = None


@dataclass(frozen=True)
class StepScene:
    """What may happen, and one run of it; see `tests.workflows.orders.schedule.Scene`.

    Attributes:
      executors: their lease numbers. The first holds the item, and each later one takes it over; one with the same
        number is the first one itself, which does not know whether its commit was made, and begins the step again.
      has_begun: an earlier step of the run has left a fence.
      cancels: executors behind the first undo what was done, instead of going on.
      raises: executors behind the first raise the fence; False: the one before has suspended itself.
      is_deleted: the item was deleted just now, and its holder does not know. It has asked the store before.
      is_clean: and the run was cleaned up.
      cleans_up: the run is cleaned up once it has ended.
      raises_floor: FLOOR is raised.
      is_late: the holder acts after all others. Another run has left a tombstone, for which FLOOR is raised.
    """

    executors: tuple[int, ...] = (1, 2)
    has_begun: bool = True
    cancels: bool = False
    raises: bool = True
    is_deleted: bool = False
    is_clean: bool = False
    cleans_up: bool = False
    raises_floor: bool = False
    is_late: bool = False

    def on(self, stepping: Stepping) -> Callable[[], _Run]:
        """Return what begins a new run."""
        return lambda: _Run(self, stepping)


class Lost(Exception):
    """The executor does not hold the item any more."""


@dataclass
class _Contents:
    run: _Run

    @property
    def contents(self) -> Hashable:
        """All that is stored, at home too."""
        home = self.run.home
        return (home.lease_number, home.place, home.has_ended, home.is_clean, self.run.stepping.contents)


class _Run:
    def __init__(self, scene: StepScene, stepping: Stepping) -> None:
        self.scene = scene
        self.stepping = stepping
        self.home = Home(scene.executors[0], scene.is_deleted, scene.is_clean)
        self.stores = [_Contents(self)]
        bodies: list[tuple[str, Callable[[_Client], object], Callable[[], bool]]] = []
        if scene.raises_floor:
            bodies.append(("floor", lambda client: client.store.raise_floor(), lambda: True))
        if scene.cleans_up:
            bodies.append(("cleanup", self._clean_up, lambda: self.home.has_ended))
        acting = [] if scene.is_late else list(enumerate(scene.executors))
        for nth, number in reversed(acting):
            bodies.append((f"executor {nth}", partial(self._execute, nth=nth, number=number), lambda: True))
        wanted = iter(bodies)

        def make(lane: Lane) -> SqlProcess:
            name, body, is_enabled = next(wanted)
            client = _Client(lane)
            made = SqlProcess(name, stepping, lane, lambda: body(client), is_enabled)
            client.process = made
            return made

        self.processes = stepping.begin(make, len(bodies), self._prepare)

    def _prepare(self, lane: Lane) -> None:
        """Do what was done before the scene begins, on an empty database."""
        store = _Client(lane).store
        if self.scene.has_begun or self.scene.is_deleted:
            self.home.place = store.ask()
        if self.scene.has_begun:
            assert self.home.place is not None
            store.raise_fence(OUR_RUN, 0, self.home.place)
        if self.scene.is_clean:
            store.clean_up(OUR_RUN)
        if self.scene.is_late:
            store.clean_up(OTHER_RUN)

    def _clean_up(self, client: _Client) -> None:
        client.store.clean_up(OUR_RUN)
        self.home.is_clean = True

    # --- An executor ---

    def _execute(self, client: _Client, nth: int, number: int) -> None:
        if nth > 0:
            if self.home.has_ended:
                return
            self.home.lease_number = number
        try:
            self._attempt(client, nth, number)
        except (LeaseLost, Lost):
            return

    def _attempt(self, client: _Client, nth: int, number: int) -> None:
        is_new = number > 1
        found = self._enter(client, number) if is_new and self.home.place is not None else {}
        cancels = nth > 0 and self.scene.cancels
        if StepName("step", 0) not in found and not cancels:
            self._do(client, number, "step")
        if cancels and StepName("step", 0) in found and StepName("undo", 0) not in found:
            self._do(client, number, "undo")
        client.stop()
        self._check(number)
        self.home.has_ended = True

    def _enter(self, client: _Client, number: int) -> Any:
        while self.scene.raises:
            assert self.home.place is not None
            if client.store.raise_fence(OUR_RUN, number, self.home.place):
                break
            self._record(client, number)
        client.stop()
        return client.store.entries(OUR_RUN, 0)

    def _do(self, client: _Client, number: int, name: str) -> None:
        if self.home.place is None:
            self._record(client, number)
        while True:
            place = self.home.place
            assert place is not None
            try:
                client.store.run_step(
                    StoreStep(OUR_RUN, number, 0, StepName(name, 0), place), partial(leave_effect, name=name)
                )
            except AskAgain:
                self._record(client, number)
            else:
                return

    def _record(self, client: _Client, number: int) -> None:
        """Ask, then record at home under the lease."""
        client.stop()
        place = client.store.ask()
        client.stop()
        self._check(number)
        self.home.place = place

    def _check(self, number: int) -> None:
        if self.home.has_ended or self.home.lease_number != number:
            raise Lost

    # --- In the end ---

    def violation(self) -> str | None:
        """Let a last executor end the run, clean it up, and compare what has happened with what may happen."""
        for process in self.processes:
            process.end()
        last = _Client(self.processes[0].lane)
        if not self.home.has_ended:
            self._execute(last, 1, LAST)
        if not self.home.is_clean:
            last.store.clean_up(OUR_RUN)
        if self.scene.is_late:
            for _ in range(2):
                self._execute(last, 0, self.scene.executors[0])
                last.store.raise_floor()
        steps, fences, _, effects = self.stepping.read_contents()
        if not self.home.has_ended:
            return "the run cannot be ended"
        done, undone = effects.count("step"), effects.count("undo")
        if done > 1 or undone > 1:
            return f"done twice: {effects}"
        is_cancelled = self.scene.cancels and self.home.lease_number != self.scene.executors[0]
        if (self.scene.is_clean or self.scene.is_late) and done:
            return "done after the end of the run"
        if not self.scene.is_deleted and done - undone != (not is_cancelled):
            return f"done {done} times, undone {undone} times"
        if steps:
            return f"entries are left: {steps}"
        if any(fence.endswith(",)") for fence in fences):
            return f"a fence is left: {fences}"
        return None


def leave_effect(connection: Any, name: str) -> StepEntry:
    """Leave an effect: the body of a step."""
    connection.execute("SELECT stepping.stop()")
    connection.execute("INSERT INTO step_effects VALUES (%s)", [name])
    return StepEntry(0, StepKind.STEP, b"digest", StepState.DONE, 1)


@dataclass
class _Client:
    """What an executor uses: its connection, and the steps in the store."""

    lane: Lane
    process: SqlProcess | None = None
    store: StepStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = StepStore(self.lane.connections, self.lane.connections)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
