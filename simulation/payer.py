"""A payer: a process of the shop whose requests write without a read, and sometimes enqueue a note.

Each payment adds 1 to a key of its own. So the oracles find a payment that is applied twice, and one that was
acknowledged and lost.
"""

from __future__ import annotations

from random import Random

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.shop import Payment, ShopLog
from fairlead.zones import tuples
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import ApplicationTransaction

PAYMENTS_FRAC = 0.25  # Payments per item of a run.
NOTES_FRAC = 0.3  # The part of requests that enqueue a note instead; its handler writes in a transaction of its own.


class Payer:
    """One process that makes its payments during the fault phase; see `Producer`."""

    def __init__(self, log: ShopLog, cluster: Cluster) -> None:
        self._log = log
        self._cluster = cluster
        self._left = int(cluster.plan.items * PAYMENTS_FRAC)
        self._pause_us = cluster.plan.trouble_us / max(1, self._left)
        self._random: Random = cluster.world.random("payer")
        self.done = False

    def run(self, host: SimulatedHost) -> None:
        """Make the remaining payments."""
        shards = self._cluster.open_shards(host)
        while self._left > 0:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._pause_us)))
            self._left -= 1
            tenant = Tenant("shop", f"t{self._random.randrange(self._cluster.plan.tenants)}")
            try:
                self._pay(shards, tenant)
            except StoreError as error:
                host.world.note(f"gives up a payment after error {error.code}")
            except (TenantBusy, TenantMoved) as error:
                host.world.note(f"gives up a payment: {error}")
        self.done = True

    def _pay(self, shards: OpenShards, tenant: Tenant) -> None:
        name = str(self._left)
        if self._random.random() < NOTES_FRAC:
            shards.at_home(
                tenant,
                lambda shard: shard.transact(
                    lambda attempt: ApplicationTransaction(shard, tenant, attempt).enqueue("noted")
                ),
            )
            return
        write = self._random.choice([_add, _add_raw, _add_if_not_there])
        if self._cluster.plan.snapshots and write is _add_raw:  # Of a tenant with snapshots, `raw` is refused.
            write = _add

        def pay_at(shard: Shard) -> None:
            shard.transact(lambda attempt: write(ApplicationTransaction(shard, tenant, attempt), shard, name))

        shards.at_home(tenant, pay_at)
        self._log.payments.append(Payment(tenant, name))


def _add(tr: ApplicationTransaction, shard: Shard, name: str) -> None:
    tr.add(("payment", name), 1)


def _add_raw(tr: ApplicationTransaction, shard: Shard, name: str) -> None:
    data = shard.layout.location(tr.tenant, DEFAULT_ZONE).keys.tenant.data
    tr.raw.add(data + tuples.pack(("payment", name)), (1).to_bytes(8, "little"))


def _add_if_not_there(tr: ApplicationTransaction, shard: Shard, name: str) -> None:
    """Write in the first attempt, and in a later one only if the first was not applied."""
    if tr.get(("payment", name), snapshot=True) is None:
        tr.add(("payment", name), 1)
