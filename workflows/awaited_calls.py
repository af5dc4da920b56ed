"""Calls of an asynchronous workflow that were made and never awaited.

`wf.step(ship)` without `await` makes a coroutine, and does nothing. The function would end without that step.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from fairlead.workflows.errors import CallNotAwaited

Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])

_KEPT_MIN = 64  # Calls, before those that have begun are forgotten.


class AwaitedCalls:
    """The calls that one run of a function has made, as far as they may not have begun."""

    def __init__(self) -> None:
        self._made: list[Coroutine[Any, Any, Any]] = []
        self._kept_max = _KEPT_MIN

    def add(self, call: Coroutine[Any, Any, Any]) -> None:
        """Note a call that is made now."""
        self._made.append(call)
        if len(self._made) >= self._kept_max:
            self._made = [each for each in self._made if _is_created(each)]
            self._kept_max = 2 * len(self._made) + _KEPT_MIN

    def check(self, kind: str) -> None:
        """Refuse calls that nobody awaits, where no more code of the function can await them.

        Raises:
          CallNotAwaited: there are some.
        """
        forgotten = self._forgotten()
        if forgotten:
            raise CallNotAwaited(kind=kind, calls=[_shown(each) for each in forgotten])

    def close(self) -> None:
        """Close what nobody awaits, once the function has ended. Otherwise Python warns, though an interrupt came."""
        for each in self._forgotten():
            each.close()

    def _forgotten(self) -> list[Coroutine[Any, Any, Any]]:
        """Return the calls that have not begun, unless a task will: its own call, or any if it has not begun itself."""
        forgotten = [each for each in self._made if _is_created(each)]
        if not forgotten:
            return []
        of_tasks = [coroutine for task in asyncio.all_tasks() if inspect.iscoroutine(coroutine := task.get_coro())]
        return [] if any(map(_is_created, of_tasks)) else forgotten


class HasCalls(Protocol):
    """Whatever notes its calls."""

    _calls: AwaitedCalls


def awaited(method: Method) -> Method:
    """Let an async method of `wf` note each call of it."""

    @wraps(method)
    def call(self: HasCalls, *args: Any, **options: Any) -> Coroutine[Any, Any, Any]:
        made = method(self, *args, **options)
        self._calls.add(made)
        return made

    return cast(Method, call)


def _is_created(call: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(call) == inspect.CORO_CREATED


def _shown(call: Coroutine[Any, Any, Any]) -> str:
    """Return a call as a reader knows it: `wf.step(ship)`; by its name if it has one."""
    given = inspect.getcoroutinelocals(call)
    first = next((value for parameter, value in given.items() if parameter != "self"), None)
    what = given.get("name") or getattr(first, "__name__", first if isinstance(first, str) else "")
    return f"wf.{getattr(call, '__name__', '?')}({what})"
