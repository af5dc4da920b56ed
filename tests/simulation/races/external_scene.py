"""The scene of the races of external stores: a store, two shards, and processes that read the store."""

from __future__ import annotations

from itertools import islice

from fairlead.actors.external_reader import ExternalReader
from fairlead.actors.external_upkeep import ExternalUpkeep
from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.external import statements
from fairlead.simulation.external.client import SimulatedItemStore
from fairlead.simulation.external.server import StoreServer
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.replica import ZoneName
from fairlead.simulation.store import Latencies, SimulatedStore
from fairlead.simulation.world import World
from fairlead.zones.external.arrivals import ReaderRecord, decode_reader, reader_key
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.queue.items import new_item
from fairlead.zones.shard import Shard, open_shard

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
        """Start a process that reads the store, and does its upkeep."""
        host, started = self.new_host(name), list[ExternalReader]()

        def run() -> None:
            store = SimulatedItemStore(self.server, host)
            started.append(ExternalReader(host, STORE, store, self.open_in(host)))
            host.spawn("upkeep", ExternalUpkeep(host, STORE, store, started[0]).run)
            started[0].run()

        host.spawn("reader", run)
        self.passes(SECOND)
        return started[0]

    def new_host(self, name: str) -> SimulatedHost:
        clock = NodeClock(self.world, 0)
        return SimulatedHost(self.world, name, clock, self.world.random(name), on_recycle=print, on_failure=print)

    def open_in(self, host: SimulatedHost) -> dict[str, Shard]:
        """Open the shards, in a task of a host."""

        def open_one(name: str) -> Shard:
            database = SimulatedDatabase(self.stores[name], has_commit_sequence=False)
            return open_shard(name, database, clock=host.clock, random=host.random, first_shards=SHARDS)

        return {name: open_one(name) for name in SHARDS}

    def host_of(self, reader: ExternalReader) -> SimulatedHost:
        """Return the process of a reader."""
        assert isinstance(reader._host, SimulatedHost)
        return reader._host

    @property
    def saved(self) -> ReaderRecord:
        """What the readers have saved last."""
        found = decode_reader(self.suite.shards[reader_home()].others[reader_key(STORE)])
        assert found is not None
        return found

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
