"""A simulated host: one incarnation of an actor on a node; see `fairlead.actors.runtime.host.Host`.

Locks, conditions and tasks are built on greenlets. The clock is the node's, and time is the world's. A host that was
killed stays dead: its tasks end, its memory is lost, and its actor gets a new host when it is restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from traceback import format_exception
from types import TracebackType
from typing import Any, Protocol

from fairlead.actors.runtime.supervisor import Supervisor, keep_checking
from fairlead.actors.telemetry.telemetry import Telemetry
from fairlead.simulation.world import Killed, Task, World
from fairlead.zones.engines.api.progress import report_loop_progress

# The loops of the product, by the names under which they are spawned. Slots are not among them: faults of handlers
# disturb those.
LOOPS = frozenset(
    (
        "scanner",
        "listening",
        "housekeeping",
        "deadlines",
        "completer",
        "lease keeper",
        "claim keeper",
        "worker status",
        "reclaim",
        "policy refresh",
        "limits",
        "reader",
        "upkeep",
        "vacuum",
    )
)
YIELD_US_MAX = 300  # The longest wait of a thread that yields before it takes a lock.


class Closable(Protocol):
    """A resource of the process that a host must not leave open."""

    def close(self) -> None:
        """Release the resource. May be called again."""
        ...


class NodeClock:
    """The wall clock of one machine, off by `skew_us`."""

    def __init__(self, world: World, skew_us: int) -> None:
        self.skew_us = skew_us
        self.sleep_us = world.sleep_us
        self._true_us = world.now_us
        self._highest_us = 0
        self._steps: list[tuple[int, int]] = []  # When it stepped, in true time, and by how much it was off before.

    def now_us(self) -> int:
        """Return the time that the machine shows."""
        return self._true_us() + self.skew_us

    def jump(self, skew_us: int) -> None:
        """Let the clock be off by `skew_us` from now on."""
        self._highest_us = self.highest_us()
        self._steps.append((self._true_us(), self.skew_us))
        self.skew_us = skew_us

    def highest_us(self) -> int:
        """Return the latest time that the clock has shown."""
        return max(self._highest_us, self.now_us())

    def unstepped_us(self, within_us: int) -> int:
        """Return the earliest time that the clock would show now without its steps of the last `within_us`."""
        true_us = self._true_us()
        earlier = [skew_us for at_us, skew_us in self._steps if at_us >= true_us - within_us]
        return true_us + min([self.skew_us, *earlier])


class SimulatedHost:
    """One incarnation of an actor. `name` is the actor's and a number, such as `c0.worker1#2`."""

    def __init__(
        self,
        world: World,
        name: str,
        clock: NodeClock,
        random: Random,
        *,
        on_recycle: Callable[[str], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.random = random
        self.telemetry = Telemetry()
        self.dead = False
        self.paused_until_us = 0
        self.postponed: list[tuple[Task, int]] = []  # tasks, and the numbers of their turns during the pause
        self.yield_frac = 0.0
        self._switches_left = 0
        self._switch_injection: Callable[[], None] | None = None
        self._tasks: dict[Task, None] = {}
        self._open: dict[Closable, None] = {}
        self._on_recycle = on_recycle
        self._on_failure = on_failure
        self._lock_injection: Callable[[], object] | None = None  # the disturbance of the next loop that takes a lock
        self.supervisor = Supervisor(self._failed, lambda thread_id: "a simulated task")
        self.injected_failure = False  # a fault has ended or stalled a loop
        self._watched = False

    # --- The interface for the product ---

    def lock(self) -> SimulatedLock:
        """See `Host`."""
        return SimulatedLock(self)

    def condition(self, lock: Any) -> SimulatedCondition:
        """See `Host`."""
        return SimulatedCondition(self, lock)

    def spawn(self, name: str, body: Callable[[], None], stalled: Callable[[], None] | None = None) -> SimulatedTask:
        """See `Host`."""
        self.check_alive()
        if not self._watched:
            self._watched = True
            self.spawn("supervisor", lambda: keep_checking(self.supervisor, self._pause))
        task = Task(self.world, self, name, self.supervisor.supervised(name, partial(_until_killed, body), stalled))
        self._tasks[task] = None
        self.world.begin(task)
        return SimulatedTask(self.world, task)

    @property
    def incarnation(self) -> bytes:
        """See `Host`."""
        return self.name.encode()

    def has_ended(self, incarnation: bytes) -> bool:
        """See `Host`. The simulated machines can see each other's processes."""
        return incarnation.decode() in self.world.ended_incarnations

    def recycle(self, reason: str) -> None:
        """See `Host`."""
        self._on_recycle(reason)

    def close_at_end(self, resource: Closable) -> None:
        """Close `resource` when this host is killed, because a task that never had a turn cannot close it."""
        self._open[resource] = None

    def forget_closed(self, resource: Closable) -> None:
        """Note that `resource` is closed."""
        self._open.pop(resource, None)

    # --- The interface for the world ---

    def kill(self) -> None:
        """Kill this host: every task ends where it waits. Called between turns."""
        self.dead = True
        self.world.ended_incarnations.add(self.name)
        for task in list(self._tasks):
            self.world.throw(task)
        for resource in list(self._open):
            resource.close()

    def resume(self) -> None:
        """End a pause: every postponed turn comes now. Called between turns."""
        self.paused_until_us = 0
        postponed, self.postponed = self.postponed, []
        for task, turn in postponed:
            self.world.run_postponed(task, turn)

    def inject_at_switch(self, switches: int, happen: Callable[[], None]) -> None:
        """Let `happen` run, between turns, after the tasks of this host have begun to wait `switches` times."""
        self._switches_left = switches
        self._switch_injection = happen

    def inject_at_lock(self, happen: Callable[[], object]) -> None:
        """Let `happen` run in the turn of the next loop of this host that takes a lock."""
        self._lock_injection = happen

    def before_lock(self) -> None:
        """Called before a task of this host takes a lock."""
        self.check_alive()
        current = self.world.current
        if self._lock_injection is not None and current is not None and current.name in LOOPS:
            happen, self._lock_injection = self._lock_injection, None
            self.injected_failure = True
            happen()

    def before_switch(self) -> None:
        """Called before a task of this host waits."""
        if self.dead:
            raise Killed
        if self._switch_injection is not None:
            self._switches_left -= 1
            if self._switches_left == 0:
                self.world.after(0, self._switch_injection)
                self._switch_injection = None

    def check_alive(self) -> None:
        """Raise `Killed` in a task of a dead host."""
        if self.dead:
            raise Killed

    def on_task_crash(self, task_name: str, error: Exception) -> None:
        """A task ended by an error."""
        if not self.dead:
            trace = "".join(format_exception(error))
            self.world.fail("no loop dies of an error", f"{self.name} {task_name}: {error!r}\n{trace}")

    def _failed(self, reason: str) -> None:
        """The actor's supervisor has found a loop that died or stalled. Only a fault may cause this."""
        if self.dead:
            return
        if not self.injected_failure:
            self.world.fail("no loop dies of an error", f"{self.name}: {reason}")
        self._on_failure(reason)

    def _pause(self, seconds: float) -> None:
        self.world.sleep_us(round(seconds * 1e6))

    def on_task_end(self, task: Task) -> None:
        """A task has ended."""
        del self._tasks[task]
        for waiting in task.waiting_to_end:
            self.world.wake(waiting)


def _until_killed(body: Callable[[], None]) -> None:
    with suppress(Killed):
        body()


class SimulatedTask:
    """The result of `spawn`; see `fairlead.actors.runtime.host.Task`."""

    def __init__(self, world: World, task: Task) -> None:
        self._world = world
        self._task = task

    def join(self, timeout: float | None = None) -> None:
        """See `Task`."""
        if self.is_alive():
            current = self._world.current
            assert current is not None
            self._task.waiting_to_end.append(current)
            self._world.suspend(None if timeout is None else round(timeout * 1e6))

    def is_alive(self) -> bool:
        """See `Task`."""
        return not self._task.greenlet.dead


class SimulatedLock:
    """See `fairlead.actors.runtime.host.Lock`. Now and then the task that takes it yields first, as threads do."""

    __slots__ = ("_host", "_taken", "_waiting")

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._taken = False
        self._waiting: deque[Task] = deque()

    def __enter__(self) -> bool:
        host = self._host
        host.before_lock()
        host.world.count_step()
        if host.yield_frac and host.random.random() < host.yield_frac:
            host.world.suspend(host.random.randrange(YIELD_US_MAX))
        self.take()
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.release()

    def take(self) -> None:
        """Wait until the lock is free, and take it."""
        world = self._host.world
        while self._taken:
            current = world.current
            assert current is not None
            self._waiting.append(current)
            world.suspend()
        self._taken = True

    def release(self) -> None:
        """Release the lock, and wake the first task that waits."""
        self._taken = False
        if self._waiting:
            self._host.world.wake(self._waiting.popleft())


class SimulatedCondition:
    """See `fairlead.actors.runtime.host.Condition`."""

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
        timeout_us = None if timeout is None else max(0, round(timeout * 1e6))
        report_loop_progress(timeout_us)
        notified = world.suspend(timeout_us)
        report_loop_progress()
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
