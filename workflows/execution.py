"""The calls of `wf`, as one attempt carries them out: each a generator of `requests`.

A call begins by finding out which step it is (`replay`). If the step is recorded, its answer is returned, or its error
is raised. If not, it is done and recorded:

    step at home              one commit at home: effects, entry, and what is pending
    step on another shard     what is pending, and the participant, are recorded at home; then one commit there
    effect                    what is pending, and the version, are recorded at home; then it is called with an
                              idempotency key; then its answer is recorded at home
    read, wait                the answer is pending until the next commit at home, or the next step elsewhere
    wait for what is not there, long backoff    the run is suspended: one commit at home

So what the outside world, or another shard, has seen follows from what is recorded at home.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fairlead.actors.execution import retry as retries
from fairlead.actors.execution.failed_attempt import is_permanent
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import UnfitCode
from fairlead.actors.telemetry.spans import Spans
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.workflows.branch_moment import BranchMoment
from fairlead.workflows.errors import (
    AfterFinish,
    CallTimeout,
    CheckpointLoop,
    EffectUnknown,
    SignalTimeout,
    StepInStep,
    TooManySteps,
)
from fairlead.workflows.held_locks import HeldLocks
from fairlead.workflows.interrupts import BodyFailed, Cause, Failed, WorkflowInterrupt
from fairlead.workflows.recorded_errors import note_step, rebuilt, shown_error, stored_error
from fairlead.workflows.replay import Replay, shown
from fairlead.workflows.requests import Home, Pause, Stand, Steps, Store, WaitFor
from fairlead.workflows.run_log import RunLog
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_identity import digest_of
from fairlead.workflows.step_try import StepTry
from fairlead.zones.errors import PayloadDamaged, RunUnreadable, TenantMoved
from fairlead.zones.external.steps import NoSuchStore, StepsInStore
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.open_body import STEP, open_body
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.queue.results import ResultNotKept, pack_result
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import apply_at_once
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState, StoredError
from fairlead.zones.workflow.step_log import StepName

log = logging.getLogger("fairlead.workflows")

STEP_LEASE_US = 6_000_000  # A step begins with so much of its lease left: a second more than a transaction takes.
BACKOFF_IN_MEMORY_US = 5_000_000  # A longer backoff of a step suspends the run.
STEPS_WARNED = 10_000  # Steps since the last checkpoint; an attempt reads so many in a tenth of a second.
STEPS_MAX = 100_000
CHECKPOINTS_REPLAYED_MAX = 10_000  # In one attempt of a test that replays after each of them.

Body = Callable[..., Any]
HomeOf = Callable[[Tenant], Shard]
OnMoved = Callable[[TenantMoved], bool]
ApplyLater = Callable[[Callable[[], None]], None]
KeepLease = Callable[[HeldItem], bool]


_in_body: ContextVar[bool] = ContextVar("fairlead_step", default=False)


def ignore_move(moved: TenantMoved) -> bool:
    """Do nothing: whoever tells where tenants live knows it by itself."""
    return False


class Child(NamedTuple):
    """A child that was enqueued, and whose end has not been taken."""

    step: StepName
    ordinal: int
    tenant: Tenant
    zone: str
    item_id: bytes


class Undoable(NamedTuple):
    """What undoes a step: called with the step's arguments, and its result if it has a parameter `result`.

    `is_across_shards`: it takes a transaction across shards, as the step did. `store`: it takes a connection of that
    external store, as the step did.
    """

    step: StepName
    ordinal: int
    kind: StepKind
    undo: Body
    args: Sequence[Any]
    result: bytes
    tenant: Tenant
    is_across_shards: bool = False
    store: str | None = None


class Execution:
    """One attempt at a run, or several replays of it.

    Args:
      run_log: loaded.
      version: of the code.
      home_of: returns the shard where a tenant lives.
      on_moved: called when a shard says that a tenant has moved, so that `home_of` learns where; False: it cannot.
      apply_later: runs a call that carries out on other shards what a transaction across shards has committed.
      externals: the external stores by name.
      keep_lease: keeps the lease of the item for minutes; False: it is lost, or the store refuses.
      step_counts: counts the tries at steps.
      spans: records a span for each try; None: nothing records spans.
      stops_at_end: ends at the first step that is not done, instead of doing it.
      replays: replays the run from its beginning after each new answer.

    Attributes:
      interrupt: what has ended a replay, once something has.
      undoables: what undoes the steps that the replay has passed.
      locks: what the replay holds where it stands.
      latest_us: the latest time among all answers so far.
      children: those that were enqueued, and whose ends have not been taken.
      replays: see the argument.
      late_call: what the code called first after `wf.finish`; empty: nothing.
      was_cut_off: a branch was cancelled while a call of it was carried out, or the run between two tries of a step:
        only the stores know what was done.
    """

    def __init__(
        self,
        run_log: RunLog,
        *,
        version: int,
        home_of: HomeOf,
        on_moved: OnMoved = ignore_move,
        apply_later: ApplyLater = apply_at_once,
        externals: Mapping[str, ExternalStore] = NO_EXTERNALS,
        keep_lease: KeepLease,
        step_counts: StepCounts,
        spans: Spans | None = None,
        stops_at_end: bool = False,
        replays: bool = False,
    ) -> None:
        self.log = run_log
        self.held = run_log.held
        self._version = version
        self._home_of = home_of
        self.on_moved = on_moved
        self.apply_later = apply_later
        self._externals = externals
        self._keep_lease = keep_lease
        self._step_counts = step_counts
        self._spans = spans
        self.stops_at_end = stops_at_end
        self.replays = replays
        self._checkpoints = 0
        self._steps_warned = 0  # How many times `STEPS_WARNED` the run had at the last warning of this attempt.
        self.late_call = ""
        self.was_cut_off = False
        self._clock = run_log.shard.clock
        longest_us = run_log.shard.layout.settings.max_item_lease_ms * 1000
        self._step_lease_us = min(STEP_LEASE_US, longest_us * 6 // 10)
        self.begin_replay()

    def begin_replay(self) -> None:
        """Begin from the start of the function, or from a checkpoint, with all that is known by now."""
        run_log = self.log
        self.interrupt: WorkflowInterrupt | None = None
        self.replay = Replay(run_log.entries, may_differ=self._version > run_log.version)
        self.undoables: list[Undoable] = []
        self.children: list[Child] = []
        self.locks = HeldLocks()
        self.latest_us = (run_log.head and run_log.head.checkpoint_us) or self.held.record.enqueued_us
        self._moment = BranchMoment(run_log.run, run_log.segment, begun_us=self.latest_us)
        self._next_ordinal = 1 + max((entry.ordinal for entry in run_log.entries.values()), default=-1)

    # --- Before the function runs ---

    def count_replay(self) -> None:
        """Count this attempt if it replays recorded steps. Called once `enter` has read them."""
        if self.log.entries:
            self._step_counts.add_replay(self.held.ref.kind)

    @property
    def now_us(self) -> int:
        """See `BranchMoment`."""
        return self._moment.now_us

    @property
    def random(self) -> Random:
        """See `BranchMoment`."""
        return self._moment.random

    @property
    def state(self) -> Any:
        """The state of the last checkpoint; None: there was none."""
        head = self.log.head
        return None if head is None or not head.checkpoint else unpack_payload(head.checkpoint)

    def begins_with(self, packed: bytes) -> bool:
        """Say whether this replay began with a state, packed, and no step has come since."""
        head = self.log.head
        return head is not None and head.checkpoint == packed and not self.replay.done

    def note_checkpoint(self) -> None:
        """Note a checkpoint: what follows is a replay from there. A test could go on so for ever.

        Raises:
          WorkflowInterrupt: there were too many in an attempt that is replayed.
        """
        self.begin_replay()
        self._steps_warned = 0
        self._checkpoints += 1
        if self.replays and self._checkpoints >= CHECKPOINTS_REPLAYED_MAX:
            error = CheckpointLoop(kind=self.held.ref.kind, checkpoints=self._checkpoints)
            raise WorkflowInterrupt(Failed(error))

    # --- One call ---

    def open_call(self, kind: StepKind, name: str, arguments: Sequence[Any]) -> "_OpenCall":
        """Find out which step a call is. The step has ended when the context is left."""
        self.check_call(name)
        digest = digest_of(kind, arguments)
        try:
            step, entry = self.replay.begin(name, digest)
        except UnfitCode as error:
            raise WorkflowInterrupt(Failed(error)) from None
        call = self.new_call(step, kind, digest) if entry is None else _known_call(step, kind, entry)
        return _OpenCall(self.replay, call)

    def check_call(self, name: str) -> None:
        """Refuse a call of `wf` that comes too late, or from inside a step. `name`: of its step."""
        if self.interrupt is not None:
            if self.interrupt.cause is Cause.FINISHED:
                self.late_call = self.late_call or name
                raise WorkflowInterrupt(Failed(self.after_finish()))
            raise self.interrupt
        if _in_body.get():
            raise WorkflowInterrupt(Failed(StepInStep(kind=self.held.ref.kind, step=name)))
        if self.held.job.cancelled:
            raise WorkflowInterrupt(Cause.LOST)

    def after_finish(self) -> AfterFinish:
        """Return the error that names the call which came after `wf.finish`."""
        return AfterFinish(kind=self.held.ref.kind, item=self.held.ref.item_id.hex(), call=self.late_call)

    def before_new(self, call: StepCall) -> Steps[None]:
        """Check that a step which is not answered may be done now."""
        if self.replay.is_behind and (call.entry is None or self.ends_here):
            yield Stand()
        if call.entry is None:
            self.check_new(call.step)
        self.stop_at_end()
        if self.lease_is_short:
            yield from self.extend_lease()
        if self.log.has_many_pending:
            yield Home(partial(self.log.record_pending, call.step, None))
        if call.entry is not None and call.entry.state is StepState.WAITING and call.kind is not StepKind.WAIT:
            until_us = call.entry.until_us or 0
            if self.clock_us() < until_us:
                yield WaitFor((), until_us, ())

    def check_new(self, step: StepName) -> None:
        """Refuse a new step where the replay does not allow one, or after too many."""
        if self.replay.is_behind:
            try:
                self.replay.check_new(step)
            except UnfitCode as error:
                raise WorkflowInterrupt(Failed(error)) from None
        count = len(self.log.entries)
        if count >= STEPS_MAX:
            raise WorkflowInterrupt(Failed(TooManySteps(kind=self.held.ref.kind, steps=count, steps_max=STEPS_MAX)))
        if count // STEPS_WARNED > self._steps_warned:
            self._steps_warned = count // STEPS_WARNED
            log.warning(
                "a workflow has recorded %d steps since its last checkpoint, and may have %d: call wf.checkpoint, "
                "kind=%s item=%s", count, STEPS_MAX, self.held.ref.kind, self.held.ref.item_id.hex(),
            )  # fmt: skip

    def check_alone(self) -> None:
        """Refuse a checkpoint beside steps of other branches."""
        try:
            self.replay.check_alone()
        except UnfitCode as error:
            raise WorkflowInterrupt(Failed(error)) from None

    def stop_at_end(self) -> None:
        """End the replay if it is not to go beyond what is recorded."""
        if self.ends_here:
            raise WorkflowInterrupt(Cause.END_OF_LOG)

    @property
    def ends_here(self) -> bool:
        """Whether the attempt ends at what is not done, instead of doing it."""
        return self.log.is_undone or self.stops_at_end or self.held.job.cancel_requested

    @property
    def lease_is_short(self) -> bool:
        """Whether so little of the lease is left that it may be written while a step is open."""
        until_us = self.held.claim_until_us or self.held.lease_until_us
        return until_us - self._clock.now_us() < self._step_lease_us

    def extend_lease(self) -> Steps[None]:
        """See to it that nobody need write the item's record while a step is open: the step would conflict."""
        if self.lease_is_short:
            probe("a step extends its lease before it begins")
            if not (yield Store(partial(self._keep_lease, self.held))):
                raise WorkflowInterrupt(Cause.LOST)

    def answer(self, call: StepCall) -> Any:
        """Return the recorded result of a step, or raise its recorded error."""
        entry = call.entry
        assert entry is not None
        self.latest_us = max(self.latest_us, entry.at_us)
        self._moment.note_answer(call.step, entry.at_us)
        if entry.state is StepState.DONE:
            return unpacked_answer(entry.result, shown(call.step))
        assert entry.error is not None
        if entry.error.arguments is not None:
            unpacked_answer(entry.error.arguments, shown(call.step))
        raise rebuilt(call.step.name, entry.error, self.permanent)

    @property
    def permanent(self) -> tuple[type[BaseException], ...]:
        """The classes of errors that the workflow's code gets as they are; of any other one it gets `StepFailed`."""
        return (*self.held.handler.permanent, EffectUnknown, CallTimeout, SignalTimeout)

    def note_answer(self) -> None:
        """Note that a step has got its answer now: a test begins the replay anew."""
        if self.replays:
            raise WorkflowInterrupt(Cause.REPLAY)

    # --- Tries ---

    def try_step(
        self,
        call: StepCall,
        do: Callable[[], Steps[StepEntry]],
        fail: Callable[[StoredError], Steps[StepEntry]],
        retry: Retry | None,
        *,
        tenant: Tenant,
    ) -> Steps[StepEntry]:
        """Do a step until it has an answer; return the entry.

        `fail` records an error as its answer. `tenant`: on which it acts.
        """
        while True:
            tried = yield from self._try_once(call, do, fail, retry, tenant)
            if isinstance(tried, StepEntry):
                self.note_answer()
                return tried
            if tried > BACKOFF_IN_MEMORY_US:
                probe("a step is tried again after a suspension")
                now_us = self.clock_us()
                waiting = call.waiting(now_us + tried, now_us)
                yield WaitFor((), now_us + tried, [(call.step, waiting)])
            yield Pause(tried)
            self.check_call(call.step.name)  # The item may be lost by now.
            if self.held.job.cancel_requested and not self.log.is_undone:
                self.was_cut_off |= call.kind is StepKind.STEP  # The commit of a try may still be on its way.
                raise WorkflowInterrupt(Cause.CANCELLED)

    def _try_once(
        self,
        call: StepCall,
        do: Callable[[], Steps[StepEntry]],
        fail: Callable[[StoredError], Steps[StepEntry]],
        retry: Retry | None,
        tenant: Tenant,
    ) -> Steps[StepEntry | int]:
        """Try a step once; return its entry, or the delay in microseconds after which it is to be tried again."""
        with self.begin_try(call, tenant) as step_try:
            try:
                entry = yield from do()
            except BodyFailed as failed:
                error = step_try.error = failed.error
            else:
                step_try.state = entry.state
                return entry
            if retry is None or is_permanent(self.held.handler, error):
                entry = yield from self.fail(call, error, fail)
            else:
                call.tries += 1
                age_us = max(0, self.clock_us() - call.began_us)
                random = self.log.shard.random
                delay_us = retries.delay_us(retry, error_count=call.tries, age_us=age_us, random=random)
                if delay_us is not None:
                    call.last_error = shown_error(error)
                    return delay_us
                probe("a step has used up its own tries")
                entry = yield from fail(stored_error(error))
            step_try.state = entry.state
            return entry

    def begin_try(self, call: StepCall, tenant: Tenant) -> StepTry:
        """Return the `with` block of one try at a step; `tenant`: on which it acts."""
        return StepTry(self._step_counts, self._spans, self.held.ref, call, tenant, self._clock)

    def fail(
        self, call: StepCall, error: Exception, fail: Callable[[StoredError], Steps[StepEntry]]
    ) -> Steps[StepEntry]:
        """Record an error that the workflow's code can catch; end the attempt for any other one."""
        if isinstance(error, UnfitCode | ResultNotKept) or not is_permanent(self.held.handler, error):
            note_step(error, shown(call.step))
            raise WorkflowInterrupt(Failed(error)) from error
        return (yield from fail(stored_error(error)))

    def note_failure(self, call: StepCall, error: StoredError) -> Steps[StepEntry]:
        """Note an error of a read as its answer; the next commit at home records it."""
        entry = call.failed(error, self.clock_us())
        self.log.add_pending(call.step, entry)
        return entry
        yield  # A generator, as the other ways to record an error are.

    # --- Small things ---

    def packed(self, name: str, value: Any) -> bytes:
        """Return what a step has returned, as it is recorded."""
        try:
            return pack_result(value)
        except ResultNotKept as error:
            raise WorkflowInterrupt(Failed(ResultNotKept(step=name, **error.fields))) from None

    def new_call(self, step: StepName, kind: StepKind, digest: bytes) -> StepCall:
        """Return the call of a new step, which gets the next ordinal."""
        ordinal, self._next_ordinal = self._next_ordinal, self._next_ordinal + 1
        return StepCall(step, kind, digest, ordinal, None, self._clock.now_us())

    def home_of(self, tenant: Tenant) -> Shard:
        """Return the shard where a tenant lives. The run's own is here: local items of a kind may lie on any shard."""
        return self.log.shard if tenant == self.held.ref.tenant else self._home_of(tenant)

    def can_be_found(self) -> bool:
        """Say whether an item of another tenant can report its end to this run.

        A tenant is found wherever it has moved; a local item only on its kind's own shard.
        """
        tenant = self.held.ref.tenant
        return bool(tenant.app) or self.is_home(self._home_of(tenant))

    def is_home(self, shard: Shard) -> bool:
        """Say whether a step on this shard is fenced by the lease."""
        return shard.layout.shard_id == self.log.shard.layout.shard_id

    def steps_in(self, store: str) -> StepsInStore:
        """Return the steps that are done in an external store.

        Raises:
          WorkflowInterrupt: the attempt has failed by `NoSuchStore`.
        """
        found = self._externals.get(store)
        if found is None:
            raise WorkflowInterrupt(Failed(NoSuchStore(store=store, known=sorted(self._externals))))
        return found.steps

    def keys_of(self, shard: Shard, tenant: Tenant) -> TenantKeys:
        """Return the keys of a tenant on a shard."""
        return shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant

    def clock_us(self) -> int:
        """Return the time, by the clock of this process."""
        return self._clock.now_us()


