"""The reader of an external store: it makes or wakes pointers for what users have committed there (QuiCK section 6.1).

Every consumer has one for each store, and one of them reads, under a lease in the shard that is the home of the store's
name. Another one takes over within the lease's time. What it does each time:

    1. ask the store what was committed since the snapshot that was saved last
    2. make or wake the pointers, on the shards of their tenants
    3. save the new snapshot: never before, or a reader that stops would leave items behind; and five times a second,
       as a successor that looks at the same again does no harm

It looks when the doorbell rings, and each second anyway. The doorbell makes the commits of all users of the store go
one by one, so it is on only while the store is quiet and somebody reads. While many items come, the reader looks every
few milliseconds. A store that does not notify, or whose notifications do not arrive, is looked at every 50 ms.

All queues are looked at once a day; and when the store's history is another one, after a promotion or a restore: then
the numbers of transactions begin anew. With that, tombstones of workflows that have ended are cleared.
"""

import logging
from collections.abc import Iterator, Mapping

import msgspec

from fairlead.actors.external_pointers import Waker
from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.durations import DAY_S
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.errors import TenantBusy
from fairlead.zones.external import arrivals
from fairlead.zones.external.arrivals import ReaderRecord
from fairlead.zones.external.store import Arrival, ExternalStore, Queue
from fairlead.zones.placement import home
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard, first_shards

log = logging.getLogger("fairlead.reader")

LEASE_US = 5_000_000
RENEW_US = 1_000_000  # How often the lease is extended, and how often another process asks for it.
# How often what was seen is saved: a successor looks at so much again. A save after each look was 60 commits a second.
SAVE_US = 200_000
LOOK_S = 1.0  # The longest wait for the doorbell.
BUSY_LOOK_S = 0.005  # Between two looks while many items come.
POLL_S = 0.05  # Between two looks without a doorbell while few come: a look takes the server 0.3 ms.
BUSY_PER_S = 200  # From so many arrivals a second on the doorbell is off.
SLICE = 500  # Queues that a full look reads at once.
FULL_LOOK_US = DAY_S * 1_000_000
ANSWER_US = 5_000_000  # How long a call of the store may take.


_UNHEARD = (
    "notifications of external store %s do not arrive, as through a pooler in transaction mode: it is looked at every "
    "%d ms instead; connect to the server itself, or set external.%s.notify = false"
)


