"""How an attempt begins: no older attempt can act at a participant from then on, and what they have recorded is read.

The lease fences older attempts at home. At participants a fence does, which a new attempt raises to its lease number.
After an attempt that has suspended itself this is not needed: it had settled all that it did.
"""

from collections.abc import Sequence
from functools import partial

from fairlead.workflows.execution import Execution
from fairlead.workflows.run_log import MOVES_MAX
from fairlead.workflows.step_commits import ask_tenant, interrupt_of
from fairlead.zones.errors import LeaseLost, TenantMoved
from fairlead.zones.external.names import store_of_participant
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_together
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.run_records import StepKind, StepState


def enter(execution: Execution) -> None:
    """Keep older attempts from acting at participants, and read what participants have recorded.

    Raises:
      TenantMoved: a participant moves on and on, or lives on a shard that is not configured.
      StoreUnavailable: an external store does not answer, or a step of an older attempt holds it up there.
      WorkflowInterrupt: the lease is lost; or the application does not name an external store where the run has acted.
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
    of_shard: dict[str, list[Tenant]] = {}
    stores: list[Tenant] = []
    for participant in execution.log.participants:
        if store_of_participant(participant) is not None:
            stores.append(participant)
        else:
            of_shard.setdefault(execution.home_of(participant).name, []).append(participant)
    record = execution.held.record
    suspended = record.suspended_at == record.lease_number - 1 and not _has_tried(execution)
    for tenants in of_shard.values():
        shard = execution.home_of(tenants[0])
        if not suspended:
            probe("a new attempt raises the fences at participants")
            _raise_fences(execution, shard, tenants)
        for tenant in tenants:
            execution.log.load_participant(shard, execution.keys_of(shard, tenant))
    for participant in stores:
        _enter_store(execution, participant, raises_fence=not suspended)
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
            execution.log.record_participant(tenant, ask_tenant(shard, execution.keys_of(shard, tenant)))


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
        raise interrupt_of(execution, lost, shard.name) from None


def _enter_store(execution: Execution, participant: Tenant, *, raises_fence: bool) -> None:
    """Raise the fence of the run in an external store, and read the entries there."""
    name, log = str(store_of_participant(participant)), execution.log
    steps = execution.steps_in(name)
    try:
        while raises_fence and not steps.raise_fence(
            log.run, execution.held.record.lease_number, log.participants[participant]
        ):
            log.record_participant(participant, steps.ask())
    except LeaseLost as lost:
        raise interrupt_of(execution, lost, name) from None
    log.entries.update(steps.entries(log.run, log.segment))
