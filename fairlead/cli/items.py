"""enqueue, peek, find, cancel, result: commands for items."""

from datetime import timedelta
from functools import partial
from typing import Any

import click

from fairlead.cli.arguments import Duration, ItemKey, Payload, with_id
from fairlead.cli.output import dead_letter_answer, example, item_answer, item_text, json_option, show, stacked
from fairlead.cli.store_options import StoreOptions, accepts_store_options, tenant_options
from fairlead.external_queues import ExternalQueues
from fairlead.formatting import ago, payload_text
from fairlead.found_items import DEAD_LETTER, LIMIT_MAX, FoundItem
from fairlead.operator import operator_here
from fairlead.tenant_database import TenantDatabase
from fairlead.views import ItemView, State, progress_in_words
from fairlead.zones.errors import ItemGone
from fairlead.zones.queue.items import DEFAULT_PRIORITY, EnqueueStatus
from fairlead.zones.workflow.cancellation import CancelOutcome

_KEY_HELP = "A value by which `fairlead find` finds it; up to 4 times. Digits are a number."


@click.command(epilog=example("fairlead enqueue receipt '{\"order\": 7}' --tenant shop/alice --store embedded:./data"))
@click.argument("kind")
@click.argument("payload", type=Payload(), default="null")
@click.option("--tenant", nargs=2, metavar="APP/USER", help="The tenant of the item; also as two words, APP USER.")
@click.option("--external", metavar="NAME", help="The external store in which it is to lie, not the tenant's shard.")
@click.option("--local", is_flag=True, help="It belongs to no tenant.")
@click.option("--shard", metavar="NAME", help="With --local: the shard, if not the kind's own.")
@click.option("--zone", default="queue", show_default=True, metavar="NAME", help="The tenant's queue zone.")
@click.option(
    "--id", "item_id", metavar="NAME", help="Its name; a second enqueue changes nothing until it has completed."
)
@click.option("--delay", type=Duration(), default="0", help="How long until it may run: 90s, 5min, 2h; up to 10 years.")
@click.option("--priority", type=int, default=DEFAULT_PRIORITY, show_default=True, help="0 to 255, lower first.")
@click.option("--unique-for", type=Duration(), default="0", help="How long --id stays taken after completion.")
@click.option("--unique-key", metavar="TEXT", help="What no other item of the whole application has.")
@click.option("--key", "keys", type=ItemKey(), multiple=True, metavar="NAME=VALUE", help=_KEY_HELP)
@click.option("--create", is_flag=True, help="Make the store if it does not exist.")
@accepts_store_options
@json_option
def enqueue(
    store_options: StoreOptions,
    kind: str,
    payload: Any,
    tenant: tuple[str, str] | None,
    external: str | None,
    local: bool,
    shard: str | None,
    unique_key: str | None,
    keys: tuple[tuple[str, str | int], ...],
    create: bool,
    **options: Any,
) -> None:
    """Enqueue one item of KIND with a PAYLOAD of JSON (default null; @FILE or - for standard input)."""
    if (tenant is None) != local:
        raise click.UsageError("Name either a tenant, --tenant APP/USER, or say --local for an item without one.")
    if shard is not None and not local:
        raise click.UsageError("--shard goes with --local: a tenant has its own shard.")
    if external is not None and (tenant is None or keys or unique_key is not None):
        raise click.UsageError("--external goes with --tenant, and not with --key or --unique-key.")
    app = store_options.app(must_exist=not create)
    app.shards.on_store_created = partial(click.echo, err=True)
    store_options.warn_of_unknown_kind(app, kind)
    if tenant is not None and external is not None:
        made = app.tenant(*tenant).external(external).enqueue(kind, payload, **options)
        place = {"store": external}
    else:
        database = app.tenant(*tenant) if tenant is not None else app.local(kind, shard=shard)
        made = database.enqueue(kind, payload, keys=_mapping(keys), unique_key=unique_key, **options)
        place = {"shard": database.shard.name}
    note = "" if made.status is EnqueueStatus.ENQUEUED else ": nothing was changed"
    where = f"in external store {external}" if external is not None else f"on shard {place['shard']}"
    show(
        {"item": made.item_id.hex(), "status": made.status.value, **place},
        lambda: [f"{made.status.value} {made.item_id.hex()} {where}{note}"],
    )


@click.command(epilog=example("fairlead peek --tenant shop/alice --store embedded:./data"))
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many items.")
@click.option("--vested", is_flag=True, help="Only those that may run now.")
@tenant_options
@json_option
def peek(database: TenantDatabase | ExternalQueues, limit: int, vested: bool, zone: str) -> None:
    """Show the first items of a queue, in the order in which they will run; changes nothing."""
    now_us = database.clock.now_us()
    items = database.peek(limit, vested_only=vested, zone=zone)
    columns = ("state", "#prio", "waits", "#errors", "#expiries", "item")
    count = database.count(zone=zone)
    show(
        {"items": [item_answer(item) for item in items], "count": count},
        lambda: [
            stacked(columns, (_row(item, now_us) for item in items)),
            f"{len(items)} of {sum(count.values()):,} items",
        ],
    )


