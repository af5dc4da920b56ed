"""Which tenants the simulated workflows use: each order has a home, and each home has a neighbour on either shard."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fairlead.simulation.plan import Plan
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home


class Neighbours(NamedTuple):
    """The tenants on which the workflows of a tenant act, besides itself: on its shard, and on another one."""

    beside: Tenant
    elsewhere: Tenant


def tenant_of(order: int, plan: Plan) -> Tenant:
    """Return the tenant of an order."""
    return Tenant("shop", f"t{order % plan.tenants}")


def item_name_of(order: int) -> str:
    """Return the name under which most items of an order are enqueued."""
    return f"order {order}"


def neighbours_of(tenant: Tenant, shard_names: Sequence[str]) -> Neighbours:
    """Return the neighbours of a tenant: tenants that have orders of their own only by chance."""
    return _neighbours_of(tenant, tuple(shard_names))


@lru_cache(maxsize=1_000)
def _neighbours_of(tenant: Tenant, shard_names: tuple[str, ...]) -> Neighbours:
    here = home(tenant, shard_names)
    candidates = [Tenant("shop", f"t{number}") for number in range(64)]
    beside = [each for each in candidates if home(each, shard_names) == here and each != tenant]
    elsewhere = [each for each in candidates if home(each, shard_names) != here]
    return Neighbours(beside[0], elsewhere[0] if elsewhere else beside[-1])
