"""What undoes the steps of a run: noted as a replay passes them."""

from collections.abc import Sequence
from typing import Any

from fairlead.workflows.errors import EffectUnknown
from fairlead.workflows.execution import Body, Execution, Undoable
from fairlead.workflows.recorded_errors import type_name
from fairlead.workflows.step_call import StepCall
from fairlead.zones.layout import Tenant
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState, StoredError


def note_undo(
    execution: Execution,
    call: StepCall,
    undo: Body | None,
    args: Sequence[Any],
    tenant: Tenant,
    *,
    is_across_shards: bool = False,
    store: str | None = None,
) -> None:
    """Note what undoes a step that has happened, or an effect that may have.

    `is_across_shards`, `store`: see `Undoable`.
    """
    entry = call.entry
    if undo is None or entry is None:
        return
    if entry.state is StepState.DONE:
        add_undo(execution, call, undo, args, entry.result, tenant, is_across_shards=is_across_shards, store=store)
    elif call.kind is StepKind.EFFECT and entry.error is not None and _may_have_happened(execution, entry, entry.error):
        add_undo(execution, call, undo, args, pack_payload(None), tenant)


def _may_have_happened(execution: Execution, entry: StepEntry, error: StoredError) -> bool:
    """Say whether the answer of an effect is lost, or its own tries are used up: a call that failed may have acted.

    A permanent error says that it has not.
    """
    if error.type_name == type_name(EffectUnknown):
        return True
    if entry.tries and error.type_name not in map(type_name, execution.permanent):
        probe("an effect whose own tries are used up is undone, because it may have happened")
        return True
    return False


def add_undo(
    execution: Execution,
    call: StepCall,
    undo: Body,
    args: Sequence[Any],
    result: bytes,
    tenant: Tenant,
    *,
    is_across_shards: bool = False,
    store: str | None = None,
) -> None:
    """Note what undoes a step. `result`: packed."""
    execution.undoables.append(
        Undoable(call.step, call.ordinal, call.kind, undo, args, result, tenant, is_across_shards, store)
    )
