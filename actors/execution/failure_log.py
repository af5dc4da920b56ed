"""Logging of handlers that fail: the first failure of each class of error at once, and then a line now and then.

A kind that fails may fail a thousand times a second, and a line for each would bury the one that helps. Attempts that
are tried again are warnings, those that are given up are errors, and the two are counted apart.
"""

import logging
from dataclasses import dataclass
from types import TracebackType

from fairlead.actors.execution.acknowledgement import RetryDecision
from fairlead.actors.execution.failed_attempt import handlers_frames
from fairlead.actors.runtime.safe_text import escaped
from fairlead.actors.telemetry.errors import USERS_ERROR
from fairlead.zones.engines import Clock, StoreUnavailable

log = logging.getLogger("fairlead.worker")

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

QUIET_US = 10_000_000  # Between two lines about failures that are alike.
ALIKE_MAX = 1_000  # Classes of failures that are remembered; a class of errors may be made by a program.


@dataclass(slots=True)
class _Count:
    """What has not been logged yet of failures that are alike. `logged_us`: when something was logged last."""

    logged_us: int
    attempts: int = 0


class FailureLog:
    """The failures of one worker's handlers. Called with the worker's lock held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alike: dict[tuple[str, str, bool], _Count] = {}

    def note(self, decision: RetryDecision) -> None:
        """Log a failed attempt, unless one of the same kind and class of error was logged a moment ago.

        The first of each class comes with its traceback, and so does what is given up: as an error, which collectors
        of errors take.
        """
        ref, gone = decision.held.ref, decision.delay_us is None
        now_us = self._clock.now_us()
        alike = ref.kind, decision.error.partition(":")[0], gone
        count = self._alike.get(alike)
        if count is not None and 0 <= now_us - count.logged_us < QUIET_US:
            count.attempts += 1
            return
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        self._alike[alike] = _Count(logged_us=now_us)
        name = decision.held.record.given_id
        level = logging.ERROR if gone else logging.WARNING
        if not log.isEnabledFor(level):
            return
        words = (
            *map(escaped, (ref.kind, decision.error, ref.item_id.hex())), "" if name is None else f" ({name!r})",
            escaped(ref.tenant.app) or "-", escaped(ref.tenant.user), _becomes(decision),
            "" if count is None or not count.attempts else
            f"; {count.attempts + 1} attempts failed so since the last such line",
        )  # fmt: skip
        _write(level, words, decision, with_traceback=count is None or gone)


def _write(level: int, words: tuple[str, ...], decision: RetryDecision, *, with_traceback: bool) -> None:
    """Write a line, and the traceback as it was worded: else each formatter would ask the error again."""
    path, line, function, _ = log.findCaller()
    message = "handler of %s failed: %s; item %s%s of %s/%s %s%s"
    frames = _frames_of(decision) if with_traceback else None
    record = log.makeRecord(log.name, level, path, line, message, words, frames, function, {USERS_ERROR: True})
    if with_traceback and not _is_store_away(decision):
        record.exc_text = decision.traceback.rstrip("\n")
    log.handle(record)


def _frames_of(decision: RetryDecision) -> ExceptionInfo | None:
    """Return an error as collectors of errors take it, from the handler's own frame on; None: it goes without."""
    error = decision.raised
    return None if error is None or _is_store_away(decision) else (type(error), error, handlers_frames(error))


def _is_store_away(decision: RetryDecision) -> bool:
    """Say whether a store refused: its traceback tells nothing of the handler, and would come for each kind at once."""
    return isinstance(decision.raised, StoreUnavailable)


def _becomes(decision: RetryDecision) -> str:
    if decision.delay_us is not None:
        return f"is tried again in {decision.delay_us / 1e6:.1f} s"
    return "is given up, and dropped" if decision.held.handler.drop else "is given up: see fairlead buried"
