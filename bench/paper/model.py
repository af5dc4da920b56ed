"""The simulated form: the product's scanners, managers and workers in virtual time, at the paper's scale.

It has no faults and no oracles: `fairlead.simulation.without_oracles`. These steps take time:
    a store     a read version 1 ms, a read 0.5 ms, a commit 7 ms, on average, half of each fixed and half exponential
    a call      0.3 ms there and 0.3 ms back, likewise, between actors of one machine
    a handler   the time in the load
FoundationDB's documentation ("Performance", Latency) gives 0.3 to 1 ms for a read version, 0.1 to 1 ms for a read, and
1.5 to 2.5 ms for a commit. The paper's commits also wait for log servers in a satellite 5 ms away (section 8).

The limits are a consumer's slots (128 of 50 ms are 2,560 items a second), a manager's two batches at a time, and
conflicts. Processors and networks have no limits. The store serves any number of transactions at once. So a figure
shows the limit of the algorithm, not of a machine.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

from bench.harness import TENANT_APP, tenant_name
from bench.load.histograms import histogram, record
from bench.load.load_spec import Load
from bench.load.outcome import Outcome, outcome
from bench.load.schedule import Sending, schedule
from bench.paper.forms import SIMULATED, Backlog, check_not_exhausted
from bench.paper.setup import Setup
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.settings import ConsumerSettings
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.plan import Plan
from fairlead.simulation.store import Latencies
from fairlead.simulation.without_oracles import NoLog, NoOracles
from fairlead.simulation.world import START_US, World
from fairlead.zones.engines.memory import sorted_map
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_together
from fairlead.zones.queue.items import Enqueued, NewItem, new_item
from fairlead.zones.queue.periodic import Period
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import DEFAULT_PART_COUNT, Shard
from fairlead.zones.transaction_runner import Attempt

LATENCIES = Latencies(read_version_us=1_000, read_us=500, commit_us=7_000)
CALL_US = 300
SHARD = "s0"
LAST_S_MAX = 60.0  # The time for the last items to start. An item that starts later is not among the waits.
START_S = 1.2  # Time for consumers to open the store, to have their clocks checked, and to know each other.
FILL_ZONES = 500  # Items of one transaction that fills a store.


class Model:
    """See `Form`. The same seed gives the same outcome on any machine."""

    name = SIMULATED

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def under_load(self, load: Load, setup: Setup) -> Outcome:
        """See `Form`. Items that wait after the last enqueue have a minute to start."""
        with _simulated_fleet(self._seed, setup) as fleet:
            fleet.start()
            begun_us = fleet.send(load)
            before = fleet.counts_at(begun_us + int(load.warm_s * 1e6))
            after = fleet.counts_at(begun_us + int((load.warm_s + load.seconds) * 1e6))
            fleet.run_until_started(LAST_S_MAX)
            return outcome(seconds=load.seconds, before=before, after=after, items=fleet.waits)

    def at_saturation(self, backlog: Backlog, setup: Setup) -> Outcome:
        """See `Form`."""
        with _simulated_fleet(self._seed, setup) as fleet:
            fleet.preload(filled(backlog.tenants, backlog.items, backlog.work_ms))
            fleet.start()
            begun_us = fleet.world.now_us()
            before = fleet.counts_at(begun_us + int(backlog.warm_s * 1e6))
            after = fleet.counts_at(begun_us + int((backlog.warm_s + backlog.seconds) * 1e6))
            check_not_exhausted(backlog, after)
            return outcome(seconds=backlog.seconds, before=before, after=after, items=fleet.waits)


@contextmanager
def _simulated_fleet(seed: int, setup: Setup) -> Iterator[_SimulatedFleet]:
    """Run a scene without the cycle collector, which would visit all keys again and again, for half of the time."""
    fleet = _SimulatedFleet(seed, setup)
    gc.disable()
    try:
        yield fleet
    finally:
        fleet.close()
        gc.enable()
        gc.collect()


class _SimulatedFleet:
    """A world with a store, consumers and enqueuers. `waits`: the waits of the measured items that have started."""

    def __init__(self, seed: int, setup: Setup) -> None:
        self.world = World(seed, NoLog())
        self.waits = histogram()
        self._unstarted = 0
        self._cluster = Cluster(self.world, _plan(setup), NoOracles(self.world, [SHARD]), self)

    def preload(self, contents: sorted_map.Map) -> None:
        """Let the store begin with these contents."""
        self._cluster.stores[SHARD].preload(contents)

    def start(self) -> None:
        """Start the consumers, and let time pass until they are ready."""
        self._cluster.add_consumers()
        self.world.run_until(START_US + int(START_S * 1e6))

    def send(self, load: Load) -> int:
        """Begin to send a load. Return the time of the beginning."""
        begun_us = self.world.now_us()
        Actor(self.world, self._cluster.add_node("clients"), "clients", partial(self._send, load, begun_us)).start()
        return begun_us

    def counts_at(self, time_us: int) -> Counter[str]:
        """Let time pass until then, and return the sum of the consumers' counts."""
        self.world.run_until(time_us)
        total: Counter[str] = Counter()
        asked = [actor for name, actor in self._cluster.actors.items() if name.partition(".")[2].startswith(ASKED)]
        answered: list[int] = []

        def ask() -> None:
            for answer, error in self._cluster.operator.ask_all(asked, "counts"):
                assert error is None, error
                total.update(answer)
            answered.append(len(asked))

        self._cluster.operator.do("counts", ask)
        while not answered:
            self.world.run_until(self.world.now_us() + 1_000)
        return total

    def run_until_started(self, seconds_max: float) -> None:
        """Let time pass until every measured item has started, at most for the given time."""
        end_us = self.world.now_us() + int(seconds_max * 1e6)
        while self._unstarted and self.world.now_us() < end_us:
            self.world.run_until(self.world.now_us() + 100_000)

    def close(self) -> None:
        """End the world."""
        self._cluster.close()

    # --- See `fairlead.simulation.cluster.Application` ---

    def registry(self, host: SimulatedHost) -> Registry:
        """Return the one handler."""

        def work(job: Job) -> None:
            order = job.payload
            if order["measured"]:
                self._unstarted -= 1
                record(self.waits, self.world.now_us() - order["due_us"])
            host.clock.sleep_us(order["work_ms"] * 1000)

        registry = Registry()
        registry.add(handler_of("work", work))
        return registry

    def periods(self) -> Sequence[Period]:
        """Return none."""
        return []

    # --- Clients ---

    def _send(self, load: Load, begun_us: int, host: SimulatedHost) -> None:
        shard = self._cluster.open_shards(host)[SHARD]
        for sending in schedule(load):
            host.clock.sleep_us(begun_us + sending.due_us - self.world.now_us())
            host.spawn("enqueue", partial(self._enqueue, load, shard, sending, begun_us + sending.due_us))

    def _enqueue(self, load: Load, shard: Shard, sending: Sending, due_us: int) -> None:
        if not sending.warm:
            self._unstarted += load.items
        zone = shard.zone(Tenant(TENANT_APP, tenant_name(sending.tenant)))
        item = work_item(due_us, load.work_ms, measured=not sending.warm)

        def body(attempt: Attempt) -> list[Enqueued]:
            attempt.needs_receipt = True
            items = [(attempt.new_id(), item) for _ in range(load.items)]
            return run_together([zone.enqueue_op(attempt.tr, items, now_us=attempt.now_us)])[0]

        shard.transact(body)


