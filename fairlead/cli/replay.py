"""replay: this application's code against the live runs of a workflow, before it is deployed."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from fairlead.cli.errors import FOUND_FAULTS
from fairlead.cli.output import example, json_option, show
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.error_text import sentence_of
from fairlead.replayed_runs import ReplayedRun, replay_runs, workflow_of
from fairlead.workflows.read_only_replay import ReplayOutcome
from fairlead.workflows.replay import StepsDiffer, side_by_side


@click.command(epilog=example("fairlead replay checkout --app shop:app"))
@click.argument("kind")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="How many runs of each shard."
)
@click.option("--dead-letters", is_flag=True, help="Replay the dead letters of KIND instead: would a retry go on?")
@accepts_store_options
@json_option
@click.pass_context
def replay(ctx: click.Context, store_options: StoreOptions, kind: str, limit: int, dead_letters: bool) -> None:
    """Replay the workflows of KIND that run or wait, by the code of this application, and show those that do not fit.

    Nothing is written, and no step, effect or read is done: the function gets the recorded answers, and ends where the
    workflow stands. The exit code is 1 if the code of a run differs, or if what is stored of a run cannot be read.
    """
    if store_options.reference is None:
        raise click.UsageError("replay runs the code of an application: name it by --app, or by FAIRLEAD_APP.")
    app = store_options.app()
    _, workflow = workflow_of(app, kind)
    outcomes: Counter[ReplayOutcome] = Counter()
    faulty: list[ReplayedRun] = []
    whole = True
    for name in app.shards:
        runs = replay_runs(app, kind, app.shards[name], dead_letters=dead_letters)
        for run in islice(runs, limit):
            outcomes[run.outcome] += 1
            if run.outcome in (ReplayOutcome.DIFFERENT, ReplayOutcome.UNREADABLE):
                faulty.append(run)
        whole = whole and next(runs, None) is None
    answer = {
        "kind": kind,
        "version": workflow.version,
        "runs": outcomes.total(),
        "same": outcomes[ReplayOutcome.SAME],
        "newer": outcomes[ReplayOutcome.NEWER],
        "different": [_answer(run) for run in faulty if run.outcome is ReplayOutcome.DIFFERENT],
        "unreadable": [_answer(run) for run in faulty if run.outcome is ReplayOutcome.UNREADABLE],
        "whole": whole,
    }
    nothing = (
        "no dead letter of it has recorded a step" if dead_letters else "no workflow that waits has recorded a step"
    )
    show(answer, lambda: _lines(answer, faulty, nothing=nothing))
    if faulty:
        ctx.exit(FOUND_FAULTS)


def _answer(run: ReplayedRun) -> dict[str, Any]:
    fields = run.error.fields if isinstance(run.error, StepsDiffer) else {}
    return {
        "item": run.item_id.hex(),
        "shard": run.shard,
        "tenant": run.tenant,
        "zone": run.zone,
        "version": run.version,
        "error_type": type(run.error).__name__,
        "first_difference": _difference(run),
        "recorded": fields.get("recorded"),
        "now": fields.get("now"),
        "steps_before": fields.get("steps_before"),
    }


def _difference(run: ReplayedRun) -> str:
    if isinstance(run.error, StepsDiffer):
        return str(run.error.fields["first_difference"])
    return "" if run.error is None else sentence_of(run.error)


def _lines(answer: dict[str, Any], faulty: list[ReplayedRun], *, nothing: str) -> Iterator[str]:
    """`nothing`: says that no run was replayed."""
    for run in faulty:
        where = f"of {run.tenant}, zone {run.zone}, on shard {run.shard}"
        begun = "" if run.version is None else f", begun by version {run.version}"
        unreadable = "cannot be read: " if run.outcome is ReplayOutcome.UNREADABLE else ""
        yield f"{run.item_id.hex()} {where}{begun}: {unreadable}{_difference(run)}"
        if isinstance(run.error, StepsDiffer):
            yield from side_by_side(run.error)
        yield ""
    newer = f", {answer['newer']} begun by newer code" if answer["newer"] else ""
    unreadable = f", {len(answer['unreadable'])} unreadable" if answer["unreadable"] else ""
    yield (
        f"{answer['kind']}, by version {answer['version']} of its code: "
        f"{answer['same']} the same, {len(answer['different'])} different{newer}{unreadable}"
    )
    if not answer["runs"]:
        yield f"nothing was compared: {nothing}"
    if not answer["whole"]:
        yield "there are more runs: raise --limit"
