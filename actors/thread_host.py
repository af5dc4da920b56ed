"""Actors in threads: the host of development, of small services, and of the inside of a Ray actor.

`ThreadHost` is what the core sees inside any process: time, randomness, locks, threads. `ThreadRemote` makes an
object of the same process callable like an actor of another.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from actors import process_life
from actors.handlers import describe
from actors.holdings import Held
from actors.host import ActorDied
from actors.job import Job
from actors.telemetry.telemetry import Telemetry
from zones.engines import Clock
from zones.errors import QueueError

log = logging.getLogger("fairlead.host")

Done = Callable[[Any, Exception | None], None]

CALLS_AT_ONCE = 4  # Of an actor's methods: a long question for progress must not hold up the next batch.
# How long a stop waits for calls that carry items. A manager waits up to a second for room, then for its store.
HAND_OVER_S_MAX = 5.0


class NeedsRay(QueueError):
    """A Ray remote function is registered as a handler, but the consumer runs in threads.

    Do: start it with `fairlead run --host ray`, or register a plain function.
    """

    message = "a Ray remote function needs the Ray host"


class ThreadHost:
    """Threads of this process. `on_recycle` ends the process, where the actor has one of its own."""

    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        telemetry: Telemetry | None = None,
        on_recycle: Callable[[str], None] | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.telemetry = telemetry or Telemetry()
        self.life = process_life.this_life() or random.randbytes(16)
        self._on_recycle = on_recycle

    def of_actor(self, number: int) -> "ThreadHost":
        """Return the host of one actor among several of its sort in this process: its life bears a name of its own."""
        host = ThreadHost(clock=self.clock, random=self.random, telemetry=self.telemetry, on_recycle=self._on_recycle)
        host.life = b"%b %d" % (self.life, number)
        return host

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

    def has_ended(self, life: bytes) -> bool:
        """See `Host`."""
        return process_life.has_ended(life)

    def recycle(self, reason: str) -> None:
        """See `Host`."""
        if self._on_recycle is None:
            log.error("the process should be restarted: %s", reason)
        else:
            self._on_recycle(reason)


class Unanswered:
    """Counts calls that have not been answered, by method, so that who stops can wait for them."""

    def __init__(self) -> None:
        self._out: Counter[str] = Counter()
        self._answered = threading.Condition()

    def begin(self, method: str) -> None:
        """Count a call."""
        with self._answered:
            self._out[method] += 1

    def end(self, method: str) -> None:
        """Count it no more."""
        with self._answered:
            self._out[method] -= 1
            self._answered.notify_all()

    def counted(self, method: str, done: Done) -> Done:
        """Count a call until the `done` that this returns has run."""
        self.begin(method)

        def answer(result: Any, error: Exception | None) -> None:
            try:
                done(result, error)
            finally:
                self.end(method)

        return answer

    def wait_for(self, *methods: str, timeout_s: float) -> bool:
        """Wait until no call of these methods is out; False if some are after `timeout_s`."""
        with self._answered:
            return self._answered.wait_for(lambda: not any(self._out[method] for method in methods), timeout_s)


class ThreadRemote:
    """An actor in this process: calls run on a few threads of its own, results come by callback.

    Every call is answered: one that was made before `close` runs, a later one gets `ActorDied`.
    """

    def __init__(self, actor: Any, name: str, unanswered: Unanswered | None = None) -> None:
        self._actor = actor
        self._pool = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix=name)
        self._unanswered = unanswered or Unanswered()

    def call(self, method: str, *args: Any, done: Done) -> None:
        """See `Remote`."""
        answer = self._unanswered.counted(method, done)
        try:
            self._pool.submit(self._run, method, args, answer)
        except RuntimeError:  # the pool was shut down; never tell on the caller's thread, which may hold a lock
            threading.Thread(target=answer, args=(None, ActorDied(method=method)), daemon=True).start()

    def close(self) -> None:
        """Take no more calls. Those that wait still run: a call may carry items, which must be given back."""
        self._pool.shutdown(wait=False)

    def _run(self, method: str, args: tuple[Any, ...], done: Done) -> None:
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

    def run_coroutine(self, function: Callable[[Job], Any], held: Held) -> Any:
        """See `Runners`. Past its timeout the coroutine is cancelled."""
        future = asyncio.run_coroutine_threadsafe(function(held.job), self._running_loop())
        held.job.on_cancel(future.cancel)
        return future.result()

    def run_remote(self, function: Any, held: Held) -> Any:
        """See `Runners`."""
        raise NeedsRay(kind=held.ref.kind, handler=describe(function))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True).start()
            return self._loop
