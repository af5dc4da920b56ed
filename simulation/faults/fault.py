"""The base of all faults: each is drawn before the run, strikes for a while, and checks the recovery at the end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.simulation.cluster import Cluster


class Fault:
    """A disturbance that strikes at random times.

    A fault has the phases of FoundationDB's workloads (section 3). `set_up` draws its severity, and registers it in the
    world. The fault strikes until `stop`. `strike_late` lets it strike once more after the last enqueue. `check`
    reports a missing recovery.

    Attributes:
      strike_count: the number of strikes.
      noticed_by_us: when the cluster has noticed the latest strike, if it notices it only after a while; 0: at once.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.is_active = True
        self.strike_count = 0
        self.noticed_by_us = 0
        self.set_up()

    def set_up(self) -> None:
        """Draw the severity, and begin."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop striking."""
        self.is_active = False

    def strike_late(self) -> int | None:
        """Strike once more, if enqueues would hide the damage. Return the duration in microseconds.

        This is called every `STEP_US` from the last enqueue until all work is done. None: it cannot strike now, and is
        called again.
        """
        return 0

    def check(self) -> str | None:
        """Return a message on a missing recovery, or None. This must be None soon after `stop`."""
        raise NotImplementedError

    def strikes(self, frac: float) -> bool:
        """Draw whether the fault strikes this time; never after `stop`."""
        if not self.is_active or self.random.random() >= frac:
            return False
        self.strike_count += 1
        return True

    def at_random_times(self, mean_us: float, happen: Callable[[], object]) -> None:
        """Call `happen` at random times, `mean_us` apart, until `stop`."""

        def once() -> None:
            if self.is_active:
                happen()
                self.at_random_times(mean_us, happen)

        delay_us = 1 + int(self.random.expovariate(1 / mean_us))
        self.cluster.world.after(delay_us, once, order=self.random.random())
