"""The names of all faults: what a plan draws from, and what the command line knows. `table` has their classes."""

from typing import Final

# Each fault, in the order in which plans draw, and whether it explains that a lease expires.
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
    "doubled calls": True,
    "failing handlers": False,
    "hanging handlers": True,
    "stray entries": False,
    "pauses by rule": False,
    "limits by rule": False,
    "weights by rule": False,
    "exiting handlers": False,
    "dying loops": True,
    "standing loops": True,
    "wrong clocks": True,
    "killing handlers": True,
    "lost watches": False,
    "refused watches": False,
}
FAULT_NAMES: Final = tuple(COSTS_LEASES)
HARMLESS_TO_LEASES: Final = frozenset(name for name, costs in COSTS_LEASES.items() if not costs)

WRONG_CLOCK_US: Final = 3_600_000_000  # How far "wrong clocks" sets a clock ahead or back.
