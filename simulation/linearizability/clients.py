"""A few clients on one queue zone, in a world of their own, and the search for an order of their operations.

Their clocks are wrong, their commits are refused or have unknown results, and they are paused, killed, and restarted.
When all are done, a reader reads the final state. There are no consumers, so the history has all changes of an item.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.client import Client, Known
from fairlead.simulation.linearizability.history import Model
from fairlead.simulation.linearizability.history_trial import END_US, ENDED, HistoryTrial
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.trial import Report
from fairlead.simulation.world import World
from fairlead.simulation.zone_model import Zone, changes_nothing
from fairlead.zones.engines.api.errors import StoreError

QUEUE_ZONE = Model(Zone(), lambda operation: changes_nothing(operation.call, operation.answer))
PROMISE = "the operations of a queue zone are linearizable"
TROUBLE_US = 1_000_000  # Most clients end before this time.
SIZES: Final = {
    "shards": 1, "consumers": 0, "producers": 0, "tenants": 1, "items": 0, "snapshots": False, "trouble_us": TROUBLE_US
}  # fmt: skip


def check_clients(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Let clients use a zone in the world of `seed`, and check their history. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it. An undecided history is a violation, too.
    """
    return Clients(seed, reduction, **chosen).run()


class Clients(HistoryTrial):
    """The clients of one run, ready to run once."""

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        world = World(f"{seed}, clients")
        plan = reduction.apply_to(draw_plan(world.random("plan"), **{**SIZES, **chosen}))
        super().__init__(seed, reduction, chosen, world=world, plan=plan)
        self._known = Known()

    def run_scenario(self) -> None:
        """See `Trial`: the clients with faults, then the reader, and the search for an order."""
        draw = self.world.random("clients")
        for number in range(draw.choice([3, 4])):
            self.start(Process(f"client{number}", self, draw.randint(5, 15)))
        self.run_fault_phase()
        self.run_until(ENDED, END_US, self.are_done)
        self.start(Reader("reader", self, 4))
        self.run_until(ENDED, END_US, self.are_done)
        self.check_history(PROMISE, QUEUE_ZONE)

    def client(self, name: str, host: SimulatedHost, random: Random) -> Client:
        """Return a client on `host`. Waits."""
        shard = self.cluster.open_shards(host)["s0"]
        late = "late commits" in self.plan.faults
        return Client(name, shard, random, self.recorder, self._known, commits_can_be_late=late)


class Process:
    """A process that calls the operations of one client. After a kill it continues with the next one."""

    def __init__(self, name: str, clients: Clients, operations: int) -> None:
        self.name = name
        self.done = False
        self._clients = clients
        self._left = operations
        self._random = clients.world.random(name)

    def live(self, host: SimulatedHost) -> None:
        """Call operation after operation, with and without pauses between them."""
        client = self._clients.client(self.name, host, self._random)
        while self._left:
            if self._random.random() < 0.5:
                host.clock.sleep_us(int(self._random.expovariate(1 / 50_000)))
            self._left -= 1
            try:
                self.call(client, self._left)
            except StoreError:
                self._clients.world.note("gives up")
        self.done = True

    def call(self, client: Client, left: int) -> None:
        """Call one operation; `left` more follow."""
        client.call_one()


class Reader(Process):
    """A process that reads the final state, when all clients are done."""

    def call(self, client: Client, left: int) -> None:
        """See `Process`."""
        (client.peek_all, client.count, client.is_empty, client.min_vesting)[left]()
