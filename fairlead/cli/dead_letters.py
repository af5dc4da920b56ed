"""dead-letters list, retry, discard: items that failed for good."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from fairlead.app import App
from fairlead.bulk_result import BulkResult
from fairlead.cli.arguments import Before, moment_us, with_id
from fairlead.cli.output import dead_letter_answer, example, item_text, json_option, progress, show, stacked, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options, optional_tenant_options
from fairlead.dead_letters import discard_all, retry_all
from fairlead.external_queues import ExternalQueues
from fairlead.formatting import ago
from fairlead.tenant_database import TenantDatabase
from fairlead.views import DeadLetterView, dead_letter_view, external_dead_letter_view
from fairlead.zones.queue import dead_letters as stored
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.shard import Shard


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters a command changes: one item of a tenant, or all that match `criteria`."""

    app: App
    database: TenantDatabase | ExternalQueues | None
    item: str | None
    zone: str
    criteria: DeadLetterFilter
    dry_run: bool


@click.group("dead-letters")
def dead_letters() -> None:
    """List, retry or discard dead letters: items that failed for good, kept with their errors."""


@dead_letters.command("list", epilog=example("fairlead dead-letters list --traceback --store embedded:./data"))
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of each shard or store."
)
@click.option("--traceback", is_flag=True, help="Show tracebacks; --json always does.")
@accepts_store_options
@json_option
def list_(store_options: StoreOptions, limit: int, traceback: bool) -> None:
    """List the dead letters of all tenants with their errors, oldest first."""
    app = store_options.app()
    items = [item for name in app.shards for item in _dead_letters_of(app.shards[name], limit)]
    items += [item for name in app.externals for item in _external_dead_letters(app, name, limit)]
    now_us = app.clock.now_us()
    columns = ("failed", "reason", "#errors", "item")

    def tracebacks() -> list[str]:
        return [f"\n{item.id.hex()}\n{item.traceback}" for item in items if traceback and item.traceback]

    show(
        {"dead_letters": [dead_letter_answer(item) for item in items]},
        lambda: [stacked(columns, (_row(item, now_us) for item in items)), _count(len(items)), *tracebacks()],
    )


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an ITEM argument and filter options, and pass it a `selection`."""

    @click.argument("item", required=False)
    @click.option("--kind", metavar="KIND", help="Only this kind.")
    @click.option("--error", metavar="TEXT", help="Only items whose error contains TEXT.")
    @click.option(
        "--before", type=Before(), metavar="TIME", help="Only items that failed before TIME: 2h ago, or ISO 8601."
    )
    @click.option("--all", "everything", is_flag=True, help="All dead letters.")
    @click.option("--dry-run", is_flag=True, help="Count the items, and change nothing.")
    @optional_tenant_options
    @wraps(command)
    def with_selection(
        *args: Any,
        app: App,
        database: TenantDatabase | ExternalQueues | None,
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
        is_local = isinstance(database, TenantDatabase) and not database.tenant.app
        shard = database.shard.name if isinstance(database, TenantDatabase) and is_local else None
        store = database.name if isinstance(database, ExternalQueues) else None
        named_zone = click.get_current_context().get_parameter_source("zone") is not ParameterSource.DEFAULT
        before_us = None if before is None else moment_us(before, app.clock.now_us())
        criteria = DeadLetterFilter(kind, tenant, zone if named_zone else None, error, before_us, shard, store=store)
        by_more_than_owner = criteria._replace(tenant=None, zone=None, shard=None, store=None) != DeadLetterFilter()
        if item is not None and (everything or dry_run or by_more_than_owner):
            raise click.UsageError("Name an ITEM, or select items with --kind, --error, --before or --all.")
        if item is not None and database is None:
            raise click.UsageError("Name the item's tenant, --tenant APP/USER, or local items, --local KIND.")
        if item is None and everything == (criteria != DeadLetterFilter()):
            raise click.UsageError(
                "Name an ITEM and its tenant; or select items with --kind, --tenant, --local, --zone, --error,"
                " --before; or --all."
            )
        return command(*args, selection=Selection(app, database, item, zone, criteria, dry_run), **options)

    return with_selection


@dead_letters.command(
    epilog=example("fairlead dead-letters retry --kind receipt --error 'timed out' --dry-run --store embedded:./data")
)
@filter_options
@json_option
def retry(selection: Selection) -> None:
    """Put dead letters back into their queues, due now, with all their attempts: one ITEM of a tenant, or many.

    Many items are retried two hundred per transaction. If the command is interrupted, run it again: it continues with
    the items that are still dead letters.
    """
    if selection.item is not None and selection.database is not None:
        of_tenant, by = selection.database, selection.app.operator
        with_id(selection.item, lambda item_id: of_tenant.retry_dead_letter(item_id, zone=selection.zone, by=by))
        show({"retried": selection.item}, lambda: [f"retried {selection.item}"])
        return
    _bulk(selection, retry_all, "retried")


@dead_letters.command(
    epilog=example("fairlead dead-letters discard --kind receipt --before 30d --dry-run --store embedded:./data")
)
@filter_options
@json_option
def discard(selection: Selection) -> None:
    """Delete dead letters for good: one ITEM of a tenant, or many; the options are those of `retry`."""
    if selection.item is not None and selection.database is not None:
        of_tenant, by = selection.database, selection.app.operator
        with_id(selection.item, lambda item_id: of_tenant.discard_dead_letter(item_id, zone=selection.zone, by=by))
        show({"discarded": selection.item}, lambda: [f"discarded {selection.item}"])
        return
    _bulk(selection, discard_all, "discarded")


def _bulk(selection: Selection, bulk_operation: Callable[..., BulkResult], done: str) -> None:
    app, dry_run = selection.app, selection.dry_run
    with progress(done) as advance:

        def report(result: BulkResult) -> bool:
            advance(result.count, None)
            return True

        found = bulk_operation(
            app.shards, selection.criteria, app.operator, stores=app.externals, dry_run=dry_run, go_on=report
        )
    outcome = f"would be {done}: nothing was changed" if dry_run else done
    counts = [(kind, count) for kind, count in sorted(found.by_kind.items())]
    show(
        {done: 0 if dry_run else found.count, "found": found.count, "by_kind": found.by_kind, "dry_run": dry_run},
        lambda: [*([table(("kind", "#items"), counts)] if counts else []), f"{_count(found.count)} {outcome}"],
    )


def _count(number: int) -> str:
    return f"{number:,} dead letter{'' if number == 1 else 's'}"


def _dead_letters_of(shard: Shard, limit: int) -> list[DeadLetterView]:
    return shard.transact(
        lambda attempt: [
            dead_letter_view(shard, attempt.tr, each)
            for each in stored.listing(attempt.tr, shard.layout, items_max=limit)
        ]
    )


def _external_dead_letters(app: App, name: str, limit: int) -> list[DeadLetterView]:
    rows = app.externals[name].queues.dead_letters(None, items_max=limit)
    found = [row.dead_letter for row in rows if row.dead_letter is not None]
    return [external_dead_letter_view(app.shards.home_name(each.tenant), name, each) for each in found]


def _row(item: DeadLetterView, now_us: int) -> tuple[object, ...]:
    owner = str(item.tenant) if item.tenant.app else "(local)"
    zone = "" if item.zone == "queue" else f" {item.zone}"
    zone += "" if item.store is None else f" in {item.store}"
    return ago(item.dead_lettered_us, now_us), item.reason, item.error_count, item_text(item, owner + zone, item.error)
