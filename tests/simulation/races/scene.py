"""The scene of the races: one shard, one tenant's queue zone, and roles made of the product's own classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from fairlead.actors.consumer import ClockedCoordinator
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Handler, Registry, handler_of
from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.actors.manager import Manager
from fairlead.actors.messages import ItemRef, Report, ServeReply
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.scanner import Scanner
from fairlead.actors.scanning.partitioning import Session
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Worker
from fairlead.shards import Shards
from fairlead.simulation.handler_runners import SimulatedRunners
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.replica import ZoneName, ZoneReplica
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.layout import DEFAULT_ZONE, ZoneLocation
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.queue.periodic import Period
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import ALONE, IDENTITY, Played, report
from tests.simulation.races.director import DirectedStore, Role
from tests.simulation.stage import ALICE, SECOND, Stage

T = TypeVar("T")

MAIL = handler_of("mail", lambda job: None)
LEASE_US = 10 * SECOND
CALL_US = 50_000
SLACK_US = 30_000  # `wake_slack_ms`, and the time that a story takes for its check.


class Scene(Stage):
    """A stage with roles that the story runs step by step. It has the queue of one tenant, `ALICE`."""

    def __init__(self, settings: ZoneSettings | None = None) -> None:
        super().__init__(settings=settings, store_class=DirectedStore)
        self._roles = 0

    # --- Roles ---

    def role(self, name: str, body: Callable[[Shard], T], *, skew_us: int = 0) -> Role[T]:
        """Return a role that has not begun, on a machine whose clock is off by `skew_us`."""
        host = self.new_host(name, skew_us=skew_us)
        return Role(self.directed, host, self.open_in(host), body)

    @property
    def directed(self) -> DirectedStore:
        """The shard's store."""
        assert isinstance(self.store, DirectedStore)
        return self.store

    def open_in(self, host: SimulatedHost) -> Shard:
        """Open the shard in a host."""
        return self.play(lambda: self.open(host), host=host)

    def new_host(self, name: str, *, skew_us: int = 0) -> SimulatedHost:
        """Return a host of its own for a role."""
        self._roles += 1
        return self.add_host(f"{name}#{self._roles}", skew_us=skew_us)

    def user(self, name: str, does: Callable[[TenantDatabase], T], *, skew_us: int = 0) -> Role[T]:
        """Return a role that uses Alice's queue as an application does."""
        return self.role(name, lambda shard: does(tenant(shard)), skew_us=skew_us)

    def worker(self, handlers: Sequence[Handler], items: Sequence[LeasedItem], **settings: Any) -> WorkerRole:
        """Return a role that gets leased items and runs them. Its body ends when the worker has accepted them."""
        host = self.new_host("worker")
        refs = [ref_of(item) for item in items]
        return WorkerRole(self.directed, host, {"s0": self.open_in(host)}, handlers, refs, **settings)

    def scanner(
        self,
        name: str,
        coordinator: ClockedCoordinator,
        answer: Callable[[Sequence[PointerRef]], ServeReply | None],
        **settings: Any,
    ) -> ScannerRole:
        """Return a role that scans the shard; see `ScannerRole`."""
        chosen = ConsumerSettings(selection="in_order", **settings)
        return ScannerRole(self, self.new_host(name), coordinator, answer, chosen)

    def consumer(self, name: str, *, kinds: Sequence[str] = ("mail",), **settings: Any) -> ConsumerRole:
        """Return a role that finds work in its own parts; see `ConsumerRole`."""
        chosen = ConsumerSettings(managers=1, workers=1, selection="partitioned", **settings)
        return ConsumerRole(self, self.new_host(name), kinds, chosen)

    def housekeeper(
        self, name: str, *, kinds: Sequence[str] = (), skew_us: int = 0, periods: Sequence[Period] = ()
    ) -> HousekeeperRole:
        """Return a role that does a consumer's work of each second, with a session that shows `kinds`."""
        return HousekeeperRole(self, self.new_host(name, skew_us=skew_us), kinds, periods)

    def manager(
        self,
        name: str = "manager",
        *,
        kinds: Sequence[str] = ("mail",),
        ref: PointerRef | None = None,
        skew_us: int = 0,
        **settings: Any,
    ) -> ManagerRole:
        """Return a role that serves one pointer once: Alice's as scanned now, or `ref`."""
        return ManagerRole(self, self.new_host(name, skew_us=skew_us), kinds, ref or self.ref, settings)

    # --- Before the race ---

    def has(self, does: Callable[[TenantDatabase], T]) -> T:
        """Let an application do something before the race."""
        return self.play(lambda: does(tenant(self.shard)))

    def leased(self, lease_us: int = LEASE_US, *, kinds: Sequence[str] = ("mail",)) -> list[LeasedItem]:
        """Lease all vested items, without their pointer."""
        capacity = Capacity(100, dict.fromkeys(kinds, 100))

        def body(attempt: Attempt) -> list[LeasedItem]:
            zone = self.shard.zone(ALICE)
            lease_id = attempt.new_id()
            return zone.dequeue(
                attempt.tr, capacity=capacity, lease_id=lease_id, lease_us=lease_us, now_us=attempt.now_us
            )

        return self.play(lambda: self.shard.transact(body))

    def plant(self, key: bytes, value: bytes) -> None:
        """Write one key directly into the store."""
        self.play(lambda: self.shard.transact(lambda attempt: attempt.tr.set(key, value)))

    # --- The contents of the store ---

    @property
    def location(self) -> ZoneLocation:
        """Where Alice's queue is."""
        return self.shard.layout.location(ALICE, DEFAULT_ZONE)

    @property
    def zone(self) -> ZoneReplica:
        """Alice's queue, as it is stored."""
        return self.replica.zones[ZoneName(ALICE, DEFAULT_ZONE)]

    @property
    def count(self) -> int:
        """The number of items by the zone's stored counts, also if Alice lives elsewhere by now."""
        counts, rows = self.location.keys.count_prefix(), self.replica.rows[ALICE]
        return sum(
            int.from_bytes(value, "little", signed=True) for key, value in rows.items() if key.startswith(counts)
        )

    @property
    def pointer_entries(self) -> set[tuple[int, int]]:
        """Priority and vesting time of every entry of its pointer in the top-level queue."""
        return self.zone.pointer_entries

    @property
    def ref(self) -> PointerRef:
        """Its pointer, as a scan finds it."""
        pointer = self.zone.pointer
        assert pointer is not None
        return PointerRef(self.location.part.part, self.location.pointer_id, pointer.vesting_us, pointer.priority)

    @property
    def late_us(self) -> int:
        """How long its earliest item waits for its pointer."""
        assert self.zone.pointer is not None
        earliest_us = min(vesting_us for _, vesting_us, _ in self.zone.entries)
        return self.zone.pointer.vesting_us - max(earliest_us, self.now_us)

    def check_stored(self) -> None:
        """Check that index, records, counts and pointer of the zone agree."""
        zone = self.zone
        assert zone.entries == {(item.priority, item.vesting_us, item_id) for item_id, item in zone.items.items()}
        assert self.count == len(zone.items)
        entries = set() if zone.pointer is None else {(zone.pointer.priority, zone.pointer.vesting_us)}
        assert self.pointer_entries == entries


