"""Moves of tenants: an operator begins and cancels them while the faults last, and retries those that were given up.

The workers of the cluster carry them out, as items of the shard that the tenant leaves. In a world without consumers
porters do.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NamedTuple

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.local_items import complete_local_item
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.replica import ZoneName
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, local_tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.errors import MoveRefused, MoveUnderWay
from fairlead.zones.moving.move_record import MOVE_KIND, request_cancel
from fairlead.zones.moving.mover import Mover
from fairlead.zones.ownership import check_home
from fairlead.zones.pipelining import run_one
from fairlead.zones.placement import home
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.records import ItemRecord, MoveRecord, MoveState, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

BYTES_PER_S = (20_000, 1_000_000, 1_000_000_000)  # At the lowest rate a move takes seconds.
CANCELLED_FRAC = 0.1
LOOK_US = 500_000  # How often given-up moves are retried.
PORTER_LOOK_US = 50_000
PORTER_PAUSE_US_MAX = 10_000_000
DEAD_LETTERS_MAX = 100  # Moves of one shard that are retried at once.


class MoveHabits(NamedTuple):
    """How an operator moves tenants.

    Attributes:
      mean_us: the mean time between two of its requests.
      cancelled_frac: how often it cancels a move, instead.
      favourite_frac: how often it moves the same tenant as before.
      back_frac: how often it moves a tenant to its first home.
    """

    mean_us: int
    cancelled_frac: float = CANCELLED_FRAC
    favourite_frac: float = 0.0
    back_frac: float = 0.0


class MoveOperator:
    """A client that begins moves of random tenants to random shards, during the fault phase."""

    def __init__(self, cluster: Cluster, random: Random, habits: MoveHabits) -> None:
        self._cluster = cluster
        self._draw = random
        self._habits = habits
        self._favours = cluster.world.random("favourites of moves")
        self._favourite: Tenant | None = None
        self._has_ended = False  # It begins and cancels no more moves: a store that was away may keep it for long.

    def begin(self) -> None:
        """Begin."""
        self._cluster.operator.do("move tenants", self._live)

    @property
    def is_over(self) -> bool:
        """Whether all moves have ended, and no other one will begin."""
        moves = (each for shard in self._cluster.suite.shards.values() for each in shard.moves.values())
        return self._is_calm and not any(each.state is MoveState.UNDER_WAY for each in moves) and not self._has_items()

    def _has_items(self) -> bool:
        """Whether somebody is still to look at a move: its item is there."""
        queue = ZoneName(local_tenant(MOVE_KIND), DEFAULT_ZONE)
        zones = (shard.zones.get(queue) for shard in self._cluster.suite.shards.values())
        return any(zone is not None and zone.items for zone in zones)

    @property
    def _is_calm(self) -> bool:
        world = self._cluster.world
        return self._has_ended and world.elapsed_us >= self._cluster.plan.trouble_us + self._habits.mean_us

    def _live(self) -> None:
        world, draw, mean_us = self._cluster.world, self._draw, self._habits.mean_us
        shards = self._cluster.open_shards_once_there(self._cluster.operator.host)
        while world.elapsed_us < self._cluster.plan.trouble_us:
            world.sleep_us(min(mean_us, 1 + int(draw.expovariate(1 / mean_us))))
            try:
                if draw.random() < self._habits.cancelled_frac:
                    self._cancel(shards)
                else:
                    self._move(shards)
            except (StoreError, TenantBusy, TenantMoved, MoveRefused, MoveUnderWay) as error:
                world.note(f"does not move: {error}")
        self._has_ended = True
        while True:
            world.sleep_us(LOOK_US)
            for shard in shards.values():
                with suppress(StoreError, TenantBusy):
                    retry_given_up(shard)

    def _move(self, shards: OpenShards) -> None:
        replicas = self._cluster.suite.shards.values()
        tenants = sorted({tenant for replica in replicas for tenant, rows in replica.rows.items() if rows})
        if tenants:
            to, tenant = self._favoured(shards, self._draw.choice(list(shards)), self._draw.choice(tenants))
            begin_move(shards, tenant, to, self._draw, self._draw.choice(BYTES_PER_S))

    def _favoured(self, shards: OpenShards, to: str, tenant: Tenant) -> tuple[str, Tenant]:
        """Return where to move which tenant, in place of what was drawn."""
        if self._favourite is not None and self._favours.random() < self._habits.favourite_frac:
            tenant = self._favourite
        self._favourite = tenant
        return (home(tenant, list(shards)) if self._favours.random() < self._habits.back_frac else to), tenant

    def _cancel(self, shards: OpenShards) -> None:
        under_way = [
            (name, tenant)
            for name, replica in self._cluster.suite.shards.items()
            for tenant, record in replica.moves.items()
            if record.state is MoveState.UNDER_WAY
        ]
        if under_way:
            name, tenant = self._draw.choice(under_way)
            shards[name].transact(lambda attempt: request_cancel(attempt.tr, tenant))
            self._cluster.world.note(f"cancels the move of {tenant.app}/{tenant.user}")


def begin_move(shards: OpenShards, tenant: Tenant, to: str, random: Random, bytes_per_s: int) -> None:
    """Begin to move a tenant, as `fairlead.moves.begin_move` does.

    Raises:
      MoveRefused, MoveUnderWay: it cannot begin.
    """
    move_id = random.randbytes(16)

    def begin_at(shard: Shard) -> None:
        def body(attempt: Attempt) -> None:
            check_home(attempt.tr, shard.layout.location(tenant, DEFAULT_ZONE))
            destination_id = shards[to].layout.shard_id
            record = MoveRecord(move_id, 0, to, destination_id, attempt.now_us, bytes_per_s)
            source.begin(attempt.tr, shard.layout, tenant, record, now_us=attempt.now_us)

        shard.transact(body)

    shards.at_home(tenant, begin_at)


def retry_given_up(shard: Shard) -> None:
    """Retry moves that have become dead letters: their workers were killed again and again."""
    location = shard.layout.location(local_tenant(MOVE_KIND), DEFAULT_ZONE)

    def body(attempt: Attempt) -> None:
        tr, queue = attempt.tr, shard.zone(location.tenant, location.name)
        found, _ = dead_letters.in_zone(tr, location, items_max=DEAD_LETTERS_MAX)
        for letter in found:
            record = dead_letters.read(tr, location, letter.id)
            if record is not None:
                dead_letters.retry_dead_letter(tr, location, letter.id, record, now_us=attempt.now_us)
        if found:
            run_one(queue.wake_op(tr, earliest_us=attempt.now_us, now_us=attempt.now_us))

    shard.transact(body)


class MoveLeases:
    """Who carries out which move, and until when: so long no other porter takes the move over.

    Each lease of a move is twice as long as the one before: a porter may need longer than the first one lasts to
    note how far it has come.
    """

    def __init__(self, lease_us: int) -> None:
        self._lease_us = lease_us
        self._leased: dict[bytes, tuple[str, int, int]] = {}  # by whom, until when in true time, and for how long

    def take(self, move_id: bytes, host: SimulatedHost) -> bool:
        """Lease a move, unless another one's lease lasts."""
        now_us = host.world.now_us()
        by, until_us, last_us = self._leased.get(move_id, ("", 0, self._lease_us // 2))
        if by != host.name and until_us > now_us:
            return False
        lease_us = last_us if by == host.name else 2 * last_us
        self._leased[move_id] = host.name, now_us + lease_us, lease_us
        return True


class Porter:
    """One incarnation of a process that carries out moves, in a world without consumers. It lives for ever.

    A porter completes the item of a move when its mover has come to an end, as a worker does. Porters without `leases`
    take all moves over from each other: one that was replaced looks again later, and later still, or two porters would
    replace each other for ever.
    """

    def __init__(self, host: SimulatedHost, shards: OpenShards, leases: MoveLeases | None) -> None:
        self._host = host
        self._shards = shards
        self._pause_us = PORTER_LOOK_US
        self._leases = leases

    def run(self) -> None:
        """Look for moves that have an item, and carry them out, one after the other."""
        while True:
            for shard in self._shards.values():
                try:
                    self._carry_out(shard)
                except StoreError as error:
                    self._host.world.note(f"gives up a move: {error!r}")
            self._host.clock.sleep_us(int(self._host.random.expovariate(1 / self._pause_us)))

    def _carry_out(self, shard: Shard) -> None:
        queue = shard.zone(local_tenant(MOVE_KIND))
        begin, end = queue.location.keys.item_range()
        for row in shard.transact(lambda attempt: list(attempt.tr.snapshot.get_range(begin, end))):
            item = decode(ItemRecord, row.value)
            assert item is not None
            payload = unpack_payload(item.payload)
            move_id, to = payload["move"], self._shards.with_id(payload["destination"])
            if to is None or (self._leases is not None and not self._leases.take(move_id, self._host)):
                continue
            tenant = Tenant(payload["app"], payload["user"])
            mover = Mover(shard, to, first_home_of(self._shards, tenant), tenant, move_id)
            if mover.run_item(epoch=payload["epoch"]):
                complete_local_item(shard, MOVE_KIND, move_id)
                self._pause_us = PORTER_LOOK_US
            elif self._leases is None:
                self._pause_us = min(2 * self._pause_us, PORTER_PAUSE_US_MAX)


def first_home_of(shards: OpenShards, tenant: Tenant) -> Shard:
    """Return the shard where a tenant lives without a record."""
    return shards[home(tenant, list(shards))]
