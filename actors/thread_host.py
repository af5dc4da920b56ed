"""Actors in threads: the host of development, of small services, and of the inside of a Ray actor.

`ThreadHost` is what the core sees inside any process: time, randomness, locks, threads. `ThreadRemote` makes an
object of the same process callable like an actor of another.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from actors.handlers import describe
from actors.holdings import Held
from actors.host import ActorDied
from actors.job import Job
from zones.engines import Clock
from zones.errors import QueueError

log = logging.getLogger("fairlead.host")

CALLS_AT_ONCE = 4  # Of an actor's methods: a long question for progress must not hold up the next batch.


class NeedsRay(QueueError):
    """A Ray remote function is registered as a handler, but the consumer runs in threads.

    Do: start it with `fairlead run --host ray`, or register a plain function.
    """

    message = "a Ray remote function needs the Ray host"


class ThreadHost:
    """Threads of this process. `on_recycle` ends the process, where the actor has one of its own."""

    def __init__(self, *, clock: Clock, random: Random, on_recycle: Callable[[str], None] | None = None) -> None:
        self.clock = clock
        self.random = random
        self._on_recycle = on_recycle

    def lock(self) -> threading.Lock:
        """See `Host`."""
        return threading.Lock()

    def condition(self, lock: Any) -> threading.Condition:
        """See `Host`."""
        return threading.Condition(lock)

    def spawn(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """See `Host`. The thread is a daemon: a process that is told to end does not wait for a handler."""
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread

    def recycle(self, reason: str) -> None:
        """See `Host`."""
        if self._on_recycle is None:
            log.error("the process should be restarted: %s", reason)
        else:
            self._on_recycle(reason)


class ThreadRemote:
    """An actor in this process: calls run on a few threads of its own, results come by callback."""

    def __init__(self, actor: Any, name: str) -> None:
        self._actor = actor
        self._pool = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix=name)

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """See `Remote`."""
        try:
            self._pool.submit(self._run, method, args, done)
        except RuntimeError:  # the pool was shut down; never tell on the caller's thread, which may hold a lock
            threading.Thread(target=done, args=(None, ActorDied(method=method)), daemon=True).start()

    def close(self) -> None:
        """Take no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, method: str, args: tuple[Any, ...], done: Callable[[Any, Exception | None], None]) -> None:
        try:
            result = getattr(self._actor, method)(*args)
        except Exception as error:  # noqa: BLE001 - whatever a method raises is the caller's to see
            done(None, error)
        else:
            done(result, None)


class ThreadRunners:
    """Runs coroutines on one event loop of this process. Ray remote functions have no place here."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run_coroutine(self, function: Callable[[Job], Any], held: Held) -> None:
        """See `Runners`. Past its timeout the coroutine is cancelled."""
        future = asyncio.run_coroutine_threadsafe(function(held.job), self._running_loop())
        held.job.on_cancel(future.cancel)
        future.result()

    def run_remote(self, function: Any, held: Held) -> None:
        """See `Runners`."""
        raise NeedsRay(kind=held.ref.kind, handler=describe(function))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True).start()
            return self._loop