class Doorbell:
    """When the doorbell is to ring: after a second without arrivals, and not while 200 or more come each second.

    It counts the queues that a look finds, or the commits that have rung since the last look, whichever is more. A
    ring counts only if the look finds a queue.

    Attributes:
      may_ring: whether it may ring at all.
      is_heard: whether the reader has heard it since it began to read.
      rings: whether it is to ring.
      is_set: whether the store does as this says. A promotion loses what was set, and so does a process that dies. A
        reader that was replaced, and ends late, turns the bell off.
    """

    def __init__(self, *, may_ring: bool = True) -> None:
        self.may_ring = may_ring
        self.is_heard = False
        self._is_quiet = False
        self.rings = False
        self.is_set = False
        self._since_us = 0
        self._count = self._rung = 0

    def see(self, rings: bool) -> None:
        """Note whether it rings, as a look has seen."""
        self.is_set = self.is_set and rings is self.rings

    def hear(self, rings: int) -> None:
        """Note that the bell has rung so often since the last look."""
        self._rung += rings

    def note(self, queues: int, now_us: int) -> None:
        """Note that a look has found so many queues, which may change whether the bell is to ring."""
        count, self._rung = max(queues, self._rung) if queues else 0, 0
        if not 0 <= now_us - self._since_us < RENEW_US:
            quiet, busy = not self._count, self._count >= BUSY_PER_S
            self._since_us, self._count = now_us, count
            if quiet or busy:
                self._change(quiet=quiet)
            return
        self._count += count
        if self._count >= BUSY_PER_S:
            self._change(quiet=False)

    def forget(self, *, may_ring: bool) -> None:
        """Know no more whether the store does as this says, and whether the bell is heard."""
        self.may_ring, self.is_heard, self.is_set = may_ring, False, False

    def silence(self) -> None:
        """Let it ring no more: nobody hears it."""
        self.may_ring = False
        self._change(quiet=self._is_quiet)

    def _change(self, *, quiet: bool) -> None:
        self._is_quiet = quiet
        rings = quiet and self.may_ring
        if rings is not self.rings:
            self.rings, self.is_set = rings, False

    @property
    def wait_s(self) -> float:
        """How long to wait for the bell before the next look."""
        if not self._is_quiet:
            return BUSY_LOOK_S
        return LOOK_S if self.rings else POLL_S


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
        self._record: ReaderRecord | None = None  # While this process reads: how far it has come.
        self._is_saved = True
        self._waker = Waker(name, shards, host.clock, self._goes_on)
        self._renewed_us = self._tried_us = self._saved_us = 0
        self._doorbell = Doorbell(may_ring=store.notifies)
        self._refusals = RateLimitedLog(host.clock, log, "external store %s cannot be read; trying again: %s")

    def run(self) -> None:
        """Read until `stop`."""
        while not self._stopping:
            report_loop_progress(ANSWER_US)
            try:
                wait_s = self._read_once()
                if self._record is not None and self._doorbell.rings and wait_s:
                    report_loop_progress(ANSWER_US)
                    self._doorbell.hear(self._store.await_doorbell(wait_s if self._is_saved else SAVE_US / 1e6))
                else:
                    self._pause(wait_s)
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

    @property
    def is_reading(self) -> bool:
        """Whether this process reads the store now."""
        return self._record is not None

    @property
    def home(self) -> Shard:
        """The shard that holds what is saved of the store."""
        return self._shards[home(arrivals.reader_home(self._name), first_shards(self._shards))]

    def _read_once(self) -> float:
        """Look once, if this process reads the store; return how many seconds to wait before the next look."""
        if not self._keeps_lease():
            return LOOK_S
        assert self._record is not None
        before, now_us = self._record, self._host.clock.now_us()
        look = self._store.arrivals(before.seen, before.history)
        if look.history != before.history or not 0 <= now_us - before.looked_us < FULL_LOOK_US:
            history = self._store.history()
            self._store.steps.raise_floor()
            seen, found = self._store.snapshot(), self._all_queues()
            after = msgspec.structs.replace(before, seen=seen, history=history, looked_us=now_us)
        else:
            found = iter([look.arrivals])
            after = msgspec.structs.replace(before, seen=look.seen)
        self._doorbell.see(look.rings)
        count, away = 0, set[str]()
        self._note_refused(now_us, away)
        if self._record is None:
            return LOOK_S
        for some in found:
            count += len(some)
            self._waker.wake(some, away)
            if self._stopping or self._record is None:
                return LOOK_S
        self._record = after
        is_full = after.looked_us != before.looked_us
        self._is_saved = self._is_saved and not count and not is_full
        is_due = is_full or not 0 <= now_us - self._saved_us < SAVE_US
        if not self._is_saved and is_due and not self._waker.refused:
            self._saved_us = now_us
            self._save(after)
            if not self._is_saved:
                return LOOK_S
        self._doorbell.note(count, now_us)
        if self._doorbell.is_set:
            return self._doorbell.wait_s
        self._set_doorbell()
        return 0  # What was committed before the bell was on has not rung it.

    def _set_doorbell(self) -> None:
        """Let the store ring, or not. A bell that is on for the first time is tried: a pooler may swallow it."""
        self._store.set_doorbell(self._doorbell.rings)
        self._doorbell.is_set = True
        if self._doorbell.rings and not self._doorbell.is_heard:
            self._doorbell.is_heard = self._store.hears_doorbell()
            if not self._doorbell.is_heard:
                probe("a reader does not hear the doorbell of an external store")
                self._doorbell.silence()
                log.warning(_UNHEARD, self._name, POLL_S * 1_000, self._name)

    def _keeps_lease(self) -> bool:
        """Extend the lease, if that is due; return whether this process reads the store.

        A look at all queues may take longer than a lease: without this, readers would replace each other for ever.
        """
        now_us = self._host.clock.now_us()
        if self._record is None or not 0 <= now_us - self._renewed_us < RENEW_US:
            taken = self._take(self.home)
            self._renewed_us = now_us
            if taken is None or self._record is None:
                self._record, self._is_saved = taken, True
                self._waker.forget()
        return self._record is not None

    def _goes_on(self) -> bool:
        """Say whether a look is to go on."""
        report_loop_progress(ANSWER_US)
        return not self._stopping and self._keeps_lease()

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
            self._store.set_doorbell(False)  # First: whoever reads next turns it on again.
        except StoreUnavailable as error:
            self._refusals.note(self._name, error)  # A reader that begins sets it anew.
        try:
            self.home.transact(lambda attempt: arrivals.release_reader(attempt.tr, self._name, self._id))
        except self._errors() as error:
            self._refusals.note(self._name, error)  # The lease ends by itself.

    def _save(self, record: ReaderRecord) -> None:
        self._is_saved = self.home.transact(
            lambda attempt: arrivals.save_seen(attempt.tr, self._name, self._id, record)
        )
        if not self._is_saved:
            probe("a reader of an external store finds that another process reads it")
            self._record = None

    def _all_queues(self) -> Iterator[list[Arrival]]:
        """Yield all queues that hold items, as if each had got one now."""
        probe("a reader of an external store looks at all queues")
        behind: Queue | None = None
        while queues := self._store.queues_behind(behind, SLICE):
            behind = queues[-1]
            yield [Arrival(queue, 0) for queue in queues]

    def _note_refused(self, now_us: int, away: set[str]) -> None:
        """Try again those that were refused. Until they are noted nothing is saved: another reader would try them."""
        if self._waker.refused and not 0 <= now_us - self._tried_us < RENEW_US:
            self._tried_us = now_us
            self._waker.wake(list(self._waker.refused.values()), away)

    def _give_up(self, error: Exception) -> None:
        """Look again later, from what was saved."""
        self._record = None
        self._doorbell.forget(may_ring=self._store.notifies)
        self._refusals.note(self._name, error)
        self._pause(LOOK_S)

    def _errors(self) -> tuple[type[Exception], ...]:
        return tuple(kind for shard in self._shards.values() for kind in shard.db.errors)

    def _pause(self, pause_s: float) -> None:
        with self._lock:
            if not self._stopping:
                self._stopped.wait(pause_s)
