"""Undo: what a run does about its steps when it has failed for good, or is cancelled."""

import inspect
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from fairlead.workflows.effects import do_effect
from fairlead.workflows.execution import Body, Child, Execution, unpacked_answer
from fairlead.workflows.interrupts import BodyFailed, Failed, WorkflowInterrupt
from fairlead.workflows.recorded_errors import note_step
from fairlead.workflows.replay import shown
from fairlead.workflows.requests import Steps
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_commits import do_across_shards, do_step
from fairlead.workflows.step_identity import CANCEL, UNDO, idempotency_key
from fairlead.workflows.steps import parent_of
from fairlead.workflows.steps_in_stores import do_in_store
from fairlead.zones.errors import ItemGone
from fairlead.zones.layout import Tenant
from fairlead.zones.probes import probe
from fairlead.zones.records import Parent
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.run_records import StepEntry, StepKind
from fairlead.zones.workflow.step_log import StepName


def undo_all(
    execution: Execution,
) -> Steps[None]:
    """Undo the steps of the replay that has ended, last first. Each undo is a step of its own."""
    for child in execution.children:
        step = StepName(f"{CANCEL}{child.step.name}", child.step.occurrence)
        if step not in execution.log.entries:
            probe("a child of a run that is undone is cancelled")
            call = execution.new_call(step, StepKind.UNDO, b"")
            yield from execution.extend_lease()
            args = (child, parent_of(execution, child.step))
            cancelling = do_step(execution, call, execution.home_of(child.tenant), child.tenant, _cancel, args)
            yield from _try_undo(execution, call, child.tenant, cancelling)
    for each in sorted(execution.undoables, key=lambda undoable: undoable.ordinal, reverse=True):
        step = StepName(f"{UNDO}{each.step.name}", each.step.occurrence)
        if step in execution.log.entries:
            continue
        probe("a step is undone")
        call = execution.new_call(step, StepKind.UNDO, b"")
        yield from execution.extend_lease()
        given = {"result": unpacked_answer(each.result, shown(each.step))} if "result" in _parameters(each.undo) else {}
        try:
            if each.kind is StepKind.EFFECT:
                key = idempotency_key(execution.log.run, execution.log.segment, step)
                undoing = do_effect(execution, call, partial(each.undo, key, *each.args, **given))
            elif each.is_across_shards:
                undoing = do_across_shards(execution, call, partial(each.undo, **given), each.args)
            elif each.store is not None:
                undoing = do_in_store(execution, call, each.store, partial(each.undo, **given), each.args)
            else:
                shard = execution.home_of(each.tenant)
                undoing = do_step(execution, call, shard, each.tenant, partial(each.undo, **given), each.args)
            yield from _try_undo(execution, call, each.tenant, undoing)
        except BodyFailed as failed:
            note_step(failed.error, shown(step))
            raise WorkflowInterrupt(Failed(failed.error)) from failed.error


def _try_undo(execution: Execution, call: StepCall, tenant: Tenant, undoing: Steps[StepEntry]) -> Steps[None]:
    with execution.begin_try(call, tenant) as step_try:
        entry = yield from undoing
        step_try.state = entry.state


def _cancel(tr: TenantTransaction, child: Child, parent: Parent) -> None:
    """Cancel a child that has not ended. What it has done as a workflow is undone by itself, later."""
    with suppress(ItemGone):
        tr.cancel_child(child.item_id, parent, zone=child.zone)


def _parameters(function: Body) -> Collection[str]:
    """Return the names of a function's parameters; none of one that does not tell them."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return ()
