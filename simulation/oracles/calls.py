"""Calls: no actor calls another again and again, as fast as answers come."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from simulation.oracles.oracle import Oracle
from simulation.world import World

WINDOW_US = 100_000
CALLS_MAX = 150  # A call takes 0.1 ms at least, there and back: who asks again at once makes several hundred.


class NobodyAsksAgainAndAgain(Oracle):
    """No life of an actor calls one method of another more than so often in a tenth of a second."""

    promise = "no actor calls another again and again"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._window = 0
        self._calls: Counter[tuple[str, str, str]] = Counter()

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        window = self.world.elapsed_us // WINDOW_US
        if window != self._window:
            self._window = window
            self._calls.clear()
        self._calls[caller, target, method] += 1
        if self._calls[caller, target, method] > CALLS_MAX:
            self.broken(f"{caller} calls {target}.{method} more than {CALLS_MAX} times in {WINDOW_US} us")
