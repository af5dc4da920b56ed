"""A coroutine on an event loop of its own, which ends although a task ignores its cancellation.

`asyncio.run` waits for such a task without end. In a test, or in a read-only replay, nobody would see why.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fairlead.workflows.errors import BranchNotEnded

T = TypeVar("T")

TASKS_END_S = 1.0  # How long tasks may run on after their cancellation, once the coroutine has ended.


def run_alone(coroutine: Coroutine[Any, Any, T], *, kind: str) -> T:
    """Run a coroutine of a handler to its end, cancel the tasks that it has left, and return its result.

    Raises:
      BranchNotEnded: the coroutine has ended without an error, and a task runs on.
      What the coroutine raises.
    """
    loop = asyncio.new_event_loop()
    running: set[asyncio.Task[Any]] = set()
    try:
        result = loop.run_until_complete(coroutine)
    finally:
        try:
            running = loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
    if running:
        raise BranchNotEnded(kind=kind, branches=names_of(running))
    return result


def names_of(tasks: set[asyncio.Task[Any]]) -> list[str]:
    """Return the names of the functions that tasks run."""
    return sorted(str(getattr(each.get_coro(), "__qualname__", each.get_name())) for each in tasks)


async def _end_tasks() -> set[asyncio.Task[Any]]:
    """Cancel all other tasks of this event loop; return those that do not end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    if not others:
        return set()
    ended, running = await asyncio.wait(others, timeout=TASKS_END_S)
    for each in ended:
        if not each.cancelled() and each.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a task failed while it was cancelled", "exception": each.exception(), "task": each}
            )
    return running
