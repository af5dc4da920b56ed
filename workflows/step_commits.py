"""How a step commits: with its entry, at home under the lease, or on another shard under the fence of the run.

On another shard the lease is worth nothing. So a new attempt first raises the run's fence at all participants: see
`enter`. From then on no older attempt can commit there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.actors.execution.runner import TRANSACTION_US
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.workflows.errors import EndedElsewhere, StepTooLong
from fairlead.workflows.execution import Body, Execution, inside
from fairlead.workflows.interrupts import BodyFailed, Cause, Failed, WorkflowInterrupt
from fairlead.workflows.replay import shown
from fairlead.workflows.requests import Home, Steps, Store
from fairlead.workflows.run_log import MOVES_MAX
from fairlead.workflows.step_call import StepCall
from fairlead.zones.errors import LeaseLost, TenantMoved
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.pipelining import run_one, run_together
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import HomeRecord, SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.tenant_transaction import TenantTransaction, refuse_coroutine
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.participants import AskAgain, ForeignStep, RunEnded
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, StepKind, StepState, StoredError


def enter(execution: Execution) -> None:
    """Keep older attempts from acting at participants, and read what participants have recorded.

    Raises:
      TenantMoved: a participant moves on and on, or lives on a shard that is not configured.
    """
    for _ in range(MOVES_MAX):
        try:
            return _enter_once(execution)
        except TenantMoved as moved:
            if not execution.on_moved(moved):
                raise
            probe("an attempt finds a participant that has moved")
    return _enter_once(execution)


def _enter_once(execution: Execution) -> None:
    places = execution.log.participants
    of_shard: dict[str, list[Tenant]] = {}
    for tenant in places:
        of_shard.setdefault(execution.home_of(tenant).name, []).append(tenant)
    record = execution.held.record
    suspended = record.suspended_at == record.lease_number - 1 and not _has_tried(execution)
    for tenants in of_shard.values():
        shard = execution.home_of(tenants[0])
        if not suspended:
            probe("a new attempt raises the fences at participants")
            _raise_fences(execution, shard, tenants)
        for tenant in tenants:
            execution.log.load_participant(shard, execution.keys_of(shard, tenant))
    execution.begin_replay()


def _has_tried(execution: Execution) -> bool:
    """Whether a step is to be tried again: the commit of an earlier try may still be on its way."""
    return any(
        entry.state is StepState.WAITING and entry.kind is StepKind.STEP for entry in execution.log.entries.values()
    )


def _raise_fences(execution: Execution, shard: Shard, tenants: Sequence[Tenant]) -> None:
    """One transaction per shard: the shards are asked one after the other, all their tenants together."""
    open_tenants = list(tenants)
    while open_tenants:
        raised = shard.transact(partial(_raise_once, execution, shard=shard, tenants=open_tenants))
        open_tenants = [tenant for tenant, done in zip(open_tenants, raised, strict=True) if not done]
        for tenant in open_tenants:
            execution.log.record_participant(tenant, _ask(shard, execution.keys_of(shard, tenant)))


def _raise_once(execution: Execution, attempt: Attempt, *, shard: Shard, tenants: Sequence[Tenant]) -> list[bool]:
    attempt.finds_itself_applied = True
    run, number, places = execution.log.run, execution.held.record.lease_number, execution.log.participants
    try:
        return run_together(
            [
                participants.raise_fence_op(
                    attempt.tr, shard.layout, execution.keys_of(shard, tenant), run, number, places[tenant]
                )
                for tenant in tenants
            ]
        )
    except LeaseLost as lost:
        raise _interrupt_of(execution, lost, shard) from None


def do_step(
    execution: Execution, call: StepCall, shard: Shard, tenant: Tenant, body: Body, args: Sequence[Any]
) -> Steps[StepEntry]:
    """Do a step once: its effects and its entry in one commit. Raises `BodyFailed` for an error of the body."""
    enqueueing, is_home = Enqueueing(tenant), execution.is_home(shard)

    def work(attempt: Attempt) -> StepEntry:
        at = execution.log.shard if is_home else shard  # The home may be another one by now.
        _, packed = run_body(execution, call, at, tenant, attempt, body, args, enqueueing)
        enqueueing.end_attempt()
        return call.done(packed, call.ended_us)

    if not is_home:
        entry: StepEntry = yield from _do_elsewhere(execution, call, shard, tenant, work, enqueueing)
        return entry
    other = None if tenant == execution.held.ref.tenant else execution.keys_of(shard, tenant)
    entry = yield Home(partial(_in_call, enqueueing, partial(execution.log.do_step, call.step, other, work)))
    return entry


def do_across_shards(execution: Execution, call: StepCall, body: Body, args: Sequence[Any]) -> Steps[StepEntry]:
    """Do a step in a transaction across shards: its effects on all shards, and its entry at home, happen once.

    Raises `BodyFailed` for an error of the body.
    """
    run = partial(_run_across_shards, execution, call, body, args)
    entry: StepEntry = yield Home(partial(execution.log.do_across_shards, call.step, run))
    return entry


def _run_across_shards(
    execution: Execution, call: StepCall, body: Body, args: Sequence[Any], record: HomeRecord[StepEntry]
) -> StepEntry:
    def work(tx: SpanningTransaction) -> StepEntry:
        packed = _packed_result(execution, call, partial(body, tx, *args), lambda: tx.store_errors, began_us=tx.now_us)
        return call.done(packed, call.ended_us)

    log = execution.log
    with Enqueueing(tenant=None) as enqueueing:
        return run_across_shards(
            _ShardsOfRun(execution),
            work,
            wait_us=WAIT_US,
            clock=log.shard.clock,
            random=log.shard.random,
            apply_later=execution.apply_later,
            record=record,
            ids=log.new_transaction_ids(call.step, call.began_us),
            enqueuer=enqueueing,
        )


class _ShardsOfRun:
    """The shards as a run finds them; see `ShardFinder`."""

    def __init__(self, execution: Execution) -> None:
        self.home = execution.home_of
        self._execution = execution
        self._find_shard = execution.log.shard.find_shard

    def note_moved(self, moved: TenantMoved) -> bool:
        """See `ShardFinder`. The run's own tenant may move, too."""
        return self._execution.log.follow(moved) or self._execution.on_moved(moved)

    def with_id(self, shard_id: bytes) -> OpenShard | None:
        """See `ShardFinder`."""
        return self._find_shard(shard_id)


