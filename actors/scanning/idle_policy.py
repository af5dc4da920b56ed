"""How long an idle scanner sleeps until something is due, and when it scans again. Plain decisions."""

from collections.abc import Iterable, Mapping

SLEEP_US_MIN = 500
RESCAN_US = 1_000_000  # An idle shard is scanned this often even if nothing seems to have changed.
# The same for a shard whose parts are watched. It reads the first entry of each of sixteen parts: two reads a second.
WATCHED_RESCAN_US = 8_000_000
HELD_RESCAN_US = 100_000  # While managers hold what has vested; their replies wake the scanner.
# If the engine tells whether anything changed, a scanner polls five times as often for a while after it has found
# something: the next item often comes soon, and such a poll costs next to nothing.
EAGER_POLLS = 25
EAGER_DIVISOR = 5
# The longest interval of an idle scanner's polls. If the engine tells of changes, it applies after a hundred polls: to
# wake a sleeping processor costs ten times what the poll does, and an idle scanner may use 1 % of a core.
BACKOFF_FACTOR_MAX = 4
BACKOFF_AFTER_POLLS = 100
# If it does not, a poll reads every part, and the interval grows from the first poll on.
SCAN_BACKOFF_FACTOR_MAX = 5


def sleep_us(
    poll_us: int, idle_polls: int, *, due_in_us: int, detects_changes: bool, watched_sleep_us: int | None
) -> int:
    """Return how long to sleep after so many polls that found nothing.

    Args:
      due_in_us: when the earliest pointer vests that the scanner knows of; not above zero if that is past.
      detects_changes: whether every shard's engine tells that nothing has changed, so that a poll reads nothing.
      watched_sleep_us: how long it may sleep if the engines of all shards wake it; else None.
    """
    if watched_sleep_us is not None:
        # A pointer is due by now if it vested while the last scan read another shard.
        return min(max(due_in_us, SLEEP_US_MIN), watched_sleep_us)
    if not detects_changes:
        poll_us *= min(1 + idle_polls, SCAN_BACKOFF_FACTOR_MAX)
    elif idle_polls < EAGER_POLLS:
        poll_us //= EAGER_DIVISOR
    elif idle_polls >= BACKOFF_AFTER_POLLS:
        poll_us *= BACKOFF_FACTOR_MAX
    return min(max(due_in_us, SLEEP_US_MIN), poll_us) if due_in_us > 0 else poll_us


def is_past(due_us: int | None, now_us: int) -> bool:
    """Say whether a time has come; None never does."""
    return due_us is not None and due_us <= now_us


def rescan_us(due_us: int | None, again_us: int, now_us: int, *, held_us: int) -> int:
    """Return when to scan again, although nothing was committed, after a scan that found nothing.

    Args:
      due_us: when something vests, or is overdue; None: nothing does.
      again_us: the latest time.
      held_us: the delay if it has vested by now: then a manager holds it.
    """
    if is_past(due_us, now_us):
        return now_us + held_us
    return again_us if due_us is None else min(due_us, again_us)


def rescan_times_us(
    due: Mapping[int, int | None], deferred_until_us: Iterable[int], now_us: int, *, poll_us: int, is_watched: bool,
    steals: bool,
) -> dict[int, int]:  # fmt: skip
    """Return, by part, when to scan again after a scan that found nothing; `due`: see `SelectionStrategy.due_us`.

    Args:
      deferred_until_us: until when pointers are left to other consumers.
      is_watched: whether the engine tells of changes by watches.
      steals: whether the scan looks for pointers of full consumers, whose requeues no watch tells of.
    """
    again_us = min([*deferred_until_us, now_us + (WATCHED_RESCAN_US if is_watched else RESCAN_US)])
    if is_watched and steals:
        again_us = min(again_us, now_us + poll_us)
    held_us = HELD_RESCAN_US if is_watched else poll_us
    return {part: rescan_us(each, again_us, now_us, held_us=held_us) for part, each in due.items()}
