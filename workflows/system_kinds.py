"""Kinds of items that Fairlead enqueues for workflows by itself, and what runs them. Each is safe to run twice.

fairlead.cleanup    a run with participants has ended: clear what it keeps there, and leave tombstones
fairlead.delivery   a child of a workflow has ended, whose parent is of another tenant: bring the report
fairlead.signal     a signal to another tenant: a workflow of one step, which brings it exactly once
fairlead.hold       a process held locks outside of workflows, and is dead: its end releases them
"""

import logging
from collections.abc import Callable, Mapping

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import AttemptFunction, Handler, Registry, handler_of
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.execution import HomeOf, OnMoved, ignore_move
from fairlead.workflows.run_log import MOVES_MAX
from fairlead.workflows.workflow_kind import WorkflowKind
from fairlead.zones.errors import ItemGone, TenantMoved
from fairlead.zones.external.names import store_of_participant
from fairlead.zones.external.steps import NoSuchStore
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.children import DELIVERY_KIND, deliver_report_op, report_of
from fairlead.zones.workflow.locks import HOLD_KIND
from fairlead.zones.workflow.participants import clean_up_op
from fairlead.zones.workflow.run_end import CLEANUP_KIND, forget_participant, participants_of
from fairlead.zones.workflow.signals import SIGNAL_KIND

log = logging.getLogger("fairlead.workflows")

SYSTEM_KINDS = frozenset({CLEANUP_KIND, DELIVERY_KIND, SIGNAL_KIND, HOLD_KIND})
Externals = Mapping[str, ExternalStore]  # By name.
UNTIL_DONE = Retry(attempts=None, backoff_max=60)  # What must be brought or cleared must not be given up.


class _PlainAttempts:
    """Runs an item by a function that commits what it does by itself, and need not be fenced."""

    def __init__(self, function: Callable[[HeldItem, Shard, Externals], None], on_moved: OnMoved) -> None:
        self._function = function
        self._on_moved = on_moved
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`. What it does is safe to do twice, so it begins again where the tenant has moved."""
        moves = 0
        while True:
            try:
                self._function(held, shard, access.externals)
            except TenantMoved as moved:
                moves += 1
                if not self._on_moved(moved) or moves == MOVES_MAX:
                    raise
            else:
                return


def system_handlers(home_of: HomeOf, on_moved: OnMoved = ignore_move) -> list[Handler]:
    """Return the handlers of all kinds. `home_of`, `on_moved`: see `WorkflowKind`."""

    def clean_up(held: HeldItem, shard: Shard, externals: Externals) -> None:
        _clean_up(held, shard, externals, home_of)

    def deliver(held: HeldItem, shard: Shard, externals: Externals) -> None:
        _deliver(held, home_of)

    signal = WorkflowKind(_bring_signal, version=1, home_of=home_of, on_moved=on_moved)
    runners: dict[str, AttemptFunction] = {
        CLEANUP_KIND: _PlainAttempts(clean_up, on_moved),
        DELIVERY_KIND: _PlainAttempts(deliver, on_moved),
        SIGNAL_KIND: signal,
    }
    return [handler_of(kind, runner, retry=UNTIL_DONE) for kind, runner in runners.items()]


def with_hold_handler(registry: Registry) -> Registry:
    """Return what a worker runs: the handlers of an application, and that of holds.

    It is there without workflows, too: a web server may hold locks. The hooks stay those of the application.
    """
    hold = handler_of(HOLD_KIND, _end_hold, retry=UNTIL_DONE)
    return Registry({**registry.handlers, HOLD_KIND: hold}, registry.on_failure)


def _end_hold(job: Job) -> None:
    """Do nothing: the end of the item releases what its process held, see `fairlead.zones.workflow.holds`."""


def _clean_up(held: HeldItem, shard: Shard, externals: Externals, home_of: HomeOf) -> None:
    """Clear what a run keeps at each participant, one after the other; then home forgets the participant.

    Raises:
      NoSuchStore: see there. The item is retried until the store is named again.
    """
    if held.ref.tenant.app:  # A tenant may move meanwhile; a local item stays.
        shard = home_of(held.ref.tenant)
    location = shard.layout.location(held.ref.tenant, held.ref.zone)
    run: bytes = held.job.payload["run"]
    for participant in shard.transact(lambda attempt: participants_of(attempt.tr, location, run)):
        store = store_of_participant(participant)
        if store is None:
            _clean_up_tenant(home_of(participant), participant, run)
        elif store in externals:
            externals[store].steps.clean_up(run)
        else:
            raise NoSuchStore(store=store, known=sorted(externals))

        def forget(attempt: Attempt) -> None:
            forget_participant(attempt.tr, location, run, participant)  # noqa: B023 - called in this turn

        shard.transact(forget)


def _clean_up_tenant(shard: Shard, tenant: Tenant, run: bytes) -> None:
    keys = shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant
    shard.transact(
        lambda attempt: run_one(clean_up_op(attempt.tr, shard.layout, tenant, keys, run, now_us=attempt.now_us))
    )


def _deliver(held: HeldItem, home_of: HomeOf) -> None:
    """Bring the report on a child to its parent."""
    report = report_of(held.job.payload)
    shard = home_of(Tenant(report.parent.app, report.parent.user))
    shard.transact(lambda attempt: run_one(deliver_report_op(attempt.tr, shard.layout, report, now_us=attempt.now_us)))


def _bring_signal(wf: WorkflowContext, app: str, user: str, zone: str, item: bytes, name: str, payload: object) -> None:
    if not wf.step(_send, zone, item, name, payload, on=Tenant(app, user)):
        log.warning("a signal is dropped: its workflow has ended, signal=%s item=%s", name, item.hex())


def _send(tr: TenantTransaction, zone: str, item: bytes, name: str, payload: object) -> bool:
    """Send a signal; return whether there is somebody to get it."""
    try:
        tr.signal(item, name, payload, zone=zone)
    except ItemGone:
        probe("a signal from another tenant comes after the end of its workflow")
        return False
    return True
