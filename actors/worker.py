"""The worker: runs leased items in slots, keeps their leases, and commits their ends (QuiCK section 6, Algorithm 3).

It puts together the parts of `fairlead.actors.execution`, whose docstring shows an item's way through them. A worker
that cannot extend its leases stops its handlers and accepts nothing new: a process that runs, but makes no progress
through the store, is not alive.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import chain

from fairlead.actors.execution.arrivals import still_leased, still_leased_in_store
from fairlead.actors.execution.deadlines import TICK_US, DueWork, lease_at_start
from fairlead.actors.execution.external_loops import ExternalLoops
from fairlead.actors.execution.failed_attempt import Failure, failure_of
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.home_counts import HomeCounts
from fairlead.actors.execution.in_flight import HeldItem, Phase, by_place
from fairlead.actors.execution.runner import AttemptAccess, Runners, run_handler, timeout_of
from fairlead.actors.execution.shard_counts import ShardCounts
from fairlead.actors.execution.shard_loops import ShardLoops
from fairlead.actors.execution.slots import Slots
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import describe
from fairlead.actors.messages import ItemRef, Report
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import Host
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.metrics import SLOTS, SLOTS_IN_USE
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.zones.engines.api.progress import unsupervised
from fairlead.zones.errors import TenantMoved
from fairlead.zones.external.names import store_of
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard

log = logging.getLogger("fairlead.worker")

PROGRESS_WAIT_S = 1.0  # The longest that a manager's question for progress waits for its answer.
DRAIN_FLUSH_US = 2_000_000  # How long a drain waits for commits of ends and returns once its grace period is over.


class Isolation(Enum):
    """What a worker takes: items that run beside others, or poison candidates, one at a time (`poison_candidates`)."""

    NONE = "items that run beside others"
    SHARED = "poison candidates, in a process that it shares with other workers"
    PROCESS = "poison candidates, in a process of its own: if the process dies, the running item has killed it"


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
        *,
        externals: Mapping[str, ExternalStore] = NO_EXTERNALS,
    ) -> None:
        isolates = isolation is not Isolation.NONE
        if isolates:
            settings = replace(settings, slots=1)
        self._isolation = isolation
        self._host = host
        self._clock = host.clock
        self._shards = shards
        self._externals = externals
        self._submitted = submitted
        self._settings = settings
        self._lease_us = settings.lease_ms * 1000
        self._runners = runners
        self._step_counts = StepCounts()
        self._access = AttemptAccess(
            runners, self._keep_lease, self._step_counts, host.telemetry.spans, externals=externals
        )
        self._identity = identity
        self._slots = Slots(host, count=settings.slots, isolates=isolates)
        self._failure_log = FailureLog(host)
        self._lock = host.lock()  # Guards the two below, and is held for nothing else.
        self._loops: dict[str, ShardLoops | ExternalLoops] = {}  # Of places of items, and of their tenants' shards.
        self._stopping = False
        self._replaced_slots = 0
        host.telemetry.read_by(self._reading)

    # --- QuiCK's Algorithm 3. Comments name its lines ---

    def start(self) -> None:
        """Start the loops: "do in parallel" (lines 1 and 10)."""
        for _ in range(self._settings.slots):
            self._host.spawn("slot", self._run_slot)
        self._host.spawn("deadlines", self._run_deadlines)

    def _run_slot(self) -> None:
        """Process one item after the other (lines 1 to 9), until the worker stops or another slot replaces this one."""
        held: HeldItem | None = None
        while (held := held or self._slots.take()) is not None:
            if self._has_lease_for_start(held):
                self._process(held)  # Line 2: process the item.
            following = self._slots.finish(held)
            if held.phase is Phase.GIVEN_UP:
                return
            completer = self._loops_of(held.place).completer
            if held.failure is not None:  # Line 3: if failed to process the item,
                completer.requeue(held, held.failure)  # lines 4 and 5: requeue it with an exponential back-off,
            else:  # line 6: else
                completer.complete(held)  # line 7: complete it.
            held = following

    def _run_deadlines(self) -> None:
        """Look every tick for what is due for the items in the slots (lines 10 to 12). Waits for no store."""
        pause_s = min(TICK_US, self._lease_us // 6) / 1e6
        while self._slots.await_items(pause_s):
            due = self._slots.take_due_work(self._lease_us)
            for name, of_shard in due.for_store().items():
                # Line 11: extend the lease (here: claim the item). Line 2, "execution_bound": requeue after a timeout.
                self._loops_of(name).lease_keeper.take(of_shard)
            for name, lost in by_place(due.lost).items():  # Section 6: "if this fails, processing is interrupted".
                self._loops_of(name).completer.note_lost(lost)
            if due.stuck:
                self._replace_slots(due.stuck)

    def _process(self, held: HeldItem) -> None:
        """Run the handler of an item. If it fails, the item has a `failure` afterwards, unless it was cancelled."""
        conclude = partial(self._conclude, held)
        try:
            with unsupervised(), held.committing:
                run_handler(held, self._shards[held.shard_name], self._access, conclude)
        except BaseException as error:  # noqa: BLE001 - a slot survives whatever a handler raises, exit() too
            held.error = error
            if not held.concluded:
                with unsupervised():
                    self._conclude(held, error)

    def _conclude(self, held: HeldItem, error: BaseException | None) -> Failure | None:
        """Return what it means that an attempt ended with `error`, or without; None: it has not failed.

        If the item was cancelled meanwhile, the attempt has failed only by its timeout: otherwise the item is returned,
        or its lease expires.
        """
        failure = None if error is None else failure_of(error, held.handler, held.ref.item_id, self._clock)
        held.concluded = True
        if failure is None and not held.job.cancelled:
            return None
        if self._slots.fail(held, failure):
            return failure
        return timeout_of(held, self._clock) if held.timed_out else None

    def _has_lease_for_start(self, held: HeldItem) -> bool:
        """Give an item the lease with which its handler must start. False: it is lost, or the store refuses."""
        now_us, refused = self._clock.now_us(), False
        lease_us = lease_at_start(held, now_us=now_us, lease_us=self._lease_us)
        if lease_us is not None:
            lease_keeper = self._loops_of(held.place).lease_keeper
            marked = self._isolation is Isolation.PROCESS
            refused = not lease_keeper.mark_started(held, lease_us, ran_isolated=marked)
            now_us = self._clock.now_us()
        if (refused or now_us >= held.lease_until_us) and not held.job.cancelled:
            probe("an item is lost just before it starts")
            self._loops_of(held.place).completer.note_lost(self._slots.lose([held]))
        held.begin(now_us)
        return not held.job.cancelled

    def _keep_lease(self, held: HeldItem) -> bool:
        """Claim an item that runs, which is one write for minutes; False: it is lost, or the store refuses."""
        loops = self._loops_of(held.place)
        claimed = loops.access.succeeds(lambda: loops.claim_keeper.claim([held]))
        return claimed and not held.job.cancelled

    def _replace_slots(self, stuck: Sequence[HeldItem]) -> None:
        """Start a slot for each item whose handler ignores its cancellation; restart if every slot was replaced."""
        for held in stuck:
            self._loops_of(held.place).completer.note_given_up([held])
            log.error(
                "handler %s ignores job.cancelled; its slot is replaced, kind=%s item=%s",
                describe(held.handler.function), held.ref.kind, held.ref.item_id.hex(),
            )  # fmt: skip
            self._host.spawn("slot", self._run_slot)
        self._replaced_slots += len(stuck)
        if self._replaced_slots >= self._settings.slots:
            probe("a worker is restarted because its handlers ignore their cancellation")
            self._host.recycle(f"{self._replaced_slots} handlers ignored job.cancelled")

    # --- Called by the manager ---

    def place(self, refs: Sequence[ItemRef], incarnation: bytes) -> Report:
        """Accept items to run, after a check that their leases still stand, see `still_leased`.

        `incarnation`: the one for which the items were leased; another incarnation accepts none of them.
        """
        if incarnation != self._host.incarnation:
            probe("items arrive for an incarnation of a worker that has ended")
            return self._slots.report()
        arrived = {place: self._still_leased(place, some) for place, some in by_place(refs).items()}
        report = self._slots.accept(chain.from_iterable(arrived.values()))
        if report is None:
            probe("items arrive at a worker that drains")
            for name, some in arrived.items():  # They were on their way when the worker began to drain.
                self._loops_of(name).lease_keeper.return_items(some)
            return self._slots.report()
        for name in dict.fromkeys(held.shard_name for some in arrived.values() for held in some):
            home = self._loops[name]
            assert isinstance(home, ShardLoops)
            home.status_reporter.note_change()
        return report

    def _still_leased(self, place: str, refs: Sequence[ItemRef]) -> list[HeldItem]:
        loops = self._loops_of(place)
        if isinstance(loops, ExternalLoops):
            for name in dict.fromkeys(ref.shard for ref in refs):
                self._loops_of(name)  # Reports there what runs.
            store = self._externals[str(store_of(place))]
            return still_leased_in_store(loops.access, store, refs, self._submitted, self._shards)
        return still_leased(loops.access, refs, self._submitted, self._shards)

    def await_progress(self, seen: int) -> Report:
        """Answer once items have left since `progress` was `seen`, or after a second."""
        return self._slots.await_progress(seen, PROGRESS_WAIT_S)

    # --- Called by the consumer ---

    def counts(self) -> dict[str, int]:
        """Return what became of the items of all shards so far, and `held`: how many there are now."""
        held = len(self._slots)  # Read first: an item is counted before it is dropped.
        return {**sum((each.totals() for each in self._all_counts()), Counter[str]()), "held": held}

    def begin_drain(self) -> None:
        """Start nothing new from now on. Items that wait, or still arrive, are returned. Waits for no store."""
        self._return(self._slots.begin_drain())

    def drain(self, drain_ms: int) -> dict[str, int]:
        """Start nothing new, return what waits, let what runs finish within `drain_ms`, return the rest, stop.

        A returned item vests at once. The return counts neither as an error nor as a lease expiry.
        """
        self.begin_drain()
        left_us = self._slots.await_empty(drain_ms * 1000)
        running = self._slots.cancel_running()
        if running:
            log.warning(
                "%d items still ran %g s after the drain began, such as %s of kind %s: they are returned, and run "
                "again; drain_ms says how long a drain may take",
                len(running), drain_ms / 1000, running[0].ref.item_id.hex(), running[0].ref.kind,
            )  # fmt: skip
        self._return(running)
        self._slots.await_commits(left_us + DRAIN_FLUSH_US)
        self._stop_loops()
        self._runners.close()
        return self.counts()

    def abandon(self) -> None:
        """Part with every item on the caller's thread, because a loop of this worker has failed.

        Items that have ended are settled: an item whose failure ends the worker would otherwise run again and again.
        Running items are cancelled, and returned together with those that wait: neither as errors nor as expiries.
        """
        ended, others = self._slots.abandon()
        for name, some in by_place(others).items():
            self._loops_of(name).lease_keeper.return_items(some)
        for name, some in by_place(ended).items():
            self._loops_of(name).completer.settle_once(some)
        for each in self._all_loops():
            each.claim_keeper.end_once()

    def _return(self, items: Sequence[HeldItem]) -> None:
        for name, some in by_place(items).items():
            self._loops_of(name).lease_keeper.take(DueWork(return_now=some))

    def _stop_loops(self) -> None:
        """Let all loops end, and wait for what they write last: the caller closes the store next."""
        with self._lock:
            self._stopping = True
            loops = list(self._loops.values())
        self._slots.stop()
        for each in loops:
            each.stop()
        begun_us = self._clock.now_us()
        for each in loops:
            passed_us = max(0, self._clock.now_us() - begun_us)
            each.await_end(max(0, DRAIN_FLUSH_US - passed_us))

    def _loops_of(self, place: str) -> ShardLoops | ExternalLoops:
        """Return the loops of a place; start them before its first item."""
        with self._lock:
            loops = self._loops.get(place)
            if loops is not None:
                return loops
            loops = self._loops[place] = self._new_loops(place)
            stopping = self._stopping
        if not stopping:
            loops.start()
        return loops

    def _new_loops(self, place: str) -> ShardLoops | ExternalLoops:
        host, settings, slots, failure_log = self._host, self._settings, self._slots, self._failure_log
        name = store_of(place)
        if name is not None:
            term_us = next(iter(self._shards.values())).layout.settings.max_item_lease_ms * 1000
            store = self._externals[name]
            counts = HomeCounts(lambda shard_name: self._shard_loops(shard_name).counts)
            return ExternalLoops(host, name, store, self._shards, settings, slots, counts, failure_log, term_us=term_us)
        return ShardLoops(host, self._shards[place], settings, slots, failure_log, self._identity, follow=self._follow)

    def _follow(self, held: HeldItem, moved: TenantMoved) -> ShardLoops | None:
        """Return the loops of the shard where the tenant of an item lives now; None: it is not known."""
        home = self._shards[held.shard_name].follow(moved)
        if home is None:
            return None
        held.shard_name = home.name
        return self._shard_loops(home.name)

    def _shard_loops(self, name: str) -> ShardLoops:
        """Return the loops of a shard, see `_loops_of`."""
        loops = self._loops_of(name)
        assert isinstance(loops, ShardLoops)
        return loops

    def _all_counts(self) -> list[ShardCounts]:
        return [each.counts for each in self._all_loops() if isinstance(each, ShardLoops)]

    def _all_loops(self) -> list[ShardLoops | ExternalLoops]:
        with self._lock:
            return list(self._loops.values())

    def _reading(self) -> Reading:
        """Return what telemetry exports: the counts of all shards and of steps, and the slots in use now."""
        reading = sum((each.read() for each in self._all_counts()), self._step_counts.read())
        reading.numbers[SLOTS.name, ()] = self._settings.slots
        reading.numbers[SLOTS_IN_USE.name, ()] = sum(held.phase is Phase.RUNNING for held in self._slots.items())
        return reading
