"""buried, revive, discard: items that will not run again by themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from fairlead.app import App
from fairlead.cli.arguments import Before, moment_us, with_id
from fairlead.cli.output import dead_letter_answer, example, item_text, json_option, progress, show, stacked, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options, optional_tenant_options
from fairlead.dead_letters import BulkResult, discard_all, retry_all
from fairlead.formatting import ago
from fairlead.tenant_database import TenantDatabase
from fairlead.views import DeadLetterView, dead_letter_view
from fairlead.zones.queue import dead_letters as graves
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.shard import Shard


@dataclass(frozen=True, slots=True)
class Selection:
    """Which buried items a command is about: one of a tenant, or all that are sought."""

    app: App
    database: TenantDatabase | None
    item: str | None
    zone: str
    criteria: DeadLetterFilter
    dry_run: bool


@click.command(epilog=example("fairlead buried --traceback --store embedded:./data"))
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of each shard.")
@click.option("--traceback", is_flag=True, help="Show tracebacks; --json always does.")
@accepts_store_options
@json_option
def buried(store_options: StoreOptions, limit: int, traceback: bool) -> None:
    """Show the buried items of all tenants, oldest first: those that failed for good, with their errors."""
    app = store_options.app()
    items = [item for name in app.shards for item in _dead_letters_of(app.shards[name], limit)]
    now_us = app.clock.now_us()
    columns = ("buried", "reason", "#errors", "item")

    def tracebacks() -> list[str]:
        return [f"\n{item.id.hex()}\n{item.traceback}" for item in items if traceback and item.traceback]

    show(
        {"buried": [dead_letter_answer(item) for item in items]},
        lambda: [stacked(columns, (_row(item, now_us) for item in items)), f"{len(items)} buried items", *tracebacks()],
    )


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an ITEM or what is sought instead, and pass it a `selection`."""

    @click.argument("item", required=False)
    @click.option("--kind", metavar="KIND", help="Of this kind.")
    @click.option("--error", metavar="TEXT", help="Whose error contains this.")
    @click.option("--before", type=Before(), metavar="TIME", help="Buried before: 2h ago, or ISO 8601 with its offset.")
    @click.option("--all", "everything", is_flag=True, help="All there are.")
    @click.option("--dry-run", is_flag=True, help="Change nothing, and say how many it would be.")
    @optional_tenant_options
    @wraps(command)
    def with_selection(
        *args: Any,
        app: App,
        database: TenantDatabase | None,
        zone: str,
        item: str | None,
        kind: str | None,
        error: str | None,
        before: int | None,
        everything: bool,
        dry_run: bool,
        **options: Any,
    ) -> Any:
        tenant = None if database is None else database.tenant
        is_local = tenant is not None and not tenant.app
        shard = database.shard.name if database is not None and is_local else None
        named_zone = click.get_current_context().get_parameter_source("zone") is not ParameterSource.DEFAULT
        before_us = None if before is None else moment_us(before, app.clock.now_us())
        criteria = DeadLetterFilter(kind, tenant, zone if named_zone else None, error, before_us, shard)
        by_more_than_owner = criteria._replace(tenant=None, zone=None, shard=None) != DeadLetterFilter()
        if item is not None and (everything or dry_run or by_more_than_owner):
            raise click.UsageError("Name an ITEM, or say which ones with --kind, --error, --before or --all.")
        if item is not None and database is None:
            raise click.UsageError("Name the item's tenant, --tenant APP/USER, or local items, --local KIND.")
        if item is None and everything == (criteria != DeadLetterFilter()):
            raise click.UsageError(
                "Name an ITEM and its tenant; or say which ones with --kind, --tenant, --local, --zone, --error,"
                " --before; or --all."
            )
        return command(*args, selection=Selection(app, database, item, zone, criteria, dry_run), **options)

    return with_selection


@click.command(epilog=example("fairlead revive --kind receipt --error 'timed out' --dry-run --store embedded:./data"))
@filter_options
@json_option
def revive(selection: Selection) -> None:
    """Put buried items back into their queues, due now, their errors forgotten: an ITEM of a tenant, or many.

    Many are revived some hundred at a time; broken off, it goes on with what is left when it is called again.
    """
    if selection.item is not None and selection.database is not None:
        of_tenant, by = selection.database, selection.app.operator
        with_id(selection.item, lambda item_id: of_tenant.retry_dead_letter(item_id, zone=selection.zone, by=by))
        show({"revived": selection.item}, lambda: [f"revived {selection.item}"])
        return
    _bulk(selection, retry_all, "revived")


@click.command(epilog=example("fairlead discard --kind receipt --before 30d --dry-run --store embedded:./data"))
@filter_options
@json_option
def discard(selection: Selection) -> None:
    """Delete buried items for good: an ITEM of a tenant, or many; see revive."""
    if selection.item is not None and selection.database is not None:
        of_tenant, by = selection.database, selection.app.operator
        with_id(selection.item, lambda item_id: of_tenant.discard_dead_letter(item_id, zone=selection.zone, by=by))
        show({"discarded": selection.item}, lambda: [f"discarded {selection.item}"])
        return
    _bulk(selection, discard_all, "discarded")


def _bulk(selection: Selection, bulk_operation: Callable[..., BulkResult], done: str) -> None:
    app, dry_run = selection.app, selection.dry_run
    with progress(done) as advance:

        def tell(result: BulkResult) -> bool:
            advance(result.count, None)
            return True

        found = bulk_operation(app.shards, selection.criteria, app.operator, dry_run=dry_run, go_on=tell)
    said = f"would be {done}: nothing was changed" if dry_run else done
    counts = [(kind, count) for kind, count in sorted(found.by_kind.items())]
    show(
        {done: 0 if dry_run else found.count, "found": found.count, "by_kind": found.by_kind, "dry_run": dry_run},
        lambda: [*([table(("kind", "#items"), counts)] if counts else []), f"{found.count:,} buried items {said}"],
    )


def _dead_letters_of(shard: Shard, items_max: int) -> list[DeadLetterView]:
    return shard.transact(
        lambda attempt: [
            dead_letter_view(shard, attempt.tr, each)
            for each in graves.listing(attempt.tr, shard.layout, items_max=items_max)
        ]
    )


def _row(item: DeadLetterView, now_us: int) -> tuple[object, ...]:
    owner = f"{item.tenant.app}/{item.tenant.user}" if item.tenant.app else "(local)"
    zone = "" if item.zone == "queue" else f" {item.zone}"
    return ago(item.dead_lettered_us, now_us), item.reason, item.error_count, item_text(item, owner + zone, item.error)
