"""Calls: no actor calls another in a busy loop."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.world import World

WINDOW_US = 100_000
CALLS_MAX = 150  # A call takes at least 0.1 ms, there and back. A busy loop makes several hundred.


class NobodyCallsInABusyLoop(Oracle):
    """The calls of one host to one method of an actor have a limit per tenth of a second.

    A call with a pointer that was not served within `throttle_delay_us` does not count. Zones at a limit are processed
    once in that time, and there may be many. In batches of one pointer each zone is a call.
    """

    promise = "no actor calls another again and again"

    def __init__(self, world: World, *, throttle_delay_us: int) -> None:
        super().__init__(world)
        self._serves_max = 1 + WINDOW_US // throttle_delay_us
        self._window = 0
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._serves: Counter[tuple[str, str, bytes]] = Counter()  # by caller, shard, and pointer

    def on_call(self, caller: str, target: str, method: str, args: Sequence[Any]) -> None:
        """See `Oracle`."""
        window = self.world.elapsed_us // WINDOW_US
        if window != self._window:
            self._window = window
            self._calls.clear()
            self._serves.clear()
        if method == "serve" and self._is_patient(caller, args[0], [ref.id for ref in args[1]]):
            return
        self._calls[caller, target, method] += 1
        if self._calls[caller, target, method] > CALLS_MAX:
            self.report_violation(f"{caller} calls {target}.{method} more than {CALLS_MAX} times in {WINDOW_US} us")

    def _is_patient(self, caller: str, shard: str, ids: Sequence[bytes]) -> bool:
        """Record a call to serve pointers. Return whether one of them was not served within `throttle_delay_us`."""
        self._serves.update((caller, shard, each) for each in ids)
        return any(self._serves[caller, shard, each] <= self._serves_max for each in ids)
