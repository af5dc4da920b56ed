"""Fair share: how many items each tenant may give to one call, so that tenants share the workers by their weights.

This is weighted deficit round robin. Tenants of equal weight give equally many items, and their pointers go to the end
of the queue. Where weights differ, a tenant's *quantum* is its weight's part of what the batch may take. Quanta are
fractions: the remainder of an item is the pointer's *deficit*, with which its next call begins. Where the workers have
capacity for one item per tenant only, a heavy tenant gets the items of its quantum one by one: a pointer with a whole
item of deficit keeps its place in the queue.

A quantum belongs to a tenant, not to a queue zone. If a batch holds several zones of one tenant, and zones of other
tenants, each of these zones gets a part of the tenant's quantum, at least one item.

A weight is read with the tenant's policy, in the first reads of the call. So it holds for the whole backlog from the
commit that writes it.
"""

from collections import Counter
from functools import cached_property
from typing import Any

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.records import TenantPolicy

ONE_ITEM = 1_000  # Deficits are counted in thousandths of an item.


class FairShare:
    """The quanta of a batch of zones, in one transaction: `items_max` for each tenant if all have the same weight."""

    def __init__(self, tr: Transaction, items_max: int) -> None:
        self.tr = tr
        self._items_max = items_max
        self._batch: list[Quantum] = []
        self._zones: Counter[Tenant] = Counter()  # how many zones of the batch each tenant has
        self._limited: set[Tenant] = set()

    def join(self, location: ZoneLocation, owner: Any) -> "Quantum":
        """Add a zone. `owner`: the future of its tenant's ownership record."""
        quantum = Quantum(self, location, owner)
        self._batch.append(quantum)
        self._zones[location.tenant] += 1
        return quantum

    def zones_of(self, tenant: Tenant) -> int:
        """Return among how many zones of the batch a tenant's quantum is divided; 1 if no other tenant competes."""
        return self._zones[tenant] if len(self._zones) > 1 else 1

    @property
    def items_max(self) -> int:
        """How many items a tenant gives if all tenants have the same weight."""
        return self._items_max

    def is_first(self, tenant: Tenant) -> bool:
        """Say whether this is the first call for the tenant: one zone of a batch gets what the limits allow."""
        first = tenant not in self._limited
        self._limited.add(tenant)
        return first

    @cached_property
    def unit(self) -> float | None:
        """How many items a weight of 1 stands for; None: all weights are 1. Known once the first reads have arrived."""
        policies = {quantum.tenant: quantum.policy for quantum in self._batch}
        weights = [policy.weight for policy in policies.values() if not policy.paused]
        if all(weight == 1.0 for weight in weights):
            return None
        return self._items_max * min(1.0, len(weights) / sum(weights))


class Quantum:
    """One zone's quantum in a batch. Call `share` once the first reads of the batch have arrived.

    Attributes:
      allowed: how many items the tenant's limits allow, see `tenant_limits`; the caller sets it.
      deficit: what remains of the last quantum; the caller sets it from the pointer.
    """

    __slots__ = ("_batch", "_granted", "_location", "_owner", "_policy", "allowed", "deficit", "tenant")

    def __init__(self, fair_share: FairShare, location: ZoneLocation, owner: Any) -> None:
        self.tenant = location.tenant
        self._location = location
        self._batch = fair_share
        self._owner = owner
        self._policy: TenantPolicy | None = None
        self._granted = 0
        self.allowed: int | None = None
        self.deficit = 0

    @property
    def must_ask(self) -> bool:
        """Whether the tenant has a limit, and `allowed` has not been set."""
        return self.allowed is None and self.policy.is_limited

    @property
    def policy(self) -> TenantPolicy:
        """The tenant's policy.

        Raises:
          TenantMoved: another shard owns the tenant.
        """
        if self._policy is None:
            keys = self._location.keys.tenant
            self._policy = check_owner(self._batch.tr, self._location.layout, keys, self._owner.value)
        return self._policy

    def is_first(self, tenant: Tenant) -> bool:
        """See `FairShare.is_first`."""
        return self._batch.is_first(tenant)

    @property
    def items_max(self) -> int:
        """How many items it allows if all weights are equal."""
        return self._batch.items_max

    def share(self) -> int:
        """Return how many items the zone may give. The tenant is not paused, and `must_ask` is False."""
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
        """Return the pointer's deficit after the call; 0 unless there is `more` to take."""
        if not more or self._batch.unit is None:
            return 0
        left = max(0, self._granted - taken * ONE_ITEM)
        return left % ONE_ITEM if self.items_max > 1 else left
