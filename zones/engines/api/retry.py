"""The one retry loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from fairlead.zones.engines.api.committing import CommitTracker, track_commit
from fairlead.zones.engines.api.database import Database, Transaction
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, MAYBE_COMMITTED, TransactionTooLong, error_code
from fairlead.zones.engines.api.progress import ATTEMPT_SILENCE_US, report_loop_progress

_T = TypeVar("_T")

# A body may be delayed once. A body that always takes longer than five seconds would otherwise be retried for minutes.
# On FoundationDB a transaction's timeout of ten seconds ends it in its second attempt.
TOO_LONG_MAX: Final = 2
RETRIES_MAX: Final = 100  # With delays that double up to a second: about a minute and a half.


def transact(
    db: Database,
    body: Callable[[Transaction], _T],
    *,
    applied: Callable[[Transaction], bool] | None = None,
    retries_max: int = RETRIES_MAX,
) -> _T:
    """Run `body(transaction)` in one transaction, commit it, and return the body's result.

    The body may run several times: after a conflict, when the transaction has become too old, and after a commit of
    unknown result (1021). So a second run must be harmless, **also if an earlier run was committed**: choose ids
    outside the body, raise a count only if the item was not there, and call other systems after this function has
    returned.

    Args:
      body: reads and writes; must not commit. Its result is returned once its transaction is durable.
      applied: `applied(transaction) -> bool` finds out, in a new transaction that only reads, whether the earlier
        commit happened. It is called after a commit with an unknown result (1021), and after one that timed out
        (1031), was cancelled (1025), or met a new version of its cluster (1039). If it returns True, the result of the
        committed attempt is returned, and the body does not run again.
      retries_max: the number of retries, at least 0.

    Raises:
      One of `db.errors`: code 1031, 1025 or 1039 of a commit if `applied` is not given or returned False, because this
        commit may still happen; a retryable code if `retries_max` is used up; 1007 (1031 on FoundationDB) if the body
        has taken longer than a transaction twice; any other code at once.
      What `body` raises: the transaction is cancelled.
    """
    assert retries_max >= 0
    transaction = db.create_transaction()
    retries, too_long, finished = 0, 0, False
    try:
        while True:
            committing = False
            try:
                _report_attempt()
                result = body(transaction)
                committing = True
                _track_commit()
                transaction.commit().wait()
                finished = True
                return result
            except db.errors as error:
                code = error_code(error)
                if committing and code in MAYBE_COMMITTED:
                    if applied is not None and _was_applied(db, applied, retries_max):
                        return result
                    if code != COMMIT_UNKNOWN_RESULT:
                        raise
                too_long += isinstance(error, TransactionTooLong)
                if retries == retries_max or too_long == TOO_LONG_MAX:
                    raise
                retries += 1
                transaction.on_error(error).wait()
    finally:
        report_loop_progress()
        track_commit(False)
        # An exception keeps this frame alive, and with it the transaction and the pages that it pins.
        if not finished:
            transaction.cancel()


def _was_applied(db: Database, applied: Callable[[Transaction], bool], retries_max: int) -> bool:
    """Return whether a commit has happened. Until then the tracker shows this commit as in progress."""
    with CommitTracker():  # Hides the transaction of `applied` from the outer tracker.
        return transact(db, applied, retries_max=retries_max)


def _report_attempt() -> None:
    report_loop_progress(ATTEMPT_SILENCE_US)
    track_commit(False)


def _track_commit() -> None:
    report_loop_progress(None)  # An unreachable store answers late; a loop that waits for it has not stalled.
    track_commit(True)