@click.command(epilog=example("fairlead find order=7 --store embedded:./data"))
@click.argument("keys", type=ItemKey(), nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=100, show_default=True, help="How many items.")
@click.option("--cancel", "cancels", is_flag=True, help="Cancel them, as `fairlead cancel` does.")
@click.option("--force", is_flag=True, help="With --cancel: dead letters too, and undo no steps of workflows.")
@accepts_store_options
@json_option
def find(
    store_options: StoreOptions, keys: tuple[tuple[str, str | int], ...], limit: int, cancels: bool, force: bool
) -> None:
    """List items and dead letters of all tenants that were enqueued with a key NAME=VALUE; several: with all of them.

    A value of digits is a number. Write a text of digits as JSON: order='"7"'.
    """
    if force and not cancels:
        raise click.UsageError("--force goes with --cancel.")
    found = store_options.app().find_items(_mapping(keys), limit=limit)
    cancelled = [_cancel_found(item, force=force) for item in found] if cancels else []
    answer: dict[str, Any] = {"items": [_found_answer(item) for item in found]}
    if cancels:
        answer["outcomes"] = {item.item_id.hex(): outcome for item, outcome in zip(found, cancelled, strict=True)}
    columns = ("state", "tenant", "zone", "item")
    more = f"; there may be more than --limit {limit}" if len(found) == limit else ""
    show(
        answer,
        lambda: [
            stacked(
                ("outcome", *columns) if cancels else columns,
                (
                    (*cancelled[number : number + 1], item.state, item.tenant, item.zone, item_text(item.view))
                    for number, item in enumerate(found)
                ),
            ),
            f"{len(found)} items{more}",
        ],
    )


@click.command(epilog=example("fairlead cancel order-7 --tenant shop/alice --store embedded:./data"))
@click.argument("item")
@click.option("--force", is_flag=True, help="Delete it, even if it is a dead letter, and undo no steps of a workflow.")
@tenant_options
@json_option
def cancel(database: TenantDatabase | ExternalQueues, item: str, zone: str, force: bool) -> None:
    """Delete ITEM, an id or the name it was given, from its queue. If it runs, its handler is cancelled.

    A workflow that has recorded steps is deleted after these are undone.
    """
    operator = operator_here("command line")
    outcome = with_id(item, lambda item_id: database.cancel(item_id, zone=zone, force=force, by=operator))
    undoing = outcome is CancelOutcome.UNDOING
    note = ": its steps are undone first" if undoing else ""
    answer = {"cancelled": item, **({"undoing": True} if undoing else {})}
    show(answer, lambda: [f"cancelled {item}{note}"])


@click.command(epilog=example("fairlead result order-7 --tenant shop/alice --store embedded:./data"))
@click.argument("item")
@click.option(
    "--timeout", type=Duration(), default="0", help="How long to wait for it: 500ms, 90s; default not at all."
)
@tenant_options
@json_option
def result(database: TenantDatabase | ExternalQueues, item: str, timeout: timedelta, zone: str) -> None:
    """Show what the handler of ITEM, an id or the name it was given, returned, if its kind keeps results."""
    found: list[Any] = []

    def wait_for(item_id: str | bytes) -> None:
        found.append(database.item(item_id, zone=zone).result(timeout))

    with_id(item, wait_for)
    show({"item": item, "result": found[0]}, lambda: [payload_text(found[0])])


def _mapping(keys: tuple[tuple[str, str | int], ...]) -> dict[str, str | int]:
    names = [name for name, _ in keys]
    if len(set(names)) < len(names):
        raise click.UsageError("A key is given twice.")
    return dict(keys)


def _found_answer(item: FoundItem) -> dict[str, Any]:
    if isinstance(item.view, ItemView):
        return item_answer(item.view)
    return {**dead_letter_answer(item.view), "state": item.state}


def _cancel_found(item: FoundItem, *, force: bool) -> str:
    """Cancel an item; return what came of it."""
    try:
        outcome = item.cancel(force=force, by=operator_here("command line"))
    except ItemGone:
        return "kept: needs --force" if item.state == DEAD_LETTER else "ended before"
    return "undoing its steps" if outcome is CancelOutcome.UNDOING else "cancelled"


def _row(item: ItemView, now_us: int) -> tuple[object, ...]:
    vests = "" if item.state is State.VESTED else f"\n{ago(item.vesting_us, now_us)}"
    waits = ago(item.enqueued_us, now_us).removesuffix(" ago")
    state = f"{item.state.value}{vests}"
    progress = "" if item.progress is None else f"at {progress_in_words(item.progress)}"
    return state, item.priority, waits, item.error_count, item.expiry_count, item_text(item, progress, item.last_error)
