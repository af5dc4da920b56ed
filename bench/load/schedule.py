"""When a generator enqueues, and for whom: decided by the load and its seed alone, whatever the system then does.

Enqueues come as a Poisson process, as those of many tenants do that know nothing of each other. Each of several
generators has a stream of its own at its share of the rate: together they are a Poisson process of the whole rate.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from math import log
from random import Random
from typing import NamedTuple

from bench.load.load_spec import UNIFORM, Load

ALPHA = log(5, 4)  # The paper's: a fifth of the tenants enqueues four fifths of the items.

Draw = Callable[[Random], int]


class Sending(NamedTuple):
    """One enqueue. `due_us`: when, counted from the start of the load. `warm`: before the measurement begins."""

    due_us: int
    tenant: int
    warm: bool


def schedule(load: Load, *, share: int = 0, of: int = 1) -> Iterator[Sending]:
    """Yield what generator `share` of `of` sends, in order of time, the warm-up first."""
    random = Random(f"{load.seed}: generator {share} of {of}")
    draw = draw_of(load)
    rate_per_us = load.enqueues_per_s / of / 1e6
    warm_us, end_us = load.warm_s * 1e6, (load.warm_s + load.seconds) * 1e6
    due_us = random.expovariate(rate_per_us)
    while due_us < end_us:
        yield Sending(int(due_us), draw(random), due_us < warm_us)
        due_us += random.expovariate(rate_per_us)


def draw_of(load: Load) -> Draw:
    """Return what draws the number of the tenant whose turn it is, from 0 on."""
    tenants = range(load.tenants)
    if load.skew == UNIFORM:
        return lambda random: random.randrange(load.tenants)
    cumulated = list(accumulate(weights(load)))
    return lambda random: random.choices(tenants, cum_weights=cumulated)[0]


def weights(load: Load) -> list[float]:
    """Return how often each tenant of a skewed load enqueues; only the ratios count.

    The tenants of a seed have the same weights for every generator, and those of more tenants begin with them.
    """
    random = Random(f"{load.seed}: weights")
    return [random.paretovariate(ALPHA) for _ in range(load.tenants)]
