"""A simulated host: one life of an actor on a node, as the product sees it through `actors.host.Host`.

Locks, conditions and tasks are greenlets' affairs here, the clock is the node's, and time is the world's. A host that
was killed is dead for good: its tasks end, its memory goes, and its actor gets a new host when it is restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from traceback import format_exception
from types import TracebackType
from typing import Any

from actors.telemetry.telemetry import Telemetry
from simulation.world import Killed, Task, World

YIELD_US_MAX = 300  # How long a thread that lets others go first may wait for its next turn.


class NodeClock:
    """The wall clock of one machine, wrong by `skew_us`."""

    def __init__(self, world: World, skew_us: int) -> None:
        self.skew_us = skew_us
        self.sleep_us = world.sleep_us
        self._true_us = world.now_us
        self._highest_us = 0

    def now_us(self) -> int:
        """Return what the machine takes for the time."""
        return self._true_us() + self.skew_us

    def jump(self, skew_us: int) -> None:
        """Be wrong by `skew_us` from now on."""
        self._highest_us = self.highest_us()
        self.skew_us = skew_us

    def highest_us(self) -> int:
        """Return the latest time that it has shown."""
        return max(self._highest_us, self.now_us())


class SimulatedHost:
    """One life of an actor. `name` says whose and which, such as `c0.worker1#2`."""

    def __init__(
        self, world: World, name: str, clock: NodeClock, random: Random, *, on_recycle: Callable[[str], None]
    ) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.random = random
        self.telemetry = Telemetry()
        self.dead = False
        self.paused_until_us = 0
        self.put_off: list[tuple[Task, int]] = []  # tasks, and which turns of theirs came while it was paused
        self.yield_frac = 0.0
        self._switches_left = 0
        self._at_switch: Callable[[], None] | None = None
        self._tasks: dict[Task, None] = {}
        self._on_recycle = on_recycle

    # --- What the product uses ---

    def lock(self) -> SimulatedLock:
        """See `Host`."""
        return SimulatedLock(self)

    def condition(self, lock: Any) -> SimulatedCondition:
        """See `Host`."""
        return SimulatedCondition(self, lock)

    def spawn(self, name: str, body: Callable[[], None]) -> SimulatedTask:
        """See `Host`."""
        self.check_alive()
        task = Task(self.world, self, name, body)
        self._tasks[task] = None
        self.world.begin(task)
        return SimulatedTask(self.world, task)

    @property
    def life(self) -> bytes:
        """See `Host`."""
        return self.name.encode()

    def has_ended(self, life: bytes) -> bool:
        """See `Host`. The simulated machines can see each other's processes."""
        return life.decode() in self.world.ended_lives

    def recycle(self, reason: str) -> None:
        """See `Host`."""
        self._on_recycle(reason)

    # --- What the world does to it ---

    def kill(self) -> None:
        """End this life: every task ends where it waits. Called between turns."""
        self.dead = True
        self.world.ended_lives.add(self.name)
        for task in list(self._tasks):
            self.world.throw(task)

    def go_on(self) -> None:
        """End a pause: every turn that was put off comes now. Called between turns."""
        self.paused_until_us = 0
        put_off, self.put_off = self.put_off, []
        for task, turn in put_off:
            self.world.hurry(task, turn)

    def at_switch(self, switches: int, happen: Callable[[], None]) -> None:
        """Let something happen, between turns, once tasks of this life have begun to wait `switches` times from now."""
        self._switches_left = switches
        self._at_switch = happen

    def pass_switch(self) -> None:
        """Called whenever a task of this life is about to wait."""
        if self.dead:
            raise Killed
        if self._at_switch is not None:
            self._switches_left -= 1
            if self._switches_left == 0:
                self.world.after(0, self._at_switch)
                self._at_switch = None

    def check_alive(self) -> None:
        """Raise `Killed` in a task of a life that has ended."""
        if self.dead:
            raise Killed

    def crashed(self, task_name: str, error: Exception) -> None:
        """A task ended by an error that nobody caught: in a process, a loop that is silently gone."""
        if not self.dead:
            trace = "".join(format_exception(error))
            self.world.fail("no loop dies of an error", f"{self.name} {task_name}: {error!r}\n{trace}")

    def ended(self, task: Task) -> None:
        """A task has ended."""
        del self._tasks[task]
        for waiting in task.waiting_to_end:
            self.world.wake(waiting)


class SimulatedTask:
    """What `spawn` returns; see `actors.host.Task`."""

    def __init__(self, world: World, task: Task) -> None:
        self._world = world
        self._task = task

    def join(self, timeout: float | None = None) -> None:
        """See `Task`."""
        if self.is_alive():
            current = self._world.current
            assert current is not None
            self._task.waiting_to_end.append(current)
            self._world.park(None if timeout is None else round(timeout * 1e6))

    def is_alive(self) -> bool:
        """See `Task`."""
        return not self._task.greenlet.dead


class SimulatedLock:
    """See `actors.host.Lock`. Now and then its taker lets others go first, as threads do."""

    __slots__ = ("_host", "_taken", "_waiting")

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._taken = False
        self._waiting: deque[Task] = deque()

    def __enter__(self) -> bool:
        host = self._host
        host.check_alive()
        host.world.count_step()
        if host.yield_frac and host.random.random() < host.yield_frac:
            host.world.park(host.random.randrange(YIELD_US_MAX))
        self.take()
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.release()

    def take(self) -> None:
        """Wait until it is free, and take it."""
        world = self._host.world
        while self._taken:
            current = world.current
            assert current is not None
            self._waiting.append(current)
            world.park()
        self._taken = True

    def release(self) -> None:
        """Let go of it."""
        self._taken = False
        if self._waiting:
            self._host.world.wake(self._waiting.popleft())


class SimulatedCondition:
    """See `actors.host.Condition`."""

    __slots__ = ("_host", "_lock", "_waiting")

    def __init__(self, host: SimulatedHost, lock: SimulatedLock) -> None:
        self._host = host
        self._lock = lock
        self._waiting: deque[Task] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        """See `Condition`."""
        world = self._host.world
        task = world.current
        assert task is not None
        self._waiting.append(task)
        self._lock.release()
        notified = world.park(None if timeout is None else max(0, round(timeout * 1e6)))
        if not notified:
            self._waiting.remove(task)
        self._lock.take()
        return notified

    def notify(self, n: int = 1) -> None:
        """See `Condition`."""
        self._host.check_alive()
        for _ in range(min(n, len(self._waiting))):
            self._host.world.wake(self._waiting.popleft())

    def notify_all(self) -> None:
        """See `Condition`."""
        self.notify(len(self._waiting))