def introduce(execution: Execution, call: StepCall, shard: Shard, tenant: Tenant) -> Steps[StepEntry | None]:
    """Record another tenant of the home's shard as a participant, so that the cleanup of the run comes there.

    For a step that leaves something below that tenant which must go with the run. A tenant on another shard is recorded
    by its step anyway. Returns the entry of the step if home has one by now.
    """
    if tenant == execution.held.ref.tenant or not execution.is_home(shard) or tenant in execution.log.participants:
        return None
    place: ParticipantState = yield Store(partial(_ask, shard, execution.keys_of(shard, tenant)))
    found: StepEntry | None = yield Home(partial(execution.log.record_pending, call.step, (tenant, place)))
    return found


def record_failure(
    execution: Execution, call: StepCall, shard: Shard, tenant: Tenant, error: StoredError
) -> Steps[StepEntry]:
    """Record an error as the answer of a step, where the step's entry belongs."""
    if execution.is_home(shard):
        entry: StepEntry = yield Home(
            partial(execution.log.record_step, call.step, call.failed(error, execution.clock_us()))
        )
        return entry
    entry = yield from _do_elsewhere(execution, call, shard, tenant, lambda attempt: call.failed(error, attempt.now_us))
    return entry


def _do_elsewhere(
    execution: Execution,
    call: StepCall,
    shard: Shard,
    tenant: Tenant,
    work: Callable[[Attempt], StepEntry],
    enqueueing: Enqueueing | None = None,
) -> Steps[StepEntry]:
    """Do a step on another shard, where the fence of the run stands in for the lease."""
    log, keys, number = execution.log, execution.keys_of(shard, tenant), execution.held.record.lease_number
    while True:
        place = log.participants.get(tenant)
        if place is None or log.has_pending:
            if place is None:
                place = yield Store(partial(_ask, shard, keys))
            found: StepEntry | None = yield Home(partial(log.record_pending, call.step, (tenant, place)))
            if found is not None:
                return found
        foreign = ForeignStep(keys, log.run, number, log.segment, call.step, place)
        do = partial(_do_there, execution, shard, foreign, call.entry, work)
        try:
            entry: StepEntry = yield Store(do if enqueueing is None else partial(_in_call, enqueueing, do))
        except AskAgain:
            place = yield Store(partial(_ask, shard, keys))
            try:
                found = yield Home(partial(log.record_pending, call.step, (tenant, place)))
            except WorkflowInterrupt:
                execution.was_cut_off = True  # An earlier try, of unknown result, may have done the step.
                raise
            if found is not None:
                return found
        else:
            log.entries[call.step] = entry
            return entry


