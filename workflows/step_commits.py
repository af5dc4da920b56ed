"""How a step commits: with its entry, at home under the lease, or at a participant under the fence of the run.

At a participant the lease is worth nothing. A participant is a tenant on another shard, or an external store.
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
from fairlead.workflows.step_call import StepCall
from fairlead.zones.errors import LeaseLost, TenantMoved
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import HomeRecord, SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.tenant_transaction import TenantTransaction, refuse_coroutine
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.participants import AskAgain, ForeignStep, RunEnded
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, StoredError


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
        function = partial(body, tx, *args)
        packed = packed_result(execution, call, function, lambda error: isinstance(error, tx.store_errors))
        _check_time(execution, call, began_us=tx.now_us)
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
    place: ParticipantState = yield Store(partial(ask_tenant, shard, execution.keys_of(shard, tenant)))
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


def do_at_participant(
    execution: Execution,
    call: StepCall,
    participant: Tenant,
    ask: Callable[[], ParticipantState],
    do: Callable[[ParticipantState], StepEntry],
) -> Steps[StepEntry]:
    """Do a step at a participant, where the fence of the run stands in for the lease.

    `ask`: reads where the participant is. `do`: does the step there, as home has recorded the participant.
    """
    log = execution.log
    while True:
        place = log.participants.get(participant)
        if place is None or log.has_pending:
            if place is None:
                place = yield Store(ask)
            found: StepEntry | None = yield Home(partial(log.record_pending, call.step, (participant, place)))
            if found is not None:
                return found
        try:
            entry: StepEntry = yield Store(partial(do, place))
        except AskAgain:
            place = yield Store(ask)
            try:
                found = yield Home(partial(log.record_pending, call.step, (participant, place)))
            except WorkflowInterrupt:
                execution.was_cut_off = True  # An earlier try, of unknown result, may have done the step.
                raise
            if found is not None:
                return found
        else:
            log.entries[call.step] = entry
            return entry


def _do_elsewhere(
    execution: Execution,
    call: StepCall,
    shard: Shard,
    tenant: Tenant,
    work: Callable[[Attempt], StepEntry],
    enqueueing: Enqueueing | None = None,
) -> Steps[StepEntry]:
    """Do a step of a tenant on another shard."""
    keys = execution.keys_of(shard, tenant)

    def do(place: ParticipantState) -> StepEntry:
        log, number = execution.log, execution.held.record.lease_number
        foreign = ForeignStep(keys, log.run, number, log.segment, call.step, place)
        there = partial(_do_there, execution, shard, foreign, call.entry, work)
        return there() if enqueueing is None else _in_call(enqueueing, there)

    return do_at_participant(execution, call, tenant, partial(ask_tenant, shard, keys), do)


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
            raise interrupt_of(execution, lost, shard.name) from None
        if found is not None and found != known:
            probe("a step on another shard finds itself done")
            return found
        entry = work(attempt)
        participants.end_step(attempt.tr, foreign, entry)
        return entry

    return shard.transact(body)


def ask_tenant(shard: Shard, keys: TenantKeys) -> ParticipantState:
    """Return where a tenant on another shard is: its epoch and its shard's FLOOR."""
    return shard.transact(lambda attempt: run_one(participants.ask_op(attempt.tr, shard.layout, keys)))


def interrupt_of(execution: Execution, lost: LeaseLost, place: str) -> WorkflowInterrupt:
    """Return what a refused fence means: a tombstone, though the lease stands, is one of a restored shard.

    `place`: the shard or the store where the fence is.
    """
    if isinstance(lost, RunEnded) and execution.log.is_held():
        return WorkflowInterrupt(Failed(EndedElsewhere(kind=execution.held.ref.kind, shard=place)))
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
    packed = packed_result(execution, call, function, lambda error: isinstance(error, shard.db.errors))
    _check_time(execution, call, began_us=attempt.now_us)
    return tr, packed


def packed_result(
    execution: Execution,
    call: StepCall,
    function: Callable[[], Any],
    is_stores: Callable[[Exception], bool],
    *,
    first: str = "the transaction",
) -> bytes:
    """Run the body of a step; return its packed result.

    `is_stores`: says whether an error is the store's, and not the body's. `first`: see `inside`.
    """
    try:
        returned = inside(function, first=first)
        refuse_coroutine(returned)
        packed = execution.packed(call.step.name, returned)
    except Exception as error:
        if is_stores(error):
            raise
        raise BodyFailed(error) from error
    call.ended_us = execution.clock_us()
    return packed


def _check_time(execution: Execution, call: StepCall, *, began_us: int) -> None:
    """Refuse a body that took longer than a transaction on a shard may take."""
    took_us = call.ended_us - began_us
    if took_us > TRANSACTION_US:
        raise BodyFailed(StepTooLong(kind=execution.held.ref.kind, step=shown(call.step), took_ms=took_us // 1000))


def _in_call(enqueueing: Enqueueing, call: Callable[[], Any]) -> Any:
    """Run a transaction as one call that may enqueue."""
    with enqueueing:
        return call()
