"""Operations that wait together: many queue zones in one transaction for the latency of one.

A read of a transaction is sent when it is made and waited for when its value is used. An operation here is a
generator that sends its reads, yields, and goes on once the others have sent theirs:

    def count(tr, key):
        value = tr.get(key)     # sent
        yield                   # the others send theirs
        return value.value      # waited for

`run_together` moves a batch of them forward round by round; `run_one` runs a single one; `start_op` sends what one asks
first. Between two yields an operation sees the transaction as the others of its batch left it, so a batch holds at most
one operation per queue zone.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Operation = Generator[None, None, T]


def start_op(operation: Operation[T]) -> Operation[T]:
    """Send the first reads of an operation, and return it; `yield from` it waits for them.

    For an operation that is part of another: so the other's own first reads travel in the same round.
    """
    next(operation)
    return operation


def run_one(operation: Operation[T]) -> T:
    """Run one operation to its end and return its result."""
    while True:
        try:
            next(operation)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def run_together(operations: Iterable[Operation[T]]) -> list[T]:
    """Run operations on different queue zones side by side; return their results in order.

    An error of one operation ends the batch: the transaction has not been committed, and the caller decides.
    """
    running = list(operations)
    results: list[Any] = [None] * len(running)
    pending: Sequence[int] = range(len(running))
    while pending:
        going_on = []
        for number in pending:
            try:
                next(running[number])
            except StopIteration as stop:
                results[number] = stop.value
            else:
                going_on.append(number)
        pending = going_on
    return results
