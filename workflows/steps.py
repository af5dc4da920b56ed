"""Calls of `wf` that are transactions: steps, reads, enqueues, signals, the last step, checkpoints."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.actors.execution.retry import Retry
from fairlead.workflows.argument_checks import check_step
from fairlead.workflows.errors import CallRefused, CheckpointUnderLock, ReadOnly
from fairlead.workflows.execution import Body, Child, Execution, named
from fairlead.workflows.interrupts import BodyFailed, Cause, Failed, WorkflowInterrupt
from fairlead.workflows.requests import Home, Stand, Steps, Store
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_commits import do_across_shards, do_step, record_failure, run_body
from fairlead.workflows.step_identity import call_name, given_name, id_of, name_of
from fairlead.workflows.steps_in_stores import do_in_store, record_failure_in_store
from fairlead.workflows.undoables import note_undo
from fairlead.zones.errors import BadArgument
from fairlead.zones.external.names import participant_of
from fairlead.zones.layout import Tenant
from fairlead.zones.ownership import check_owner
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import EnqueueStatus, NewItem, unpack_payload
from fairlead.zones.records import Parent
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.snapshot_list import usable_snapshots
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import StepName

ACROSS_SHARDS = "across shards"  # Tells the digest of such a step from that of a step on one tenant.


def step(
    execution: Execution,
    body: Body,
    args: Sequence[Any],
    *,
    name: str | None,
    on: Tenant | None,
    store: str | None,
    undo: Body | None,
    retry: Retry | None,
) -> Steps[Any]:
    """Do a step in a transaction of a tenant, or of an external store.

    Raises:
      BadArgument: see `check_step`; or `store` is no name of a store, or stands beside `on`.
    """
    check_step(body, undo=undo, retry=retry)
    if store is not None:
        if on is not None:
            raise BadArgument(argument="on", value=str(on), allowed="None for a step in an external store")
        answer = yield from _step_in_store(execution, body, args, store, name=name, undo=undo, retry=retry)
        return answer
    tenant = on or execution.held.ref.tenant
    with execution.open_call(StepKind.STEP, name_of(body, name), named(args, on)) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            shard = execution.home_of(tenant)
            do = partial(do_step, execution, call, shard, tenant, body, args)
            fail = partial(record_failure, execution, call, shard, tenant)
            call.entry = yield from execution.try_step(call, do, fail, retry, tenant=tenant)
        note_undo(execution, call, undo, args, tenant)
        return execution.answer(call)


def _step_in_store(
    execution: Execution,
    body: Body,
    args: Sequence[Any],
    store: str,
    *,
    name: str | None,
    undo: Body | None,
    retry: Retry | None,
) -> Steps[Any]:
    tenant = execution.held.ref.tenant
    with execution.open_call(StepKind.STEP, name_of(body, name), named(args, participant_of(store))) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            do = partial(do_in_store, execution, call, store, body, args)
            fail = partial(record_failure_in_store, execution, call, store)
            call.entry = yield from execution.try_step(call, do, fail, retry, tenant=tenant)
        note_undo(execution, call, undo, args, tenant, store=store)
        return execution.answer(call)


def transact(
    execution: Execution, body: Body, args: Sequence[Any], *, name: str | None, undo: Body | None, retry: Retry | None
) -> Steps[Any]:
    """Do a step in a transaction on tenants of any shards.

    Raises:
      BadArgument: see `check_step`.
    """
    check_step(body, call="transact", undo=undo, retry=retry)
    tenant = execution.held.ref.tenant
    with execution.open_call(StepKind.STEP, name_of(body, name), (ACROSS_SHARDS, *args)) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            do = partial(do_across_shards, execution, call, body, args)
            fail = partial(record_failure, execution, call, execution.log.shard, tenant)
            call.entry = yield from execution.try_step(call, do, fail, retry, tenant=tenant)
        note_undo(execution, call, undo, args, tenant, is_across_shards=True)
        return execution.answer(call)


def read(execution: Execution, body: Body, args: Sequence[Any], *, name: str | None, on: Tenant | None) -> Steps[Any]:
    """Read in a transaction of a tenant.

    Raises:
      BadArgument: see `check_step`.
    """
    check_step(body, call="read")
    tenant = on or execution.held.ref.tenant
    with execution.open_call(StepKind.READ, name_of(body, name), named(args, on)) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            shard = execution.home_of(tenant)
            do = partial(_do_read, execution, call, shard, tenant, body, args)
            fail = partial(execution.note_failure, call)
            call.entry = yield from execution.try_step(call, do, fail, None, tenant=tenant)
        return execution.answer(call)


def enqueue(
    execution: Execution, item: NewItem, *, zone: str, on: Tenant | None, name: str | None, parent: bool = False
) -> Steps[bytes]:
    """Enqueue an item; return its id. `parent`: the run waits for its end.

    Raises:
      BadArgument: the end of the child could not be reported to this run.
    """
    if parent and on not in (None, execution.held.ref.tenant) and not execution.can_be_found():
        allowed = "no other tenant, in a local workflow on another shard than its kind's own"
        raise BadArgument(argument="on", value=str(on), allowed=allowed)
    named = given_name(name, f"{'call' if parent else 'enqueue'} {item.kind}")

    def enqueue(tr: TenantTransaction, step: StepName) -> bytes:
        made = item._replace(parent=parent_of(execution, step)) if parent else item
        item_id = id_of(execution.log.run, execution.log.segment, step)
        enqueued = tr.enqueue_item(made, zone=zone, item_id=item_id)
        if parent and enqueued.status is not EnqueueStatus.ENQUEUED:
            raise CallRefused(kind=item.kind, item=item.given_id, found=enqueued.status.value)
        return enqueued.item_id

    item_id: bytes = yield from built_in_step(
        execution, named, enqueue, (item.kind, item.payload, zone), on=on, is_call=parent
    )
    return item_id


def signal(
    execution: Execution,
    item_id: str | bytes,
    signal: str,
    payload: Any,
    *,
    zone: str,
    on: Tenant | None,
    name: str | None,
) -> Steps[None]:
    """Send a signal to the run of another item."""

    def send(tr: TenantTransaction, step: StepName) -> None:
        tr.signal(item_id, signal, payload, zone=zone)

    named = given_name(name, f"signal {signal}")
    yield from built_in_step(execution, named, send, (item_id, signal, payload, zone), on=on)


def finish(execution: Execution, body: Body, args: Sequence[Any]) -> Steps[Any]:
    """Do the last step, and complete the item.

    Raises:
      BadArgument: see `check_step`.
    """
    check_step(body, call="finish")
    name = name_of(body, None if hasattr(body, "__name__") else "finish")
    with execution.open_call(StepKind.STEP, name, args) as call:
        if call.has_answer:
            return execution.answer(call)
        yield from execution.before_new(call)
        job = execution.held.job
        packed = b""

        def work(attempt: Attempt) -> None:
            nonlocal packed
            tr, packed = run_body(execution, call, execution.log.shard, execution.held.ref.tenant, attempt, body, args)
            tr.complete(
                job.id,
                lease_id=job.lease_id,
                zone=job.zone,
                result=unpack_payload(packed),
                keep_result=job.keeps_result_us / 1e6,
            )

        with execution.begin_try(call, job.tenant) as step_try:
            try:
                yield Home(partial(execution.log.finish, work))
                step_try.state = StepState.DONE
            except BodyFailed as failed:
                step_try.error = failed.error
                fail = partial(record_failure, execution, call, execution.log.shard, job.tenant)
                call.entry = yield from execution.fail(call, failed.error, fail)
                step_try.state = call.entry.state
        if call.has_answer:
            execution.note_answer()
            return execution.answer(call)
        execution.interrupt = WorkflowInterrupt(Cause.FINISHED)
        return unpack_payload(packed)


def checkpoint(execution: Execution, state: Any) -> Steps[None]:
    """Forget the steps so far. Before the first step, the state of the last checkpoint changes nothing.

    Neither does a checkpoint that changed code calls before it has reached all recorded steps: it would forget steps
    that the code is about to reach, and they would be done again.
    """
    packed = execution.packed("checkpoint", state)
    execution.check_call("checkpoint")
    if execution.locks:
        error = CheckpointUnderLock(kind=execution.held.ref.kind, locks=execution.locks.shown())
        raise WorkflowInterrupt(Failed(error))
    if execution.begins_with(packed):
        probe("a checkpoint is the one with which the replay began")
        return
    if execution.replay.is_behind:
        yield Stand()
    if execution.replay.is_behind:
        return
    execution.stop_at_end()
    execution.check_alone()
    yield from execution.extend_lease()
    yield Home(partial(execution.log.checkpoint, packed, execution.latest_us))
    execution.check_alone()
    execution.note_checkpoint()
    execution.note_answer()


def built_in_step(
    execution: Execution,
    name: str,
    body: Callable[[TenantTransaction, StepName], Any],
    arguments: Sequence[Any],
    *,
    on: Tenant | None,
    is_call: bool = False,
) -> Steps[Any]:
    """Do a step of Fairlead's own, whose body knows which step it is."""
    tenant = on or execution.held.ref.tenant
    with execution.open_call(StepKind.STEP, name, named(arguments, on)) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            shard = execution.home_of(tenant)
            do = partial(do_step, execution, call, shard, tenant, body, (call.step,))
            fail = partial(record_failure, execution, call, shard, tenant)
            call.entry = yield from execution.try_step(call, do, fail, None, tenant=tenant)
        if is_call:
            execution.children.append(Child(call.step, call.ordinal, tenant, arguments[2], execution.answer(call)))
        return execution.answer(call)


def _do_read(
    execution: Execution, call: StepCall, shard: Shard, tenant: Tenant, body: Body, args: Sequence[Any]
) -> Steps[StepEntry]:
    keys = execution.keys_of(shard, tenant)

    def read(attempt: Attempt) -> StepEntry:
        owner = attempt.tr.get(keys.owner).value
        check_owner(attempt.tr, shard.layout, keys, owner, writes=False)
        usable_snapshots(keys, owner)
        _, packed = run_body(execution, call, shard, tenant, attempt, body, args)
        if attempt.needs_receipt:
            raise WorkflowInterrupt(Failed(ReadOnly(kind=execution.held.ref.kind, step=call.step.name)))
        return call.done(packed, call.ended_us)

    entry: StepEntry = yield Store(partial(shard.transact, read))
    execution.log.add_pending(call.step, entry)
    return entry


def parent_of(execution: Execution, step: StepName) -> Parent:
    """Return whom the child of a call reports its end to."""
    ref = execution.held.ref
    name = call_name(execution.log.segment, step.name)
    return Parent(*ref.tenant, ref.zone, ref.item_id, execution.log.run, name, step.occurrence)
