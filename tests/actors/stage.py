"""A stage for one actor: virtual time, one shard in memory, tasks that take turns, and other actors played by the test.

Whatever waits here waits on the world's time, so a story of minutes takes milliseconds and goes the same way twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import FailureHook, Handler, Registry, handler_of
from fairlead.actors.messages import ItemRef, Report
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.scanning.partitioning import HASH_SPACE, Partition, Session
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.worker import Isolation, Worker
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.world import World
from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import TRANSACTION_TIMED_OUT, StoreError, StoreFull, StoreUnavailable
from fairlead.zones.keyspace import PART_COUNT_MAX
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, item_id_of
from fairlead.zones.pipelining import run_together
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.dead_letters import listing as dead_letters_of_shard
from fairlead.zones.queue.dequeue_plan import UNLIMITED, Capacity
from fairlead.zones.queue.items import new_item, pack_payload
from fairlead.zones.records import ItemRecord, PointerRecord, decode, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.top_level.pointers import PointerRef, scan
from fairlead.zones.transaction_runner import Attempt
from tests.zones.faults import FaultyDatabase

T = TypeVar("T")

MS = 1_000
SECOND = 1_000_000
ALICE = Tenant("shop", "alice")
BOB = Tenant("shop", "bob")
SIGNING_KEY = b"a key of the tests' own"
IDENTITY = Identity(consumer_id=bytes(16), host="here", pid=1, started_us=0)
LEASE_MS = 10_000
TRANSACTION_MS = 10_000  # The timeout of a cluster's transactions; see `fairlead.zones.engines.foundationdb.engine`.
ALONE = Session(Partition(0, PART_COUNT_MAX * HASH_SPACE), 1 << 62)  # The session of a consumer that all belongs to.


class Store(FaultyDatabase):
    """A database that can refuse: commits while `full`, everything while `away`; `faults` meet single commits.

    `room_bytes`: on a disk with so much left, it refuses larger commits.
    `answer_late_us`: how long the next commit is on its way back.
    While `silent`, it is a cluster that is away: nothing is refused, and whoever asks waits.
    """

    def __init__(self, db: Database, clock: NodeClock) -> None:
        super().__init__(db)
        self.errors = tuple(dict.fromkeys((*db.errors, StoreError)))  # The stage's own refusals, on a cluster too.
        self.full = False
        self.room_bytes: int | None = None
        self.away = False
        self.silent = False
        self._clock = clock
        self.commits = 0
        self._before: dict[int, Callable[[], object]] = {}
        self.answer_late_us = 0
        self.ear: Ear | None = None

    def listener(self) -> Ear | None:
        return self.ear

    def on_commit(self, ordinal: int, action: Callable[[], object]) -> None:
        """Do something just before the `ordinal`th commit from now that is tried."""
        self._before[self.commits + ordinal] = action

    def create_transaction(self) -> Any:
        if self.away:
            raise StoreUnavailable("the disk is gone", remedy="Bring it back.")
        return SilentTransaction(self._clock) if self.silent else super().create_transaction()

    def commit(self, tr: Any) -> None:
        self.commits += 1
        self._before.pop(self.commits, lambda: None)()
        if self.full or self.away or self._is_too_large(tr):
            raise StoreFull("here")
        late_us, self.answer_late_us = self.answer_late_us, 0
        super().commit(tr)
        if late_us:
            self._clock.sleep_us(late_us)

    def _is_too_large(self, tr: Any) -> bool:
        return self.room_bytes is not None and tr.get_approximate_size().wait() > self.room_bytes


class Ear:
    """Who listens for commits of other processes: the test says when one is heard of."""

    def __init__(self, host: SimulatedHost) -> None:
        self._lock = host.lock()
        self._said = host.condition(self._lock)
        self._words = 0
        self.closed = False

    def wait(self, timeout_s: float) -> bool:
        with self._lock:
            if not self._words:
                self._said.wait(timeout_s)
            heard, self._words = self._words > 0, 0
            return heard

    def say(self) -> None:
        with self._lock:
            self._words += 1
            self._said.notify_all()

    def close(self) -> None:
        self.closed = True


class SilentTransaction:
    """A transaction with a cluster that is away: its first read, of whatever kind, ends with its timeout."""

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        self._timeout_ms = TRANSACTION_MS
        self.options = self.snapshot = self

    def set_timeout(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms

    def set_causal_read_risky(self) -> None:
        """There is no version to read."""

    def get(self, *_: Any, **__: Any) -> Any:
        self._clock.sleep_us(self._timeout_ms * MS)
        raise StoreError(TRANSACTION_TIMED_OUT)

    get_range = get

    def on_error(self, error: Exception) -> Any:
        raise error

    def cancel(self) -> None:
        """There is nothing to cancel."""


class Call(NamedTuple):
    """A call that an actor made, for the test to answer."""

    host: SimulatedHost
    method: str
    args: tuple[Any, ...]
    done: Callable[[Any, Exception | None], None]

    def answer(self, result: Any = None, error: Exception | None = None) -> None:
        """Let the answer arrive, on a task of its own."""
        self.host.spawn("answer", lambda: self.done(result, error))


class Played:
    """Another actor, played by the test: calls wait in `calls` until they are answered; `reply` answers at once."""

    def __init__(self, host: SimulatedHost, reply: Callable[[str, tuple[Any, ...]], Any] | None = None) -> None:
        self.calls: list[Call] = []
        self._host = host
        self._reply = reply

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """See `fairlead.actors.runtime.host.Remote`."""
        call = Call(self._host, method, args, done)
        self.calls.append(call)
        if self._reply is not None:
            answer = self._reply(method, args)
            if isinstance(answer, Exception):
                call.answer(error=answer)
            elif answer is not None:
                call.answer(answer)

    def taken(self) -> list[Call]:
        """Return the calls that came since this was asked last."""
        calls, self.calls = self.calls, []
        return calls

    def named(self, method: str) -> list[Call]:
        """Return the calls of a method."""
        return [call for call in self.calls if call.method == method]


class NoRunners:
    """Where coroutines and Ray tasks run. A stage has no event loop; what one does is told in test_thread_host."""

    def run_coroutine(self, function: Any, held: HeldItem) -> None:
        raise AssertionError(f"{function} needs an event loop")

    def run_remote(self, function: Any, held: HeldItem) -> Any:
        """Run a function with what Ray would carry to its task."""
        job: Job = pickle.loads(pickle.dumps(held.job))
        held.job.on_cancel(job.cancel)
        return function(job)

    def close(self) -> None:
        """Leave no thread behind: there is none."""


class Stage:
    """One shard, one host, and what the test does with them."""

    def __init__(self, *, zones: ZoneSettings | None = None, seed: int = 1) -> None:
        self.world = World(seed)
        self.clock = NodeClock(self.world, 0)
        self.recycled: list[str] = []
        self.failed: list[str] = []
        self.host = SimulatedHost(
            self.world,
            "actor#1",
            self.clock,
            Random(1),
            on_recycle=self.recycled.append,
            on_failure=self.failed.append,
        )
        self.random = Random(2)
        self.store, self.shard = self.open_shard("main", zones)
        self.shards = {"main": self.shard}

    def open_shard(self, name: str, zones: ZoneSettings | None = None) -> tuple[Store, Shard]:
        """Open an empty shard."""
        store = Store(self.open_engine(), self.clock)
        shard = open_shard(name, store, clock=self.clock, random=self.random, settings=zones, part_count=2)
        return store, shard

    def open_engine(self) -> Database:
        """Open an empty database; on a cluster, where tests are told over one (`conftest`)."""
        return engines.open("memory:", clock=self.clock, random=Random(3))

    # --- Time and tasks ---

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    def pass_ms(self, duration_ms: float) -> None:
        """Let everybody take turns for a while."""
        self.world.run_until(self.world.now_us() + round(duration_ms * MS))

    def begin(self, function: Callable[[], T]) -> Outcome[T]:
        """Run `function` as a task of the actor; what it returns is in the outcome, once it has."""
        outcome: Outcome[T] = Outcome()

        def body() -> None:
            try:
                outcome.results.append(function())
            except Exception as error:  # noqa: BLE001 - the test looks at it
                outcome.error = error
            outcome.over_us = self.world.now_us()

        self.host.spawn("test", body)
        return outcome

    def do(self, function: Callable[[], T], *, within_ms: int = 120_000) -> T:
        """Run `function` as a task of the actor to its end; return what it returns, or raise what it raises."""
        outcome = self.begin(function)
        until_us = self.world.now_us() + within_ms * MS
        while outcome.over_us is None and self.world.now_us() < until_us:
            self.pass_ms(1)
        assert outcome.over_us is not None, f"not done within {within_ms} ms"
        return outcome.result

    def wait_for(self, condition: Callable[[], object], *, within_ms: int = 120_000, every_ms: int = 1) -> None:
        """Let everybody take turns until `condition` holds, which is asked every so often."""
        until_us = self.world.now_us() + within_ms * MS
        while not condition():
            assert self.world.now_us() < until_us, f"not so within {within_ms} ms"
            self.pass_ms(every_ms)

    # --- Items ---

    def enqueue(self, kind: str, payload: Any = None, *, tenant: Tenant = ALICE, shard: Shard | None = None,
                **how: Any) -> bytes:  # fmt: skip
        """Enqueue one item, a moment after the one before; return its id."""
        self.pass_ms(0.001)
        item = new_item(kind, payload, **how)

        def body(attempt: Attempt) -> bytes:
            item_id = attempt.new_id() if item.given_id is None else item_id_of(item.given_id)
            (shard or self.shard).zone(tenant).enqueue(attempt.tr, item, item_id=item_id, now_us=attempt.now_us)
            return item_id

        return (shard or self.shard).transact(body)

    def lease(
        self, kinds: Iterable[str], *, tenant: Tenant = ALICE, items_max: int = 1_000, shard: Shard | None = None
    ) -> list[ItemRef]:
        """Lease what a tenant has that is due, as a manager would, and return what a worker is sent."""
        at = shard or self.shard
        capacity = Capacity(items_max, dict.fromkeys(kinds, UNLIMITED))

        def body(attempt: Attempt) -> list[ItemRef]:
            items = at.zone(tenant).dequeue(
                attempt.tr, capacity=capacity, lease_id=attempt.new_id(), lease_us=LEASE_MS * MS, now_us=attempt.now_us
            )
            return [
                ItemRef(at.name, tenant, DEFAULT_ZONE, item.id, item.record.lease_id, item.record.kind, item.isolated)
                for item in items
            ]

        return at.transact(body)

    def record(self, item_id: bytes, *, tenant: Tenant = ALICE, shard: Shard | None = None) -> ItemRecord | None:
        """Return the stored record of an item."""
        at = shard or self.shard
        value = at.transact(lambda attempt: attempt.tr.get(at.zone(tenant).location.keys.item(item_id)).value)
        return None if value is None else decode(ItemRecord, value)

    def change(self, item_id: bytes, *, tenant: Tenant = ALICE, **fields: Any) -> None:
        """Change fields of an item's record behind everybody's back; none of them is in an index."""

        def body(attempt: Attempt) -> None:
            key = self.shard.zone(tenant).location.keys.item(item_id)
            record = decode(ItemRecord, attempt.tr.get(key).value or b"")
            assert record is not None
            for name, value in fields.items():
                setattr(record, name, value)
            attempt.tr.set(key, encode(record))

        self.shard.transact(body)

    def steal(self, item_id: bytes, *, tenant: Tenant = ALICE) -> bytes:
        """Lease an item for another holder, although it is leased, as after a lease expiry."""

        def body(attempt: Attempt) -> bytes:
            zone = self.shard.zone(tenant)
            value = attempt.tr.get(zone.location.keys.item(item_id)).value
            record = decode(ItemRecord, value or b"")
            assert record is not None
            zone.requeue(attempt.tr, item_id, record.lease_id, delay_us=0, now_us=attempt.now_us)
            lease_id = attempt.new_id()
            zone.obtain_lease(attempt.tr, item_id, lease_id=lease_id, lease_us=LEASE_MS * MS, now_us=attempt.now_us)
            return lease_id

        return self.shard.transact(body)

    def count(self, tenant: Tenant = ALICE, shard: Shard | None = None) -> dict[str, int]:
        """Return how many items a tenant has, by kind."""
        at = shard or self.shard
        return at.transact(lambda attempt: at.zone(tenant).count(attempt.tr))

    def dead_letters(self) -> list[DeadLetter]:
        """Return the shard's dead letters."""
        return self.shard.transact(
            lambda attempt: list(dead_letters_of_shard(attempt.tr, self.shard.layout, items_max=1_000))
        )

    # --- Pointers ---

    def pointers(self, shard: Shard | None = None) -> list[PointerRef]:
        """Return the pointers that have vested."""
        at = shard or self.shard

        def body(attempt: Attempt) -> list[PointerRef]:
            parts = at.layout.parts
            found = run_together([scan(attempt.tr, part, now_us=attempt.now_us, ids_max=1_000) for part in parts])
            return [ref for refs, _ in found for ref in refs]

        return at.transact(body)

    def pointer(self, tenant: Tenant = ALICE) -> PointerRecord | None:
        """Return a tenant's pointer."""
        place = self.shard.zone(tenant).location
        value = self.shard.transact(lambda attempt: attempt.tr.get(place.keys.pointer).value)
        return None if value is None else decode(PointerRecord, value)

    # --- Workers ---

    def worker(
        self,
        handlers: Iterable[Handler],
        *,
        shards: dict[str, Shard] | None = None,
        on_failure: Iterable[FailureHook] = (),
        isolation: Isolation = Isolation.NONE,
        **settings: Any,
    ) -> Worker:
        """Start a worker."""
        registry = Registry(on_failure=list(on_failure))
        for handler in handlers:
            registry.add(handler)
        submitted = SubmittedHandlers(registry, key=SIGNING_KEY, allow=True)
        chosen = ConsumerSettings(**{"managers": 1, "workers": 1, "slots": 2, **settings})
        worker = Worker(self.host, shards or self.shards, submitted, chosen, NoRunners(), IDENTITY, isolation)
        worker.start()
        return worker

    def place(self, worker: Worker, refs: Sequence[ItemRef], *, incarnation: bytes | None = None) -> Report:
        """Send items to a worker, in its present life or in another, and return its report."""
        return self.do(lambda: worker.place(refs, self.host.incarnation if incarnation is None else incarnation))

    def settled(self, worker: Worker, *, within_ms: int = 120_000, every_ms: int = 1) -> dict[str, int]:
        """Wait until a worker holds nothing; return what became of its items, without what did not occur."""
        self.wait_for(lambda: self.do(worker.counts)["held"] == 0, within_ms=within_ms, every_ms=every_ms)
        return {name: count for name, count in self.do(worker.counts).items() if count}

    def handler(self, kind: str, function: Callable[..., Any], **options: Any) -> Handler:
        """Return a handler; see `handler_of`."""
        return handler_of(kind, function, **options)

    def sleep_ms(self, duration_ms: float) -> None:
        """For handlers: take so long."""
        self.clock.sleep_us(round(duration_ms * MS))


