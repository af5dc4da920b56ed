"""The calls of a scanner to its managers: which manager takes another call, and the wait until one does.

A manager's reply states how many items its workers can still take. A manager without capacity is asked for capacity,
not sent pointers. A scanner that waits most of the time for capacity is saturated; other consumers then steal from it.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.actors.runtime.host import Condition, Lock, Remote, note_failed_call
from fairlead.zones.engines import Clock
from fairlead.zones.probes import probe

log = logging.getLogger("fairlead.scanner")

CALLS_MAX = 2  # Per manager: one at work, one waiting, so that no manager waits for a scan.
DEAD_WAIT_US = 100_000  # After this a manager that was dead is asked again.


class Saturation:
    """Whether a scanner waits for capacity most of the time. Times in microseconds by its clock, which may step."""

    def __init__(self, now_us: int) -> None:
        self._asked_us = now_us
        self._waited_us = 0  # since then, but for the wait that lasts
        self._waits_since_us: int | None = None

    def wait(self, now_us: int) -> None:
        """Note that it begins to wait for capacity."""
        self._waits_since_us = now_us

    def end_wait(self, now_us: int) -> None:
        """Note that it no longer waits."""
        self._count(now_us)
        self._waits_since_us = None

    def since_last(self, now_us: int) -> bool:
        """Say whether it has waited for most of the time since this was asked last."""
        self._count(now_us)
        full = self._waited_us > (now_us - self._asked_us) // 2 > 0
        self._waited_us, self._asked_us = 0, now_us
        return full

    def _count(self, now_us: int) -> None:
        if self._waits_since_us is not None:
            self._waited_us += max(0, now_us - self._waits_since_us)
            self._waits_since_us = now_us


class ManagerCalls:
    """The managers of one scanner. `lock`: the scanner's, which guards all of this.

    Args:
      changed: notified with every reply.
      give_way: called each `give_way_after_us` that pass without capacity, by the thread that waits.
    """

    def __init__(
        self,
        managers: Sequence[Remote],
        clock: Clock,
        lock: Lock,
        changed: Condition,
        *,
        give_way: Callable[[], None],
        give_way_after_us: int,
    ) -> None:
        self._managers = managers
        self._clock = clock
        self._lock = lock
        self._changed = changed
        self._give_way = give_way
        self._give_way_after_us = give_way_after_us
        self._calls = [0] * len(managers)
        self._died_us = [0] * len(managers)  # when a call failed last
        self._capacity = [1] * len(managers)  # by the last reply; at the start a first call finds it out
        self._saturation = Saturation(clock.now_us())
        self._stopping = False

    def stop(self) -> None:
        """End the wait. The lock is held."""
        self._stopping = True
        self._changed.notify_all()

    def was_saturated(self) -> bool:
        """Say whether the scanner has waited for most of the time since this was asked last. The lock is held."""
        return self._saturation.since_last(self._clock.now_us())

    def await_capacity(self) -> bool:
        """Wait until a manager takes a call; return False if the scanner is to stop.

        A manager whose workers were full by its last reply is asked for capacity, whether or not others have some. A
        call to a dead manager fails at once, so it is asked again only after a while.
        """
        give_way_at_us = self._clock.now_us() + self._give_way_after_us
        while not self._stopping:
            now_us = self._clock.now_us()
            if now_us >= give_way_at_us:
                self._give_way()
                give_way_at_us = now_us + self._give_way_after_us
            with self._lock:
                idle = [number for number, calls in enumerate(self._calls) if not calls and not self._capacity[number]]
                ask = [number for number in idle if not self._died_lately(number)]
                for number in ask:
                    self._calls[number] += 1
                opened = any(self._takes_calls(number) for number in range(len(self._managers)))
                if not ask and not opened:
                    self._saturation.wait(now_us)
                    wait_us = DEAD_WAIT_US if idle else self._give_way_after_us
                    self._changed.wait(min(wait_us, give_way_at_us - now_us) / 1e6)
                    self._saturation.end_wait(self._clock.now_us())
            for number in ask:
                self._managers[number].call("await_capacity", done=partial(self.end, number))
            if opened:
                return True
        return False

    def begin(self) -> int | None:
        """Choose the manager for a call that is made now; None: none takes one any more. The lock is held."""
        ready = [number for number in range(len(self._managers)) if self._takes_calls(number)]
        if not ready:
            probe("capacity is gone before the call")
            return None
        number = min(ready, key=self._calls.__getitem__)
        self._calls[number] += 1
        return number

    def serve(self, number: int, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """Call `Manager.serve`; `done` must call `end`."""
        self._managers[number].call("serve", *args, done=done)

    def end(self, number: int, capacity: int | None, error: Exception | None) -> None:
        """Note that a call has ended, with this capacity, or with an error."""
        if error is not None:
            note_failed_call(log, f"manager {number}", error)
        with self._lock:
            self._calls[number] -= 1
            self._capacity[number] = capacity or 0
            if error is not None:
                self._died_us[number] = self._clock.now_us()
            self._changed.notify_all()

    def _takes_calls(self, number: int) -> bool:
        """Whether a manager takes another call."""
        return self._calls[number] < CALLS_MAX and self._capacity[number] > 0

    def _died_lately(self, number: int) -> bool:
        """Whether a manager was dead so shortly ago that it is not asked again yet."""
        return 0 <= self._clock.now_us() - self._died_us[number] < DEAD_WAIT_US
