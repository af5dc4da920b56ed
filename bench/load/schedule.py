"""The times and tenants of a generator's enqueues. They depend on the load and its seed, not on the system under test.

Enqueues come as a Poisson process, like those of many independent tenants. Each generator has its own process with its
share of the rate. Together they are a Poisson process of the whole rate.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from math import log
from random import Random
from typing import NamedTuple

from bench.load.load_spec import UNIFORM, Load

ALPHA = log(5, 4)  # The paper's value: a fifth of the tenants enqueues four fifths of the items.

Draw = Callable[[Random], int]


class Sending(NamedTuple):
    """One enqueue. `due_us`: its time since the start of the load. `warm`: whether it is before the measurement."""

    due_us: int
    tenant: int
    warm: bool


def schedule(load: Load, *, share: int = 0, of: int = 1) -> Iterator[Sending]:
    """Yield the enqueues of generator `share` of `of` in order of time, the warm-up first."""
    random = Random(f"{load.seed}: generator {share} of {of}")
    draw = draw_of(load)
    rate_per_us = load.enqueues_per_s / of / 1e6
    warm_us, end_us = load.warm_s * 1e6, (load.warm_s + load.seconds) * 1e6
    due_us = random.expovariate(rate_per_us)
    while due_us < end_us:
        yield Sending(int(due_us), draw(random), due_us < warm_us)
        due_us += random.expovariate(rate_per_us)


def draw_of(load: Load) -> Draw:
    """Return a function that draws the number of a tenant, from 0 on."""
    tenants = range(load.tenants)
    if load.skew == UNIFORM:
        return lambda random: random.randrange(load.tenants)
    cumulated = list(accumulate(weights(load)))
    return lambda random: random.choices(tenants, cum_weights=cumulated)[0]


def weights(load: Load) -> list[float]:
    """Return the relative rate of each tenant of a skewed load.

    For one seed, every generator has the same weights. A load with more tenants has the same first weights.
    """
    random = Random(f"{load.seed}: weights")
    return [random.paretovariate(ALPHA) for _ in range(load.tenants)]
