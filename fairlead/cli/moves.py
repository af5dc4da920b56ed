"""move, moves, rebalance: tenants go to other shards."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from fairlead.app import App
from fairlead.cli.errors import STORE_UNUSABLE, interrupted
from fairlead.cli.output import example, json_option, progress, show, stacked, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.error_text import fields_of, message_of, remedy_of
from fairlead.formatting import ago, iso_time, size, span
from fairlead.move_views import MoveView
from fairlead.moves import (
    MB_PER_S,
    MB_PER_S_MAX,
    MB_PER_S_MIN,
    MovePending,
    MovePlan,
    NoMove,
    Rebalance,
    TenantMove,
    in_reading_order,
    read_moves,
)
from fairlead.queries.per_shard import ShardResult, query_each_shard
from fairlead.zones.layout import Tenant, named_tenant

POLL_S = 0.5  # Between two updates of the bar.
BEGUN = "a running fleet carries it out; fairlead moves shows how far it is"
GOES_ON = "goes on; --cancel would end it"  # After Ctrl-C.
MAY_GO_ON = "goes on if it has begun; fairlead moves lists it, and --cancel would end it"
MORE = "there are more tenants to move: run the command again once these moves have ended"

rate_option = click.option(
    "--rate", "mb_per_s", type=click.FloatRange(MB_PER_S_MIN, MB_PER_S_MAX), default=MB_PER_S, show_default=True,
    metavar="MB_PER_S",
    help="How fast to copy at most, in megabytes per second.",
)  # fmt: skip


@click.command(epilog=example("fairlead move shop/alice --to us2 --dry-run --app shop:app"))
@click.argument("names", nargs=-1, required=True, metavar="APP/USER")
@click.option("--to", metavar="NAME", help="The shard to which the tenant moves.")
@click.option("--dry-run", is_flag=True, help="Say what would be copied and how long that takes; change nothing.")
@click.option("--wait", is_flag=True, help="Wait until the tenant has moved. Ctrl-C ends the waiting, not the move.")
@click.option("--cancel", is_flag=True, help="End a move that is under way: the tenant stays where it was.")
@rate_option
@accepts_store_options
@json_option
def move(
    store_options: StoreOptions,
    names: tuple[str, ...],
    to: str | None,
    dry_run: bool,
    wait: bool,
    cancel: bool,
    mb_per_s: float,
) -> None:
    """Move a tenant to another shard, with its data, its queues and its workflows, while its users write.

    The tenant may also be typed as two words, APP USER. The command begins the move, and a running fleet carries it
    out.
    """
    if len(names) > 2:
        raise click.UsageError("Name one tenant: APP/USER, or APP USER.")
    if cancel == (to is not None) or (cancel and (dry_run or wait)) or (dry_run and wait):
        raise click.UsageError("Give --to NAME, with --dry-run or --wait or neither; or --cancel alone.")
    app, tenant = store_options.app(), named_tenant(*names)
    if cancel or to is None:
        _cancel(app, tenant)
    elif dry_run:
        _show_plan(app.plan_move(tenant, to=to), mb_per_s)
    else:
        begun = None
        with interrupted(lambda: f"the move of {tenant} {GOES_ON if begun else MAY_GO_ON}"):
            begun = app.move(tenant, to=to, mb_per_s=mb_per_s)
            view = _waited(begun) if wait else begun.progress()
        show({"move": _answer(view)}, lambda: _begun_lines(view))


@click.command(epilog=example("fairlead moves --app shop:app"))
@accepts_store_options
@json_option
@click.pass_context
def moves(ctx: click.Context, store_options: StoreOptions) -> None:
    """List the moves of tenants that are under way, and those that ended within a day."""
    app = store_options.app()
    seen = query_each_shard(app.shards, read_moves)
    found = in_reading_order(view for each in seen for view in each.found or ())
    now_us = app.clock.now_us()
    show(
        {"moves": [_answer(view) for view in found], "unread": [_unread(each) for each in seen if each.error]},
        lambda: _list_lines(found, seen, now_us),
    )
    if any(each.error for each in seen):
        ctx.exit(STORE_UNUSABLE)


@click.command(epilog=example("fairlead rebalance --to us2 --dry-run --app shop:app"))
@click.option("--to", "names", multiple=True, required=True, metavar="NAME", help="A shard that gets tenants; repeat.")
@click.option("--dry-run", is_flag=True, help="List who would move; begin nothing.")
@click.option("--tenants-max", type=int, default=100, show_default=True, metavar="N", help="Begin at most N moves.")
@rate_option
@accepts_store_options
@json_option
def rebalance(
    store_options: StoreOptions, names: tuple[str, ...], dry_run: bool, tenants_max: int, mb_per_s: float
) -> None:
    """Move tenants to shards that were added, until these have about as many tenants as any other shard.

    Nobody moves between other shards, and who has moved stays. A second call goes on where the first one stopped.
    """
    app = store_options.app()
    chosen = app.rebalance(to=list(names), dry_run=dry_run, tenants_max=tenants_max, mb_per_s=mb_per_s)
    answer = {
        "dry_run": dry_run,
        "moves": [{"tenant": tenant, "to": name} for tenant, name in chosen.moves],
        "whole": chosen.whole,
    }
    show(answer, lambda: _rebalance_lines(chosen, dry_run=dry_run))


def _cancel(app: App, tenant: Tenant) -> None:
    if not app.cancel_move(tenant):
        raise NoMove(tenant=str(tenant), shard=app.tenant(tenant).find().name)
    show(
        {"cancelling": tenant},
        lambda: [f"the move of {tenant} is being taken back; fairlead moves shows when it has ended"],
    )


def _waited(begun: TenantMove) -> MoveView:
    """Return how a move ended, and show meanwhile on standard error how far it is."""
    with progress(f"moving {begun.tenant}") as advance:
        while True:
            try:
                return begun.result(timeout=POLL_S)
            except MovePending:
                view = begun.progress()
                advance(view.copied_bytes, view.total_bytes or None)


def _answer(view: MoveView) -> dict[str, Any]:
    return {
        "id": view.id.hex(),
        "tenant": view.tenant,
        "from": view.source,
        "to": view.destination,
        "state": view.state,
        "stage": view.stage,
        "held_up": view.held_up,
        "cancel_requested": view.cancel_requested,
        "fraction": view.fraction,
        "copied_rows": view.copied_rows,
        "copied_bytes": view.copied_bytes,
        "total_rows": view.total_rows,
        "total_bytes": view.total_bytes,
        "mb_per_s": view.mb_per_s,
        "rounds": view.rounds,
        "frozen_s": view.frozen,
        "slowed_s": view.slowed,
        "began": iso_time(round(view.began * 1e6)),
        "ended": None if view.ended is None else iso_time(round(view.ended * 1e6)),
        "error": view.error,
    }


def _unread(each: ShardResult[Any]) -> dict[str, Any]:
    assert each.error is not None
    described = {"error": message_of(each.error), "fields": fields_of(each.error), "do": remedy_of(each.error)}
    return {"shard": each.shard, "url": each.url, **described}


def _begun_lines(view: MoveView) -> Iterator[str]:
    way = f"{view.tenant} from {view.source} to {view.destination}"
    if view.is_under_way:
        yield f"moving {way}: {view.now}"
        yield BEGUN
    else:
        slowed = f"; writers waited up to {span(view.slowed * 1e6)} after a commit" if view.slowed else ""
        yield f"moved {way}: {_copied(view)}; transactions waited {span(view.frozen * 1e6)} at the end{slowed}"


def _copied(view: MoveView) -> str:
    return f"{view.copied_rows:,} rows, {size(view.copied_bytes)}"


def _show_plan(plan: MovePlan, mb_per_s: float) -> None:
    seconds = plan.seconds(mb_per_s)
    show(
        {
            "plan": {
                "tenant": plan.tenant,
                "from": plan.source,
                "to": plan.destination,
                "rows": plan.rows,
                "bytes": plan.bytes,
                "mb_per_s": mb_per_s,
                "seconds": seconds,
                "warnings": plan.warnings,
            }
        },
        lambda: [
            f"would move {plan.tenant} from {plan.source} to {plan.destination}: {plan.rows:,} rows,"
            f" {size(plan.bytes)}; copying takes at least {span(seconds * 1e6)} at {mb_per_s:g} MB/s",
            *(f"warning: {warning}" for warning in plan.warnings),
        ],
    )


def _list_lines(found: Sequence[MoveView], seen: Sequence[ShardResult[Any]], now_us: int) -> Iterator[Any]:
    if found:
        columns = ("tenant", "from", "to", "began", "copied", "longest wait", "state")
        yield stacked(columns, (_row(view, now_us) for view in found))
    else:
        yield "no tenant moves, and no move ended within a day"
    for each in seen:
        if each.error:
            yield f"{each.shard}: {each.sentence}"
            yield f"  Do: {each.remedy}"


def _row(view: MoveView, now_us: int) -> tuple[object, ...]:
    wait = span(view.longest_wait * 1e6) if view.longest_wait or view.state == "moved" else ""
    began = ago(round(view.began * 1e6), now_us)
    return str(view.tenant), view.source, view.destination, began, size(view.copied_bytes), wait, view.now


def _rebalance_lines(chosen: Rebalance, *, dry_run: bool) -> Iterator[Any]:
    if chosen.moves:
        yield table(("tenant", "to"), ((str(tenant), name) for tenant, name in chosen.moves))
    does = "would begin" if dry_run else "began"
    yield f"{does} {len(chosen.moves):,} {'move' if len(chosen.moves) == 1 else 'moves'}"
    if not dry_run and chosen.moves:
        yield BEGUN.replace("it out", "them out").replace("it is", "they are")
    if not chosen.whole:
        yield MORE
