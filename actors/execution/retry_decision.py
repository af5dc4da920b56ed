"""When a failed item runs again, if at all (QuiCK section 6, Algorithm 3, line 4). Runs no code of the user's."""

from dataclasses import dataclass
from random import Random

from fairlead.actors.execution import retry
from fairlead.actors.execution.failed_attempt import Cause, Failure
from fairlead.actors.execution.in_flight import HeldItem

STORE_PAUSE_US = 1_000_000  # Delay of an item whose attempt the store refused.


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What becomes of a failed item: `delay_us` until its next attempt, or None: it failed for good.

    `counted`: whether the failure counts against the item. The store's failures do not, nor another coroutine's.
    `may_undo`: if it failed for good, what it has done is undone first.
    `raised`: the error itself, if a log may render it again.
    """

    held: HeldItem
    delay_us: int | None
    error: str
    traceback: str
    counted: bool = True
    raised: BaseException | None = None
    may_undo: bool = True


def decide_retry(held: HeldItem, failure: Failure, *, now_us: int, random: Random) -> RetryDecision:
    """Return what becomes of an item whose attempt failed."""
    counted = failure.cause not in (Cause.STORE, Cause.EVENT_LOOP)
    if failure.cause is Cause.EVENT_LOOP:
        delay_us: int | None = 0
    elif failure.cause is Cause.STORE:
        delay_us = STORE_PAUSE_US
    elif failure.cause in (Cause.PERMANENT, Cause.UNFIT):
        delay_us = None
    else:
        record = held.record
        delay_us = retry.delay_us(
            held.handler.retry,
            error_count=record.error_count + 1,
            age_us=now_us - record.runnable_us,
            random=random,
        )
    raised = failure.error if failure.safe_to_log else None
    return RetryDecision(
        held,
        delay_us,
        failure.text,
        failure.lines,
        counted=counted,
        raised=raised,
        may_undo=failure.cause is not Cause.UNFIT,
    )
