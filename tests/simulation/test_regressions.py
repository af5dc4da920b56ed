"""Bugs that seeds have found in the product, each as the shortest story that shows it."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from fairlead.actors.execution.deadlines import lease_at_start
from fairlead.actors.execution.in_flight import HeldItem, InFlight
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.manager import Manager
from fairlead.actors.messages import ItemRef, Report, ServeReply
from fairlead.actors.runtime.host import ActorDied
from fairlead.actors.scanner import Scanner
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Worker
from fairlead.simulation.handler_runners import SimulatedRunners
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.world import START_US, World
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import new_item, pack_payload
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import ALONE, IDENTITY
from tests.simulation.stage import ALICE, SECOND, Stage


class FullWorker:
    """A worker with too many items: its first answer shows no capacity, a later one does."""

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
        self._world.after(10_000, lambda: host.spawn("answer", lambda: done(report, None)))


def simulated_host(world: World) -> SimulatedHost:
    return SimulatedHost(world, "a#1", NodeClock(world, 0), Random(1), on_recycle=print, on_failure=print)


def test_a_manager_whose_worker_is_too_full_asks_again_as_soon_as_one_item_has_ended() -> None:
    """Before, the manager asked once and then waited for a second: a full consumer ran one item per second."""
    world = World(1)
    host = simulated_host(world)
    worker = FullWorker(world)
    capacities: list[tuple[int, int]] = []

    def ask() -> None:
        manager = Manager(host, {}, Registry(), ConsumerSettings(managers=1, workers=1), [worker], consumer_id=b"c0")
        capacities.append((manager.await_capacity(), world.elapsed_us))

    host.spawn("asking", ask)
    world.run_until(START_US + 2_000_000)
    assert capacities == [(1, 30_000)]
    assert worker.asked_us == [0, 10_000, 20_000]


class DeadManager:
    """A manager that is being restarted: every call ends at once."""

    def __init__(self, world: World) -> None:
        self.calls = 0
        self._world = world

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        self.calls += 1
        assert self._world.current is not None
        host = self._world.current.host
        self._world.after(100, lambda: host.spawn("answer", lambda: done(None, ActorDied(method=method))))


def test_a_scanner_does_not_call_a_dead_manager_again_and_again() -> None:
    """Before, the scanner called ten thousand times while the manager was restarted, and used a whole core."""
    stage = Stage()
    manager = DeadManager(stage.world)
    coordinator = DeadManager(stage.world)
    item = new_item("mail")
    stage.play(
        lambda: stage.shard.transact(
            lambda attempt: stage.shard.zone(ALICE).enqueue(attempt.tr, item, item_id=bytes(16), now_us=attempt.now_us)
        )
    )
    scanner = Scanner(stage.host, {"s0": stage.shard}, ConsumerSettings(), [manager], coordinator, consumer="c0")
    scanner.set_session("s0", ALONE)
    stage.host.spawn("scanning", scanner.run)
    stage.pass_us(2 * SECOND)
    assert 10 <= manager.calls <= 25


class FickleManager:
    """A manager whose workers have capacity at one moment and none at the next."""

    def __init__(self, world: World) -> None:
        self.served = 0
        self._world = world

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        assert self._world.current is not None
        host = self._world.current.host
        answer: Any = 1
        if method == "serve":
            self.served += 1
            answer = ServeReply(0, 0, 0, 0, self.served % 2)
        self._world.after(100, lambda: host.spawn("answer", lambda: done(answer, None)))


def test_a_scanner_goes_on_when_capacity_ends_between_its_check_and_its_call() -> None:
    """Before, its loop ended by an error, and the consumer found no work any more."""
    stage = Stage()
    zones = [stage.shard.zone(Tenant("shop", f"t{number}")) for number in range(20)]

    def enqueue_all(attempt: Attempt) -> None:
        for number, zone in enumerate(zones):
            item_id = number.to_bytes(16, "big")
            zone.enqueue(attempt.tr, new_item("mail"), item_id=item_id, now_us=attempt.now_us)

    stage.play(lambda: stage.shard.transact(enqueue_all))
    manager = FickleManager(stage.world)
    settings = ConsumerSettings(batch_pointers=1, selection_frac=1)
    scanner = Scanner(stage.host, {"s0": stage.shard}, settings, [manager], DeadManager(stage.world), consumer="c0")
    scanner.set_session("s0", ALONE)
    stage.host.yield_frac = 0.5  # Half of the time a task that takes a lock lets others run first, as threads do.
    stage.host.spawn("scanning", scanner.run)
    stage.pass_us(SECOND // 10)
    assert manager.served > 100


def test_a_stopped_manager_answers_late_that_it_has_no_capacity() -> None:
    """Before, the manager answered at once, and a scanner that was not stopped yet asked again at once."""
    stage = Stage()
    worker = FullWorker(stage.world)
    manager = Manager(stage.host, {}, Registry(), ConsumerSettings(managers=1, workers=1), [worker], consumer_id=b"c0")

    def stop_and_ask() -> tuple[int, int]:
        manager.await_capacity()
        manager.stop()
        begun_us = stage.now_us
        return manager.await_capacity(), stage.now_us - begun_us

    assert stage.play(stop_and_ask) == (0, SECOND)


def held_item(user: str, *, lease_until_us: int = START_US + 1_000_000) -> HeldItem:
    """An item with the id `night run`, leased for one tenant."""
    ref = ItemRef("s0", Tenant("shop", user), "queue", item_id_of("night run"), bytes(16), "mail", isolated=False)
    record = ItemRecord("mail", pack_payload(None), 100, lease_until_us, START_US, lease_id=ref.lease_id)
    handler = handler_of("mail", lambda job: None)
    return HeldItem(ref, record, handler, Job(None, ref, record, record.payload), START_US)


def test_items_of_two_tenants_with_the_same_id_are_two_items_to_a_worker() -> None:
    """Before, a worker took the second item of a batch for a duplicate message; the item waited for lease expiry."""
    in_flight = InFlight(slots=4, incarnation=b"first")
    alice, bob = held_item("alice"), held_item("bob")
    assert in_flight.accept(alice)
    assert in_flight.accept(bob)
    assert not in_flight.accept(held_item("alice"))
    in_flight.drop(alice)
    assert [held.ref.tenant.user for held in in_flight] == ["bob"]


def test_an_item_whose_lease_expired_while_it_waited_for_a_slot_is_leased_anew_before_it_starts() -> None:
    """Before, a worker that had been paused ran the item, although another worker might be running it, too."""
    held = held_item("alice", lease_until_us=START_US + 500_000)
    assert lease_at_start(held, now_us=START_US + 499_999, lease_us=500_000) is None
    assert lease_at_start(held, now_us=START_US + 500_000, lease_us=500_000) == 500_000


def enqueue_and_lease(stage: Stage, zone: QueueZone, kind: str) -> None:
    """Enqueue item 1111... and lease it as 2222... for ten seconds."""
    item = new_item(kind)
    stage.shard.transact(lambda attempt: zone.enqueue(attempt.tr, item, item_id=b"1" * 16, now_us=attempt.now_us))
    stage.shard.transact(
        lambda attempt: zone.dequeue(
            attempt.tr, capacity=Capacity(1, {kind: 1}), lease_id=b"2" * 16, lease_us=10 * SECOND, now_us=attempt.now_us
        )
    )


def test_an_item_that_reaches_a_draining_worker_is_returned_at_once() -> None:
    """Before, the item waited for its lease to expire, and a few such expiries made it run isolated."""
    stage = Stage()
    shard, registry = stage.shard, Registry()
    registry.add(handler_of("mail", lambda job: None))
    handlers = SubmittedHandlers(registry, key=b"", allow=False)
    worker = Worker(stage.host, {"s0": shard}, handlers, ConsumerSettings(), SimulatedRunners(stage.host), IDENTITY)
    worker.start()
    zone = shard.zone(ALICE)

    def lease_and_place() -> None:
        enqueue_and_lease(stage, zone, "mail")
        worker.drain(0)
        worker.place(
            [ItemRef("s0", ALICE, "queue", b"1" * 16, b"2" * 16, "mail", isolated=False)], stage.host.incarnation
        )

    stage.play(lease_and_place)
    ((_, record),) = stage.replica.items()
    assert record.vesting_us <= stage.now_us
    assert (record.lease_id, record.expiry_count) == (b"", 0)


def test_a_stopped_worker_waits_although_one_of_its_handlers_goes_on() -> None:
    """Before, the loop of the lease keeper ran without waiting, as long as the process lived."""
    stage = Stage()
    registry = Registry()
    registry.add(handler_of("deaf", lambda job: stage.host.clock.sleep_us(60 * SECOND)))
    handlers = SubmittedHandlers(registry, key=b"", allow=False)
    chosen = ConsumerSettings(slots=1)
    worker = Worker(stage.host, {"s0": stage.shard}, handlers, chosen, SimulatedRunners(stage.host), IDENTITY)
    worker.start()
    zone = stage.shard.zone(ALICE)

    def lease_run_and_stop() -> None:
        enqueue_and_lease(stage, zone, "deaf")
        worker.place(
            [ItemRef("s0", ALICE, "queue", b"1" * 16, b"2" * 16, "deaf", isolated=False)], stage.host.incarnation
        )
        stage.host.clock.sleep_us(SECOND)  # The handler has begun.
        worker.drain(1_000)

    stage.play(lease_run_and_stop)
    stage.pass_us(10 * SECOND)  # A loop that never waits ends the run by a violation.
    assert worker.counts()["returned"] == 1


class RecordingWorker:
    """A worker that records the items that it gets, and holds them for ever."""

    def __init__(self, world: World) -> None:
        self.refs: list[ItemRef] = []
        self._world = world

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        assert self._world.current is not None
        host = self._world.current.host
        if method == "place":
            self.refs += args[0]
        report = Report(b"life", 100, len(self.refs), 0, {"scarce": len(self.refs)})
        self._world.after(100, lambda: host.spawn("answer", lambda: done(report, None)))


def test_two_calls_at_once_at_a_manager_share_the_limit_of_a_kind() -> None:
    """Before, each call used the whole limit: a consumer ran three items of a kind with a limit of two."""
    stage = Stage()
    zones = [stage.shard.zone(Tenant("shop", f"t{number}")) for number in range(2)]

    def enqueue_all(attempt: Attempt) -> None:
        for zone in zones:
            items = [(bytes([number]) * 16, new_item("scarce")) for number in range(5)]
            run_one(zone.enqueue_op(attempt.tr, items, now_us=attempt.now_us))

    stage.play(lambda: stage.shard.transact(enqueue_all))
    registry, worker = Registry(), RecordingWorker(stage.world)
    registry.add(handler_of("scarce", lambda job: None, max_running=2))
    manager = Manager(
        stage.host, {"s0": stage.shard}, registry, ConsumerSettings(managers=1, workers=1), [worker], consumer_id=b"c0"
    )
    stage.play(manager.await_capacity)
    stage.pass_us(SECOND)
    refs = [PointerRef(zone.location.part.part, zone.location.pointer_id, stage.now_us, 100) for zone in zones]

    def serve(ref: PointerRef) -> None:
        manager.serve("s0", [ref])

    for ref in refs:
        stage.host.spawn("serve", partial(serve, ref))
    stage.pass_us(SECOND)
    assert len(worker.refs) == 2
