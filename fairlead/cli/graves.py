"""buried, revive, discard: items that will not run again by themselves."""

import click

from fairlead.cli.arguments import with_id
from fairlead.cli.output import ago, buried_answer, example, item_text, json_option, show, stacked
from fairlead.cli.target import Target, target_options, tenant_options
from fairlead.tenant_database import TenantDatabase
from fairlead.views import BuriedView, buried_view
from zones import buried as graves
from zones.shard import Shard


@click.command(epilog=example("fairlead buried --traceback --store embedded:./data"))
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of each shard.")
@click.option("--traceback", is_flag=True, help="Show tracebacks; --json always does.")
@target_options
@json_option
def buried(target: Target, limit: int, traceback: bool) -> None:
    """Show the buried items of all tenants, oldest first: those that failed for good, with their errors."""
    app = target.app()
    items = [item for name in app.shards for item in _buried(app.shards[name], limit)]
    now_us = app.clock.now_us()
    columns = ("buried", "reason", "#errors", "item")

    def tracebacks() -> list[str]:
        return [f"\n{item.id.hex()}\n{item.traceback}" for item in items if traceback and item.traceback]

    show(
        {"buried": [buried_answer(item) for item in items]},
        lambda: [stacked(columns, (_row(item, now_us) for item in items)), f"{len(items)} buried items", *tracebacks()],
    )


@click.command(epilog=example("fairlead revive order-7 --tenant shop alice --store embedded:./data"))
@click.argument("item")
@tenant_options
@json_option
def revive(database: TenantDatabase, item: str, zone: str) -> None:
    """Put a buried ITEM back into its queue, due now, its errors forgotten."""
    with_id(item, lambda item_id: database.revive(item_id, zone=zone))
    show({"revived": item}, lambda: [f"revived {item}"])


@click.command(epilog=example("fairlead discard order-7 --tenant shop alice --store embedded:./data"))
@click.argument("item")
@tenant_options
@json_option
def discard(database: TenantDatabase, item: str, zone: str) -> None:
    """Delete a buried ITEM for good."""
    with_id(item, lambda item_id: database.discard(item_id, zone=zone))
    show({"discarded": item}, lambda: [f"discarded {item}"])


def _buried(shard: Shard, items_max: int) -> list[BuriedView]:
    return shard.transact(
        lambda attempt: [
            buried_view(shard, attempt.tr, each)
            for each in graves.listing(attempt.tr, shard.layout, items_max=items_max)
        ]
    )


def _row(item: BuriedView, now_us: int) -> tuple[object, ...]:
    owner = f"{item.tenant.app}/{item.tenant.user}" if item.tenant.app else "(local)"
    zone = "" if item.zone == "queue" else f" {item.zone}"
    return ago(item.buried_us, now_us), item.reason, item.error_count, item_text(item, owner + zone, item.error)
