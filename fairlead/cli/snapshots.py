"""snapshots list, take, diff, restore, drop: snapshots of a tenant's own keys."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import wraps
from itertools import islice
from typing import Any

import click

from fairlead import snapshots as of_tenant
from fairlead.cli.arguments import Duration
from fairlead.cli.output import example, json_option, show, table
from fairlead.cli.store_options import StoreOptions, accepts_store_options
from fairlead.formatting import ago, iso_time, span
from fairlead.operator import operator_here
from fairlead.snapshots import KeyChange, Snapshot
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.errors import BadArgument
from fairlead.zones.tenant_search import has_keys

VALUE_BYTES_MAX = 40  # Of a value in the table of `diff`.


@click.group("snapshots")
def snapshots() -> None:
    """Take, list, compare, restore or drop snapshots of a tenant's own keys. Queues are no part of them."""


def snapshot_command(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--tenant` and the options of stores, and pass it a `database`."""

    @click.option(
        "--tenant", nargs=2, required=True, metavar="APP/USER", help="The tenant; also as two words, APP USER."
    )
    @accepts_store_options
    @json_option
    @wraps(command)
    def with_database(*args: Any, tenant: tuple[str, str], store_options: StoreOptions, **options: Any) -> Any:
        return command(*args, database=store_options.app().tenant(*tenant), **options)

    return with_database


@snapshots.command("list", epilog=example("fairlead snapshots list --tenant shop/alice --store embedded:./data"))
@snapshot_command
def list_(database: TenantDatabase) -> None:
    """List the tenant's snapshots, oldest first, and whether a restore is under way."""
    listing = of_tenant.listing(database)
    found = [of_tenant.of_record(database, each) for each in listing.kept]
    restoring_to = None if listing.restore is None else listing.restore.number
    now_us = database.shard.clock.now_us()
    show(
        {
            "snapshots": [_answer(each) for each in found],
            "being_dropped": listing.dropped,
            "restoring_to": restoring_to,
        },
        lambda: _lines(found, listing.dropped, restoring_to, now_us),
    )


@snapshots.command(epilog=example("fairlead snapshots take --tenant shop/alice --keep 7d --store embedded:./data"))
@click.option("--keep", type=Duration(), metavar="DURATION", help="Drop it after this time, such as 7d.")
@snapshot_command
def take(database: TenantDatabase, keep: timedelta | None) -> None:
    """Take a snapshot. Without --keep it is kept until it is dropped."""
    if not database.find().transact(lambda attempt: has_keys(attempt.tr, database.tenant)):
        raise BadArgument(argument="--tenant", value=str(database.tenant), allowed="a tenant that has data or a queue")
    taken = database.snapshot(keep=keep, by=operator_here("command line"))
    show(_answer(taken), lambda: [f"took snapshot {taken.number} of {database.tenant}"])


@snapshots.command(epilog=example("fairlead snapshots diff 3 --tenant shop/alice --store embedded:./data"))
@click.argument("snapshot", type=int)
@click.option("--limit", type=click.IntRange(1, 100_000), default=1_000, show_default=True, help="How many keys.")
@snapshot_command
def diff(database: TenantDatabase, snapshot: int, limit: int) -> None:
    """Show the keys whose values are not what they were at the SNAPSHOT, by its number."""
    changes = list(islice(of_tenant.find(database, snapshot).diff(), limit + 1))
    shown, whole = changes[:limit], len(changes) <= limit
    show(
        {"changes": [_change(each) for each in shown], "whole": whole},
        lambda: _change_lines(shown, whole=whole),
    )


@snapshots.command(epilog=example("fairlead snapshots restore 3 --tenant shop/alice --store embedded:./data"))
@click.argument("snapshot", type=int)
@snapshot_command
def restore(database: TenantDatabase, snapshot: int) -> None:
    """Give the tenant's keys the values that they had at the SNAPSHOT. Take one first to be able to undo it."""
    database.restore(of_tenant.find(database, snapshot), by=operator_here("command line"))
    show({"restored_to": snapshot}, lambda: [f"restored {database.tenant} to snapshot {snapshot}"])


@snapshots.command(epilog=example("fairlead snapshots drop 3 --tenant shop/alice --store embedded:./data"))
@click.argument("snapshot", type=int)
@snapshot_command
def drop(database: TenantDatabase, snapshot: int) -> None:
    """Drop the SNAPSHOT for good, and free what it alone needs."""
    of_tenant.find(database, snapshot).drop(by=operator_here("command line"))
    show({"dropped": snapshot}, lambda: [f"dropped snapshot {snapshot} of {database.tenant}"])


def _answer(snapshot: Snapshot) -> dict[str, Any]:
    expires_us = snapshot.expires_us
    return {
        "snapshot": snapshot.number,
        "taken": iso_time(snapshot.taken_us),
        "expires": None if expires_us is None else iso_time(expires_us),
    }


def _lines(found: list[Snapshot], dropped: int, restoring_to: int | None, now_us: int) -> Iterator[Any]:
    if found:
        rows = [
            (
                each.number,
                ago(each.taken_us, now_us),
                "never" if each.expires_us is None else _in(each.expires_us - now_us),
            )
            for each in found
        ]
        yield table(("#snapshot", "taken", "expires"), rows)
    else:
        yield "the tenant has no snapshot"
    if dropped:
        yield f"{dropped} more are being dropped"
    if restoring_to is not None:
        yield f"the tenant is being restored to snapshot {restoring_to}"


def _in(left_us: int) -> str:
    return f"in {span(left_us)}" if left_us > 0 else "now"


def _change(change: KeyChange) -> dict[str, Any]:
    return {"key": change.key, "then": change.then, "now": change.now}


def _change_lines(changes: list[KeyChange], *, whole: bool) -> Iterator[Any]:
    if changes:
        yield table(("key", "then", "now"), [(repr(each.key), _value(each.then), _value(each.now)) for each in changes])
    else:
        yield "nothing has changed"
    if not whole:
        yield "there are more: raise --limit"


def _value(value: bytes | None) -> str:
    if value is None:
        return "-"
    return repr(value) if len(value) <= VALUE_BYTES_MAX else f"{value[:VALUE_BYTES_MAX]!r}... ({len(value):,} bytes)"
