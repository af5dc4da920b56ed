"""The shards as a simulated process has opened them, and where it has found tenants.

It does what `fairlead.shards.Shards` does in an application, which the simulator may not import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.shard import Shard

MOVES_MAX = 8  # So often a call follows its tenant.

T = TypeVar("T")


class OpenShards(dict[str, Shard]):
    """The open shards by name; see `fairlead.zones.spanning.coordinator.ShardFinder`."""

    def __init__(self, shards: Mapping[str, Shard]) -> None:
        super().__init__(shards)
        self._by_id = {shard.layout.shard_id: shard for shard in shards.values()}
        self._moved: dict[Tenant, str] = {}  # where tenants live who were not at their first home when last looked for
        for shard in shards.values():
            shard.find_shard, shard.follow = self.with_id, self.follow

    def home(self, tenant: Tenant) -> Shard:
        """Return the shard where a tenant was last found, or else its first home."""
        return self[self._moved.get(tenant) or home(tenant, list(self))]

    def home_name(self, tenant: Tenant) -> str:
        """Return the name of the shard where a tenant was last found, or else of its first home."""
        return self.home(tenant).name

    def errors(self) -> set[type[Exception]]:
        """Return the classes that the stores raise."""
        return {each for shard in self.values() for each in shard.db.errors}

    def at_home(self, tenant: Tenant, call: Callable[[Shard], T]) -> T:
        """Return what `call` returns for the shard of a tenant; call it again if the tenant lives elsewhere by now.

        Raises:
          TenantMoved: the tenant moves on and on.
        """
        for _ in range(MOVES_MAX):
            try:
                return call(self.home(tenant))
            except TenantMoved as moved:
                if not self.note_moved(moved):
                    raise
        return call(self.home(tenant))

    def note_moved(self, moved: TenantMoved) -> bool:
        """Note where a tenant lives now, as the shard says that refused it; False: there is no other shard to ask."""
        tenant = Tenant(*moved.tenant)
        if moved.first_home is not None:
            self._moved.pop(tenant, None)
            return moved.first_home in self
        shard = None if moved.owner is None else self.with_id(bytes.fromhex(moved.owner))
        if shard is None:
            return False
        self._moved[tenant] = shard.name
        return True

    def follow(self, moved: TenantMoved) -> Shard | None:
        """Return the shard where a tenant lives now, as the shard says that refused it; None: there is none to ask."""
        return self.home(Tenant(*moved.tenant)) if self.note_moved(moved) else None

    def with_id(self, shard_id: bytes) -> Shard | None:
        """Return the shard that has an id."""
        return self._by_id.get(shard_id)
