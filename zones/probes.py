"""Probes: named points in the code where something rare is met, which the simulator counts.

A campaign that never reaches one of them has proved nothing about it. Outside the simulator a probe does nothing, and
it stands in a branch that is rarely taken, so it costs nothing either. A name says what has been met, once in the code.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_counter: Counter[str] | None = None


def probe(name: str) -> None:
    """Count that this point was reached, if anybody counts."""
    if _counter is not None:
        _counter[name] += 1


@contextmanager
def probes_into(counter: Counter[str]) -> Iterator[None]:
    """Count in `counter` what this process reaches meanwhile."""
    global _counter  # noqa: PLW0603 - a point deep in the product must not need an argument for who may be counting
    before, _counter = _counter, counter
    try:
        yield
    finally:
        _counter = before