def _do_there(
    execution: Execution,
    shard: Shard,
    foreign: ForeignStep,
    known: StepEntry | None,
    work: Callable[[Attempt], StepEntry],
) -> StepEntry:
    def body(attempt: Attempt) -> StepEntry:
        attempt.finds_itself_applied = True
        owners: dict[bytes, bytes | None] = {}
        attempt.owners = owners
        try:
            found = run_one(participants.begin_step_op(attempt.tr, shard.layout, foreign, owners))
        except LeaseLost as lost:
            raise _interrupt_of(execution, lost, shard) from None
        if found is not None and found != known:
            probe("a step on another shard finds itself done")
            return found
        entry = work(attempt)
        participants.end_step(attempt.tr, foreign, entry)
        return entry

    return shard.transact(body)


def _ask(shard: Shard, keys: TenantKeys) -> ParticipantState:
    return shard.transact(lambda attempt: run_one(participants.ask_op(attempt.tr, shard.layout, keys)))


def _interrupt_of(execution: Execution, lost: LeaseLost, shard: Shard) -> WorkflowInterrupt:
    """Return what a refused fence means: a tombstone, though the lease stands, is one of a restored shard."""
    if isinstance(lost, RunEnded) and execution.log.is_held():
        return WorkflowInterrupt(Failed(EndedElsewhere(kind=execution.held.ref.kind, shard=shard.name)))
    return WorkflowInterrupt(Cause.LOST)


def run_body(
    execution: Execution,
    call: StepCall,
    shard: Shard,
    tenant: Tenant,
    attempt: Attempt,
    body: Body,
    args: Sequence[Any],
    enqueueing: Enqueueing | None = None,
) -> tuple[TenantTransaction, bytes]:
    """Run the body of a step in its transaction; return the transaction, and the packed result."""
    enqueuer = None if enqueueing is None else enqueueing.begin_attempt(shard)
    tr = TenantTransaction(
        shard, tenant, attempt, enqueuer, owner_is_checked=True, run=execution.log.run
    )  # The owner: with the lease, or the fence.
    function = partial(body, tr, *args)
    return tr, _packed_result(execution, call, function, lambda: shard.db.errors, began_us=attempt.now_us)


def _packed_result(
    execution: Execution,
    call: StepCall,
    function: Callable[[], Any],
    store_errors: Callable[[], tuple[type[Exception], ...]],
    *,
    began_us: int,
) -> bytes:
    """Run the body of a step; return its packed result."""
    try:
        returned = inside(function, first="the transaction")
        refuse_coroutine(returned)
        packed = execution.packed(call.step.name, returned)
    except Exception as error:
        if isinstance(error, store_errors()):
            raise
        raise BodyFailed(error) from error
    call.ended_us = execution.clock_us()
    took_us = call.ended_us - began_us
    if took_us > TRANSACTION_US:
        raise BodyFailed(StepTooLong(kind=execution.held.ref.kind, step=shown(call.step), took_ms=took_us // 1000))
    return packed


def _in_call(enqueueing: Enqueueing, call: Callable[[], Any]) -> Any:
    """Run a transaction as one call that may enqueue."""
    with enqueueing:
        return call()
