"""Actors in threads: the host for development, for small services, and inside a Ray actor.

`ThreadHost` is the environment of an actor inside a process: time, randomness, locks, threads. `ThreadRemote` calls an
object of the same process as an actor.
"""

import logging
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import Any

from fairlead.actors.execution.event_loop import EventLoop
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import describe
from fairlead.actors.runtime import process_identity
from fairlead.actors.runtime.garbage_collection import collect_if_grown
from fairlead.actors.runtime.host import ActorDied, Host
from fairlead.actors.runtime.supervisor import Supervisor, keep_checking
from fairlead.actors.telemetry.telemetry import Telemetry
from fairlead.zones.engines import Clock
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.errors import QueueError

log = logging.getLogger("fairlead.host")

Done = Callable[[Any, Exception | None], None]

# A worker with more blocked event loops restarts its process. A loop that computes for ever takes a share of the
# interpreter, which runs one thread at a time.
BLOCKED_LOOPS_MAX = 3
CALLS_AT_ONCE = 4  # Calls of an actor's methods: a long call for progress must not delay the next batch.
INCARNATION_BYTES = 8  # Random bytes that distinguish two actors of one number.
# How long a failure waits for the log. A line takes a millisecond, unless the log's reader has stopped.
LOG_S_MAX = 1.0
# How long a stop waits for calls that carry items. A manager waits up to a second for capacity, then for its store.
HAND_OVER_S_MAX = 5.0


class NeedsRay(QueueError):
    """A Ray remote function is registered as a handler, but the consumer runs in threads.

    Do: start it with `fairlead run --runtime ray`, or register a plain function.
    """

    message = "a Ray remote function needs the Ray runtime"


class WatchedCondition(threading.Condition):
    """A condition variable. A supervised loop that waits for it has not stalled."""

    def wait(self, timeout: float | None = None) -> bool:
        """See `Condition`."""
        report_loop_progress(None if timeout is None else int(timeout * 1e6))
        try:
            return super().wait(timeout)
        finally:
            report_loop_progress()


def thread_supervisor(on_failure: Callable[[str], None]) -> Supervisor:
    """Return a supervisor of this process's threads. It checks until the actor has failed or stops."""
    supervisor = Supervisor(on_failure, _stack_of, _write_log)
    look = supervisor.supervised("supervisor", lambda: keep_checking(supervisor, _pause))
    threading.Thread(target=look, name="supervisor", daemon=True).start()
    return supervisor


def _pause(seconds: float) -> None:
    collect_if_grown()
    threading.Event().wait(seconds)


def _write_log(write: Callable[[], None]) -> None:
    """Write to the log on a thread of its own, and wait for this at most `LOG_S_MAX`."""
    writing = threading.Thread(target=write, name="log", daemon=True)
    try:
        writing.start()
    except RuntimeError:  # There are too many threads, and the log must show it.
        write()
    else:
        writing.join(LOG_S_MAX)


def _stack_of(thread_id: int) -> str:
    frame = sys._current_frames().get(thread_id)
    return "".join(traceback.format_stack(frame)) if frame is not None else "the thread has ended"


class ThreadHost:
    """Threads of this process, under `supervisor`. `on_recycle` ends the process, if the actor has one of its own."""

    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        supervisor: Supervisor,
        telemetry: Telemetry | None = None,
        on_recycle: Callable[[str], None] | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.supervisor = supervisor
        self.telemetry = telemetry or Telemetry()
        self.incarnation = process_identity.this_incarnation() or random.randbytes(16)
        self._on_recycle = on_recycle

    def of_actor(self, number: int) -> "ThreadHost":
        """Return the host of one actor among several of its kind in this process, with an incarnation of its own.

        The process may have several fleets, one after the other or side by side, each with such actors.
        """
        host = ThreadHost(
            clock=self.clock,
            random=self.random,
            supervisor=self.supervisor,
            telemetry=self.telemetry,
            on_recycle=self._on_recycle,
        )
        host.incarnation = b"%b %d %b" % (
            self.incarnation,
            number,
            self.random.randbytes(INCARNATION_BYTES).hex().encode(),
        )
        return host

    def lock(self) -> threading.Lock:
        """See `Host`."""
        return threading.Lock()

    def condition(self, lock: Any) -> WatchedCondition:
        """See `Host`."""
        return WatchedCondition(lock)

    def spawn(self, name: str, body: Callable[[], None], stalled: Callable[[], None] | None = None) -> threading.Thread:
        """See `Host`. The thread is a daemon, so that the end of the process does not wait for a handler."""
        thread = threading.Thread(target=self.supervisor.supervised(name, body, stalled), name=name, daemon=True)
        thread.start()
        return thread

    def has_ended(self, incarnation: bytes) -> bool:
        """See `Host`."""
        return process_identity.has_ended(incarnation)

    def recycle(self, reason: str) -> None:
        """See `Host`."""
        if self._on_recycle is None:
            log.error("the process should be restarted: %s", reason)
        else:
            self._on_recycle(reason)


