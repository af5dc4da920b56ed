"""The calls of `wf`, as one attempt carries them out: each a generator of `requests`.

A call begins by finding out which step it is (`replay`). If the step is recorded, its answer is returned, or its error
is raised. If not, it is done and recorded:

    step at home              one commit at home: effects, entry, and what is pending
    step on another shard     what is pending, and the participant, are recorded at home; then one commit there
    effect                    called with an idempotency key; then its answer is recorded at home
    read, wait                the answer is pending until the next commit at home, or the next step elsewhere
    wait for what is not there, long backoff    the run is suspended: one commit at home

So what the outside world, or another shard, has seen follows from what is recorded at home.
"""

import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fairlead.actors.execution import retry as retries
from fairlead.actors.execution.failed_attempt import is_permanent
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import TRANSACTION_US
from fairlead.actors.handlers import UnfitCode
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.workflows.errors import AfterFinish, EffectUnknown, ReadOnly, StepInStep, StepTooLong, TooManySteps
from fairlead.workflows.interrupts import BodyFailed, Cause, Failed, WorkflowInterrupt
from fairlead.workflows.recorded_errors import rebuilt, stored_error, type_name
from fairlead.workflows.replay import Replay, shown
from fairlead.workflows.requests import Home, Outside, Pause, Stand, Steps, Store, WaitFor
from fairlead.workflows.run_log import RunLog
from fairlead.workflows.step_identity import digest_of, idempotency_key, name_of
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.errors import LeaseLost
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one, run_together
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.queue.results import ResultNotKept, pack_result
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction, refuse_coroutine
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.participants import AskAgain, ForeignStep
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, StepKind, StepState, StoredError
from fairlead.zones.workflow.step_log import StepName
from fairlead.zones.workflow.suspension import Arrived, Awaited, AwaitedSignal

log = logging.getLogger("fairlead.workflows")

STEP_LEASE_US = 6_000_000  # A step begins with so much of its lease left: a second more than a transaction takes.
EXTENDED_LEASE_US = 15_000_000
BACKOFF_IN_MEMORY_US = 5_000_000  # A longer backoff of a step suspends the run.
WITHOUT_TIMEOUT_US = 315_360_000_000_000  # Ten years: the longest delay of an item.
STEPS_WARNED = 10_000  # Steps since the last checkpoint; an attempt reads so many in a tenth of a second.
STEPS_MAX = 100_000

Body = Callable[..., Any]
HomeOf = Callable[[Tenant], Shard]
Extend = Callable[[HeldItem, int], bool]

_in_body: ContextVar[bool] = ContextVar("fairlead_step", default=False)


@dataclass(slots=True)
class StepCall:
    """A call of `wf` that is a step. `entry`: what is recorded of it."""

    step: StepName
    kind: StepKind
    digest: bytes
    ordinal: int
    entry: StepEntry | None

    @property
    def has_answer(self) -> bool:
        """Whether its result or its error is known."""
        return self.entry is not None and self.entry.state in (StepState.DONE, StepState.FAILED)

    def done(self, result: bytes, at_us: int) -> StepEntry:
        """Return its entry with a packed result."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.DONE, at_us, result)

    def failed(self, error: StoredError, at_us: int) -> StepEntry:
        """Return its entry with an error."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.FAILED, at_us, error=error)

    def begun(self, at_us: int) -> StepEntry:
        """Return its entry before an effect that is called once."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.BEGUN, at_us)

    def waiting(self, until_us: int, at_us: int, *, tries: int = 0) -> StepEntry:
        """Return its entry while the run is suspended."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.WAITING, at_us, until_us=until_us, tries=tries)


class Undoable(NamedTuple):
    """What undoes a step: called with the step's arguments, and its result if it has a parameter `result`."""

    step: StepName
    ordinal: int
    kind: StepKind
    undo: Body
    args: Sequence[Any]
    result: bytes
    tenant: Tenant


