"""Probes: named points in the code where something rare happens, which the simulator counts.

A campaign that never reaches a probe has tested nothing there. Outside the simulator a probe does nothing, and it
stands in a branch that is rarely taken, so it costs nothing. Each name describes the event and occurs once in the code.
A branch that no simulated world can take, or hardly one in thousands, has no probe; a test takes it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_counter: Counter[str] | None = None


def probe(name: str) -> None:
    """Count that this point was reached, if a counter is set."""
    if _counter is not None:
        _counter[name] += 1


@contextmanager
def probes_into(counter: Counter[str]) -> Iterator[None]:
    """Count in `counter` the probes that this process reaches inside the `with` block."""
    global _counter  # noqa: PLW0603 - a probe deep in the product must not need an argument for the counter
    before, _counter = _counter, counter
    try:
        yield
    finally:
        _counter = before