class ManagerRole(Role[ServeReply]):
    """A manager that serves one pointer once. `handed` are the items that it hands to its worker."""

    def __init__(
        self, scene: Scene, host: SimulatedHost, kinds: Sequence[str], ref: PointerRef, settings: dict[str, Any]
    ) -> None:
        self.handed: list[ItemRef] = []

        def serve(shard: Shard) -> ServeReply:
            return manager_in(host, shard, kinds, self.handed, **settings).serve("s0", [ref])

        super().__init__(scene.directed, host, scene.open_in(host), serve)


def manager_in(
    host: SimulatedHost, shard: Shard, kinds: Sequence[str], handed: list[ItemRef], **settings: Any
) -> Manager:
    """Return a manager that knows some kinds. Its worker accepts all items."""

    def answer(method: str, args: tuple[Any, ...]) -> Report:
        if method == "place":
            handed.extend(args[0])
        return report(in_flight_limit=100)

    chosen = ConsumerSettings(managers=1, workers=1, **settings)
    return Manager(host, {"s0": shard}, registry_of(kinds), chosen, [Played(host, answer)], consumer_id=b"c0")


def registry_of(kinds: Sequence[str]) -> Registry:
    """Return a registry that knows some kinds."""
    return Registry({kind: handler_of(kind, lambda job: None) for kind in kinds})


class WorkerRole(Role[Report]):
    """A worker with its loops. The tasks of its commits have the names `slot`, `completer` and `lease keeper`."""

    def __init__(
        self,
        store: DirectedStore,
        host: SimulatedHost,
        shards: Mapping[str, Shard],
        handlers: Sequence[Handler],
        refs: Sequence[ItemRef],
        **settings: Any,
    ) -> None:
        registry = Registry({handler.kind: handler for handler in handlers})
        submitted = SubmittedHandlers(registry, key=b"", allow=False)
        chosen = ConsumerSettings(managers=1, workers=1, **settings)
        self._worker = Worker(host, shards, submitted, chosen, SimulatedRunners(host), IDENTITY)
        self._worker.start()
        shard = shards[refs[0].shard] if refs else next(iter(shards.values()))
        super().__init__(store, host, shard, lambda _: self._worker.place(refs, host.incarnation))

    @property
    def counts(self) -> dict[str, int]:
        """The outcomes of its items so far, without outcomes that did not occur."""
        return {name: count for name, count in self._worker.counts().items() if count and name != "held"}

    @property
    def is_idle(self) -> bool:
        """Whether the worker holds no item, or is dead."""
        return self.host.dead or (self.is_over and not self._worker.counts()["held"])

    def runs_until_idle(self) -> None:
        """Run until the worker holds no item."""
        self.runs_until(lambda: self.is_idle)


