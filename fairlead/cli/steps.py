"""steps, signal: commands for workflows."""

from collections.abc import Iterator
from typing import Any

import click

from fairlead.app import App
from fairlead.cli.arguments import Payload, with_id
from fairlead.cli.output import example, json_option, show, stacked
from fairlead.cli.store_options import optional_tenant_options, tenant_options
from fairlead.external_queues import ExternalQueues
from fairlead.formatting import ago, iso_time, payload_text, span
from fairlead.operator import operator_here
from fairlead.recorded_steps import RunView, StepView
from fairlead.tenant_database import TenantDatabase
from fairlead.workflow_explanation import has_timeout
from fairlead.workflows.recorded_errors import step_in
from fairlead.workflows.replay import shown
from fairlead.zones.errors import ItemGone
from fairlead.zones.layout import Tenant, shown_id
from fairlead.zones.workflow.run_records import StepState
from fairlead.zones.workflow.step_log import StepName


@click.command(epilog=example("fairlead steps order-7 --tenant shop/alice --store embedded:./data"))
@click.argument("item")
@optional_tenant_options
@json_option
def steps(app: App, database: TenantDatabase | ExternalQueues | None, item: str, zone: str) -> None:
    """Show what the workflow ITEM, an id or the name it was given, has done: its steps, their results and errors.

    Without a tenant, the command searches the first few thousand active queues.
    """

    def read(item_id: str | bytes) -> RunView:
        return _read_steps(app, item_id) if database is None else database.steps(item_id, zone=zone)

    run = with_id(item, read)
    show(_answer(run), lambda: _lines(run))


@click.command(epilog=example('fairlead signal order-7 approved \'{"by": "bob"}\' --tenant shop/alice'))
@click.argument("item")
@click.argument("name")
@click.argument("payload", type=Payload(), default="null")
@tenant_options
@json_option
def signal(database: TenantDatabase | ExternalQueues, item: str, name: str, payload: Any, zone: str) -> None:
    """Send the signal NAME to the workflow ITEM, with a PAYLOAD of JSON (default null; @FILE or - for standard input).

    A workflow that waits for the signal continues at once; otherwise the signal is kept until it is taken.
    """
    operator = operator_here("command line")
    with_id(item, lambda item_id: database.signal(item_id, name, payload, zone=zone, by=operator))
    show({"sent": name, "item": item}, lambda: [f"sent {name} to {item}"])


def _read_steps(app: App, item_id: str | bytes) -> RunView:
    """Return the run of an item whose tenant is unknown."""
    explanation = app.explain(item_id)
    if explanation.tenant is None or explanation.zone is None:
        raise ItemGone(item=shown_id(item_id))
    return database_at(app, explanation.tenant, explanation.shard).steps(explanation.item_id, zone=explanation.zone)


def database_at(app: App, tenant: Tenant, shard: str | None) -> TenantDatabase:
    """Return a tenant's database; of local items, that on a shard."""
    return app.tenant(tenant) if tenant.app else app.local(tenant.user, shard=shard)


def _answer(run: RunView) -> dict[str, Any]:
    return {
        "item": run.item_id.hex(),
        "shard": run.shard,
        "tenant": run.tenant,
        "zone": run.zone,
        "kind": run.kind,
        "run": run.run.hex(),
        "version": run.version,
        "enqueued": iso_time(run.enqueued_us),
        "began": _time(run.began_us),
        "segment": run.segment,
        "checkpoint": run.checkpoint,
        "cancelling": run.cancelling,
        "undo_reason": run.undo_reason,
        "waits_for_signals": run.waits_for_signals,
        "waits_for_children": run.waits_for_children,
        "until": _time(run.until_us),
        "running": run.running,
        "failed_attempts": run.failed_attempts,
        "last_error": run.last_error,
        "dead_letter_error": run.dead_letter_error,
        "whole": run.whole,
        "away": [{"tenant": each.tenant, "reason": each.sentence} for each in run.away],
        "steps": [_step_answer(step) for step in run.steps],
    }


def _step_answer(step: StepView) -> dict[str, Any]:
    return {
        "name": step.name,
        "occurrence": step.occurrence,
        "ordinal": step.ordinal,
        "kind": step.kind.name.lower(),
        "state": step.state.name.lower(),
        "began": iso_time(step.began_us),
        "at": iso_time(step.at_us),
        "took_s": step.took_us / 1e6,
        "result": step.result,
        "error_type": step.error_type,
        "error": step.error,
        "tries": step.tries,
        "until": _time(step.until_us),
        "tenant": step.tenant,
        "undone": _time(step.undone_us),
        "child": None if step.child_id is None else step.child_id.hex(),
    }


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else iso_time(time_us)


def _lines(run: RunView) -> Iterator[Any]:
    yield f"{run.kind} {run.item_id.hex()} of {run.tenant}, zone {run.zone}, on shard {run.shard}"
    checkpoints = f", {run.segment} checkpoints" if run.segment else ""
    begun = f"run {run.run.hex()}, begun by version {run.version} of its code{checkpoints}"
    yield "it has recorded no steps" if run.version is None else begun
    if run.checkpoint is not None:
        yield f"checkpoint: {payload_text(run.checkpoint)}"
    if run.undo_reason is not None:
        yield f"its steps are being undone: {run.undo_reason}"
    elif run.cancelling:
        yield "its cancellation was requested: its steps will be undone"
    if run.dead_letter_error is not None:
        error, step = step_in(run.dead_letter_error)
        yield f"a dead letter: {'' if step is None else f'the step {step} failed: '}{error}"
    if run.steps:
        columns = ("#no", "kind", "state", "#took", "#failed tries", "step")
        yield stacked(columns, (_row(run, step) for step in run.steps))
    if run.until_us is not None:
        yield _waits(run, run.until_us)
    if run.running:
        yield "it runs now; what it is doing is shown once it is done"
    if run.last_error is not None and run.dead_letter_error is None:
        error, step = step_in(run.last_error)
        times = "once" if run.failed_attempts == 1 else f"{run.failed_attempts:,} times"
        yield f"{'an attempt' if step is None else f'the step {step}'} failed {times}: {error}"
    for each in run.away:
        yield f"steps of {each.tenant} are missing: {each.sentence}"
    if not run.whole:
        yield "there are more steps than are shown"


def _waits(run: RunView, until_us: int) -> str:
    awaited = [f"signal {name}" for name in run.waits_for_signals]
    awaited += [f"the child of {name}" for name in run.waits_for_children]
    if not awaited:
        return f"goes on {ago(until_us, run.now_us)}"
    what = f"waits for {', '.join(awaited)}"
    if not has_timeout(until_us, run.now_us):
        return f"{what}, without a timeout"
    return f"{what}; goes on {ago(until_us, run.now_us)} at the latest"


def _row(run: RunView, step: StepView) -> tuple[object, ...]:
    lines = [shown(StepName(step.name, step.occurrence))]
    if step.tenant != run.tenant:
        lines.append(f"on {step.tenant}")
    if step.child_id is not None:
        lines.append(f"child {step.child_id.hex()}")
    elif step.state is StepState.DONE and step.result is not None:
        lines.append(payload_text(step.result))
    if step.error_type:
        lines.append(f"{step.error_type}: {step.error}")
    if step.until_us is not None and has_timeout(step.until_us, run.now_us):
        lines.append(f"until {iso_time(step.until_us)}")
    state = "undone" if step.undone_us is not None else step.state.name.lower()
    return step.ordinal, step.kind_name, state, span(step.took_us), step.tries or "", "\n".join(lines)
