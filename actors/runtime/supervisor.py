"""The supervisor of one actor: it fails the actor when one of its loops ends by an error, or stalls.

Every task that a `Host` spawns runs under the supervisor. An error of any class is logged with its traceback and fails
the actor. A loop without progress for `STALL_US` fails it too. A failed actor does not recover: in Ray its process ends
and Ray starts another; in threads `Consumer.check` raises, and `fairlead run` ends.

Sleeps, and each attempt of a transaction, count as progress (`fairlead.zones.engines.api.progress`). So an unreachable
store fails no actor. The supervisor sums its own pauses, not the clock: a process that was stopped as a whole has not
stalled.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from fairlead.zones.engines.api.progress import LoopProgress, report_loop_progress, track_loop_progress
from fairlead.zones.errors import QueueError
from fairlead.zones.probes import probe

log = logging.getLogger("fairlead.supervisor")

CHECK_S = 1.0
# No iteration of a loop computes for this long: the largest batches take a tenth of a second, and a second on a busy
# machine. A shorter time would restart actors of a machine that swaps.
STALL_US = 10_000_000


class ActorFailed(QueueError):
    """A loop of a fleet ended by an error, or stood still for ten seconds. The fleet takes no more work.

    Do: read the traceback in the log, and start the fleet again. Its items are returned, or run again when their leases
    have expired.
    """

    message = "a loop of the fleet failed, and the fleet takes no more work"


class Supervisor:
    """The supervisor of an actor's tasks.

    Args:
      on_failure: called once, with the reason of the first failure, on the thread that finds it; it must not wait.
      stack_of: returns the stack of a thread, for the log.
      write_log: runs a function that writes to the log, and waits a moment for it. The reader of a log may have
        stopped, so that a write hangs; the actor must fail all the same.
    """

    def __init__(
        self,
        on_failure: Callable[[str], None],
        stack_of: Callable[[int], str],
        write_log: Callable[[Callable[[], None]], None] = lambda write: write(),
    ) -> None:
        self.failure: str | None = None
        self._on_failure = on_failure
        self._stack_of = stack_of
        self._write_log = write_log
        self.stopped = False
        self._watched: dict[LoopProgress, None] = {}
        self._failures = count()

    def supervised(
        self, name: str, body: Callable[[], None], stalled: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Return `body` as a task runs it: watched until it ends, and any error fails the actor.

        `stalled`: called if it stalls; None: a stall fails the actor, too.
        """

        def run() -> None:
            try:
                with self.watching(name, stalled):
                    body()
            except BaseException as error:  # noqa: BLE001 - the supervisor is where every error of a loop ends
                probe("a loop dies of an error")
                self.fail(f"loop {name!r} died: {type(error).__name__}: {error}", error)

        return run

    @contextmanager
    def watching(self, name: str, stalled: Callable[[], None] | None = None) -> Iterator[None]:
        """Watch whether this thread stalls inside the context. Errors go to the caller."""
        progress = LoopProgress(name, stalled)
        self._watched[progress] = None
        try:
            with track_loop_progress(progress):
                yield
        finally:
            self._watched.pop(progress, None)

    def check_loops(self, passed_us: int) -> None:
        """Check every loop once. `passed_us`: the intended pause since the last check."""
        for progress in list(self._watched):
            if progress.overdue_us(passed_us) > STALL_US:
                probe("a loop stands still")
                self._watched.pop(progress, None)
                reason = f"loop {progress.name!r} has made no progress for {progress.silent_us // 1_000_000} s"
                stack = self._stack_of(progress.thread_id)
                self._write_log(partial(log.error, "%s; it is here:\n%s", reason, stack))
                if progress.stalled is None:
                    self.fail(reason)
                else:
                    progress.stalled()

    def stop(self) -> None:
        """End the checks: the actor stops in good order."""
        self.stopped = True

    def silent_us(self) -> dict[str, int]:
        """Return for how long each loop has been silent, to a second; the longest of loops with one name."""
        silent: dict[str, int] = {}
        for progress in list(self._watched):
            silent[progress.name] = max(progress.silent_us, silent.get(progress.name, 0))
        return silent

    def fail(self, reason: str, error: BaseException | None = None) -> None:
        """Fail the actor."""
        self._write_log(partial(log.error, "%s", reason, exc_info=error))
        if next(self._failures) == 0:
            self.failure = reason
            self._on_failure(reason)


def keep_checking(supervisor: Supervisor, pause: Callable[[float], object]) -> None:
    """Check once a second until the actor fails or stops. `pause`: sleeps for some seconds."""
    while supervisor.failure is None and not supervisor.stopped:
        pause(CHECK_S)
        supervisor.check_loops(int(CHECK_S * 1e6))
        report_loop_progress()
