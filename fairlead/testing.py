"""For your tests: run all due items of an application in this process, one after the other.

    app = App("memory:", clock=ManualClock())
    place_order(app, "alice", 7)
    assert drain(app).completed == {"receipt": 1}

No actor and no Ray is started. The code of production processes the pointers, and leases, runs and ends the items. The
order is the same in every run: round by round, one item of each active zone.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from fairlead.actors.execution.acknowledgement import settle
from fairlead.actors.execution.failed_attempt import Failure, failure_of
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry_decision import RetryDecision, decide_retry
from fairlead.actors.execution.runner import AttemptAccess, run_handler
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry, plain_function
from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.spans import spans_of_process
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.app import App
from fairlead.drained_stores import DrainedStores, lease_in, note_ends, read_record, settle_in
from fairlead.workflows.own_event_loop import run_alone
from fairlead.workflows.system_kinds import with_hold_handler
from fairlead.zones.durations import DELAY_S_MAX, Duration, duration_us
from fairlead.zones.errors import BadArgument, QueueError, TenantLocked, TenantMoved
from fairlead.zones.layout import ID_BYTES, ZoneLocation
from fairlead.zones.pipelining import run_one, run_together
from fairlead.zones.policy.policies import read_policies
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dequeue_plan import UNLIMITED, Capacity
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.queue.periodic import Period, last_tick_us, periods_of, tick_op
from fairlead.zones.shard import Shard, first_shards
from fairlead.zones.spanning.leftovers import carry_out_decided
from fairlead.zones.spanning.lock_wait import LockWait
from fairlead.zones.top_level.pointers import PointerRef, earliest_vesting_us, scan
from fairlead.zones.top_level.process_pointers import (
    DequeueParams,
    PointerOutcome,
    PointerResult,
    drop_moved,
    process_pointers,
)
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.children import DELIVERY_KIND, WAKE_SPACING_US

POINTERS_MAX = 1_000  # Per part and round.


class NotDrained(QueueError):
    """More items became due than `items_max`: perhaps a handler enqueues its own kind for ever.

    Do: let the handler stop, or raise `items_max`.
    """

    message = "items keep becoming due"


class ManualClock:
    """A clock that stands still until `advance` or a sleep. For `App(..., clock=ManualClock())`."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        """Return the time, microseconds since the epoch."""
        return self._now_us

    def sleep_us(self, duration_us: int) -> None:
        """Set the clock ahead, at once."""
        self._now_us += duration_us

    def advance(self, duration: Duration) -> None:
        """Set the clock ahead by seconds or a `timedelta`; by a negative duration, back."""
        self._now_us += duration_us("duration", duration, low_s=-DELAY_S_MAX)


@dataclass(slots=True)
class DrainResult:
    """What a drain did: how many items of each kind. `errors`: of attempts and of stores that are away, in order."""

    completed: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead_lettered: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    suspended: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    errors: list[Exception] = field(default_factory=list)

    def of(self, outcome: str) -> Counter[str]:
        """Return how many items of each kind had this outcome."""
        counter: Counter[str] = getattr(self, outcome)
        return counter

    @property
    def runs(self) -> int:
        """How many times a handler was run."""
        return sum(
            sum(each.values())
            for each in (
                self.completed,
                self.retried,
                self.dead_lettered,
                self.dropped,
                self.lost,
                self.suspended,
                self.cancelled,
                self.returned,
            )
        )


def drain(
    app: App, *, within: Duration = 0, raise_errors: bool = True, items_max: int = 10_000, replays: bool = True
) -> DrainResult:
    """Run all due items of all shards and external stores, and what these enqueue, until none is due.

    Returns what was done. Items in an external store are due by that server's clock: neither a `ManualClock` nor
    `within` brings those nearer that are delayed there.

    Due periodic items are enqueued first. Items of kinds without a handler, delayed items, and items that others have
    leased, stay. One item runs at a time: limits are not enforced, and neither are timeouts. A Ray remote function runs
    as the plain function it was made of. A coroutine may call this; its event loop is blocked meanwhile. The clock may
    advance by up to `wake_slack_ms`, and after the end of a workflow's child by 50 ms: so much later is a parent woken
    that waits for several.

    Args:
      within: let so much time pass on the application's `ManualClock`, seconds or a `timedelta`, and run what becomes
        due meanwhile: delayed items, retries, ticks. The clock goes from one due moment to the next, without waiting.
      raise_errors: raise an error of a handler after its item has been requeued, dead-lettered, or dropped, and that
        of an external store that does not answer. Otherwise both are in `errors`, and the store's queues stay.
      items_max: after so many runs `NotDrained` is raised.
      replays: replay a workflow from its beginning after each of its steps, so that the first test of a workflow tells
        if its function is not deterministic. A workflow of n steps runs n + 1 times.

    Raises:
      BadArgument: `within` is out of range, or above 0 with a clock that cannot be advanced.
      NotDrained: see there.
      StoreUnavailable: an external store of the application does not answer, if `raise_errors`; or, in any case, no
        longer answers after items of it were found. Then also ExternalAway.
      BranchNotEnded: a task of an async handler or workflow ignores its cancellation; raised after some seconds.
      What a handler raises, if `raise_errors`.
    """
    within_us = duration_us("within", within)
    if within_us and not isinstance(app.clock, ManualClock):
        raise BadArgument(argument="within", value=within, allowed="0, unless the App has a ManualClock")
    clock, until_us = app.clock, app.clock.now_us() + within_us
    slack_us = app.config.zones.wake_slack_ms * 1000
    drain = _Drain(app, raise_errors=raise_errors, items_max=items_max, replays=replays)
    while True:
        if drain.run_round():
            continue
        now_us = clock.now_us()
        due_us = drain.next_due_us(now_us)
        if due_us is None or due_us > max(until_us, now_us + slack_us, drain.woken_until_us):
            break
        clock.sleep_us(due_us - now_us)
    clock.sleep_us(max(0, until_us - clock.now_us()) if within_us else 0)
    return drain.drained


class _Drain:
    """The state of one drain: the handlers, submitted ones included, and the result so far.

    `woken_until_us`: until then workflows are woken whose children have ended.
    """

    def __init__(self, app: App, *, raise_errors: bool, items_max: int, replays: bool) -> None:
        self.drained = DrainResult()
        self.woken_until_us = 0
        self._app = app
        self._raise_errors = raise_errors
        self._items_max = items_max
        self._jitter = Random(0)  # So that retries come at the same moments in every run.
        self._stores = DrainedStores(app)
        app.serve_system_kinds()
        self._registry = with_hold_handler(Registry(app.registry.handlers))
        key = app.config.signing_key.encode()
        self._access = AttemptAccess(
            _SameThread(), lambda held: True, StepCounts(), spans_of_process(), replays=replays, externals=app.externals
        )
        SubmittedHandlers(self._registry, key, app.config.submissions).load(app.shards)

    def run_round(self) -> bool:
        """Enqueue due ticks and process every vested pointer once; say whether anything changed."""
        changed = False
        for away in self._stores.note_arrivals():
            self._note_error(away)
        for name, shard in self._app.shards.items():
            carry_out_decided(shard, shard.find_shard)  # A transaction across shards may have been answered just now.
            for period in periods_of(self._app.periods, name, first_shards(self._app.shards)):
                changed = _tick(shard, period) or changed
            for ref in _vested(shard):
                for result in self._process_pointer(shard, ref):
                    changed = changed or self._has_changed(shard, result)
                    for item in result.items:
                        assert result.location is not None
                        self._run(shard, result.location, item)
        return changed

    def _has_changed(self, shard: Shard, result: PointerResult) -> bool:
        """Say whether a pointer has brought something. Those of external queues are woken in each round."""
        if self._stores.of_pointer(shard, result.ref) is not None:
            return bool(result.items)
        return result.outcome in (PointerOutcome.SERVED, PointerOutcome.DELETED, PointerOutcome.GONE)

    def next_due_us(self, now_us: int) -> int | None:
        """Return when, after `now_us`, the next pointer vests or the next tick comes; None: never."""
        ticks = [last_tick_us(period, now_us) + period.every_us for period in self._app.periods]
        vests = [due_us for shard in self._app.shards.values() if (due_us := _next_vesting_us(shard, now_us))]
        return min([*ticks, *vests], default=None)

    def _process_pointer(self, shard: Shard, ref: PointerRef) -> list[PointerResult]:
        """Lease at most one item of a zone, so that no leased item waits while another runs."""
        lease_id = self._app.random.randbytes(ID_BYTES)
        settings = shard.layout.settings
        store = self._stores.of_pointer(shard, ref)

        def params(attempt: Attempt) -> DequeueParams:
            return DequeueParams(
                now_us=attempt.now_us,
                lease_id=lease_id,
                lease_us=settings.max_item_lease_ms * 1000,
                items_max=1,
                # Items that cannot run here delay no other; but at a limit of the tenant the drain ends.
                throttle_delay_us=settings.wake_slack_ms * 1000 + 1,
                pause_recheck_us=settings.max_sleep_ms * 1000,
            )

        kinds = dict.fromkeys(self._registry.handlers, UNLIMITED)

        def body(attempt: Attempt) -> list[PointerResult]:
            policies = read_policies(attempt.tr)
            capacity = Capacity(1, kinds, observed=policies.kinds)
            return process_pointers(attempt.tr, shard.layout, [ref], capacity, params(attempt), policies)[0]

        try:
            if store is not None:
                if not self._stores.answers(store):
                    return []
                return lease_in(store, shard, ref, kinds, params)
            return shard.transact(body)
        except TenantMoved:
            shard.transact(lambda attempt: drop_moved(attempt.tr, shard.layout, ref))
            return []

    def _run(self, shard: Shard, location: ZoneLocation, item: LeasedItem) -> None:
        if self.drained.runs >= self._items_max:
            raise NotDrained(items_max=self._items_max, kind=item.record.kind)
        record, kind, clock = item.record, item.record.kind, self._app.clock
        ref = ItemRef(shard.name, location.tenant, location.name, item.id, record.lease_id, kind, item.isolated)
        store = self._stores.of_zone(location.name)
        if store is None:
            payload = shard.transact(lambda attempt: stored_item.read_payload(attempt.tr, location, item.id, record))
        elif (read := read_record(store, ref, clock.now_us())) is not None:
            record, payload = read, read.payload
        else:
            return
        job = Job(shard, ref, record, payload)
        held = HeldItem(ref, record, self._registry.handlers[kind], job, clock.now_us())
        error = _error_of(held, shard, self._access)
        failure = held.failure
        if job.completed or job.committed_end:
            outcome = job.committed_end or "completed"
            self.drained.of(outcome)[kind] += 1
            if store is not None:
                note_ends(shard, [(held, outcome)])
        else:
            failed = (
                [] if failure is None else [decide_retry(held, failure, now_us=clock.now_us(), random=self._jitter)]
            )
            if store is None:
                outcomes = _settle_where_it_lives(shard, held, failed)
            else:
                outcomes = settle_in(store, shard, held, failed)
            for outcome in outcomes:
                self.drained.of(outcome)[kind] += 1
        if record.parent is not None or kind == DELIVERY_KIND:
            self.woken_until_us = clock.now_us() + WAKE_SPACING_US
        if error is not None:
            self._note_error(error)

    def _note_error(self, error: Exception) -> None:
        self.drained.errors.append(error)
        if self._raise_errors:
            raise error


class _SameThread:
    """Runs coroutines to their end, and Ray remote functions as plain ones, where the drain runs."""

    def run_coroutine(self, function: Callable[[Job], Any], held: HeldItem) -> Any:
        """See `Runners`. Where an event loop runs already, such as in an async test, a thread gets one of its own."""
        if not _event_loop_runs():
            return run_alone(function(held.job), kind=held.ref.kind)
        with ThreadPoolExecutor(1) as thread:
            run = partial(run_alone, function(held.job), kind=held.ref.kind)
            return thread.submit(copy_context().run, run).result()

    def run_remote(self, function: Any, held: HeldItem) -> Any:
        """See `Runners`."""
        return plain_function(function)(held.job)

    def close(self) -> None:
        """See `Runners`. Nothing outlives a handler here."""


def _settle_where_it_lives(shard: Shard, held: HeldItem, failed: Sequence[RetryDecision]) -> list[str]:
    """Commit the end of an item on the shard where its tenant lives; return what became of the item."""
    wait = LockWait(shard.find_shard, shard.clock)
    while True:
        settled, refused = settle(shard, [] if failed else [held], failed)
        if not refused:
            return [outcome for _, outcome in settled]
        refusal = refused[0].refusal
        if isinstance(refusal, TenantLocked):
            wait.meet(refusal)
            continue
        home = shard.follow(refusal) if isinstance(refusal, TenantMoved) else None
        if home is None:
            return ["lost"]
        shard = home


def _event_loop_runs() -> bool:
    """Say whether an event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _error_of(held: HeldItem, shard: Shard, access: AttemptAccess) -> Exception | None:
    """Run the item's handler and return what it raised."""

    def conclude(error: BaseException | None) -> Failure | None:
        held.failure = None if error is None else failure_of(error, held.handler, held.ref.item_id, shard.clock)
        return held.failure

    try:
        run_handler(held, shard, access, conclude)
    except Exception as error:  # noqa: BLE001 - a handler may raise anything
        return error
    return None


def _tick(shard: Shard, period: Period) -> bool:
    return shard.transact(
        lambda attempt: (
            run_one(tick_op(attempt.tr, shard.layout, period, run=attempt.new_id(), now_us=attempt.now_us)) is not None
        )
    )


def _vested(shard: Shard) -> list[PointerRef]:
    """Return the vested pointers of all parts in the order in which they vested."""

    def body(attempt: Attempt) -> list[PointerRef]:
        scans = [scan(attempt.tr, part, now_us=attempt.now_us, ids_max=POINTERS_MAX) for part in shard.layout.parts]
        return [ref for refs, _ in run_together(scans) for ref in refs]

    return sorted(shard.transact(body), key=lambda ref: (ref.priority, ref.vesting_us, ref.id))


def _next_vesting_us(shard: Shard, now_us: int) -> int | None:
    """Return when, after `now_us`, the shard's next pointer vests."""

    def body(attempt: Attempt) -> int | None:
        tr, parts = attempt.tr, shard.layout.parts
        found = run_together([earliest_vesting_us(tr, part, after_us=now_us) for part in parts])
        return min((vesting_us for vesting_us in found if vesting_us is not None), default=None)

    return shard.transact(body)
