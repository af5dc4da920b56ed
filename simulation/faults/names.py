"""The names of all faults, as plans draw them and the command line takes them. `table` has their classes."""

from typing import Final

# Each fault, in the order of the draws of plans, and whether it explains that a lease expires.
COSTS_LEASES: Final[dict[str, bool]] = {
    "conflicts": True,
    "unknown results": False,
    "late commits": True,
    "old transactions": True,
    "recoveries": True,
    "kills": True,
    "node kills": True,
    "coordinator loss": False,
    "pauses": True,
    "node pauses": True,
    "clock jumps": True,
    "restarts": False,
    "lost calls": True,
    "late calls": True,
    "duplicated calls": True,
    "failing handlers": False,
    "hanging handlers": True,
    "stray entries": False,
    "pauses by policy": False,
    "limits by policy": False,
    "weights by policy": False,
    "exiting handlers": False,
    "dying loops": True,
    "stalled loops": True,
    "wrong clocks": True,
    "killing handlers": True,
    "lost watches": False,
    "refused watches": False,
}
FAULT_NAMES: Final = tuple(COSTS_LEASES)
HARMLESS_TO_LEASES: Final = frozenset(name for name, costs in COSTS_LEASES.items() if not costs)

WRONG_CLOCK_US: Final = 3_600_000_000  # "wrong clocks" sets a clock ahead or back by this.
