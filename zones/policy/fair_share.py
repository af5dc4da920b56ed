"""Turns: how many items each visit of a batch may take, so that tenants share the workers by their weights.

Tenants of equal weight take equally many, and go to the end of the line: round robin. Where weights differ, each takes
its weight's part of what the batch may take. That comes to fractions: what is left of an item is the pointer's
*credit*, with which its next visit begins (deficit round robin). Where workers have room for one item of each tenant
and no more, a heavy one gets its turn's items one by one: a pointer with a whole item to its credit keeps its place in
the line.

A turn is a tenant's, not a queue zone's: of a batch that holds several zones of one tenant, and other tenants', each of
these zones takes its part of the tenant's turn, one item at least.

A weight is read with the tenant's rule, which comes with the first reads of its visit, so it holds for the whole
backlog from the commit on that says so.
"""

from collections import Counter
from functools import cached_property
from typing import Any

from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.queue import stored_item
from fairlead.zones.records import TenantPolicy

ONE_ITEM = 1_000  # Credit is counted in thousandths of an item.


class FairShare:
    """The turns of a batch of visits: `items_max` for each tenant if all have the same weight."""

    def __init__(self, layout: ShardLayout, items_max: int) -> None:
        self._layout = layout
        self._items_max = items_max
        self._batch: list[Quantum] = []
        self._zones: Counter[Tenant] = Counter()  # how many of the batch are whose
        self._limited: set[Tenant] = set()

    def join(self, tenant: Tenant, owner: Any) -> "Quantum":
        """Add a visit of a tenant's zone. `owner`: the tenant's ownership record, as it was asked for."""
        quantum = Quantum(self, tenant, owner)
        self._batch.append(quantum)
        self._zones[tenant] += 1
        return quantum

    def zones_of(self, tenant: Tenant) -> int:
        """Return among how many zones of the batch a tenant's turn is divided; a tenant alone need not divide it."""
        return self._zones[tenant] if len(self._zones) > 1 else 1

    @property
    def items_max(self) -> int:
        """How many items a tenant of weight 1 takes among its like."""
        return self._items_max

    def is_first(self, tenant: Tenant) -> bool:
        """Say whether nobody has asked for this tenant yet: of what its limits allow for one zone of a batch takes."""
        first = tenant not in self._limited
        self._limited.add(tenant)
        return first

    def policy(self, owner: Any) -> TenantPolicy:
        """Return a tenant's rule.

        Raises:
          TenantMoved: the tenant is another shard's.
        """
        return stored_item.check_owner(self._layout, owner.value)

    @cached_property
    def unit(self) -> float | None:
        """How many items a weight of 1 stands for; None: all weights are 1. Known once the first reads are there."""
        policies = {quantum.tenant: quantum.policy for quantum in self._batch}
        weights = [policy.weight for policy in policies.values() if not policy.paused]
        if all(weight == 1.0 for weight in weights):
            return None
        return self._items_max * min(1.0, len(weights) / sum(weights))


class Quantum:
    """One visit's turn. Asked for a share once what it has sent first has come.

    Attributes:
      allowed: how many items the tenant's limits allow for, see `tenant_limits`; told by whoever has looked.
      credit: what is left of the last turn; told by whoever has read the pointer.
    """

    __slots__ = ("_batch", "_granted", "_owner", "_policy", "allowed", "deficit", "tenant")

    def __init__(self, fair_share: FairShare, tenant: Tenant, owner: Any) -> None:
        self.tenant = tenant
        self._batch = fair_share
        self._owner = owner
        self._policy: TenantPolicy | None = None
        self._granted = 0
        self.allowed: int | None = None
        self.deficit = 0

    @property
    def must_ask(self) -> bool:
        """Whether the tenant has a limit, and nobody has told how much of it is left."""
        return self.allowed is None and self.policy.is_limited

    @property
    def policy(self) -> TenantPolicy:
        """The tenant's rule.

        Raises:
          TenantMoved: the tenant is another shard's.
        """
        if self._policy is None:
            self._policy = self._batch.policy(self._owner)
        return self._policy

    def is_first(self, tenant: Tenant) -> bool:
        """See `FairShare.is_first`."""
        return self._batch.is_first(tenant)

    @property
    def items_max(self) -> int:
        """How many items it takes if all weights are equal."""
        return self._batch.items_max

    def share(self) -> int:
        """Return how many items the visit may take; 0 also if the tenant is paused, or must be asked for first."""
        if self.policy.paused or self.must_ask:
            return 0
        share = self._share()
        return share if self.allowed is None else min(share, self.allowed)

    def _share(self) -> int:
        policy, unit, zones = self.policy, self._batch.unit, self._batch.zones_of(self.tenant)
        if unit is None:
            return max(1, self.items_max // zones)
        if self.items_max > 1:
            self._granted = int(unit * policy.weight * ONE_ITEM / zones) + self.deficit % ONE_ITEM
            return self._granted // ONE_ITEM
        self._granted = self.deficit if self.deficit >= ONE_ITEM else self.deficit + int(policy.weight * ONE_ITEM)
        return min(1, self._granted // ONE_ITEM)

    def deficit_after(self, *, taken: int, more: bool) -> int:
        """Return what is to the pointer's credit after the visit; nothing, unless there is `more` to take."""
        if not more or self._batch.unit is None:
            return 0
        left = max(0, self._granted - taken * ONE_ITEM)
        return left % ONE_ITEM if self.items_max > 1 else left
