"""When an item could run first: a store keeps no delay, but when the item vests, until a failure sets that anew."""

from fairlead.zones.records import ItemRecord


def note_first_due(record: ItemRecord, *, waited_us: int, now_us: int) -> None:
    """Note when the delay of an item ended, if it had one; its record keeps that from its first failure on.

    Args:
      record: with its history, and its enqueue by the caller's clock.
      waited_us: for how long it has been vested.
      now_us: the caller's time.
    """
    has_failed = record.error_count > 0 or bool(record.last_error)
    due_us = now_us - waited_us
    if not has_failed and not record.delayed_until_us and due_us > record.enqueued_us:
        record.delayed_until_us = due_us
