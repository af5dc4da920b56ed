"""Pipelining: operations that wait together, so that many queue zones in one transaction cost the latency of one.

A read of a transaction is sent when it is made, and waited for when its value is used. An operation is a generator. It
sends its reads, yields, and continues once the other operations have sent theirs:

    def count(tr, key):
        value = tr.get(key)     # sent
        yield                   # the other operations send their reads
        return value.value      # waited for

`run_together` advances a batch of operations round by round. `run_one` runs a single one. `start_op` sends the first
reads of an operation. Between two yields an operation sees the transaction as the other operations of its batch left
it. So a batch holds at most one operation per queue zone.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Operation = Generator[None, None, T]


def start_op(operation: Operation[T]) -> Operation[T]:
    """Send the first reads of an operation, and return it; `yield from` it waits for them.

    Use it for an operation inside another one, whose own first reads then travel in the same round.
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
    """Run operations on different queue zones together; return their results in order.

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
