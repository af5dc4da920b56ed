"""The reader of an external store, forced: who it must not wait for, and what it must do anew."""

from __future__ import annotations

from functools import partial
from itertools import islice

from fairlead.actors.external_reader import LEASE_US, ExternalReader
from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.external import statements
from fairlead.simulation.external.client import SimulatedItemStore
from fairlead.simulation.external.items import DOORBELL
from fairlead.simulation.external.server import StoreServer
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.replica import ZoneName
from fairlead.simulation.store import Latencies, SimulatedStore
from fairlead.simulation.world import World
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.queue.items import new_item
from fairlead.zones.shard import Shard, open_shard
from tests.simulation.mutations.mutation import in_a_race

SECOND = 1_000_000
SHARDS = ("s0", "s1")
STORE = "pg"
FAST = Latencies()


class Readers:
    """Two shards, an external store, and processes that read it."""

    def __init__(self, latencies: Latencies = FAST) -> None:
        self.world = World(1)
        self.server = StoreServer(self.world)
        self.suite = OracleSuite(self.world, SHARDS)
        self.stores = {name: SimulatedStore(self.world, name, latencies) for name in SHARDS}
        for store in self.stores.values():
            store.on_commit.append(self.suite.on_commit)
        self._ids = iter(range(10_000))

    def start(self, name: str) -> ExternalReader:
        clock = NodeClock(self.world, 0)
        host = SimulatedHost(self.world, name, clock, self.world.random(name), on_recycle=print, on_failure=print)
        started: list[ExternalReader] = []

        def run() -> None:
            store = SimulatedItemStore(self.server, host)
            started.append(ExternalReader(host, STORE, store, self._open(host)))
            started[0].run()

        host.spawn("reader", run)
        self.passes(SECOND)
        return started[0]

    def _open(self, host: SimulatedHost) -> dict[str, Shard]:
        def open_one(name: str) -> Shard:
            database = SimulatedDatabase(self.stores[name], has_commit_sequence=False)
            return open_shard(name, database, clock=host.clock, random=host.random, first_shards=SHARDS)

        return {name: open_one(name) for name in SHARDS}

    def passes(self, duration_us: int) -> None:
        self.world.run_until(self.world.now_us() + duration_us)

    def enqueue(self, tenant: Tenant) -> None:
        transaction = self.server.table.begin()
        item_id = next(self._ids).to_bytes(16, "big")
        statements.enqueue(transaction, Queue(tenant, "queue"), item_id, new_item("mail"))
        self.server.commit("user", transaction)

    def has_pointer(self, tenant: Tenant) -> bool:
        name = ZoneName(tenant, pointer_zone(STORE, "queue"))
        zones = [shard.zones.get(name) for shard in self.suite.shards.values()]
        return any(zone is not None and zone.pointer is not None for zone in zones)


def living_on(shard: str, number: int) -> Tenant:
    """Return the tenant of a number among those who live on a shard."""
    tenants = (Tenant("shop", f"t{each}") for each in range(10_000))
    return next(islice((each for each in tenants if home(each, SHARDS) == shard), number, None))


def reader_home() -> str:
    """Return the shard that holds what the reader saves."""
    return home(Tenant("", STORE), SHARDS)


def test_a_shard_that_is_away_does_not_hold_up_the_queues_of_others() -> None:
    here = reader_home()
    (away,) = set(SHARDS) - {here}
    readers = Readers()
    readers.start("a#1")
    readers.passes(2 * SECOND)
    readers.stores[away].refuses.append(lambda: readers.world.elapsed_us < 20 * SECOND)
    readers.enqueue(living_on(away, 0))
    readers.enqueue(living_on(here, 0))
    readers.passes(3 * SECOND)
    assert readers.has_pointer(living_on(here, 0))
    assert not readers.has_pointer(living_on(away, 0))
    readers.passes(20 * SECOND)
    assert readers.has_pointer(living_on(away, 0))


