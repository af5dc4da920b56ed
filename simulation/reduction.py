"""Reductions: fewer faults and smaller numbers; the rest of a plan stays as its seed drew it.

A reduced run is another run, with other events. But each fault, producer and actor draws from a generator of its own,
so the remaining ones often do the same as before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from fairlead.simulation.faults.names import FAULT_NAMES
from fairlead.simulation.plan import Plan

TROUBLE_MS_MIN: Final = 100  # In a shorter phase a fault has no time to happen.


@dataclass(frozen=True, slots=True)
class Reduction:
    """Some fields of a plan, reduced. None: as its seed drew it.

    Attributes:
      faults: names of `FAULT_NAMES`, in their order.
      workers: the number of workers of each consumer.
      trouble_ms: the length of the fault phase, in which items are enqueued.
    """

    faults: tuple[str, ...] | None = None
    items: int | None = None
    tenants: int | None = None
    producers: int | None = None
    consumers: int | None = None
    workers: int | None = None
    trouble_ms: int | None = None

    def chosen(self) -> dict[str, Any]:
        """Return the attributes that are not None, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def sizes(self) -> dict[str, int]:
        """Return the chosen attributes but the faults: smaller numbers make smaller runs."""
        return {name: value for name, value in self.chosen().items() if name != "faults"}

    def apply_to(self, plan: Plan) -> Plan:
        """Return a plan, reduced."""
        changes = self.chosen()
        workers = changes.pop("workers", plan.consumer.workers)
        consumer = replace(plan.consumer, workers=workers, managers=min(plan.consumer.managers, workers))
        trouble_us = 1000 * changes.pop("trouble_ms", plan.trouble_us // 1000)
        return replace(plan, consumer=consumer, trouble_us=trouble_us, **changes)


NO_REDUCTION: Final = Reduction()
SIZES: Final = tuple(name for name in asdict(NO_REDUCTION) if name != "faults")


def whole_plan(plan: Plan) -> Reduction:
    """Return the reduction that leaves a plan as it is, with each attribute chosen."""
    return Reduction(
        faults=plan.faults,
        items=plan.items,
        tenants=plan.tenants,
        producers=plan.producers,
        consumers=plan.consumers,
        workers=plan.consumer.workers,
        trouble_ms=plan.trouble_us // 1000,
    )


def reduction_from(plan: Plan, reduction: Reduction) -> Reduction:
    """Return the shortest reduction with the same result: attributes that do not reduce the plan are None."""
    whole = whole_plan(plan).chosen()
    return Reduction(**{name: value for name, value in reduction.chosen().items() if value != whole[name]})


def in_table_order(faults: Collection[str]) -> tuple[str, ...]:
    """Return names of faults in the order in which every run sets them up."""
    return tuple(name for name in FAULT_NAMES if name in faults)
