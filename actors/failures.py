"""Logging of handlers that fail: the first failure of each class of error at once, and then a line now and then.

A kind that fails may fail a thousand times a second, and a line for each would bury the one that helps. Attempts that
are tried again are warnings, those that are given up are errors, and the two are counted apart.
"""

import logging
from dataclasses import dataclass
from types import TracebackType

from actors.settlement import Verdict, handlers_frames
from actors.spelled import spelled_out
from actors.telemetry.errors import USERS_ERROR
from zones.engines import Clock, StoreUnavailable

log = logging.getLogger("fairlead.worker")

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

QUIET_US = 10_000_000  # Between two lines about failures that are alike.
ALIKE_MAX = 1_000  # Classes of failures that are remembered; a class of errors may be made by a program.


@dataclass(slots=True)
class _Count:
    """What has not been logged yet of failures that are alike. `told_us`: when something was logged last."""

    told_us: int
    attempts: int = 0


class Failures:
    """The failures of one worker's handlers. Called with the worker's lock held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alike: dict[tuple[str, str, bool], _Count] = {}

    def note(self, verdict: Verdict) -> None:
        """Log a failed attempt, unless one of the same kind and class of error was logged a moment ago.

        The first of each class comes with its traceback, and so does what is given up: as an error, which collectors
        of errors take.
        """
        ref, gone = verdict.held.ref, verdict.delay_us is None
        now_us = self._clock.now_us()
        alike = ref.kind, verdict.error.partition(":")[0], gone
        count = self._alike.get(alike)
        if count is not None and 0 <= now_us - count.told_us < QUIET_US:
            count.attempts += 1
            return
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        self._alike[alike] = _Count(told_us=now_us)
        name = verdict.held.record.given_id
        log.log(
            logging.ERROR if gone else logging.WARNING,
            "handler of %s failed: %s; item %s%s of %s/%s %s%s",
            *map(spelled_out, (ref.kind, verdict.error, ref.item_id.hex())), "" if name is None else f" ({name!r})",
            spelled_out(ref.tenant.app) or "-", spelled_out(ref.tenant.user), _becomes(verdict),
            "" if count is None or not count.attempts else
            f"; {count.attempts + 1} attempts failed so since the last such line",
            exc_info=_frames_of(verdict, first=count is None),
            extra={USERS_ERROR: True},
        )  # fmt: skip


def _frames_of(verdict: Verdict, *, first: bool) -> ExceptionInfo | None:
    """Return an error as logging takes it, with the traceback from the handler's own frame on; None: it goes without.

    The traceback of a store that refuses tells nothing of the handler, and would come for each kind at once.
    """
    error = verdict.raised
    if error is None or isinstance(error, StoreUnavailable) or not (first or verdict.delay_us is None):
        return None
    return type(error), error, handlers_frames(error)


def _becomes(verdict: Verdict) -> str:
    if verdict.delay_us is not None:
        return f"is tried again in {verdict.delay_us / 1e6:.1f} s"
    return "is given up, and dropped" if verdict.held.handler.drop else "is given up: see fairlead buried"
