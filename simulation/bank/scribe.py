"""A scribe of the bank: writes and clears notes beside the money, so that rows appear and go while a tenant moves."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction

NOTES = 16  # Of each tenant.
NOTE = "note"
NOTE_BYTES = 200  # So copying a tenant at the lowest rate takes a tenth of a second.
THINK_US = 10_000


class Scribe:
    """One incarnation of a scribe. No history has its notes: what counts is that they move as they are."""

    def __init__(self, host: SimulatedHost, shards: OpenShards, accounts: Sequence[Tenant], random: Random) -> None:
        self._host = host
        self._shards = shards
        self._accounts = accounts
        self._draw = random

    def run(self, until_us: int) -> None:
        """Change notes until a time, microseconds since the epoch."""
        while self._host.world.now_us() < until_us:
            self._host.clock.sleep_us(1 + int(self._draw.expovariate(1 / THINK_US)))
            tenant, what = self._draw.choice(self._accounts), self._draw.random()
            number, text = self._draw.randrange(NOTES), self._draw.randbytes(NOTE_BYTES)

            def body(tr: TenantTransaction, what: float = what, number: int = number, text: bytes = text) -> None:
                if what < 0.7:
                    tr.set((NOTE, number), text)
                elif what < 0.95:
                    tr.clear((NOTE, number))
                else:
                    tr.clear_prefix((NOTE,))

            try:
                self._shards.at_home(
                    tenant,
                    lambda shard, tenant=tenant, body=body: shard.transact(  # type: ignore[misc]
                        lambda attempt: body(ApplicationTransaction(shard, tenant, attempt))
                    ),
                )
            except (StoreError, TenantBusy, TenantMoved) as error:
                self._host.world.note(f"gives up a note: {error!r}")