class _OpenCall:
    """A call as a context, which ends its step. Not a generator, because each step enters it."""

    __slots__ = ("_call", "_replay")

    def __init__(self, replay: Replay, call: StepCall) -> None:
        self._replay = replay
        self._call = call

    def __enter__(self) -> StepCall:
        return self._call

    def __exit__(self, *_: object) -> None:
        self._replay.end(self._call.step)


def _known_call(step: StepName, kind: StepKind, entry: StepEntry) -> StepCall:
    """Return the call of a step of which something is recorded."""
    return StepCall(step, kind, entry.digest, entry.ordinal, entry, entry.at_us - entry.took_us, tries=entry.tries)


def unpacked_answer(packed: bytes, step: str) -> Any:
    """Return what a step has recorded. `step`: how it is shown.

    Raises:
      WorkflowInterrupt: it is damaged. The workflow's code must not catch that, and go another way.
    """
    try:
        return unpack_payload(packed)
    except PayloadDamaged as error:
        raise WorkflowInterrupt(Failed(RunUnreadable(step=step, reason=RunUnreadable.DAMAGED))) from error


def inside(function: Callable[[], Any], *, first: str) -> Any:
    """Call the body of a step; meanwhile no other step can begin in it.

    `first`: names the argument that the workflow does not give. A call that does not fit the parameters is told of it.
    """
    token, outer = _in_body.set(True), open_body.set(open_body.get() or STEP)
    try:
        return function()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # The body has not begun.
            error.add_note(f"{first} is its first argument")
        raise
    finally:
        open_body.reset(outer)
        _in_body.reset(token)


def named(args: Sequence[Any], tenant: Tenant | None) -> Sequence[Any]:
    """Return the arguments of a step as they count for its digest: with `on` or `store`, if that was given."""
    return args if tenant is None else (*args, *tenant)