class Execution:
    """One attempt at a run, or several replays of it.

    Args:
      run_log: loaded.
      version: of the code.
      home_of: returns the shard where a tenant lives.
      extend: extends the lease of the item; False: it is lost, or the store refuses.
      stops_at_end: ends at the first step that is not done, instead of doing it.
      replays: replays the run from its beginning after each new answer.

    Attributes:
      interrupt: what has ended a replay, once something has.
    """

    def __init__(
        self,
        run_log: RunLog,
        *,
        version: int,
        home_of: HomeOf,
        extend: Extend,
        stops_at_end: bool = False,
        replays: bool = False,
    ) -> None:
        self.log = run_log
        self.held = run_log.held
        self._version = version
        self._home_of = home_of
        self._extend = extend
        self.stops_at_end = stops_at_end
        self._replays = replays
        self._raised: set[Tenant] = set()
        self._begin_replay()

    def _begin_replay(self) -> None:
        run_log = self.log
        self.interrupt: WorkflowInterrupt | None = None
        self.replay = Replay(run_log.entries, may_differ=self._version > run_log.version)
        self.undoables: list[Undoable] = []
        self.random = Random(run_log.run + run_log.segment.to_bytes(8, "big"))
        self.now_us = self.held.record.enqueued_us
        self._next_ordinal = 1 + max((entry.ordinal for entry in run_log.entries.values()), default=-1)

    def replay_again(self) -> None:
        """Begin from the start of the function, with all that is known by now."""
        probe("a workflow is replayed")
        self._begin_replay()

    # --- Before the function runs ---

    def enter(self) -> None:
        """Keep older attempts from acting at participants, and read what participants have recorded."""
        places = self.log.participants
        of_shard: dict[str, list[Tenant]] = {}
        for tenant in places:
            of_shard.setdefault(self._home_of(tenant).name, []).append(tenant)
        record = self.held.record
        suspended = record.suspended_at == record.lease_number - 1
        for tenants in of_shard.values():
            shard = self._home_of(tenants[0])
            if not suspended:
                probe("a new attempt raises the fences at participants")
                shard.transact(partial(self._raise_fences, shard=shard, tenants=tenants))
            for tenant in tenants:
                self.log.load_participant(shard, self._keys(shard, tenant))
        self._begin_replay()

    def _raise_fences(self, attempt: Attempt, *, shard: Shard, tenants: Sequence[Tenant]) -> None:
        """One transaction per shard: the shards are asked one after the other, all their tenants together."""
        attempt.finds_itself_applied = True
        number = self.held.record.lease_number
        try:
            run_together(
                [
                    participants.raise_fence_op(
                        attempt.tr, shard.layout, self._keys(shard, tenant), self.log.run, number
                    )
                    for tenant in tenants
                ]
            )
        except LeaseLost:
            raise WorkflowInterrupt(Cause.LOST) from None

    # --- Calls ---

    def step(
        self,
        body: Body,
        args: Sequence[Any],
        *,
        name: str | None,
        on: Tenant | None,
        undo: Body | None,
        retry: Retry | None,
    ) -> Steps[Any]:
        """Do a step in a transaction of a tenant."""
        tenant = on or self.held.ref.tenant
        with self._call(StepKind.STEP, name_of(body, name), (*args, *_named(on))) as call:
            if not call.has_answer:
                yield from self._before_new(call)
                shard = self._home_of(tenant) if on is not None else self.log.shard
                do = partial(self._do_step, call, shard, tenant, body, args)
                fail = partial(self._record_failure, call, shard, tenant)
                call.entry = yield from self._try(call, do, fail, retry)
            self._note_undo(call, undo, args, tenant)
            return self._answer(call)

    def effect(
        self,
        function: Body,
        args: Sequence[Any],
        *,
        name: str | None,
        retry: Retry | None,
        once: bool,
        undo: Body | None,
    ) -> Steps[Any]:
        """Call a function outside the database, and record its answer."""
        with self._call(StepKind.EFFECT, name_of(function, name), args) as call:
            if not call.has_answer:
                key = idempotency_key(self.log.run, self.log.segment, call.step)
                fail = partial(self._record_failure, call, self.log.shard, self.held.ref.tenant)
                if self._ends_here and undo is not None:  # It may have happened.
                    self._add_undo(call, undo, args, pack_payload(None), self.held.ref.tenant)
                if call.entry is not None and call.entry.state is StepState.BEGUN:
                    probe("the answer of an effect that is called once is lost")
                    self._stop_at_end()
                    entry = yield from fail(stored_error(EffectUnknown(call.step.name, key)))
                else:
                    yield from self._before_new(call)
                    if self.log.has_pending:
                        yield Home(partial(self.log.record_pending, call.step, None))
                    if once:
                        yield Home(partial(self.log.record_step, call.step, call.begun(self._clock_us())))
                    do = partial(self._do_effect, call, partial(function, key, *args))
                    entry = yield from self._try(call, do, fail, Retry(attempts=1) if once else retry)
                call.entry = entry
            self._note_undo(call, undo, args, self.held.ref.tenant)
            return self._answer(call)

    def read(self, body: Body, args: Sequence[Any], *, name: str | None, on: Tenant | None) -> Steps[Any]:
        """Read in a transaction of a tenant."""
        tenant = on or self.held.ref.tenant
        with self._call(StepKind.READ, name_of(body, name), (*args, *_named(on))) as call:
            if not call.has_answer:
                yield from self._before_new(call)
                shard = self._home_of(tenant) if on is not None else self.log.shard
                do = partial(self._do_read, call, shard, tenant, body, args)
                call.entry = yield from self._try(call, do, partial(self._note_failure, call), None)
            return self._answer(call)

    def wait_for(self, signal: str, timeout: Duration | None) -> Steps[Any]:
        """Wait for a signal; return its payload, or None after the timeout."""
        timeout_us = WITHOUT_TIMEOUT_US if timeout is None else duration_us("timeout", timeout, also=", or None")
        awaited = AwaitedSignal(signal)
        return (yield from self._wait(f"wait_for {signal}", [awaited], timeout_us))

    def sleep(self, duration: Duration) -> Steps[None]:
        """Wait for a time to pass."""
        yield from self._wait("sleep", [], duration_us("seconds", duration))

    def _wait(self, name: str, awaited: Sequence[Awaited], timeout_us: int) -> Steps[Any]:
        with self._call(StepKind.WAIT, name, ()) as call:
            if not call.has_answer:
                yield from self._before_new(call)
                if self.log.has_taken:
                    yield Home(partial(self.log.record_pending, call.step, None))
                found: dict[Awaited, Arrived] = (yield Store(partial(self.log.find, awaited))) if awaited else {}
                now_us = self._clock_us()
                known_us = None if call.entry is None else call.entry.until_us
                until_us = known_us if known_us is not None else now_us + timeout_us
                if not found and now_us < until_us:
                    found = yield WaitFor(awaited, until_us, [(call.step, call.waiting(until_us, now_us))])
                first = next(iter(found.values()), None)
                entry = call.done(pack_payload(None) if first is None else first.value, self._clock_us())
                self.log.add_pending(call.step, entry, () if first is None else (first.key,))
                call.entry = entry
                self._note_answer(call)
            return self._answer(call)

    def checkpoint(self, state: Any) -> Steps[None]:
        """Forget the steps so far."""
        packed = self._packed("checkpoint", state)
        self._check_call()
        self._stop_at_end()
        self._check_new(StepName("checkpoint", 0))
        yield from self._extend_lease()
        yield Home(partial(self.log.checkpoint, packed))
        self._begin_replay()

    def finish(self, body: Body, args: Sequence[Any]) -> Steps[Any]:
        """Do the last step, and complete the item."""
        with self._call(StepKind.STEP, name_of(body, None), args) as call:
            if call.has_answer:
                return self._answer(call)
            yield from self._before_new(call)
            job = self.held.job
            packed = b""

            def work(attempt: Attempt) -> None:
                nonlocal packed
                tr, packed = self._run_body(call, self.log.shard, self.held.ref.tenant, attempt, body, args)
                tr.complete(
                    job.id,
                    lease_id=job.lease_id,
                    zone=job.zone,
                    result=unpack_payload(packed),
                    keep_result=job.keeps_result_us / 1e6,
                )

            try:
                yield Home(partial(self.log.finish, work))
            except BodyFailed as failed:
                fail = partial(self._record_failure, call, self.log.shard, job.tenant)
                call.entry = yield from self._fail(call, failed.error, fail)
                return self._answer(call)
            self.interrupt = WorkflowInterrupt(Cause.FINISHED)
            return unpack_payload(packed)

    @property
    def state(self) -> Any:
        """The state of the last checkpoint; None: there was none."""
        head = self.log.head
        return None if head is None or not head.checkpoint else unpack_payload(head.checkpoint)

    # --- Undo ---

    def undo_all(self) -> Steps[None]:
        """Undo the steps of the replay that has ended, last first. Each undo is a step of its own."""
        for each in sorted(self.undoables, key=lambda undoable: undoable.ordinal, reverse=True):
            step = StepName(f"undo {each.step.name}", each.step.occurrence)
            if step in self.log.entries:
                continue
            probe("a step is undone")
            call = StepCall(step, StepKind.UNDO, b"", self._take_ordinal(), None)
            yield from self._extend_lease()
            given = {"result": unpack_payload(each.result)} if "result" in _parameters(each.undo) else {}
            try:
                if each.kind is StepKind.EFFECT:
                    key = idempotency_key(self.log.run, self.log.segment, step)
                    yield from self._do_effect(call, partial(each.undo, key, *each.args, **given))
                else:
                    shard = self._home_of(each.tenant) if each.tenant != self.held.ref.tenant else self.log.shard
                    yield from self._do_step(call, shard, each.tenant, partial(each.undo, **given), each.args)
            except BodyFailed as failed:
                raise WorkflowInterrupt(Failed(failed.error)) from failed.error

    # --- One call ---

    @contextmanager
    def _call(self, kind: StepKind, name: str, arguments: Sequence[Any]) -> Iterator[StepCall]:
        """Find out which step a call is. The step has ended when the context is left."""
        self._check_call()
        digest = digest_of(kind, arguments)
        try:
            step, entry = self.replay.begin(name, digest)
        except UnfitCode as error:
            raise WorkflowInterrupt(Failed(error)) from None
        try:
            yield StepCall(step, kind, digest, self._take_ordinal() if entry is None else entry.ordinal, entry)
        finally:
            self.replay.end(step)

    def _check_call(self) -> None:
        if self.interrupt is not None:
            if self.interrupt.cause is Cause.FINISHED:
                raise WorkflowInterrupt(Failed(AfterFinish(kind=self.held.ref.kind)))
            raise self.interrupt
        if _in_body.get():
            raise WorkflowInterrupt(Failed(StepInStep(kind=self.held.ref.kind)))
        if self.held.job.cancelled:
            raise WorkflowInterrupt(Cause.LOST)

    def _before_new(self, call: StepCall) -> Steps[None]:
        """Check that a step which is not answered may be done now."""
        if call.entry is None:
            if self.replay.is_behind:
                yield Stand()
            self._check_new(call.step)
        self._stop_at_end()
        yield from self._extend_lease()
        if call.entry is not None and call.entry.state is StepState.WAITING and call.kind is not StepKind.WAIT:
            until_us = call.entry.until_us or 0
            if self._clock_us() < until_us:
                yield WaitFor((), until_us, ())

    def _check_new(self, step: StepName) -> None:
        try:
            self.replay.check_new(step)
        except UnfitCode as error:
            raise WorkflowInterrupt(Failed(error)) from None
        count = len(self.log.entries)
        if count >= STEPS_MAX:
            raise WorkflowInterrupt(Failed(TooManySteps(kind=self.held.ref.kind, steps=count, steps_max=STEPS_MAX)))
        if count and count % STEPS_WARNED == 0:
            log.warning(
                "a workflow has recorded %d steps since its last checkpoint, and may have %d: call wf.checkpoint, "
                "kind=%s item=%s", count, STEPS_MAX, self.held.ref.kind, self.held.ref.item_id.hex(),
            )  # fmt: skip

    def _stop_at_end(self) -> None:
        if self._ends_here:
            raise WorkflowInterrupt(Cause.END_OF_LOG)

    @property
    def _ends_here(self) -> bool:
        """Whether the attempt ends at what is not done, instead of doing it."""
        return self.log.is_undone or self.stops_at_end

    def _extend_lease(self) -> Steps[None]:
        """See to it that nobody need write the item's record while a step is open: the step would conflict."""
        held, now_us = self.held, self._clock_us()
        longest_us = self.log.shard.layout.settings.max_item_lease_ms * 1000
        until_us = held.claim_until_us or held.lease_until_us
        if until_us - now_us < min(STEP_LEASE_US, longest_us * 6 // 10):
            probe("a step extends its lease before it begins")
            if not (yield Store(partial(self._extend, held, min(EXTENDED_LEASE_US, longest_us)))):
                raise WorkflowInterrupt(Cause.LOST)

    def _answer(self, call: StepCall) -> Any:
        entry = call.entry
        assert entry is not None
        self.now_us = max(self.now_us, entry.at_us)
        if entry.state is StepState.DONE:
            return unpack_payload(entry.result)
        assert entry.error is not None
        permanent = (*self.held.handler.permanent, EffectUnknown)
        raise rebuilt(call.step.name, entry.error, permanent)

    def _note_answer(self, call: StepCall) -> None:
        if self._replays:
            raise WorkflowInterrupt(Cause.REPLAY)

    def _note_undo(self, call: StepCall, undo: Body | None, args: Sequence[Any], tenant: Tenant) -> None:
        entry = call.entry
        if undo is None or entry is None:
            return
        if entry.state is StepState.DONE:
            self._add_undo(call, undo, args, entry.result, tenant)
        elif entry.error is not None and entry.error.type_name == type_name(EffectUnknown):
            self._add_undo(call, undo, args, pack_payload(None), tenant)

    def _add_undo(self, call: StepCall, undo: Body, args: Sequence[Any], result: bytes, tenant: Tenant) -> None:
        self.undoables.append(Undoable(call.step, call.ordinal, call.kind, undo, args, result, tenant))

    # --- Tries ---

    def _try(
        self,
        call: StepCall,
        do: Callable[[], Steps[StepEntry]],
        fail: Callable[[StoredError], Steps[StepEntry]],
        retry: Retry | None,
    ) -> Steps[StepEntry]:
        """Do a step until it has an answer; return the entry. `fail` records an error as its answer."""
        tries = 0 if call.entry is None else call.entry.tries
        while True:
            try:
                entry = yield from do()
            except BodyFailed as failed:
                error = failed.error
            else:
                self._note_answer(call)
                return entry
            if retry is None or is_permanent(self.held.handler, error):
                return (yield from self._fail(call, error, fail))
            tries += 1
            delay_us = retries.delay_us(retry, error_count=tries, age_us=0, random=self.log.shard.random)
            if delay_us is None:
                probe("a step has used up its own tries")
                return (yield from self._note_failed(call, fail(stored_error(error))))
            if delay_us > BACKOFF_IN_MEMORY_US:
                probe("a step is tried again after a suspension")
                now_us = self._clock_us()
                waiting = call.waiting(now_us + delay_us, now_us, tries=tries)
                yield WaitFor((), now_us + delay_us, [(call.step, waiting)])
            yield Pause(delay_us)

    def _fail(
        self, call: StepCall, error: Exception, fail: Callable[[StoredError], Steps[StepEntry]]
    ) -> Steps[StepEntry]:
        """Record an error that the workflow's code can catch; end the attempt for any other one."""
        if isinstance(error, UnfitCode | ResultNotKept) or not is_permanent(self.held.handler, error):
            raise WorkflowInterrupt(Failed(error)) from error
        return (yield from self._note_failed(call, fail(stored_error(error))))

    def _note_failed(self, call: StepCall, recording: Steps[StepEntry]) -> Steps[StepEntry]:
        entry = yield from recording
        self._note_answer(call)
        return entry

    def _record_failure(self, call: StepCall, shard: Shard, tenant: Tenant, error: StoredError) -> Steps[StepEntry]:
        """Record an error as the answer of a step, where the step's entry belongs."""
        if self._is_home(shard):
            entry: StepEntry = yield Home(
                partial(self.log.record_step, call.step, call.failed(error, self._clock_us()))
            )
            return entry
        return (yield from self._do_elsewhere(call, shard, tenant, lambda attempt: call.failed(error, attempt.now_us)))

    def _note_failure(self, call: StepCall, error: StoredError) -> Steps[StepEntry]:
        """Note an error of a read as its answer; the next commit at home records it."""
        entry = call.failed(error, self._clock_us())
        self.log.add_pending(call.step, entry)
        return entry
        yield  # A generator, as the other ways to record an error are.

    # --- Doing it ---

    def _do_effect(self, call: StepCall, function: Callable[[], Any]) -> Steps[StepEntry]:
        try:
            returned = yield Outside(partial(_inside, function))
        except Exception as error:
            raise BodyFailed(error) from error
        done = call.done(self._packed(call.step.name, returned), self._clock_us())
        yield from self._extend_lease()
        entry: StepEntry = yield Home(partial(self.log.record_step, call.step, done))
        return entry

    def _do_read(
        self, call: StepCall, shard: Shard, tenant: Tenant, body: Body, args: Sequence[Any]
    ) -> Steps[StepEntry]:
        def read(attempt: Attempt) -> StepEntry:
            _, packed = self._run_body(call, shard, tenant, attempt, body, args)
            if attempt.needs_receipt:
                raise WorkflowInterrupt(Failed(ReadOnly(kind=self.held.ref.kind, step=call.step.name)))
            return call.done(packed, attempt.now_us)

        entry: StepEntry = yield Store(partial(shard.transact, read))
        self.log.add_pending(call.step, entry)
        return entry

    def _do_step(
        self, call: StepCall, shard: Shard, tenant: Tenant, body: Body, args: Sequence[Any]
    ) -> Steps[StepEntry]:
        enqueueing = Enqueueing(tenant)

        def work(attempt: Attempt) -> StepEntry:
            _, packed = self._run_body(call, shard, tenant, attempt, body, args, enqueueing)
            enqueueing.end_attempt()
            return call.done(packed, attempt.now_us)

        if not self._is_home(shard):
            return (yield from self._do_elsewhere(call, shard, tenant, work, enqueueing))
        other = None if tenant == self.held.ref.tenant else self._keys(shard, tenant)
        entry: StepEntry = yield Home(partial(_in_call, enqueueing, partial(self.log.do_step, call.step, other, work)))
        return entry

    def _do_elsewhere(
        self,
        call: StepCall,
        shard: Shard,
        tenant: Tenant,
        work: Callable[[Attempt], StepEntry],
        enqueueing: Enqueueing | None = None,
    ) -> Steps[StepEntry]:
        """Do a step on another shard, where the fence of the run stands in for the lease."""
        keys = self._keys(shard, tenant)
        while True:
            place = self.log.participants.get(tenant)
            if place is None or self.log.has_pending:
                if place is None:
                    place = yield Store(partial(self._ask, shard, keys))
                found: StepEntry | None = yield Home(partial(self.log.record_pending, call.step, (tenant, place)))
                if found is not None:
                    return found
            foreign = ForeignStep(keys, self.log.run, self.held.record.lease_number, self.log.segment, call.step, place)
            do = partial(self._do_there, shard, foreign, call.entry, work)
            try:
                entry: StepEntry = yield Store(do if enqueueing is None else partial(_in_call, enqueueing, do))
            except AskAgain:
                place = yield Store(partial(self._ask, shard, keys))
                found = yield Home(partial(self.log.record_pending, call.step, (tenant, place)))
                if found is not None:
                    return found
            else:
                self.log.entries[call.step] = entry
                return entry

    def _ask(self, shard: Shard, keys: TenantKeys) -> ParticipantState:
        return shard.transact(lambda attempt: run_one(participants.ask_op(attempt.tr, shard.layout, keys)))

    def _do_there(
        self, shard: Shard, foreign: ForeignStep, known: StepEntry | None, work: Callable[[Attempt], StepEntry]
    ) -> StepEntry:
        def body(attempt: Attempt) -> StepEntry:
            attempt.finds_itself_applied = True
            try:
                found = run_one(participants.begin_step_op(attempt.tr, shard.layout, foreign))
            except LeaseLost:
                raise WorkflowInterrupt(Cause.LOST) from None
            if found is not None and found != known:
                probe("a step on another shard finds itself done")
                return found
            entry = work(attempt)
            participants.end_step(attempt.tr, foreign, entry)
            return entry

        return shard.transact(body)

    def _run_body(
        self,
        call: StepCall,
        shard: Shard,
        tenant: Tenant,
        attempt: Attempt,
        body: Body,
        args: Sequence[Any],
        enqueueing: Enqueueing | None = None,
    ) -> tuple[TenantTransaction, bytes]:
        """Run the body of a step in its transaction; return the transaction, and the packed result."""
        tr = TenantTransaction(shard, tenant, attempt, None if enqueueing is None else enqueueing.begin_attempt(shard))
        try:
            returned = _inside(partial(body, tr, *args))
            refuse_coroutine(returned)
            packed = self._packed(call.step.name, returned)
        except shard.db.errors:
            raise
        except Exception as error:
            raise BodyFailed(error) from error
        took_us = shard.clock.now_us() - attempt.now_us
        if took_us > TRANSACTION_US:
            raise BodyFailed(StepTooLong(kind=self.held.ref.kind, step=shown(call.step), took_ms=took_us // 1000))
        return tr, packed

    # --- Small things ---

    def _packed(self, name: str, value: Any) -> bytes:
        try:
            return pack_result(value)
        except ResultNotKept as error:
            raise WorkflowInterrupt(Failed(ResultNotKept(step=name, **error.fields))) from None

    def _take_ordinal(self) -> int:
        ordinal, self._next_ordinal = self._next_ordinal, self._next_ordinal + 1
        return ordinal

    def _is_home(self, shard: Shard) -> bool:
        return shard.layout.shard_id == self.log.shard.layout.shard_id

    def _keys(self, shard: Shard, tenant: Tenant) -> TenantKeys:
        return shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant

    def _clock_us(self) -> int:
        return self.log.shard.clock.now_us()


def _inside(function: Callable[[], Any]) -> Any:
    """Call the body of a step; meanwhile no other step can begin in it."""
    token = _in_body.set(True)
    try:
        return function()
    finally:
        _in_body.reset(token)


def _in_call(enqueueing: Enqueueing, call: Callable[[], Any]) -> Any:
    """Run a transaction as one call that may enqueue."""
    with enqueueing:
        return call()


def _named(tenant: Tenant | None) -> Sequence[str]:
    return () if tenant is None else tenant


def _parameters(function: Body) -> Collection[str]:
    """Return the names of a function's parameters; none of one that does not tell them."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return ()
