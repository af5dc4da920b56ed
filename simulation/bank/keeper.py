"""A keeper of the bank: does once a second what housekeeping does for transactions across shards, and for snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from fairlead.simulation.host import SimulatedHost
from fairlead.zones.engines import Transaction, transact
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.upkeep import SnapshotUpkeep
from fairlead.zones.spanning import decision
from fairlead.zones.spanning.leftovers import Leftovers, list_decisions

LATER_THAN_ANY_US = 1 << 62
LOOK_US = 1_000_000


class Keeper:
    """One incarnation of a keeper. It looks at all shards, again and again.

    `sweeps_frac`: how often a look forgets all aborts on a shard at once. That is always allowed: a process that
    needs an abort writes it again. `tends_snapshots`: whether a look also does what is due about snapshots.
    """

    def __init__(
        self,
        host: SimulatedHost,
        shards: Mapping[str, Shard],
        random: Random,
        sweeps_frac: float,
        *,
        tends_snapshots: bool,
    ) -> None:
        self._host = host
        self._shards = shards
        self._draw = random
        self._sweeps_frac = sweeps_frac
        self._leftovers = {name: Leftovers(shard, shard.find_shard) for name, shard in shards.items()}
        self._snapshots = {name: SnapshotUpkeep(shard) for name, shard in shards.items() if tends_snapshots}

    def run(self) -> None:
        """Look once a second, for ever."""
        while True:
            for name, shard in self._shards.items():
                try:
                    self._settle_at(name, shard)
                except StoreError as error:
                    self._host.world.note(f"gives up at {name}: {error!r}")
            self._host.clock.sleep_us(LOOK_US)

    def _settle_at(self, name: str, shard: Shard) -> None:
        now_us = self._host.clock.now_us()
        self._leftovers[name].settle_old(now_us=now_us)
        self._leftovers[name].forget_old(now_us=now_us)
        if self._draw.random() < self._sweeps_frac:
            forget_aborts(shard)
        if name in self._snapshots:
            self._snapshots[name].look(now_us=now_us)


def forget_aborts(shard: Shard) -> None:
    """Forget all aborts on a shard, however young they are."""

    def forget_all(tr: Transaction) -> None:
        for transaction, record in list_decisions(tr, before_us=LATER_THAN_ANY_US):
            if not record.committed:
                decision.forget(tr, transaction)

    transact(shard.db, forget_all)
