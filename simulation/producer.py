"""A producer: a process of the shop that enqueues, names, batches and cancels items, and retries dead letters."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.answers import Answer, ClientAction
from fairlead.simulation.oracles.shop import ShopLog
from fairlead.simulation.replica import ItemName, ZoneName
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import ItemGone, TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant, ZoneLocation, item_id_of, local_tenant
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, NewItem, new_item
from fairlead.zones.records import PointerRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import ApplicationTransaction
from fairlead.zones.transaction_runner import Attempt

KINDS = {
    "plain": 17, "long": 3, "flaky": 15, "effect": 20, "fenced": 20, "chain": 5, "limited": 10, "slow": 3, "broken": 3,
    "dropped": 4, "new": 2, "noted": 0,
}  # fmt: skip
RECHECK_FRAC = 0.2  # The probability that a producer waits until the pointer of an empty queue is about to vest.
LATEST = 8
RUSH_FRAC = 0.1  # The probability that a producer waits for the next rush.
RUSH_US = 250_000  # The time between rushes.
DEAD_LETTERS_MAX = 8
KEYED_FRAC = 0.3  # The probability that an item has keys.
ORDERS = 3  # Different values of a key.
PADDINGS = ["", "", "", "", " " * 2_000, " " * 9_000]  # The latter two are too long for a call, and for a record.


class Producer:
    """One producer process: enqueues its share of items during the fault phase, and cancels or retries a few.

    After a failure of its machine it continues. A commit that was sent before may or may not have happened.
    """

    def __init__(self, log: ShopLog, cluster: Cluster, number: int, share: int) -> None:
        self._log = log
        self._cluster = cluster
        self._pause_us = cluster.plan.trouble_us / max(1, share)
        self._left = share
        self.done = False
        self._random: Random = cluster.world.random(f"producer {number}")
        self._draw_keys: Random = cluster.world.random(f"keys of producer {number}")
        self._orders = 0
        self._number = number
        self._name = f"p{number}"
        self._known: list[tuple[Tenant, str, bytes]] = []

    def run(self, host: SimulatedHost) -> None:
        """Enqueue the share, spread over the fault phase."""
        shards = self._cluster.open_shards(host)
        while self._left > 0:
            size = min(self._left, self._random.choice([1, 1, 1, 4]))
            host.clock.sleep_us(int(self._random.expovariate(1 / (self._pause_us * size))))
            self._left -= size
            try:
                occasion = self._random.random()
                if occasion < RUSH_FRAC:
                    self._rush(shards, host)
                else:
                    rechecks = occasion < RUSH_FRAC + RECHECK_FRAC
                    rechecked = self._zone_to_be_rechecked(shards, host) if rechecks else None
                    whose = rechecked or ZoneName(self._tenant(), self._zone())
                    self._enqueue(shards, whose, [self._item() for _ in range(size)])
                if self._known and self._random.random() < 0.05:
                    self._cancel(shards)
                if self._random.random() < 0.05:
                    self._retry_or_discard(shards)
            except StoreError as error:
                host.world.note(f"gives up after error {error.code}")
            except (TenantBusy, TenantMoved) as error:
                host.world.note(f"gives up: {error}")
        self.done = True

    def _zone_to_be_rechecked(self, shards: OpenShards, host: SimulatedHost) -> ZoneName | None:
        """Wait until the pointer of an empty queue is about to vest; return the zone.

        An enqueue there now meets the transaction that sends the pointer to sleep again, or deletes it.
        """
        whose = dict.fromkeys((tenant, zone) for tenant, zone, _ in self._known[-LATEST:])
        soon = {}
        for tenant, zone in whose:
            shard = shards.home(tenant)
            wait_us = shard.transact(partial(_empty_zone_vests_in_us, shard.zone(tenant, zone).location))
            if wait_us is not None and 0 < wait_us < self._pause_us:
                soon[tenant, zone] = host.clock.now_us() + wait_us
        if not soon:
            return None
        tenant, zone = self._random.choice(list(soon))
        wait_us = soon[tenant, zone] - host.clock.now_us() + self._random.randrange(self._cluster.plan.call_us)
        host.clock.sleep_us(max(0, wait_us))
        return ZoneName(tenant, zone)

    def _rush(self, shards: OpenShards, host: SimulatedHost) -> None:
        """Enqueue an item at the same instant, and with the same name, as other producers."""
        host.clock.sleep_us(RUSH_US - self._cluster.world.now_us() % RUSH_US)
        item = new_item("plain", "", item_id="rush", unique_for=self._random.choice([0, 0.2]))
        self._enqueue(shards, ZoneName(Tenant("shop", "t0"), "queue"), [item])

    def _enqueue(self, shards: OpenShards, whose: ZoneName, items: list[NewItem]) -> None:
        """Enqueue items of one tenant in one transaction, which also counts an order."""
        tenant, zone = whose
        self._orders += 1
        order = f"{self._number}/{self._orders}"
        enqueue = self._random.choice([_one_by_one, _all_at_once])
        if self._cluster.plan.snapshots:  # Of a tenant with snapshots, `raw` is refused.
            enqueue = _one_by_one

        def body(shard: Shard, attempt: Attempt) -> list[Enqueued]:
            tr = ApplicationTransaction(shard, tenant, attempt)
            tr.add(("order", order), 1)  # An oracle checks that it is applied once.
            return enqueue(tr, attempt, items, zone)

        for enqueued in shards.at_home(tenant, lambda shard: shard.transact(partial(body, shard))):
            if enqueued.status is EnqueueStatus.ENQUEUED:
                self._log.enqueued.append(ItemName(shards.home(tenant).name, tenant, zone, enqueued.item_id))
                self._known.append((tenant, zone, enqueued.item_id))

    def _cancel(self, shards: OpenShards) -> None:
        tenant, zone, item_id = self._random.choice(self._known)

        def body(shard: Shard, attempt: Attempt) -> None:
            shard.zone(tenant, zone).complete(attempt.tr, item_id, now_us=attempt.now_us)

        try:
            shards.at_home(tenant, lambda shard: shard.transact(partial(body, shard)))
        except ItemGone:
            self._cluster.world.note(f"finds {item_id.hex()} gone")
        else:
            self._log.answers.append(
                Answer(self._name, ClientAction.CANCELLED, ItemName(shards.home(tenant).name, tenant, zone, item_id))
            )

    def _retry_or_discard(self, shards: OpenShards) -> None:
        """Retry or discard a dead letter, if there is one."""
        shard = self._random.choice(list(shards.values()))
        listed = shard.transact(
            lambda attempt: list(dead_letters.listing(attempt.tr, shard.layout, items_max=DEAD_LETTERS_MAX))
        )
        listed = [each for each in listed if each.record.item.kind != MOVE_KIND]  # See `tenant_moves`.
        if not listed:
            return
        tenant, name, item_id = self._random.choice(listed)[:3]
        retries = self._random.random() < 0.8

        def body(attempt: Attempt) -> bool:
            tr, queue = attempt.tr, shard.zone(tenant, name)
            found = dead_letters.read(tr, queue.location, item_id)
            if found is None:
                return False
            if retries:
                dead_letters.retry_dead_letter(tr, queue.location, item_id, found, now_us=attempt.now_us)
                run_one(queue.wake_op(tr, earliest_us=attempt.now_us, now_us=attempt.now_us))
            else:
                dead_letters.discard(tr, queue.location, item_id, found, now_us=attempt.now_us)
            return True

        if shard.transact(body):
            action = ClientAction.RETRIED if retries else ClientAction.DISCARDED
            self._log.answers.append(Answer(self._name, action, ItemName(shard.name, tenant, name, item_id)))

    def _tenant(self) -> Tenant:
        if self._random.random() < 0.05:
            return local_tenant("plain")
        number = 0 if self._random.random() < 0.4 else self._random.randrange(self._cluster.plan.tenants)
        return Tenant("shop", f"t{number}")

    def _zone(self) -> str:
        return self._random.choice(["queue", "queue", "queue", "other"])

    def _item(self) -> NewItem:
        draw = self._random
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "new" and not self._cluster.plan.clocks_agree:
            kind = "plain"  # The only consumer that handles this kind may never take leases.
        how: dict[str, Any] = {
            "priority": draw.choice([0, 100, 100, 100, 255]),
            "delay": draw.choice([0, 0, 0, 0.001, 0.3, 2]),
        }
        if draw.random() < 0.1:
            how["item_id"] = f"named {draw.randrange(3)}"
            how["unique_for"] = draw.choice([0, 1])
        payload = f"{self._number}/{self._orders}" + draw.choice(PADDINGS)
        return new_item(kind, payload, keys=self._keys(), **how)

    def _keys(self) -> dict[str, str | int]:
        draw = self._draw_keys
        if draw.random() >= KEYED_FRAC:
            return {}
        keys: dict[str, str | int] = {"order": draw.randrange(ORDERS)}
        return {**keys, "city": "Ulm"} if draw.random() < 0.3 else keys


def _empty_zone_vests_in_us(location: ZoneLocation, attempt: Attempt) -> int | None:
    """Return for how long the pointer of an empty queue still sleeps; None if it has items, or no pointer."""
    begin, end = location.keys.item_range()
    stored, items = attempt.tr.snapshot.get(location.keys.pointer), attempt.tr.snapshot.get_range(begin, end, limit=1)
    pointer = None if stored.value is None else decode(PointerRecord, stored.value)
    return None if pointer is None or next(iter(items), None) else pointer.vesting_us - attempt.now_us


def has_full_length(payload: object) -> bool:
    """Whether a payload has a length that producers choose; handlers and periods enqueue other types."""
    return not isinstance(payload, str) or " " * (len(payload) - len(payload.rstrip())) in PADDINGS


def _one_by_one(tr: ApplicationTransaction, attempt: Attempt, items: list[NewItem], zone: str) -> list[Enqueued]:
    return [tr.enqueue_item(item, zone=zone) for item in items]


def _all_at_once(tr: ApplicationTransaction, attempt: Attempt, items: list[NewItem], zone: str) -> list[Enqueued]:
    attempt.needs_receipt = True
    named = [(attempt.new_id() if item.given_id is None else item_id_of(item.given_id), item) for item in items]
    return run_one(tr.zone(zone).enqueue_op(tr.raw, named, now_us=tr.now_us))
