"""Whose turn it is to enqueue: all tenants alike, or a few far more often than most (QuiCK section 8)."""

from collections.abc import Callable
from itertools import accumulate
from math import log
from random import Random

from bench.load.load_spec import UNIFORM, Load

ALPHA = log(5, 4)  # The paper's: of a Pareto distribution with this, a fifth has four fifths.

Draw = Callable[[Random], int]


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
