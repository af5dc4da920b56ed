"""What every fault is: drawn before the run, let loose, stopped, and asked at the end what it has left behind."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.simulation.cluster import Cluster


class Fault:
    """Something that goes wrong now and then.

    Its phases (FoundationDB section 3 has them for its workloads), in this order: `set_up` draws how bad it is and
    takes its place in the world; it runs until `stop`; `strike_late` lets it happen once more when nobody enqueues any
    more; `check` says what is still wrong because of it.

    Attributes:
      strike_count: how often it struck.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.is_active = True
        self.strike_count = 0
        self.set_up()

    def set_up(self) -> None:
        """Draw how bad it is, and begin."""
        raise NotImplementedError

    def stop(self) -> None:
        """Let it happen no more."""
        self.is_active = False

    def strike_late(self) -> int | None:
        """Strike once more, if what enqueues heal must be seen without them, and return for how long, in microseconds.

        Called every `STEP_US` from when all has been enqueued until all is done; None: it cannot strike now, and is
        called again.
        """
        return 0

    def check(self) -> str | None:
        """Say what is still wrong because of it; None: nothing, as the world must come to be soon after `stop`."""
        raise NotImplementedError

    def strikes(self, frac: float) -> bool:
        """Draw whether it strikes this time; never once it has stopped."""
        if not self.is_active or self.random.random() >= frac:
            return False
        self.strike_count += 1
        return True

    def at_random_times(self, mean_us: float, happen: Callable[[], object]) -> None:
        """Let it happen at random times, `mean_us` apart, until it is stopped."""

        def once() -> None:
            if self.is_active:
                happen()
                self.at_random_times(mean_us, happen)

        delay_us = 1 + int(self.random.expovariate(1 / mean_us))
        self.cluster.world.after(delay_us, once, order=self.random.random())