class PendingCalls:
    """Counts unanswered calls by method, so that a stop can wait for them."""

    def __init__(self) -> None:
        self._out: Counter[str] = Counter()
        self._answered = threading.Condition()

    def begin(self, method: str) -> None:
        """Count a call."""
        with self._answered:
            self._out[method] += 1

    def end(self, method: str) -> None:
        """Count a call as answered."""
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
        """Wait until no call of these methods is unanswered; False if some are after `timeout_s`."""
        with self._answered:
            return self._answered.wait_for(lambda: not any(self._out[method] for method in methods), timeout_s)


class ThreadRemote:
    """An actor in this process: calls run on a few threads of its own, results come by callback.

    Every call is answered: a call before `close` runs, a later one gets `ActorDied`. The threads start with the actor,
    so a call needs to start none. They are daemons, so that a stalled call does not delay the end of the process.
    """

    def __init__(
        self, actor: Any, name: str, supervisor: Supervisor, pending_calls: PendingCalls | None = None
    ) -> None:
        self._actor = actor
        self._supervisor = supervisor
        self._pending_calls = pending_calls or PendingCalls()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        for number in range(CALLS_AT_ONCE):
            threading.Thread(target=self._take_calls, name=f"{name}_{number}", daemon=True).start()

    def call(self, method: str, *args: Any, done: Done) -> None:
        """See `Remote`."""
        answer = self._pending_calls.counted(method, done)
        with self._closing:
            if not self._closed:
                self._calls.put(self._supervisor.supervised(method, partial(self._run, method, args, answer)))
                return
        # Not on the caller's thread, which may hold a lock.
        refuse = self._supervisor.supervised("answer", partial(answer, None, ActorDied(method=method)))
        threading.Thread(target=refuse, daemon=True).start()

    def close(self) -> None:
        """Take no more calls. Waiting calls still run: a call may carry items, which must be returned."""
        with self._closing:
            if not self._closed:
                self._closed = True
                for _ in range(CALLS_AT_ONCE):
                    self._calls.put(None)

    def _take_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _run(self, method: str, args: tuple[Any, ...], done: Done) -> None:
        try:
            result = getattr(self._actor, method)(*args)
        except Exception as error:  # noqa: BLE001 - the caller gets any error of a method
            done(None, error)
        except BaseException:  # The method exits: the call is answered, and the supervisor fails the actor.
            done(None, ActorDied(method=method))
            raise
        else:
            done(result, None)


class ThreadRunners:
    """Runs coroutines on one event loop of this process. Refuses Ray remote functions."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop: EventLoop | None = None
        self._blocked: list[EventLoop] = []  # lost event loops whose threads still run
        self._lock = threading.Lock()

    def run_coroutine(self, function: Callable[[Job], Any], held: HeldItem) -> Any:
        """See `Runners`. Past its timeout the coroutine is cancelled."""
        return self._running_loop().run_to_end(function, held.job, last_error=held.record.last_error)

    def run_remote(self, function: Any, held: HeldItem) -> Any:
        """See `Runners`."""
        raise NeedsRay(kind=held.ref.kind, handler=describe(function))

    def close(self) -> None:
        """See `Runners`."""
        with self._lock:
            if self._loop is not None:
                self._loop.close()

    def _running_loop(self) -> EventLoop:
        with self._lock:
            if self._loop is not None and not self._loop.is_lost:
                return self._loop
            lost = [] if self._loop is None else [self._loop]
            self._blocked = [each for each in (*self._blocked, *lost) if not each.has_ended]
            blocked = len(self._blocked)
            loop = self._loop = EventLoop(self._host)
        if blocked >= BLOCKED_LOOPS_MAX:
            self._host.recycle(f"{blocked} event loops are blocked by coroutines")
        return loop
