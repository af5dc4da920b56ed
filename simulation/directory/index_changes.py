"""The index of badges: an operator who adds and drops it, and the processes that carry that out.

In an application the workers of a fleet carry it out, as an item of the shard that is the home of the type.
"""

from __future__ import annotations

from random import Random

from fairlead.records.definition import first_definition, read_definition, write_if_absent
from fairlead.records.errors import RecordError
from fairlead.records.on_shards.building import Builder
from fairlead.records.on_shards.index_changes import (
    CHANGE_KIND,
    ChangeRecord,
    ChangeReplaced,
    ChangeState,
    Stage,
    begin_change,
    request_cancel,
    view_change,
)
from fairlead.records.on_shards.slots import SLOTS_APP, Locations
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.directory.people import BADGE, BADGE_PLACE, DECLARED, TYPE
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.local_items import complete_local_item
from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import Restoring, TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

BETWEEN_US = (20_000, 200_000)  # The mean time between two requests of the operator.
CANCELLED_FRAC = 0.1
DROPPED_FRAC = 0.5
LOOK_US = 200_000  # How often it looks whether the last change has ended.
RECORDS_PER_S = (100, 10_000)
BUILDER_LOOK_US = 20_000
BUILDER_PAUSE_US_MAX = 5_000_000


class IndexOperator:
    """A client that adds, drops and cancels during the fault phase; then it waits until the last change has ended."""

    def __init__(self, cluster: Cluster, random: Random, locations: Locations) -> None:
        self.is_over = False
        self._cluster = cluster
        self._draw = random
        self._in_tenants = locations.in_tenants
        self._mean_us = random.choice(BETWEEN_US)

    def begin(self) -> None:
        """Begin."""
        self._cluster.operator.do("change indexes", self._live)

    def _live(self) -> None:
        world = self._cluster.world
        shards = self._cluster.open_shards_once_there(self._cluster.operator.host)
        while world.elapsed_us < self._cluster.plan.trouble_us:
            world.sleep_us(1 + int(self._draw.expovariate(1 / self._mean_us)))
            self._try(shards)
        while change_under_way(home_of_type(shards)) is not None:
            world.sleep_us(LOOK_US)
        self.is_over = True

    def _try(self, shards: OpenShards) -> None:
        home = home_of_type(shards)
        try:
            if self._draw.random() < CANCELLED_FRAC:
                home.transact(lambda attempt: request_cancel(attempt.tr, TYPE, BADGE.name))
            else:
                self._change(home)
        except (StoreError, TenantBusy, RecordError) as error:
            self._cluster.world.note(f"does not change the index: {error}")

    def _change(self, home: Shard) -> None:
        definition = home.transact(lambda attempt: read_definition(attempt.tr, TYPE))
        stored = None if definition is None else definition.named(BADGE.name)
        is_drop = stored is not None and stored.is_maintained and self._draw.random() < DROPPED_FRAC
        change_id, records_per_s = self._draw.randbytes(16), self._draw.choice(RECORDS_PER_S)

        def body(attempt: Attempt) -> None:
            write_if_absent(attempt.tr, TYPE, first_definition(DECLARED, in_tenants=self._in_tenants))
            under_way, first = ChangeState.UNDER_WAY, Stage.MAINTAINED
            now_us, place = attempt.now_us, BADGE_PLACE
            wanted = ChangeRecord(
                change_id, 0, is_drop, place, self._in_tenants, records_per_s, now_us, under_way, first
            )
            begin_change(attempt.tr, home.layout, TYPE, BADGE, wanted, now_us=now_us)

        home.transact(body)
        self._cluster.world.note("drops the index" if is_drop else "adds the index")


class IndexBuilder:
    """One incarnation of a process that carries changes out. It lives for ever.

    One that another one has replaced looks again later, and later still, or two would replace each other for ever.
    """

    def __init__(self, host: SimulatedHost, shards: OpenShards, locations: Locations) -> None:
        self._host = host
        self._shards = shards
        self._locations = locations
        self._pause_us = BUILDER_LOOK_US

    def run(self) -> None:
        """Look for a change that is under way, and carry it out."""
        while True:
            try:
                self._carry_out()
            except ChangeReplaced:
                self._pause_us = min(2 * self._pause_us, BUILDER_PAUSE_US_MAX)
            except (StoreError, TenantBusy, TenantMoved, Restoring, RecordError) as error:
                self._host.world.note(f"gives up a change of the index: {error!r}")
            self._host.clock.sleep_us(1 + int(self._host.random.expovariate(1 / self._pause_us)))

    def _carry_out(self) -> None:
        home = home_of_type(self._shards)
        change = change_under_way(home)
        if change is None:
            return
        builder = Builder(self._shards, home, TYPE, BADGE.name, locations=self._locations)
        ended = builder.run(change.change_id)
        self._pause_us = BUILDER_LOOK_US
        if ended is not None:
            complete_local_item(home, CHANGE_KIND, change.change_id)


def home_of_type(shards: OpenShards) -> Shard:
    """Return the shard that has the definition of the type first."""
    return shards.home(Tenant(SLOTS_APP, TYPE))


def change_under_way(home: Shard) -> ChangeRecord | None:
    """Return the change that has not ended; None: there is none."""
    found = home.transact(lambda attempt: view_change(attempt.tr, TYPE, BADGE.name))
    return found if found is not None and found.is_under_way else None
