"""The log of failed attempts: the first failure of each class of error at once, and then a line every ten seconds.

A kind may fail a thousand times a second, and then a line for each failure would hide the line that helps. A failure
that is retried is a warning, a failure for good is an error; the two are counted separately.
"""

import logging
from dataclasses import dataclass
from types import TracebackType

from fairlead.actors.execution.failed_attempt import handlers_frames
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.safe_text import escaped
from fairlead.actors.telemetry.errors import USERS_ERROR
from fairlead.zones.engines import StoreUnavailable

log = logging.getLogger("fairlead.worker")

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

QUIET_US = 10_000_000  # Between two lines about similar failures.
SIMILAR_MAX = 1_000  # Classes of failures that are remembered. A program may create classes of errors without end.


@dataclass(slots=True)
class _Unlogged:
    """Similar failures. `logged_us`: when one was logged last; `attempts`: how many there were since then."""

    logged_us: int
    attempts: int = 0


class FailureLog:
    """The failures of one worker's handlers, on all shards. Any thread may call it."""

    def __init__(self, host: Host) -> None:
        self._clock = host.clock
        self._lock = host.lock()
        self._similar: dict[tuple[str, str, bool], _Unlogged] = {}

    def note(self, decision: RetryDecision) -> None:
        """Log a failed attempt, unless one of the same kind and class of error was logged a moment ago.

        The line has the traceback if it is the first of its class, or if the failure is for good.
        """
        ref, for_good = decision.held.ref, decision.delay_us is None
        similar = ref.kind, decision.error.partition(":")[0], for_good
        with self._lock:
            now_us = self._clock.now_us()
            unlogged = self._similar.get(similar)
            if unlogged is not None and 0 <= now_us - unlogged.logged_us < QUIET_US:
                unlogged.attempts += 1
                return
            if len(self._similar) >= SIMILAR_MAX:
                self._similar.clear()
            self._similar[similar] = _Unlogged(logged_us=now_us)
        name = decision.held.record.given_id
        level = logging.ERROR if for_good else logging.WARNING
        if not log.isEnabledFor(level):
            return
        words = (
            *map(escaped, (ref.kind, decision.error, ref.item_id.hex())), "" if name is None else f" ({name!r})",
            escaped(str(ref.tenant)), _next_step(decision),
            "" if unlogged is None or not unlogged.attempts else
            f"; {unlogged.attempts + 1} attempts failed so since the last such line",
        )  # fmt: skip
        _write(level, words, decision, with_traceback=unlogged is None or for_good)


def _write(level: int, words: tuple[str, ...], decision: RetryDecision, *, with_traceback: bool) -> None:
    """Write a line, with the traceback as it was rendered before: a formatter would call the error's code again."""
    path, line, function, _ = log.findCaller()
    message = "handler of %s failed: %s; item %s%s of %s %s%s"
    frames = _frames_of(decision) if with_traceback else None
    record = log.makeRecord(log.name, level, path, line, message, words, frames, function, {USERS_ERROR: True})
    if with_traceback and not _is_store_away(decision):
        record.exc_text = decision.traceback.rstrip("\n")
    log.handle(record)


def _frames_of(decision: RetryDecision) -> ExceptionInfo | None:
    """Return an error in the form of `exc_info`, from the handler's own frame on; None: the line has none."""
    error = decision.raised
    return None if error is None or _is_store_away(decision) else (type(error), error, handlers_frames(error))


def _is_store_away(decision: RetryDecision) -> bool:
    """Return whether a store refused: then the traceback does not help, and each kind would log one."""
    return isinstance(decision.raised, StoreUnavailable)


def _next_step(decision: RetryDecision) -> str:
    if decision.delay_us is not None:
        return f"is tried again in {decision.delay_us / 1e6:.1f} s"
    return "is given up, and dropped" if decision.held.handler.drop else "is given up: see fairlead dead-letters list"
