"""What seeds have found in the product, each told as the shortest story that shows it."""

from collections.abc import Callable
from random import Random
from typing import Any

from actors.handlers import Registry
from actors.manager import Manager
from actors.messages import Report
from actors.settings import ConsumerSettings
from simulation.host import NodeClock, SimulatedHost
from simulation.world import START_US, World


class FullWorker:
    """A worker that is over-full: its first answer still shows no room, the next one does."""

    def __init__(self, world: World) -> None:
        self.asked_us: list[int] = []
        self._world = world

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        assert method == "await_progress"
        self.asked_us.append(self._world.elapsed_us)
        held = max(0, 3 - len(self.asked_us))
        report = Report(b"life", 1, held, len(self.asked_us), {})
        host = self._world.current.host if self._world.current else None
        assert host is not None
        self._world.after(10_000, lambda: host.spawn("answer", lambda: done(report, None)) and None)


def simulated_host(world: World) -> SimulatedHost:
    return SimulatedHost(world, "a#1", NodeClock(world, 0), Random(1), end=lambda reason: None)


def test_a_manager_whose_worker_is_overfull_asks_again_as_soon_as_one_item_has_left() -> None:
    """Before, it asked once and then waited out its second: a full consumer did one item per second."""
    world = World(1)
    host = simulated_host(world)
    worker = FullWorker(world)
    rooms: list[tuple[int, int]] = []

    def ask() -> None:
        manager = Manager(host, {}, Registry(), ConsumerSettings(managers=1, workers=1), [worker])
        rooms.append((manager.await_room(), world.elapsed_us))

    host.spawn("asking", ask)
    world.run_until(START_US + 2_000_000)
    assert rooms == [(1, 30_000)]
    assert worker.asked_us == [0, 10_000, 20_000]