def test_what_a_shard_has_refused_is_found_by_the_next_reader() -> None:
    """Nothing is saved before it is noted."""
    here = reader_home()
    (away,) = set(SHARDS) - {here}
    readers = Readers()
    first = readers.start("a#1")
    readers.start("b#1")
    readers.passes(2 * SECOND)
    readers.stores[away].refuses.append(lambda: readers.world.elapsed_us < 20 * SECOND)
    readers.enqueue(living_on(away, 0))
    readers.passes(3 * SECOND)
    first.stop()
    readers.passes(20 * SECOND)
    assert readers.has_pointer(living_on(away, 0))


def looks_end() -> bool:
    """Whether a look at very many queues, on slow shards, ends although two processes want to read."""
    readers = Readers(Latencies(read_version_us=20_000, read_us=5_000, commit_us=500_000))
    for number in range(1_500):
        readers.enqueue(Tenant("shop", f"t{number}"))
    for name in ("a#1", "b#1"):
        readers.start(name)
    readers.passes(6 * LEASE_US)
    return bool(readers.server.table.values.get(DOORBELL))


def test_a_look_at_all_queues_that_takes_longer_than_a_lease_comes_to_its_end() -> None:
    assert looks_end()
    bug = "a reader does not extend its lease while it looks at all queues"
    with in_a_race(bug, (ExternalReader._goes_on, " and self._keeps_lease()", "")).planted():
        assert not looks_end()


def rings_after_a_promotion() -> bool:
    """Whether the doorbell is on after a promotion that has lost it."""
    readers = Readers()
    readers.start("a#1")
    readers.passes(5 * SECOND)
    assert readers.server.table.values[DOORBELL]
    readers.server.promote(60 * SECOND)
    assert not readers.server.table.values.get(DOORBELL)
    readers.passes(5 * SECOND)
    return bool(readers.server.table.values.get(DOORBELL))


def test_the_doorbell_is_set_anew_after_a_promotion_that_lost_it() -> None:
    assert rings_after_a_promotion()
    bug = "a reader takes the doorbell for set that a promotion has lost"
    edits = (
        (ExternalReader._give_up, "self._record, self._doorbell.is_set = None, False", "self._record = None"),
        (ExternalReader._read_once, "self._doorbell.is_set = False", "pass"),
    )
    with in_a_race(bug, *edits).planted():
        assert not rings_after_a_promotion()


def finds_what_comes_after_a_promotion() -> bool:
    """Whether an item is found whose transaction has the number of one that a promotion has lost."""
    readers = Readers()
    readers.start("a#1")
    readers.passes(2 * SECOND)
    for _ in range(20):
        readers.enqueue(living_on("s0", 0))
    readers.passes(2 * SECOND)
    readers.server.promote(3 * SECOND)
    readers.enqueue(living_on("s0", 1))
    readers.passes(5 * SECOND)
    return readers.has_pointer(living_on("s0", 1))


def test_after_a_promotion_all_queues_are_looked_at() -> None:
    assert finds_what_comes_after_a_promotion()
    bug = "a reader does not notice another history of the store"
    with in_a_race(bug, (ExternalReader._read_once, "look.history != before.history or ", "")).planted():
        assert not finds_what_comes_after_a_promotion()


def test_a_reader_that_takes_over_in_a_flood_takes_the_doorbell_back() -> None:
    """Each commit of the store's users would wait for all others."""
    readers = Readers()
    first = readers.start("a#1")
    readers.passes(5 * SECOND)
    first.stop()
    readers.passes(2 * SECOND)
    tenants = [Tenant("shop", f"t{number}") for number in range(20)]
    for number in range(6_000):
        readers.world.after(500 * number, partial(readers.enqueue, tenants[number % len(tenants)]))
    readers.start("b#1")
    readers.passes(2 * SECOND)
    assert not readers.server.table.values[DOORBELL]
