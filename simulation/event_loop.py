"""An event loop in virtual time: coroutines of users' handlers, as one simulated process runs them.

It is asyncio's own loop, with a selector that suspends the task, because this world has no sockets. `asyncio.sleep(30)`
takes no real time. Other tasks, even those of other loops, have their turns meanwhile.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from fairlead.actors.execution.event_loop import Exited, contained
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.world import Killed, Task
from fairlead.zones.engines.api.progress import report_loop_progress


class EventLoop(asyncio.BaseEventLoop):
    """The event loop of one incarnation of an actor."""

    def __init__(self, host: SimulatedHost) -> None:
        super().__init__()
        self._host = host
        self._world = host.world
        self._selector = self  # asyncio calls `select` of this attribute
        self._waiting: Task | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # that have not ended, in the order in which they were made
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda loop, context: None)  # asyncio reports tasks that the collector finds
        host.close_at_end(self)

    def live(self) -> None:
        """Run the coroutines that other tasks submit, until the host is killed."""
        try:
            self.run_forever()
        finally:
            self.close()

    def close(self) -> None:
        """End all unfinished coroutines now, in order, not when the garbage collector finds them."""
        for task in list(self._tasks):
            _abandon(task.get_coro())
        super().close()
        self._host.forget_closed(self)

    def run_to_end(self, coroutine: Coroutine[Any, Any, Any], *, on_cancel: Any) -> Any:
        """Run a coroutine on this loop from another task. Return its result, or raise its error.

        Args:
          on_cancel: is called with a function that cancels the coroutine.
        """
        world = self._world
        task = world.current
        assert task is not None
        try:
            future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self)
            on_cancel(future.cancel)
            future.add_done_callback(lambda _: world.wake(task))
            report_loop_progress(None)
            while not future.done():
                world.suspend()
            report_loop_progress()
            return future.result()
        except Exited as error:
            raise error.error from None
        finally:
            _abandon(coroutine)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._world.elapsed_us / 1e6

    def select(self, timeout: float | None) -> Sequence[Any]:
        """Wait until a task submits to the loop, or until the timeout."""
        self._host.check_alive()
        self._world.count_step()
        if timeout is None or timeout > 0:
            self._waiting = self._world.current
            timeout_us = None if timeout is None else math.ceil(timeout * 1e6)
            report_loop_progress(timeout_us)
            self._world.suspend(timeout_us)
            report_loop_progress()
            self._waiting = None
        return ()

    def _make_task(self, loop: Any, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(contained(coroutine), loop=loop, **how)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    def _process_events(self, events: Sequence[Any]) -> None:
        """Do nothing: there are no such events."""

    def _write_to_self(self) -> None:
        """Called by asyncio when another task has submitted to the loop."""
        if self._waiting is not None:
            self._world.wake(self._waiting)


def _abandon(coroutine: Any) -> None:
    """End a coroutine whose process is dead. Do nothing if the coroutine has ended, or is ending."""
    with suppress(RuntimeError, ValueError, Killed):
        coroutine.close()
