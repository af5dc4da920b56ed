"""The worker: runs leased items in slots, and keeps watch over them (QuiCK section 6, Algorithm 3).

Loops run beside each other, all around one table under one lock:
    a slot     takes the next item, runs its handler, hands it over as finished
    keeping    interrupts what ran past its timeout or lost its lease, finds what else is due; waits for no store
    custody    two loops per shard that tell the store: ends, extensions, what goes back
A worker whose leases cannot be extended stops its handlers and takes nothing new: liveness is progress through the
store, not a running process.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import chain

from fairlead.actors.execution.completer import Custody, WorkerState
from fairlead.actors.execution.deadlines import TICK_US, Chores, chores, lease_at_start
from fairlead.actors.execution.failed_attempt import Failure, failure_of
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.in_flight import HeldItem, InFlight, Phase, by_shard
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.runner import Runners, run_handler, timeout_of
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers, handler_of_kind
from fairlead.actors.handlers import describe
from fairlead.actors.messages import ItemRef, Report
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import Host
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.metrics import SLOTS, SLOTS_IN_USE
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.zones.engines.api.progress import unsupervised
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.worker")

PROGRESS_WAIT_S = 1.0  # The longest that a manager's question for progress is held.
DRAIN_FLUSH_US = 2_000_000  # How long a drain waits for what has finished or goes back, once its grace is over.


class Isolation(Enum):
    """What a worker takes: items that run beside others, or poison candidates, one at a time (`poison_candidates`)."""

    NONE = "items that run beside others"
    SHARED = "suspects, in a process that it shares with other workers"
    PROCESS = "suspects, in a process of its own: if it dies, the suspect has killed it"


class Worker:
    """One worker. `place` and `await_progress` are called by its manager, the rest by its consumer."""

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        submitted: SubmittedHandlers,
        settings: ConsumerSettings,
        runners: Runners,
        identity: Identity,
        isolation: Isolation = Isolation.NONE,
    ) -> None:
        isolates = isolation is not Isolation.NONE
        if isolates:
            settings = replace(settings, slots=1)
        self._isolation = isolation
        self._host = host
        self._clock = host.clock
        self._shards = shards
        self._submitted = submitted
        self._settings = settings
        self._lease_us = settings.lease_ms * 1000
        self._runners = runners
        self._identity = identity
        lock = host.lock()
        self._state = WorkerState(
            InFlight(slots=settings.slots, incarnation=host.incarnation, isolates=isolates),
            lock,
            arrived=host.condition(lock),
            left=host.condition(lock),
            failure_log=FailureLog(host.clock),
            outcome_counts=OutcomeCounts(),
        )
        self._spans = host.telemetry.spans
        host.telemetry.read_by(self._reading)
        self._lock = lock
        self._in_flight = self._state.in_flight
        self._busy = host.condition(lock)  # there is something to keep
        self._custodies: dict[str, Custody] = {}  # of the shards that an item came from
        self._given_up = 0

    def start(self) -> None:
        """Start the loops."""
        for _ in range(self._settings.slots):
            self._host.spawn("slot", self._run_slot)
        self._host.spawn("keeping", self._run_deadlines)

    def place(self, refs: Sequence[ItemRef], incarnation: bytes) -> Report:
        """Take items to run, after checking that their leases still stand (Algorithm 3: "double-checks").

        `incarnation`: the one of this worker's that they are for; another takes none of them.
        A lease that has not ended, by a clock that is good, can be nobody else's. What is not held any more is left
        out, and so is what cannot be read: it lapses. Records that did not come with the call are read by snapshot;
        conflicts with nothing.
        """
        if incarnation != self._host.incarnation:
            probe("items come to a worker whose life they were for has ended")
            with self._lock:
                return self._in_flight.report()
        arrived = {name: self._check(name, some) for name, some in by_shard(refs).items()}
        with self._lock:
            if self._in_flight.accepting:
                for held in chain.from_iterable(arrived.values()):
                    self._in_flight.accept(held)
                self._state.wake_slot()
                self._busy.notify_all()
                return self._in_flight.report()
        probe("items arrive at a worker that drains")
        for name, some in arrived.items():  # They were on their way when the worker began to drain.
            self._custodies[name].give_back(some)
        with self._lock:
            return self._in_flight.report()

    def await_progress(self, seen: int) -> Report:
        """Answer once items have left since `progress` was `seen`, or after a second."""
        with self._lock:
            if self._in_flight.progress == seen:
                self._state.left.wait(PROGRESS_WAIT_S)
            return self._in_flight.report()

    def counts(self) -> dict[str, int]:
        """Return what became of the items so far, and `held`: how many there are now."""
        with self._lock:
            return {**self._state.counts, "held": len(self._in_flight)}

    def _reading(self) -> Reading:
        """Return what telemetry counts, and the slots in use now."""
        with self._lock:
            reading = self._state.outcome_counts.read()
            in_use = sum(held.phase is Phase.RUNNING for held in self._in_flight)
        reading.numbers[SLOTS.name, ()] = self._settings.slots
        reading.numbers[SLOTS_IN_USE.name, ()] = in_use
        return reading

    def begin_drain(self) -> None:
        """Start nothing new from now on: what waits is given back, and so is what still comes. Waits for no store."""
        with self._lock:
            self._begin_drain()

    def drain(self, drain_ms: int) -> dict[str, int]:
        """Start nothing new, give back what waits, let what runs finish within `drain_ms`, give back the rest, stop.

        What is given back vests at once and counts neither as an error nor as a lapse.
        """
        with self._lock:
            self._begin_drain()
            left_us = self._wait_for(lambda: not len(self._in_flight) and not self._state.returning, drain_ms * 1000)
            running = [held for held in self._in_flight if held.phase is Phase.RUNNING]
            if running:
                log.warning(
                    "%d items still ran %g s after the drain began, such as %s of kind %s: they are given back, and "
                    "run again; drain_ms says how long a drain may take",
                    len(running), drain_ms / 1000, running[0].ref.item_id.hex(), running[0].ref.kind,
                )  # fmt: skip
            self._hand_over(Chores(give_back=running))
            self._wait_for(self._all_committed, left_us + DRAIN_FLUSH_US)
            self._state.stopping = True
            for condition in (self._state.arrived, self._state.left, self._busy):
                condition.notify_all()
            for custody in self._custodies.values():
                custody.stop()
            # Who stops a worker closes the store next.
            self._wait_for(lambda: not self._is_writing_status(), DRAIN_FLUSH_US)
        self._runners.close()
        return self.counts()

    def abandon(self) -> None:
        """Part with every item on the caller's thread, because a loop of this worker has failed.

        What has ended is settled as what it is: an item whose failure ends the fleet would come back for ever. What
        runs is told that it has lost its item; it goes back, and so does what waits, neither as failed nor as lapsed.
        """
        with self._lock:
            self._in_flight.accepting = False
            now_us = self._clock.now_us()
            ended = [held for held in self._in_flight if held.phase is Phase.FINISHED or held.failure is not None]
            others = [held for held in self._in_flight if held not in ended]
            for held in others:
                held.cancel(now_us)
        for name, some in by_shard(others).items():
            self._custodies[name].give_back(some)
        for name, some in by_shard(ended).items():
            self._custodies[name].settle(some, once=True)

    def _begin_drain(self) -> None:
        self._in_flight.accepting = False
        self._hand_over(Chores(give_back=list(self._in_flight.waiting)))

    def _wait_for(self, condition: Callable[[], bool], left_us: int) -> int:
        """Wait for items to leave until `condition` holds or `left_us` are over; return what is left. The lock is held.

        A clock that is set back loses what has passed since an item left last, and no more.
        """
        while not condition() and left_us > 0:
            begun_us = self._clock.now_us()
            if not self._state.left.wait(left_us / 1e6):
                return 0
            left_us -= max(0, self._clock.now_us() - begun_us)
        return max(0, left_us)

    def _all_committed(self) -> bool:
        """Whether every end and every return has been committed. The lock is held."""
        return not self._state.returning and all(held.phase is not Phase.FINISHED for held in self._in_flight)

    def _is_writing_status(self) -> bool:
        """Whether a last timesheet has not been committed. The lock is held."""
        return any(custody.is_writing for custody in self._custodies.values())

    def _check(self, name: str, refs: Sequence[ItemRef]) -> list[HeldItem]:
        """Return the items of a shard that are held under the leases that came with them."""
        shard = self._shards[name]
        custody = self._custody_of(name)
        carried = [(ref, decode(ItemRecord, ref.stored)) for ref in refs if ref.stored]
        found = [(ref, record, record.payload) for ref, record in carried if record]
        try:
            found += self._read(shard, [ref for ref in refs if not ref.stored])
        except shard.db.errors as error:
            custody.note_refusal(error)
        return self._held(shard, found)

    def _custody_of(self, name: str) -> Custody:
        with self._lock:
            custody = self._custodies.get(name)
            if custody is not None:
                return custody
            custody = self._custodies[name] = Custody(
                self._host, self._shards[name], self._settings, self._state, self._identity
            )
        custody.start()
        return custody

    def _held(self, shard: Shard, found: Iterable[tuple[ItemRef, ItemRecord, bytes]]) -> list[HeldItem]:
        now_us = self._clock.now_us()
        arrived = []
        for ref, record, payload in found:
            if record.lease_id == ref.lease_id and record.vesting_us > now_us:
                handler = handler_of_kind(record.kind, self._submitted, self._shards)
                if handler is not None:
                    arrived.append(HeldItem(ref, record, handler, Job(shard, ref, record, payload), now_us))
        return arrived

    def _read(self, shard: Shard, refs: Sequence[ItemRef]) -> list[tuple[ItemRef, ItemRecord, bytes]]:
        """Read the records and payloads of items that are too long to come with the call."""

        def body(attempt: Attempt) -> list[tuple[ItemRef, ItemRecord, bytes]]:
            tr = attempt.tr
            places = [shard.layout.location(ref.tenant, ref.zone) for ref in refs]
            reads = [tr.snapshot.get(place.keys.item(ref.item_id)) for place, ref in zip(places, refs, strict=True)]
            found = []
            for place, ref, read in zip(places, refs, reads, strict=True):
                record = None if read.value is None else decode(ItemRecord, read.value)
                if record is not None:
                    found.append((ref, record, stored_item.read_payload(tr, place, ref.item_id, record)))
            return found

        return shard.transact(shard.in_exclusive_section(body)) if refs else []

    def _run_slot(self) -> None:
        held: HeldItem | None = None
        while True:
            with self._lock:
                now_us = self._clock.now_us()
                if held is not None:
                    if held.phase is Phase.GIVEN_UP:
                        return  # another slot took this one's place
                    self._in_flight.finish(held, now_us)
                    self._custodies[held.ref.shard].finish(held)
                while (held := self._in_flight.next_to_run(now_us)) is None:
                    if self._state.stopping:
                        return
                    self._state.await_wake()
                    now_us = self._clock.now_us()
                self._state.wake_slot()
            if self._lease_for_start(held):
                self._run(held)

    def _run(self, held: HeldItem) -> None:
        try:
            with unsupervised(), held.committing:
                shard = self._shards[held.ref.shard]
                run_handler(held, shard, self._runners, self._spans, partial(self._conclude, held))
        except BaseException as error:  # noqa: BLE001 - a slot survives whatever a handler raises, exit() too
            held.error = error
            if not held.concluded:
                with unsupervised():
                    self._conclude(held, error)

    def _conclude(self, held: HeldItem, error: BaseException | None) -> Failure | None:
        """Return what an attempt comes to that has ended by `error`, or without; None: it has not failed.

        An item that was cancelled meanwhile has failed by its timeout, or not at all: it goes back, or lapses.
        """
        failure = None if error is None else failure_of(error, held.handler, held.ref.item_id, self._clock)
        held.concluded = True
        if failure is None and not held.job.cancelled:
            return None
        with self._lock:
            if not held.job.cancelled:
                held.failure = failure
                return failure
            timed_out = held.timed_out
        return timeout_of(held, self._clock) if timed_out else None

    def _lease_for_start(self, held: HeldItem) -> bool:
        """Give an item the lease that its handler must start with; False if it is lost, or the store refuses."""
        now_us, refused = self._clock.now_us(), False
        lease_us = lease_at_start(held, now_us=now_us, lease_us=self._lease_us)
        if lease_us is not None:
            custody, marked = self._custodies[held.ref.shard], self._isolation is Isolation.PROCESS
            refused = not custody.with_store(
                lambda: custody.extend([held], lease_us, started=True, ran_isolated=marked)
            )
            now_us = self._clock.now_us()
        if (refused or now_us >= held.lease_until_us) and not held.job.cancelled:
            probe("an item is lost just before it starts")
            with self._lock:
                held.cancel(now_us)
                self._custodies[held.ref.shard].lose(held)
        held.begin(now_us)
        return not held.job.cancelled

    def _run_deadlines(self) -> None:
        while True:
            with self._lock:
                while not (len(self._in_flight) or self._state.stopping or self._write_statuses()):
                    self._busy.wait()
                if self._state.stopping:
                    return
                now_us = self._clock.now_us()
                work = chores(self._in_flight, now_us=now_us, lease_us=self._lease_us)
                for held in work.time_out:
                    held.timed_out = True
                for held in (*work.time_out, *work.lost):
                    held.cancel(now_us)
                    if held.phase is Phase.WAITING:
                        self._in_flight.drop(held)
                for held in work.stuck:
                    self._in_flight.give_up(held)
                    self._custodies[held.ref.shard].give_up(held)
                    self._given_up += 1
                self._state.counts["timed_out"] += len(work.time_out)
                for held in work.lost:
                    self._custodies[held.ref.shard].lose(held)
                self._hand_over(work)
                self._write_statuses()
                if work.lost or work.stuck:
                    self._state.note_left()
            self._replace_slots(work.stuck)
            with self._lock:
                if not self._state.stopping:
                    self._busy.wait(min(TICK_US, self._lease_us // 6) / 1e6)

    def _write_statuses(self) -> bool:
        """Have the timesheets written that are due; say whether one is not up to date. The lock is held."""
        serving = {held.ref.shard for held in self._in_flight}
        unwritten = [custody.tick(holds=name in serving) for name, custody in self._custodies.items()]
        return any(unwritten)

    def _hand_over(self, work: Chores) -> None:
        """Hand what the store must be told to the shards' custodies. The lock is held.

        What goes back starts no more, and is interrupted if it runs.
        """
        now_us = self._clock.now_us()
        for held in work.give_back:
            if held.phase is Phase.WAITING:
                self._in_flight.begin_return(held, now_us)
            held.cancel(now_us)
        self._state.counts["given_back"] += len(work.give_back)
        if work.give_back:
            self._state.note_left()
        for name, some in work.by_shard().items():
            self._custodies[name].take(some)

    def _replace_slots(self, stuck: Sequence[HeldItem]) -> None:
        for held in stuck:
            log.error(
                "handler %s ignores job.cancelled; its slot is replaced, kind=%s item=%s",
                describe(held.handler.function), held.ref.kind, held.ref.item_id.hex(),
            )  # fmt: skip
            self._host.spawn("slot", self._run_slot)
        if stuck and self._given_up >= self._settings.slots:
            probe("a worker whose handlers ignore it wants to be restarted")
            self._host.recycle(f"{self._given_up} handlers ignored job.cancelled")