def _plan(setup: Setup) -> Plan:
    return Plan(
        part_count=DEFAULT_PART_COUNT,
        zones=ZoneSettings(),
        consumer=setup.settings,
        latencies=LATENCIES,
        call_us=CALL_US,
        skew_us_max=0,
        yield_frac=0.0,
        has_commit_sequence=False,
        faults=(),
        consumers=setup.consumers,
        shards=1,
    )


class _NoApplication:
    """An application without handlers: see `fairlead.simulation.cluster.Application`."""

    def registry(self, host: SimulatedHost) -> Registry:
        """Return none."""
        return Registry()

    def periods(self) -> Sequence[Period]:
        """Return none."""
        return []


ASKED = ("scanner", "worker")  # A consumer's counts are the sums over these roles, as on Ray.


def work_item(due_us: int, work_ms: int, *, measured: bool) -> NewItem:
    """Return an item of the simulated load, of some 200 bytes like a real one."""
    return new_item("work", {"measured": measured, "due_us": due_us, "work_ms": work_ms, "pad": bytes(165)})


# --- A store that is full when the consumers start ---


@cache
def filled(tenants: int, items: int, work_ms: int) -> sorted_map.Map:
    """Return the contents of a store in which every tenant has the backlog's items, vested when the world begins."""
    world = World(0, NoLog())
    cluster = Cluster(world, _plan(Setup(0, ConsumerSettings())), NoOracles(world, [SHARD]), _NoApplication())
    item = work_item(START_US, work_ms, measured=False)
    left = deque(range(0, tenants, FILL_ZONES))

    def fill() -> None:
        shard = cluster.open_shards(cluster.operator.host)[SHARD]
        while left:
            numbers = range(left[0], min(left[0] + FILL_ZONES, tenants))
            shard.transact(partial(_fill, shard, numbers, [item] * items))
            left.popleft()

    cluster.operator.do("fill", fill)
    while left:
        world.run_until(world.now_us() + 1_000_000)
    return cluster.stores[SHARD].contents


def _fill(shard: Shard, numbers: range, items: Sequence[NewItem], attempt: Attempt) -> None:
    zones = [shard.zone(Tenant(TENANT_APP, tenant_name(number))) for number in numbers]
    run_together(
        [zone.enqueue_op(attempt.tr, [(attempt.new_id(), each) for each in items], now_us=START_US) for zone in zones]
    )
