"""The class of each fault of `names`."""

from typing import Final

from fairlead.simulation.faults.actors import CoordinatorLoss, Kills, NodeKills, NodePauses, Pauses, Restarts
from fairlead.simulation.faults.calls import DuplicatedCalls, LateCalls, LostCalls
from fairlead.simulation.faults.clocks import ClockJumps, WrongClocks
from fairlead.simulation.faults.commits import Conflicts, LateCommits, OldTransactions, Recoveries, UnknownResults
from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.faults.handlers import ExitingHandlers, FailingHandlers, HangingHandlers, KillingHandlers
from fairlead.simulation.faults.loops import DyingLoops, StalledLoops
from fairlead.simulation.faults.names import FAULT_NAMES
from fairlead.simulation.faults.policies import LimitsByPolicy, PausesByPolicy, WeightsByPolicy
from fairlead.simulation.faults.stray_entries import StrayEntries
from fairlead.simulation.faults.watches import LostWatches, RefusedWatches

FAULTS: Final[dict[str, type[Fault]]] = {
    "conflicts": Conflicts,
    "unknown results": UnknownResults,
    "late commits": LateCommits,
    "old transactions": OldTransactions,
    "recoveries": Recoveries,
    "kills": Kills,
    "node kills": NodeKills,
    "coordinator loss": CoordinatorLoss,
    "pauses": Pauses,
    "node pauses": NodePauses,
    "clock jumps": ClockJumps,
    "restarts": Restarts,
    "lost calls": LostCalls,
    "late calls": LateCalls,
    "duplicated calls": DuplicatedCalls,
    "failing handlers": FailingHandlers,
    "hanging handlers": HangingHandlers,
    "stray entries": StrayEntries,
    "pauses by policy": PausesByPolicy,
    "limits by policy": LimitsByPolicy,
    "weights by policy": WeightsByPolicy,
    "exiting handlers": ExitingHandlers,
    "dying loops": DyingLoops,
    "stalled loops": StalledLoops,
    "wrong clocks": WrongClocks,
    "killing handlers": KillingHandlers,
    "lost watches": LostWatches,
    "refused watches": RefusedWatches,
}

assert tuple(FAULTS) == FAULT_NAMES
