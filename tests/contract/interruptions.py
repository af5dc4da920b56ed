"""A scheduler that runs one thread at a time, and raises an exception in a thread at a chosen instant.

A seed decides which thread runs next. A switch may come wherever CPython may switch: after a call, before a loop
repeats, where a function begins, and where a thread waits. At these instants, and during a wait, a signal handler may
run and raise. The code under test is the product's; only its locks are replaced, by locks of the scheduler.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from random import Random
from types import CodeType, FrameType, ModuleType, SimpleNamespace
from typing import Any

TURNS_MAX = 5_000  # A run takes some hundreds.
WAITS = "waits"
SWITCHES = 0.05  # The fraction of the instants at which the scheduler switches threads.

Interruptions = Mapping[str, Collection[int]]  # For each thread the instants of interruptions, counted from 1.


class Interruption(BaseException):
    """The exception that a signal handler raises."""


class Hang(Exception):
    """All threads wait and none can wake another, or they poll without end."""


class _Thread:
    def __init__(self, name: str) -> None:
        self.name = name
        self.go = threading.Semaphore(0)
        self.condition: Callable[[], bool] | None = None
        self.points = 0
        self.over = False
        self.error: BaseException | None = None


class Scheduler:
    """Runs threads, one at a time.

    Attributes:
      interrupted: the names of the threads in which an exception was raised.
    """

    def __init__(
        self, seed: int, interruptions: Interruptions, modules: Iterable[ModuleType], *, within: str = ""
    ) -> None:
        """Prepare a run.

        Args:
          seed: decides which thread runs next.
          interruptions: when an exception is raised.
          modules: those whose instants count.
          within: only instants in functions of this name count, or in `WAITS`; if empty, all count.
        """
        self.random = Random(seed)
        self.interrupted: set[str] = set()
        self._due = interruptions
        self._files = frozenset(module.__file__ for module in modules)
        self._within = within
        self._threads: dict[int, _Thread] = {}
        self._back = threading.Semaphore(0)

    def run(self, bodies: Mapping[str, Callable[[], None]]) -> None:
        """Run each body in a thread of its own, to its end.

        Raises:
          Hang: not all threads end.
          Exception: the first exception of a body, except an `Interruption`.
        """
        threads = [_Thread(name) for name in bodies]
        for thread, body in zip(threads, bodies.values(), strict=True):
            threading.Thread(target=self._run_body, args=(thread, body), daemon=True).start()
        turns = 0
        while waiting := [thread for thread in threads if not thread.over]:
            able = [thread for thread in waiting if thread.condition is None or thread.condition()]
            turns += 1
            if not able or turns > TURNS_MAX:
                raise Hang(", ".join(thread.name for thread in waiting))
            self.random.choice(able).go.release()
            self._back.acquire()
        for thread in threads:
            if thread.error is not None:
                raise thread.error

    def wait(self, condition: Callable[[], bool], *, timed: bool = False) -> bool:
        """Wait until `condition()` holds; if `timed`, perhaps less long. Return whether it holds."""
        thread = self._threads.get(threading.get_ident())
        if thread is None:
            assert condition(), "the test itself must not wait"
            return True
        if self._within in ("", WAITS):
            self._count_instant(thread)
        if not condition():
            self._yield_to_others(thread, None if timed else condition)
        sys.settrace(self._trace)  # A trace function is removed when it raises.
        return condition()

    def switch(self) -> None:
        """Let other threads run."""
        self.wait(lambda: False, timed=True)

    def locks(self) -> SimpleNamespace:
        """Return the replacement of `threading` and `_thread` in a module."""
        return SimpleNamespace(
            Lock=lambda: ScheduledLock(self),
            RLock=lambda: ScheduledRLock(self),
            allocate_lock=lambda: ScheduledLock(self),
            LockType=ScheduledLock,
        )

    def _run_body(self, thread: _Thread, body: Callable[[], None]) -> None:
        thread.go.acquire()
        self._threads[threading.get_ident()] = thread
        sys.settrace(self._trace)
        try:
            body()
        except Interruption:
            pass
        except Exception as error:  # noqa: BLE001 - `run` raises it
            thread.error = error
        finally:
            sys.settrace(None)
            thread.over = True
            self._back.release()

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._trace_opcodes

    def _trace_opcodes(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            thread = self._threads[threading.get_ident()]
            if self._within in ("", frame.f_code.co_name):
                self._count_instant(thread)
            if self.random.random() < SWITCHES:
                self._yield_to_others(thread, None)
        return self._trace_opcodes

    def _count_instant(self, thread: _Thread) -> None:
        thread.points += 1
        if thread.points in self._due.get(thread.name, ()):
            self.interrupted.add(thread.name)
            raise Interruption

    def _yield_to_others(self, thread: _Thread, condition: Callable[[], bool] | None) -> None:
        thread.condition = condition
        self._back.release()
        thread.go.acquire()
        thread.condition = None


@cache
def _points(code: CodeType) -> frozenset[int]:
    """Return the offsets of instructions before which CPython handles signals and may switch threads."""
    points = set()
    after_check = False
    for instruction in dis.get_instructions(code):
        if after_check:
            points.add(instruction.offset)
        after_check = instruction.opname == "RESUME" or instruction.opname.startswith("CALL")
        if instruction.opname.startswith("JUMP_BACKWARD"):
            points.add(instruction.argval)
    return frozenset(points)


class ScheduledLock:
    """A lock whose waits the scheduler controls."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.taken = False

    def acquire(self) -> bool:
        """Wait for the lock and take it."""
        self._scheduler.wait(lambda: not self.taken)
        self.taken = True
        return True

    def release(self) -> None:
        """Release the lock."""
        if not self.taken:
            raise RuntimeError("release unlocked lock")
        self.taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class ScheduledRLock:
    """A reentrant lock whose waits the scheduler controls."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.owner = self.times = 0

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for the lock and take it. With a timeout, the wait may end without the lock."""
        me = threading.get_ident()
        if not self._scheduler.wait(lambda: self.owner in (0, me), timed=timeout >= 0):
            return False
        self.owner = me
        self.times += 1
        return True

    def release(self) -> None:
        """Release the lock."""
        if self.owner != threading.get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self.times -= 1
        if not self.times:
            self.owner = 0
