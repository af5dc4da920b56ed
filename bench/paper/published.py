"""The numbers in the paper's text (Lev-Ari et al., QuiCK, SIGMOD '21, section 8).

No number is read off its plots.
"""

from typing import NamedTuple


class Fairness(NamedTuple):
    """Figure 6: skewed load, one consumer, milliseconds."""

    pointer_p50_ms: float = 105
    pointer_p99_9_ms: float = 305
    item_p50_ms: float = 193
    item_tail_ms: float = 8_200


FIGURE_6 = Fairness()

# Figure 7: failed attempts to lease a pointer, of all, by `selection_frac`; four consumers, all at random.
FAILED_PERCENT = {0.001: 0.31, 0.2: 44.0, 0.5: 64.0}


def at_commit_percent(selection_frac: float) -> str:
    """Return the part of the failed attempts that failed at their commit; the paper states it for ranges."""
    return "50 to 60" if selection_frac <= 0.2 else "about 10"
