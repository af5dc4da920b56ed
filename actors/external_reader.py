"""The reader of an external store: it makes or wakes pointers for what users have committed there (QuiCK section 6.1).

Every consumer has one for each store, and one of them reads, under a lease in the shard that is the home of the store's
name. Another one takes over within the lease's time. What it does each time:

    1. ask the store what was committed since the snapshot that was saved last
    2. make or wake the pointers, on the shards of their tenants
    3. save the new snapshot: only now, or a reader that stops would leave items behind

It looks when the doorbell rings, and each second anyway. The doorbell makes the commits of all users of the store go
one by one, so it is on only while the store is quiet. While many items come, the reader looks every few milliseconds.

All queues are looked at once a day; and when the store's history is another one, after a promotion or a restore: then
the numbers of transactions begin anew. With that, tombstones of workflows that have ended are cleared.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.durations import DAY_S
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.errors import TenantBusy, TenantMoved
from fairlead.zones.external import arrivals
from fairlead.zones.external.arrivals import ReaderRecord
from fairlead.zones.external.store import Arrival, ExternalStore, Queue
from fairlead.zones.placement import home
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard, first_shards
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.reader")

LEASE_US = 5_000_000
RENEW_US = 1_000_000  # How often the lease is extended, and how often another process asks for it.
LOOK_S = 1.0  # The longest wait for the doorbell.
BUSY_LOOK_S = 0.005  # Between two looks while many items come.
BUSY_PER_S = 200  # From so many arrivals a second on the doorbell is off.
SLICE = 500  # Queues that a full look reads at once.
FULL_LOOK_US = DAY_S * 1_000_000
ANSWER_US = 5_000_000  # How long a call of the store may take.
MOVES_MAX = 8


class Doorbell:
    """When the doorbell is to ring: after a second without arrivals, and not while 200 or more come each second."""

    def __init__(self) -> None:
        self.rings = False
        self._since_us = 0
        self._count = 0

    def note(self, count: int, now_us: int) -> bool:
        """Note that a look has found so many queues; return whether that changes whether the bell is to ring."""
        if not 0 <= now_us - self._since_us < RENEW_US:
            quiet, busy = not self._count, self._count >= BUSY_PER_S
            self._since_us, self._count = now_us, count
            if quiet is not self.rings and (quiet or busy):
                self.rings = quiet
                return True
            return False
        self._count += count
        if self.rings and self._count >= BUSY_PER_S:
            self.rings = False
            return True
        return False

    @property
    def wait_s(self) -> float:
        """How long to wait for the bell before the next look."""
        return LOOK_S if self.rings else BUSY_LOOK_S


class ExternalReader:
    """The reader of one store in one consumer. `run` is its loop."""

    def __init__(self, host: Host, name: str, store: ExternalStore, shards: Mapping[str, Shard]) -> None:
        self._host = host
        self._name = name
        self._store = store
        self._shards = shards
        self._id = host.random.randbytes(16)
        self._lock = host.lock()
        self._stopped = host.condition(self._lock)
        self._stopping = False
        self._record: ReaderRecord | None = None  # While this process reads.
        self._renewed_us = 0
        self._doorbell = Doorbell()
        self._refusals = RateLimitedLog(host.clock, log, "external store %s cannot be read; trying again: %s")

    def run(self) -> None:
        """Read until `stop`."""
        while not self._stopping:
            report_loop_progress(ANSWER_US)
            try:
                if not self._read_once():
                    self._pause(LOOK_S)
                elif self._doorbell.rings:
                    report_loop_progress(ANSWER_US)
                    self._store.await_doorbell(self._doorbell.wait_s)
                else:
                    self._pause(self._doorbell.wait_s)
            except StoreUnavailable as error:
                self._give_up(error)
            except TenantBusy as error:
                self._give_up(error)
            except self._errors() as error:
                self._give_up(error)
        self._release()

    def stop(self) -> None:
        """Let the loop end, and another process read."""
        with self._lock:
            self._stopping = True
            self._stopped.notify_all()

    def _read_once(self) -> bool:
        """Look once, and return whether this process reads the store."""
        shard = self._home()
        now_us = self._host.clock.now_us()
        if self._record is None or not 0 <= now_us - self._renewed_us < RENEW_US:
            self._record = self._take(shard)
            self._renewed_us = now_us
        if self._record is None:
            return False
        before = self._record
        history = self._store.history()
        if history != before.history or not 0 <= now_us - before.looked_us < FULL_LOOK_US:
            self._store.steps.raise_floor()
            seen, found = self._store.snapshot(), self._all_queues()
            self._record = msgspec.structs.replace(before, seen=seen, history=history, looked_us=now_us)
        else:
            seen, came = self._store.arrivals(before.seen)
            found = iter([came])
            self._record = msgspec.structs.replace(before, seen=seen)
        count = 0
        for some in found:
            report_loop_progress(ANSWER_US)
            count += len(some)
            self._note_all(some)
        if count or self._record.looked_us != before.looked_us:
            self._save(shard, before)
        if self._doorbell.note(count, now_us):
            self._store.set_doorbell(self._doorbell.rings)
            self._renewed_us = 0  # What was committed before the bell rang is looked for at once.
        return True

    def _take(self, shard: Shard) -> ReaderRecord | None:
        return shard.transact(
            lambda attempt: arrivals.take_reader(
                attempt.tr, self._name, self._id, lease_us=LEASE_US, now_us=attempt.now_us
            )
        )

    def _release(self) -> None:
        if self._record is None:
            return
        try:
            self._home().transact(lambda attempt: arrivals.release_reader(attempt.tr, self._name, self._id))
        except self._errors() as error:
            self._refusals.note(self._name, error)  # The lease ends by itself.

    def _save(self, shard: Shard, before: ReaderRecord) -> None:
        assert self._record is not None
        record = self._record
        if not shard.transact(lambda attempt: arrivals.save_seen(attempt.tr, self._name, before, record)):
            probe("a reader of an external store finds that another process reads it")
            self._record = None

    def _all_queues(self) -> Iterator[list[Arrival]]:
        """Yield all queues that hold items, as if each had got one now."""
        probe("a reader of an external store looks at all queues")
        behind: Queue | None = None
        while queues := self._store.queues_behind(behind, SLICE):
            behind = queues[-1]
            yield [Arrival(queue, 0) for queue in queues]

    def _note_all(self, found: Sequence[Arrival]) -> None:
        """Make or wake the pointers of queues, each on the shard of its tenant."""
        names = first_shards(self._shards)
        for arrival in found:
            shard = self._shards[home(arrival.queue.tenant, names)]
            for _ in range(MOVES_MAX):
                try:
                    self._note(shard, arrival)
                    break
                except TenantMoved as moved:
                    followed = shard.follow(moved)
                    if followed is None:
                        log.warning("tenant %s lives on no shard of this fleet", arrival.queue.tenant)
                        break
                    shard = followed

    def _note(self, shard: Shard, arrival: Arrival) -> None:
        def body(attempt: Attempt) -> None:
            arrivals.note_arrival(attempt.tr, shard.layout, self._name, arrival, now_us=attempt.now_us)

        shard.transact(body)

    def _home(self) -> Shard:
        return self._shards[home(arrivals.reader_home(self._name), first_shards(self._shards))]

    def _give_up(self, error: Exception) -> None:
        """Look again later, from what was saved."""
        self._record = None
        self._refusals.note(self._name, error)
        self._pause(LOOK_S)

    def _errors(self) -> tuple[type[Exception], ...]:
        return tuple(kind for shard in self._shards.values() for kind in shard.db.errors)

    def _pause(self, pause_s: float) -> None:
        with self._lock:
            if not self._stopping:
                self._stopped.wait(pause_s)