class ScannerRole(Role[None]):
    """A scanner that runs for ever. The story answers for its managers: `answer(refs)`; None: they never answer.

    It may take leases from the start, and requests the in-order lease from `coordinator`. `handed`: the pointers of
    its calls. A call takes `CALL_US`, so that a scanner that always finds pointers does not make a story slow.
    """

    def __init__(
        self,
        scene: Scene,
        host: SimulatedHost,
        coordinator: ClockedCoordinator,
        answer: Callable[[Sequence[PointerRef]], ServeReply | None],
        settings: ConsumerSettings,
    ) -> None:
        self.handed: list[Sequence[PointerRef]] = []
        shard = scene.open_in(host)

        def reply(method: str, args: tuple[Any, ...]) -> int | ServeReply | None:
            if method == "await_capacity":
                return 100
            host.clock.sleep_us(CALL_US)
            refs = args[1]
            self.handed.append(refs)
            return answer(refs)

        managers = [Played(host, reply) for _ in range(settings.managers)]
        coordinating = Played(host, lambda _, args: coordinator.request(*args))
        scanner = Scanner(host, {"s0": shard}, settings, managers, coordinating, consumer=host.name)
        scanner.set_session("s0", ALONE)
        super().__init__(scene.directed, host, shard, lambda _: scanner.run())


class ConsumerRole(Role[None]):
    """A consumer that finds work in its own parts, for ever: a scanner, and the housekeeping that gives it its parts.

    Its managers belong to the story, and answer at once. `handed`: the pointers that they got.
    """

    def __init__(self, scene: Scene, host: SimulatedHost, kinds: Sequence[str], settings: ConsumerSettings) -> None:
        self.handed: list[PointerRef] = []
        shard = scene.open_in(host)

        def reply(method: str, args: tuple[Any, ...]) -> int | ServeReply:
            if method == "serve":
                self.handed.extend(args[1])
                host.clock.sleep_us(CALL_US)
            return 100 if method == "await_capacity" else ServeReply(0, 0, 0, 0, capacity=100)

        scanner = Scanner(host, {"s0": shard}, settings, [Played(host, reply)], Played(host), consumer=host.name)
        identity = Identity(host.name.encode(), host.name, 1, scene.now_us)
        submitted = SubmittedHandlers(registry_of(kinds), key=b"", allow=False)
        housekeeping = Housekeeping(host, {"s0": shard}, identity, (), submitted, scanner, slots=1)

        def live(_: Shard) -> None:
            host.spawn("housekeeping", housekeeping.run)
            scanner.run()

        super().__init__(scene.directed, host, shard, live)

    def is_paused_for(self, duration_us: int) -> None:
        """Pause its process for a while."""
        self.host.paused_until_us = self.host.world.now_us() + duration_us

    def taken(self) -> set[bytes]:
        """Return the ids of the pointers that were handed over since the last call."""
        refs, self.handed[:] = list(self.handed), []
        return {ref.id for ref in refs}


class HousekeeperRole(Role[None]):
    """The work of a consumer in each second, for ever.

    `fit`: whether its clock may take leases; None: not known yet. `session`: its latest session.
    """

    def __init__(self, scene: Scene, host: SimulatedHost, kinds: Sequence[str], periods: Sequence[Period]) -> None:
        self.fit: bool | None = None
        self.session: Session | None = None
        shard = scene.open_in(host)
        identity = Identity(host.name.encode(), host.name, 1, scene.now_us)
        submitted = SubmittedHandlers(registry_of(kinds), key=b"", allow=False)
        housekeeping = Housekeeping(host, {"s0": shard}, identity, periods, submitted, self, slots=1)
        super().__init__(scene.directed, host, shard, lambda _: housekeeping.run())

    def set_session(self, shard_name: str, session: Session | None) -> None:
        """See `ScannerHandle`."""
        self.fit, self.session = session is not None, session

    def was_saturated(self) -> bool:
        """See `ScannerHandle`."""
        return False


def ref_of(item: LeasedItem) -> ItemRef:
    """Return the reference to an item of Alice's that a worker gets."""
    return ItemRef(
        "s0", ALICE, DEFAULT_ZONE, item.id, item.record.lease_id, item.record.kind, item.isolated, item.stored
    )


def held(shard: Shard, item: LeasedItem) -> HeldItem:
    """Return a mail of Alice's as a worker holds it."""
    job = Job(shard, ref_of(item), item.record, item.record.payload)
    return HeldItem(ref_of(item), item.record, MAIL, job, shard.clock.now_us())


def pay(shard: Shard, ref: ItemRef) -> None:
    """Do the work of an item of Alice's, one more payment, and complete the item in the same transaction."""
    record = decode(ItemRecord, ref.stored)
    assert record is not None
    job = Job(shard, ref, record, record.payload)

    def body(tr: TenantTransaction) -> None:
        tr.add(("paid",), 1)
        job.complete_in(tr)

    job.transact(body)


def paid(scene: Scene) -> int:
    """Return how many payments there were."""
    value = scene.has(lambda alice: alice.transact(lambda tr: tr.get(("paid",))))
    return int.from_bytes(value or b"", "little")


def tenant(shard: Shard) -> TenantDatabase:
    """Return Alice's database, as an application has it."""
    return TenantDatabase(lambda: cast(Shards, {"s0": shard}), ALICE, shard_name="s0")
