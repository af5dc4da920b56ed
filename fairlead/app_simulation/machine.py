"""The process's clock, randomness and event loops, redirected to the simulated machine while a world runs.

A user's handlers call `time.sleep` and `random.random`. In a simulated world `time.sleep(30)` must let other actors run
for thirty virtual seconds, and cost no real time. The seed must choose what `random.random()` returns; otherwise the
world could not be replayed. So during a run, and in its thread only, the functions below call the world's machine. The
product itself does not need this: it takes its clock and its randomness as arguments. Standard output and error go to
the event log.

A function that is imported by name (`from time import sleep`), or held by a logging handler, is redirected too, if its
module is imported within `stdlib_patched`. Not redirected: `datetime.now()`, an unseeded `random.Random()`, sockets,
files, locks. All simulated actors share one thread. If an actor holds a lock while it waits for its turn, and another
actor wants the lock, the run stands still; the stack is then printed.
"""

import asyncio
import faulthandler
import logging
import os
import random
import sys
import threading
import time
import warnings
from asyncio import events
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

from fairlead.zones.errors import QueueError
from fairlead.zones.shard import Shard

STUCK_S = 60.0  # Real seconds without a turn. A turn takes a moment.


class ThreadsForbidden(QueueError):
    """A handler or a request started a thread, or forked. In a simulated world only the seed decides what runs next.

    Do: start no threads and no processes where the application is simulated. Handlers run concurrently anyway.
    """

    message = "a simulated world has one thread, in one process"


class Machine(Protocol):
    """The simulated machine of the actor whose turn it is."""

    seed: str
    random: random.Random
    shard_names: list[str]

    @property
    def turns(self) -> int:
        """How many turns there have been."""
        ...

    def now_us(self) -> int:
        """Return the time, microseconds since the epoch. It may step back."""
        ...

    def elapsed_us(self) -> int:
        """Return a time that never steps back."""
        ...

    def sleep_us(self, duration_us: int) -> None:
        """Let time pass."""
        ...

    def shards(self) -> Mapping[str, Shard] | None:
        """Return the shards; None before a world begins."""
        ...

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop."""
        ...

    def note(self, event: str) -> None:
        """Write a line into the event log."""
        ...


_machine: Machine | None = None
_thread: int | None = None


@contextmanager
def use_machine(machine: Machine) -> Iterator[None]:
    """Redirect clock, randomness, event loops and output of this thread to `machine` meanwhile.

    If no turn ends for `STUCK_S`, the stacks of all threads are printed to standard error.
    """
    global _machine, _thread  # noqa: PLW0603 - `time.sleep` is global to the process, too
    random_state = random.getstate()
    logged = logging.root.handlers
    _machine, _thread = machine, threading.get_ident()
    _OUTPUT.begun = ""
    try:
        random.seed(machine.seed)
        logging.root.handlers = [_Logged(machine)]
        with _watched(machine), stdlib_patched(), warnings.catch_warnings():  # Each world warns anew.
            yield
    finally:
        _machine = _thread = None
        logging.root.handlers = logged
        random.setstate(random_state)


@contextmanager
def _watched(machine: Machine) -> Iterator[None]:
    over = threading.Event()

    def watch() -> None:
        turns = None
        while True:
            if turns != (turns := machine.turns):
                faulthandler.dump_traceback_later(STUCK_S, file=sys.__stderr__ or sys.stderr)
            if over.wait(STUCK_S / 10):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def stdlib_patched() -> Iterator[None]:
    """Redirect the functions to the machine meanwhile. Without a machine, they do what they always did."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _PATCHES]
    for owner, name, function in _PATCHES:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _redirected(owner: Any, name: str, virtual: Callable[..., Any]) -> tuple[Any, str, Callable[..., Any]]:
    """Return a function that calls `virtual` with the machine if there is one, and the real function otherwise."""
    real = getattr(owner, name)

    @wraps(real)
    def function(*args: Any, **named: Any) -> Any:
        if _machine is None or threading.get_ident() != _thread:
            return real(*args, **named)
        return virtual(_machine, *args, **named)

    return owner, name, function


def _refuse(machine: Machine, *args: object) -> None:
    raise ThreadsForbidden


class _Output:
    """Standard output and error: lines of the event log while a world runs, otherwise standard error."""

    begun = ""  # a line that has not ended

    def write(self, text: str) -> int:
        """Write text; see `io.TextIOBase`."""
        if _machine is None or threading.get_ident() != _thread:
            return (sys.__stderr__ or sys.stderr).write(text)
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            _machine.note(f"prints {line}")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.__stderr__, name)


_OUTPUT = _Output()
_PATCHES = [
    _redirected(time, "time", lambda machine: machine.now_us() / 1e6),
    _redirected(time, "time_ns", lambda machine: machine.now_us() * 1000),
    _redirected(time, "monotonic", lambda machine: machine.elapsed_us() / 1e6),
    _redirected(time, "monotonic_ns", lambda machine: machine.elapsed_us() * 1000),
    _redirected(time, "perf_counter", lambda machine: machine.elapsed_us() / 1e6),
    _redirected(time, "perf_counter_ns", lambda machine: machine.elapsed_us() * 1000),
    _redirected(time, "sleep", lambda machine, seconds: machine.sleep_us(round(seconds * 1e6))),
    _redirected(os, "urandom", lambda machine, size: machine.random.randbytes(size)),  # uuid.uuid4 draws here
    _redirected(
        random, "_urandom", lambda machine, size: machine.random.randbytes(size)
    ),  # so do secrets, SystemRandom
    _redirected(asyncio, "new_event_loop", lambda machine: machine.event_loop()),
    _redirected(events, "new_event_loop", lambda machine: machine.event_loop()),  # asyncio.run calls this one
    _redirected(threading.Thread, "start", _refuse),
    _redirected(os, "fork", _refuse),
    (sys, "stdout", _OUTPUT),
    (sys, "stderr", _OUTPUT),
]  # `random.random()` and its like share one hidden generator, which `use_machine` seeds.


class _Logged(logging.Handler):
    """Writes log records as lines of the event log."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._machine.note(f"logs {record.levelname} {record.getMessage()}")
