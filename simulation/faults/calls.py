"""Faults of calls between actors: they are lost, late, or carried out twice."""

from __future__ import annotations

from typing import ClassVar

from fairlead.simulation.faults.cleanup import leaked_in_flight
from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.network import Delivery


class CallFault(Fault):
    """A fault of calls, each with a drawn probability."""

    fracs: ClassVar = (0.01, 0.1)

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice(self.fracs)
        self.cluster.network.perturb.append(self._perturb)

    def check(self) -> str | None:
        """Check that no actor waits for a lost answer: none holds a pointer or an item."""
        return leaked_in_flight(self.cluster)

    def perturb(self, delivery: Delivery) -> Delivery:
        """Return the changed delivery of a call."""
        raise NotImplementedError

    def _perturb(self, delivery: Delivery) -> Delivery:
        return self.perturb(delivery) if self.strikes(self._frac) else delivery


class LostCalls(CallFault):
    """Calls between actors are lost on their way there or back."""

    def perturb(self, delivery: Delivery) -> Delivery:
        """See `CallFault`."""
        back_us = int(self.random.uniform(1e3, 3e6))
        if self.random.random() < 0.5:
            return delivery._replace(back_us=back_us, request_lost=True)
        return delivery._replace(back_us=back_us, reply_lost=True)


class LateCalls(CallFault):
    """Calls between actors, or their answers, come seconds late, and so out of order."""

    fracs: ClassVar = (0.02, 0.2)

    def perturb(self, delivery: Delivery) -> Delivery:
        """See `CallFault`."""
        late_us = int(self.random.uniform(1e3, 2e6))
        if self.random.random() < 0.5:
            return delivery._replace(there_us=late_us)
        return delivery._replace(back_us=late_us)


class DuplicatedCalls(CallFault):
    """Calls between actors are carried out twice, the second time perhaps a second later."""

    def perturb(self, delivery: Delivery) -> Delivery:
        """See `CallFault`."""
        return delivery._replace(duplicate_us=int(self.random.expovariate(1 / 1e5)))