class Outcome(Generic[T]):
    """How a task of a test went. `over_us`: when it ended, None: not yet."""

    def __init__(self) -> None:
        self.results: list[T] = []
        self.error: Exception | None = None
        self.over_us: int | None = None

    @property
    def result(self) -> T:
        """What it returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.results[0]


def report(*, in_flight_limit: int = 10, held: int = 0, progress: int = 0, incarnation: bytes = b"first life",
           kinds: dict[str, int] | None = None) -> Report:  # fmt: skip
    """Return a worker's report."""
    return Report(incarnation, in_flight_limit, held, progress, kinds or {})


def item_ref(number: int, *, kind: str = "mail", isolated: bool = False, tenant: Tenant = ALICE) -> ItemRef:
    """Return a reference to an item that exists in the test's imagination."""
    return ItemRef("main", tenant, DEFAULT_ZONE, number.to_bytes(16, "big"), bytes(16), kind, isolated)


def held_item(
    number: int = 0,
    *,
    now_us: int = 0,
    lease_us: int = LEASE_MS * MS,
    isolated: bool = False,
    kind: str = "mail",
    function: Callable[..., Any] = lambda job: None,
    transactional: bool = False,
    **options: Any,
) -> HeldItem:
    """Return an item as a worker holds it, leased at `now_us`, that exists in the test's imagination."""
    handler = handler_of(
        kind, (lambda job, tr: None) if transactional else function, transactional=transactional, **options
    )
    ref = item_ref(number, kind=kind, isolated=isolated)
    record = ItemRecord(
        kind, pack_payload(None), 100, now_us + lease_us, now_us, lease_id=ref.lease_id, lease_us=lease_us
    )
    return HeldItem(ref, record, handler, Job(None, ref, record, record.payload), now_us)
